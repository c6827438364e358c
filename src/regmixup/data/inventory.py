"""The datasets under a root: which ones, their images and bytes, whether the content is official; and contact sheets.

Fingerprints need every image to be read, so they are kept in `.regmixup-listing.json` under the root, and computed
again only when a file's size or time of change differs; for a tree of images, the number of files in one of its folders
or the folder's time of change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regmixup.data import read
from regmixup.data.catalogue import FAMILIES, Dataset, find, line_of
from regmixup.data.files import MissingDataError, data_root, missing_files, wrong_file
from regmixup.storage import read_json, replacing, write_json

if TYPE_CHECKING:
    from regmixup.data.images import LabelledImages

CACHE = ".regmixup-listing.json"
CELL, CAPTION, GAP = 112, 14, 8
"""Pixels of a contact sheet: the side of an image, the height of its caption, and the space between images."""


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


@dataclass(frozen=True)
class Report:
    """The result of `verify`. expected and found are checksums; detail says in words what differs."""

    name: str
    status: Literal["ok", "unknown", "mismatch"]
    expected: str = ""
    found: str = ""
    detail: str = ""


def present(root: str | Path | None = None, *, compute: bool = True) -> list[Present]:
    """Return the datasets under the root, in the catalogue's order; parts such as cifar10/train-90 are not listed.

    compute: False lists what is not yet in the cache without reading it.
    """
    root = data_root(root)
    cache = _read_cache(root / CACHE)
    fresh: dict[str, Any] = {}
    found = []
    for name, datasets in _lines():
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


def _lines() -> Iterator[tuple[str, list[Dataset]]]:
    """Yield the name of each line of the listing, and the datasets that it covers."""
    for family in FAMILIES.values():
        lines: dict[str, list[Dataset]] = {}
        for dataset in family.datasets:
            if dataset.files and not dataset.part:
                lines.setdefault(line_of(dataset), []).append(dataset)
        yield from lines.items()


def _examine(name: str, datasets: list[Dataset], root: Path) -> Present:
    size, images, fingerprints = _size(datasets[0], root), 0, []
    try:
        for dataset in datasets:
            content = read(dataset.name, root)
            images += len(content)
            fingerprints.append(content.fingerprint)
    except ValueError as error:
        return Present(name, None, size, problem=str(error))
    together = hashlib.sha256("".join(fingerprints).encode()).hexdigest()
    return Present(name, images, size, fingerprints[0] if len(datasets) == 1 else together)


def _state(dataset: Dataset, root: Path) -> list[list[Any]]:
    """Return what changes when a dataset's files do, as JSON has it."""
    state: list[list[Any]] = []
    for file in dataset.files:
        path = root / file
        if file.endswith("/"):
            tree = [(len(files), Path(where).stat().st_mtime_ns) for where, _, files in os.walk(path)]
            state.append([file, len(tree), sum(count for count, _ in tree), max(time for _, time in tree)])
        else:
            state.append([file, path.stat().st_size, path.stat().st_mtime_ns])
    return state


def _size(dataset: Dataset, root: Path) -> int:
    paths = [root / file for file in dataset.files]
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        cache = read_json(path) if path.is_file() else {}
    except ValueError:
        return {}
    return cache if isinstance(cache, dict) else {}


def verify(name: str, root: str | Path | None = None) -> Report:
    """Read a dataset and compare it with what is known: ok, mismatch, or unknown where nothing is.

    A part, such as cifar10/train-90, is verified by the whole, and an interpolation by its source. Missing files are
    an error; damaged ones a mismatch.
    """
    root, whole = data_root(root), find(find(name).whole)
    try:
        images = read(whole.name, root)
    except MissingDataError:
        raise
    except ValueError as error:
        return Report(name, "mismatch", detail=str(error))
    if "rebuilt" in images.info:
        return Report(name, "unknown", found=images.fingerprint, detail="rebuilt, so it may differ from the official")
    if whole.content:
        return replace(_compare(images, whole, root), name=name)
    for file, expected in whole.checksums.items():
        found = file_sum(root / file, expected)
        if found != expected:
            return Report(name, "mismatch", expected, found, file)
    if whole.checksums and len(whole.checksums) == len(whole.files):
        return Report(name, "ok", found=images.fingerprint, detail="the files are those published")
    return Report(name, "unknown", found=images.fingerprint, detail="no checksum is known for this dataset")


