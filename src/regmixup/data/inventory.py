"""What lies under a root: which datasets, how many images, how many bytes, and their fingerprints.

Fingerprints need every image to be read, so they are kept in `.regmixup-listing.json` under the root, and computed
again only when a file's size or time of change differs; for a tree of images, the number of files in one of its folders
or the folder's time of change.

What is known of the official datasets, and whether files on disk agree with it.

KNOWN holds content: SHA-256 of the pixels in (N, H, W, C) order, which is `ImageSet.fingerprint`, and of the labels,
one byte each. Content does not depend on how it was packed. `checksums.FILE_SUMS` is about files as published.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from regmixup.data import FAMILIES, check_dataset, expected_files, read, whole_of
from regmixup.data.files import MissingDataError, data_root, missing_files, wrong_file
from regmixup.data.published import FILE_SUMS
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


@dataclass(frozen=True)
class Known:
    """SHA-256 of a dataset's pixels and labels, and of the pixels in each file where there are several."""

    pixels: str
    labels: str
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What `verify` found. expected and found are checksums; detail says in words what differs."""

    name: str
    status: Literal["ok", "unknown", "mismatch"]
    expected: str = ""
    found: str = ""
    detail: str = ""


KNOWN = {
    "cifar10/train": Known(
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        {
            "cifar-10-batches-py/data_batch_1": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
            "cifar-10-batches-py/data_batch_2": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
            "cifar-10-batches-py/data_batch_3": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
            "cifar-10-batches-py/data_batch_4": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
            "cifar-10-batches-py/data_batch_5": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
        },
    ),
    "cifar10/test": Known(
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    "cifar100/train": Known(
        "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
    ),
    "cifar100/test": Known(
        "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    ),
    # Of a copy cut from the full-number images by the dataset's own rule; the published file itself counts as well.
    "svhn/test": Known(
        "985e56ae192e82dbb2cec3bbd4abf1facf8ecf15f183f8d6f310d27c3578f3bd",
        "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a",
    ),
}


def file_sum(path: Path, algorithm: str) -> str:
    """A file's checksum, "md5:..." or "sha256:..."."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def check_known(dataset: Any, root: Path) -> None:
    """Raise if a dataset's content is known and differs. One that says it was rebuilt may differ."""
    known = KNOWN.get(dataset.name)
    if known is None or "rebuilt" in dataset.info:
        return
    report = _compare(dataset, known, root)
    if report.status == "mismatch":
        raise wrong_file(root / report.detail, f"content with SHA-256 {report.expected}", report.found)


def verify(name: str, root: str | Path | None = None) -> Report:
    """Read a dataset and compare it with what is known: ok, mismatch, or unknown where nothing is.

    A part, such as cifar10/train-90, is verified by the whole, and an interpolation by its source. Missing files are
    an error; damaged ones a mismatch.
    """
    check_dataset(name)
    root, whole = data_root(root), whole_of(name)
    try:
        dataset = read(whole, root)
    except MissingDataError:
        raise
    except ValueError as error:
        return Report(name, "mismatch", detail=str(error))
    if "rebuilt" in dataset.info:
        return Report(name, "unknown", found=dataset.fingerprint, detail="rebuilt, so it may differ from the official")
    if whole in KNOWN:
        report = _compare(dataset, KNOWN[whole], root)
        return Report(name, report.status, report.expected, report.found, report.detail)
    sums = {file: FILE_SUMS[file] for file in expected_files(whole) if file in FILE_SUMS}
    for file, expected in sums.items():
        found = file_sum(root / file, expected.partition(":")[0])
        if found != expected:
            return Report(name, "mismatch", expected, found, file)
    if sums and len(sums) == len(expected_files(whole)):
        return Report(name, "ok", found=dataset.fingerprint, detail="the files are those published")
    return Report(name, "unknown", found=dataset.fingerprint, detail="no checksum is known for this dataset")


def _compare(dataset: Any, known: Known, root: Path) -> Report:
    """The report for content that is known; detail is the file that differs."""
    name = dataset.name
    labels = hashlib.sha256(dataset.labels.numpy().astype("u1").data).hexdigest()
    if dataset.fingerprint == known.pixels and labels == known.labels:
        return Report(name, "ok", known.pixels, dataset.fingerprint)
    last = expected_files(name)[-1]
    if last in FILE_SUMS and file_sum(root / last, FILE_SUMS[last].partition(":")[0]) == FILE_SUMS[last]:
        return Report(name, "ok", FILE_SUMS[last], FILE_SUMS[last], "the file is the one published")
    if dataset.fingerprint == known.pixels:
        return Report(name, "mismatch", known.labels, labels, last)
    size = len(dataset) // max(1, len(known.parts))
    for number, (file, expected) in enumerate(known.parts.items()):
        found = hashlib.sha256(
            dataset.images[number * size : (number + 1) * size].permute(0, 2, 3, 1).contiguous().numpy().data
        ).hexdigest()
        if found != expected:
            return Report(name, "mismatch", expected, found, file)
    return Report(name, "mismatch", known.pixels, dataset.fingerprint, last)
