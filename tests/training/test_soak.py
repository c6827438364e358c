"""Memory stays flat over many steps; over a few, test_benchmarks.py sees to it."""

import runpy
from pathlib import Path

import pytest
import torch

SOAK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "soak.py"))


@pytest.mark.soak
def test_steps_leave_no_memory_behind():
    grown = SOAK["growth"](SOAK["soak"](10_000, torch.device("cpu")))
    assert grown.steps > 7000
    assert grown.process < 10
