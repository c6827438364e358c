"""Rows are computed once: again only if predictions, their treatment or the code that measures have changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from regmixup import evaluation, posthoc
from regmixup.storage import read_json, read_rows, write_json, write_rows
from regmixup.types import Row


def cached_rows(path: Path, files: Iterable[Path], settings: object, compute: Callable[[], list[Row]]) -> list[Row]:
    """The rows stored at `path` (CSV), or what `compute` returns, stored there.

    files: what the rows are computed from; settings: whatever else they depend on, by its text.
    """
    key = cache_key(files, settings)
    note = path.with_suffix(".json")
    if path.is_file() and note.is_file() and read_json(note) == {"key": key}:
        return read_rows(path)
    rows = compute()
    write_rows(path, rows)
    write_json(note, {"key": key})
    return rows


def cache_key(files: Iterable[Path], settings: object) -> str:
    """Names what a result is computed from: files, by name, size and time of change, settings, and the code."""
    marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([marks, repr(settings), _code()])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Names the code that turns predictions into rows, so that a corrected metric is computed anew."""
    folders = [Path(str(module.__file__)).parent for module in (evaluation, posthoc)]
    sources = sorted(source for folder in folders for source in folder.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
