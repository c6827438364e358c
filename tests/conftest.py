"""Settings and fixtures of the whole test suite."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import filelock
import pytest

from tests.forking import fork_server

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would the programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The modules and the tests themselves are some millions of objects that stay: the collector need not look at them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # after pytest's own five collections
def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries report leaks at exit


flush_for_real = os.fsync


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk():
    """No test cuts the power, so flushing only checks the descriptor: thousands of flushes take long.

    Processes that a test starts flush for real, `tests/crashes.py` follows every flush, and `real_flushes` is for more.
    """
    with mock.patch.object(os, "fsync", os.fstat):
        yield


@pytest.fixture
def real_flushes(monkeypatch):
    """Files and folders are flushed to the disk, as outside the tests."""
    monkeypatch.setattr(os, "fsync", flush_for_real)


class FinishedStudy(NamedTuple):
    """A finished study: the study, its runs folder, and its own folder."""

    study: object
    runs: Path
    folder: Path


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory) -> FinishedStudy:
    """The mini study, trained once for all workers; each worker has a copy of its own."""
    from regmixup.study.runner import run_study
    from tests.study.mini import load_mini

    own = tmp_path_factory.mktemp("study")
    study = load_mini(own)
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = tmp_path_factory.getbasetemp().parent / "shared-study"
        with filelock.FileLock(shared.with_suffix(".lock")):
            if not (shared / "done").exists():
                run_study(study, shared / "runs", device="cpu")
                (shared / "done").touch()
        shutil.copytree(shared / "runs", own / "runs")
    # After a copy this measures nothing; it only notes where the study file is.
    return FinishedStudy(study, own / "runs", run_study(study, own / "runs", device="cpu"))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """RegMixup on digits, trained once for two epochs. Tests that change it take `run`, a copy."""
    import regmixup as rm

    return rm.train(rm.configure("digits", "regmixup", epochs=2, dropout=0.2), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of the finished run in `tmp_path`."""
    import regmixup as rm

    return rm.Run.open(shutil.copytree(finished_run.folder, tmp_path / finished_run.folder.name))


@pytest.fixture
def forget(monkeypatch):
    """A function that forgets what a test has registered and which plugins it has loaded; called at its end, too."""
    from regmixup import methods, networks, objectives, plugins
    from regmixup.data import catalogue
    from regmixup.metrics.scores import registry

    tables = [methods.METHODS, networks.NETWORKS, objectives.OBJECTIVES, catalogue.FAMILIES, catalogue.DATASETS]
    tables += [registry.REGISTRY, registry.SCORES, plugins.REGISTERED]
    kept, done, modules = [dict(table) for table in tables], set(plugins._imported), set(sys.modules)
    for variable in (plugins.VARIABLE, "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))  # so that it is restored
    monkeypatch.setattr(sys, "path", list(sys.path))

    def restore() -> None:
        for table, before in zip(tables, kept, strict=True):
            table.clear()
            table.update(before)
        plugins._imported.clear()
        plugins._imported.update(done)
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "rm", None) is sys.modules["regmixup"]:  # a plugin
                del sys.modules[name]

    yield restore
    restore()


@pytest.fixture(scope="session")
def processes() -> multiprocessing.context.BaseContext:
    """Children forked from a server that has imported everything, so that a kill hits work and not imports."""
    context = fork_server()
    first = context.Process(target=time.sleep, args=(0,))  # it waits until the server has imported everything
    first.start()
    first.join()
    return context


# Tests marked `real_data` read official files from the folder that REGMIXUP_DATA names; without it they are left out.
VARIABLE = "REGMIXUP_DATA"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"real_data: needs the official files; set {VARIABLE} to their folder")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # else only the workers run tests
        import torch

        # The tensors of the tests are tiny: one thread is faster than several, and sums always run in the same order.
        torch.set_num_threads(1)


# These come first: what takes long and waits for other processes, so that no worker is left alone with it at the end,
# and what imports large libraries or forks from the server, so that one worker does so and not both.
FIRST = (
    "study/test_launchers.py",
    "study/test_kill.py",
    "training/test_distributed.py",
    "training/test_kill.py",
    "training/test_files.py",
    "training/test_stopping.py",
    "test_add_a_method.py",
    "test_documents.py",
    "test_frameworks.py",
    "test_huggingface.py",
    "metrics/test_calibration.py",
    "posthoc/test_laplace_torch.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))
    without = [] if os.environ.get(VARIABLE) else [item for item in items if item.get_closest_marker("real_data")]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not os.environ.get(VARIABLE):
        terminalreporter.write_line(
            f"tests on real data left out: set {VARIABLE} to the folder with the official files"
        )


@pytest.fixture
def real_root() -> Path:
    return Path(os.environ[VARIABLE])