def check_content(images: Any, dataset: Dataset, root: Path) -> None:
    """Raise if the content of an `ImageSet` is known and differs. One that says it was rebuilt may differ."""
    if "rebuilt" in images.info:
        return
    report = _compare(images, dataset, root)
    if report.status == "mismatch":
        raise wrong_file(root / report.detail, f"content with SHA-256 {report.expected}", report.found)


def _compare(images: Any, dataset: Dataset, root: Path) -> Report:
    """Return the report for content that is known; detail is the file that differs."""
    name, known = dataset.name, dataset.content
    assert known is not None
    labels = hashlib.sha256(images.labels.numpy().astype("u1").data).hexdigest()
    if images.fingerprint == known.pixels and labels == known.labels:
        return Report(name, "ok", known.pixels, images.fingerprint)
    last = dataset.files[-1]
    published = dataset.checksums.get(last)
    if published and file_sum(root / last, published) == published:
        return Report(name, "ok", published, published, "the file is the one published")
    if images.fingerprint == known.pixels:
        return Report(name, "mismatch", known.labels, labels, last)
    size = len(images) // max(1, len(known.parts))
    for number, (file, expected) in enumerate(known.parts.items()):
        place = slice(number * size, (number + 1) * size)
        found = replace(images, images=images.images[place], labels=images.labels[place]).fingerprint
        if found != expected:
            return Report(name, "mismatch", expected, found, file)
    return Report(name, "mismatch", known.pixels, images.fingerprint, last)


def file_sum(path: Path, like: str) -> str:
    """Return a file's checksum, "md5:..." or "sha256:...", of the kind with which `like` begins."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def contact_sheet(images: LabelledImages, path: str | Path, rows: int = 6, columns: int = 10) -> None:
    """Write a PNG with rows x columns images, evenly spaced over the set, each under the name of its class.

    Photographs are upright by their EXIF orientation, as `finetune` trains on them.
    """
    import torch
    from PIL import Image, ImageDraw, ImageFont

    from regmixup.data.decode import EvalTransform, open_rgb

    if rows < 1 or columns < 1:
        raise ValueError(f"rows and columns must be >= 1, got {rows} and {columns}")
    count = min(rows * columns, len(images))
    chosen = images.select(torch.arange(count) * len(images) // count)
    (shown,) = chosen.parts(lambda file: EvalTransform(orient=True).build()(open_rgb(file)), size=count)
    sheet = Image.new("RGB", (columns * (CELL + GAP) + GAP, rows * (CELL + CAPTION + GAP) + CAPTION + 2 * GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    draw.text((GAP, GAP), f"{images.name}: {len(images):,} images, {len(images.classes)} classes", "black", font)
    levels = shown.images if shown.images.dtype == torch.uint8 else (shown.images * 255).round().to(torch.uint8)
    for number, (pixels, label) in enumerate(zip(levels, shown.labels.tolist(), strict=True)):
        left = GAP + number % columns * (CELL + GAP)
        top = CAPTION + 2 * GAP + number // columns * (CELL + CAPTION + GAP)
        draw.text((left, top), shown.classes[label][:16], "black", font)
        picture = Image.fromarray(pixels.permute(1, 2, 0).squeeze(-1).numpy())
        scale = CELL / max(picture.size)
        size = [max(1, round(scale * side)) for side in picture.size]
        sheet.paste(picture.resize((size[0], size[1]), Image.Resampling.NEAREST), (left, top + CAPTION))
    with replacing(Path(path)) as temporary:
        sheet.save(temporary, format="png")
