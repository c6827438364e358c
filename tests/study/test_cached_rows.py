"""Rows are kept until something they depend on changes."""

import os

import pytest

from regmixup.study import cached_rows as module
from regmixup.study.cached_rows import cached_rows
from regmixup.types import Row

ROWS = [Row(metric="accuracy", value=0.5, low=0.4, high=0.6, n=10)]


@pytest.fixture
def kept(tmp_path):
    """A cache that holds ROWS, and a function that asks it again and says whether it had to compute."""
    source = tmp_path / "p.safetensors"
    source.write_bytes(b"abc")
    path = tmp_path / "rows.csv"

    def ask(settings="s"):
        calls = []
        rows = cached_rows(path, [source], settings, lambda: calls.append(1) or ROWS)
        assert rows == ROWS
        return bool(calls)

    assert ask()
    return ask, path, source


def test_nothing_is_computed_twice(kept):
    ask, *_ = kept
    assert not ask()


def test_other_predictions_are_measured_anew(kept):
    ask, _, source = kept
    source.write_bytes(b"abcd")
    assert ask()
    os.utime(source, ns=(1, 1))
    assert ask()
    assert not ask()


def test_other_settings_are_measured_anew(kept):
    ask, *_ = kept
    assert ask("t")


def test_other_code_measures_anew(kept, monkeypatch):
    ask, *_ = kept
    monkeypatch.setattr(module, "_code", lambda: "corrected")
    assert ask()


def test_a_dropped_line_is_noticed_and_measured_anew(kept):
    ask, path, _ = kept
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.warns(UserWarning, match=r"rows\.csv: its content has changed since it was written; measured again"):
        assert ask()
    assert not ask()


@pytest.mark.parametrize("suffix", [".csv", ".json"])
@pytest.mark.parametrize("content", [b"", b"\0" * 50])
def test_a_damaged_file_is_made_again_with_a_warning(kept, suffix, content):
    ask, path, _ = kept
    path.with_suffix(suffix).write_bytes(content)
    with pytest.warns(UserWarning, match=rf"rows\{suffix}: .*; measured again"):
        assert ask()
    assert not ask()


def test_a_source_that_is_made_again_while_its_rows_are_computed_is_not_measured_twice(tmp_path):
    source = tmp_path / "p.safetensors"
    source.write_bytes(b"damaged")
    for computes in (lambda: source.write_bytes(b"whole") and ROWS, None):
        assert cached_rows(tmp_path / "rows.csv", [source], "s", computes) == ROWS


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_missing_file_is_made_again(kept, suffix):
    ask, path, _ = kept
    path.with_suffix(suffix).unlink()
    assert ask()
    assert not ask()
