"""Memory stays flat over many steps."""

import runpy
from pathlib import Path

import pytest
import torch

SOAK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "soak.py"))


@pytest.mark.parametrize("steps", [450, pytest.param(10_000, marks=pytest.mark.soak)])
def test_steps_leave_no_memory_behind(steps):
    """A step's gradients are 0.1 MB, its activations 0.1 MB: keeping either would show."""
    grown = SOAK["growth"](SOAK["soak"](steps, torch.device("cpu")))
    assert grown.steps > 0.7 * steps
    assert grown.process < max(5, steps / 1000)
