"""Rows are computed once: again only if predictions, their treatment or the code that measures have changed."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from regmixup import metrics, posthoc, rows
from regmixup.storage import digest, read_rows, read_table, write_json, write_rows
from regmixup.types import Row


def cached_rows(path: Path, files: Sequence[Path], settings: object, compute: Callable[[], list[Row]]) -> list[Row]:
    """The rows stored at `path` (CSV), or what `compute` returns, stored there.

    files: what the rows are computed from; settings: whatever else they depend on, by its text. A note beside `path`
    names these and the rows themselves: rows that have changed since are computed again, with a warning.
    """
    note = path.with_suffix(".json")
    if path.is_file() and note.is_file():
        try:
            kept = read_table(note)
            if kept.get("key") == cache_key(files, settings):
                return read_rows(path, expected=kept.get("rows", ""))
        except ValueError as error:
            warnings.warn(f"{error}; measured again", stacklevel=2)
    rows = compute()
    write_rows(path, rows)
    # After the computation, which may have made a damaged file again.
    write_json(note, {"key": cache_key(files, settings), "rows": digest(path)})
    return rows


def cache_key(files: Iterable[Path], settings: object) -> str:
    """Names what a result is computed from: files, by name, size and time of change, settings, and the code."""
    marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([marks, repr(settings), _code()])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Names the code that turns predictions into rows, so that a corrected metric is computed anew."""
    folders = [Path(str(module.__file__)).parent for module in (metrics, posthoc, rows)]
    sources = sorted(source for folder in folders for source in folder.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
