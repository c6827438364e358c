"""A study with runs long enough to be killed, and its table when nothing disturbs it."""

import shutil
from pathlib import Path

import pytest

from regmixup.study.plan import Study
from regmixup.study.runner import run_study
from tests.study.mini import FEW_SETS, load_mini


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    """Four runs of about a second."""
    return load_mini(tmp_path_factory.mktemp("launched"), FEW_SETS)


@pytest.fixture(scope="session")
def short(tmp_path_factory) -> Study:
    """Its two runs of the first seed, for launchers that take seconds to start."""
    text = FEW_SETS.replace("seeds = [0, 1]", "seeds = [0]")
    return load_mini(tmp_path_factory.mktemp("short"), text)


@pytest.fixture(scope="session")
def undisturbed(study, finished_study, tmp_path_factory) -> Path:
    """The runs folder of the study. Its models are those of the finished study, evaluated on fewer sets."""
    runs = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(finished_study.runs, runs, dirs_exist_ok=True)
    shutil.rmtree(runs / finished_study.folder.name)
    run_study(study, runs, device="cpu")
    return runs


@pytest.fixture(scope="session")
def expected_short(short, undisturbed, tmp_path_factory) -> bytes:
    """The table that every launcher must write for the short study."""
    runs = tmp_path_factory.mktemp("undisturbed-short")
    shutil.copytree(undisturbed, runs, dirs_exist_ok=True)
    shutil.rmtree(runs / "study-mini")
    return (run_study(short, runs, device="cpu") / "rows.csv").read_bytes()


@pytest.fixture(scope="session")
def expected(undisturbed) -> bytes:
    """The table that every launcher must write."""
    return (undisturbed / "study-mini" / "rows.csv").read_bytes()
