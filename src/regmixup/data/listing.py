"""What lies under a root: which datasets, how many images, how many bytes, and their fingerprints.

Fingerprints need every image to be read, so they are kept in `.regmixup-listing.json` under the root, and computed
again only when a file's size or time of change differs; for a tree of images, the number of files in one of its folders
or the folder's time of change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regmixup.data import FAMILIES, expected_files, read
from regmixup.data.files import missing_files
from regmixup.data.root import data_root
from regmixup.storage import read_json, write_json

CACHE = ".regmixup-listing.json"


@dataclass(frozen=True)
class Present:
    """A dataset that is there. For CIFAR-C, one corruption at all five severities, named cifar10-c/fog.

    images: None where it was not computed. bytes: of its files. problem: why it cannot be read, if it cannot.
    """

    name: str
    images: int | None
    bytes: int
    fingerprint: str = ""
    problem: str = ""


def present(root: str | Path | None = None, *, compute: bool = True) -> list[Present]:
    """The datasets under the root, in the catalogue's order; parts such as cifar10/train-90 are not listed.

    compute: False lists what is not yet in the cache without reading it.
    """
    root = data_root(root)
    cache = _read_cache(root / CACHE)
    fresh: dict[str, Any] = {}
    found = []
    for name, datasets in _candidates():
        if missing_files(datasets[0], root):
            continue
        state = _state(datasets[0], root)
        entry = cache.get(name)
        if isinstance(entry, dict) and entry.get("state") == state:
            with suppress(TypeError, KeyError):
                found.append(Present(**entry["present"]))
                fresh[name] = entry
                continue
        if not compute:
            found.append(Present(name, None, _size(datasets[0], root)))
            continue
        item = _examine(name, datasets, root)
        found.append(item)
        if not item.problem:  # what repairs a problem may lie outside the files looked at
            fresh[name] = {"state": state, "present": asdict(item)}
    if fresh != cache and compute:
        with suppress(OSError):  # a root that cannot be written to is listed all the same
            write_json(root / CACHE, fresh)
    return found


def _candidates() -> Iterator[tuple[str, list[str]]]:
    """The name of a line, and the datasets that it covers."""
    for family in FAMILIES.values():
        lines: dict[str, list[str]] = {}
        for name in family.files:
            lines.setdefault("/".join(name.split("/")[:2]), []).append(name)
        yield from lines.items()


def _examine(name: str, datasets: list[str], root: Path) -> Present:
    size = _size(datasets[0], root)
    images, digest, fingerprint = 0, hashlib.sha256(), ""
    try:
        for dataset in datasets:
            content = read(dataset, root)
            images += len(content)
            fingerprint = content.fingerprint
            digest.update(fingerprint.encode())
    except ValueError as error:
        return Present(name, None, size, problem=str(error))
    return Present(name, images, size, fingerprint if len(datasets) == 1 else digest.hexdigest())


def _state(name: str, root: Path) -> list[list[Any]]:
    """What changes when a dataset's files do, as JSON has it."""
    state: list[list[Any]] = []
    for file in expected_files(name):
        path = root / file
        if file.endswith("/"):
            tree = [(len(files), Path(where).stat().st_mtime_ns) for where, _, files in os.walk(path)]
            state.append([file, len(tree), sum(count for count, _ in tree), max(time for _, time in tree)])
        else:
            state.append([file, path.stat().st_size, path.stat().st_mtime_ns])
    return state


def _size(name: str, root: Path) -> int:
    paths = [root / file for file in expected_files(name)]
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        cache = read_json(path) if path.is_file() else {}
    except ValueError:
        return {}
    return cache if isinstance(cache, dict) else {}
