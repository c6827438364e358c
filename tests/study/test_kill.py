"""Kill -9 at random moments: the next run completes and its rows are those of an undisturbed one, byte for byte."""

import multiprocessing
import random
import time
from pathlib import Path
from unittest import mock

import pytest

from regmixup.study.plan import Study, load_study
from regmixup.study.runner import run_study
from regmixup.training.run import Run
from tests.crashes import Disk, no_warnings
from tests.study.mini import FEW_SETS, load_mini, write_mini
from tests.training.ranks import build_plain


def tiny(methods: str) -> str:
    """A mini study of one seed, three epochs of two steps, and few resamples."""
    text = FEW_SETS.replace('methods = ["dnn", "regmixup"]', methods).replace("seeds = [0, 1]", "seeds = [0]")
    text = text.replace("epochs = 5", "epochs = 3").replace("batch_size = 64", "batch_size = 225")
    return text.replace("resamples = 100", "resamples = 20")


def run_mini(study_file: str, runs: str) -> None:
    import torch

    torch.set_num_threads(1)
    run_plain(load_study(study_file), Path(runs))


def run_plain(study: Study, runs: Path) -> Path:
    """Run a study with networks whose steps are short."""
    with mock.patch.object(Run, "build", build_plain):
        return run_study(study, runs, device="cpu")


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_killing_a_study_at_random_moments_changes_nothing(tmp_path, processes, kills):
    study = write_mini(tmp_path, tiny('methods = ["dnn", "regmixup"]'))

    def start(runs: Path) -> multiprocessing.Process:
        child = processes.Process(target=run_mini, args=(str(study), str(runs)))
        child.start()
        return child

    def rows(runs: Path) -> bytes:
        return (runs / "study-mini" / "rows.csv").read_bytes()

    started = time.monotonic()
    start(tmp_path / "undisturbed").join()
    duration = time.monotonic() - started
    expected = rows(tmp_path / "undisturbed")
    chance = random.Random(0)
    interrupted, attempt = 0, 0
    while interrupted < kills:
        attempt += 1
        assert attempt <= 3 * kills, "the study ends before it can be killed"
        runs = tmp_path / f"killed-{attempt}"
        child = start(runs)
        child.join(chance.uniform(0, 0.95) * duration)
        interrupted += child.is_alive()
        child.kill()
        child.join()
        with no_warnings():
            run_mini(str(study), str(runs))
        assert rows(runs) == expected
        assert not list(runs.rglob(".partial-*"))


def test_a_crash_at_any_file_operation_changes_nothing(tmp_path):
    study = load_mini(tmp_path, tiny('methods = ["dnn"]'))
    disk = Disk(tmp_path / "runs")
    with no_warnings(), disk.recording():
        folder = run_plain(study, disk.root)
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(disk.states) > 50
    durable = {path.name for path in disk.durable}
    assert {"study.json", "rows.csv", "digits__test.safetensors"} <= durable
    for number, state in enumerate(disk.sample(6)):
        with no_warnings():
            again = run_plain(study, disk.make(state, tmp_path / f"{number}"))
        assert {path.name: path.read_bytes() for path in again.iterdir()} == expected
