"""Settings and fixtures of the whole test suite."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

# The tensors of the tests are tiny: one thread is faster than several, and sums always run in the same order.
torch.set_num_threads(1)


class FinishedStudy(NamedTuple):
    """A study that has been carried out: what it is, where its runs lie, and its own folder."""

    study: object
    runs: Path
    folder: Path


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory) -> FinishedStudy:
    """The mini study, carried out once."""
    from regmixup.study.plan import load_study
    from regmixup.study.runner import run_study
    from tests.study.mini import write_mini

    base = tmp_path_factory.mktemp("study")
    study = load_study(str(write_mini(base)))
    return FinishedStudy(study, base / "runs", run_study(study, base / "runs", device="cpu"))
