"""Memory stays flat; `benchmarks/soak.py` takes ten thousand steps, this some hundreds."""

import runpy
from pathlib import Path

import torch

SOAK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "soak.py"))


def test_a_thousand_steps_leave_no_memory_behind():
    """A step's gradients are 0.1 MB, its activations 0.1 MB: keeping either would show."""
    grown = SOAK["growth"](SOAK["soak"](1000, torch.device("cpu")))
    assert grown.steps > 700
    assert grown.process < 5
