"""Tests marked `real_data` read official files from the folder that REGMIXUP_DATA names; else they are left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "REGMIXUP_DATA"
_deselected: list[pytest.Item] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"real_data: needs the official files; set {VARIABLE} to their folder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get(VARIABLE):
        return
    without = [item for item in items if item.get_closest_marker("real_data")]
    if without:
        _deselected.extend(without)
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _deselected:
        terminalreporter.write_line(
            f"{len(_deselected)} tests on real data deselected: set {VARIABLE} to the folder with the official files"
        )


@pytest.fixture
def real_root() -> Path:
    return Path(os.environ[VARIABLE])
