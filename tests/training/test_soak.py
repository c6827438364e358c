"""Memory stays flat over many steps."""

import runpy
from pathlib import Path

import pytest
import torch

SOAK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "soak.py"))


@pytest.mark.soak
def test_steps_leave_no_memory_behind():
    """A step's gradients are 0.1 MB, its activations 0.1 MB: keeping either would show."""
    steps = 10_000
    grown = SOAK["growth"](SOAK["soak"](steps, torch.device("cpu")))
    assert grown.steps > 0.7 * steps
    assert grown.process < 10  # MB
