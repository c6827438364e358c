"""The datasets under a root, whether their content is official; and contact sheets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regmixup.data.catalogue import FAMILIES, find, line_of
from regmixup.data.files import MissingDataError, data_root, file_sum, is_rebuilt, missing_files
from regmixup.data.reading import load
from regmixup.data.records import Dataset
from regmixup.storage import replacing

if TYPE_CHECKING:
    from regmixup.data.images import LabelledImages

CELL, CAPTION, GAP = 112, 14, 8
"""Pixels of a contact sheet: the side of an image, the height of its caption, and the space between images."""


@dataclass(frozen=True)
class Present:
    """A dataset that is there. For CIFAR-C, one corruption at all five severities, named cifar10-c/fog.

    bytes: of its files. rebuilt: whether somebody made them, see `files.is_rebuilt`.
    """

    name: str
    bytes: int
    rebuilt: bool


@dataclass(frozen=True)
class Report:
    """The result of `verify`. fingerprint: of what was read. detail: what differs, or why nothing is known."""

    name: str
    status: Literal["ok", "unknown", "mismatch"]
    fingerprint: str = ""
    detail: str = ""


def present(root: str | Path | None = None) -> list[Present]:
    """Return the datasets under the root, in the catalogue's order; parts such as cifar10/train-90 are not listed."""
    root = data_root(root)
    return [
        Present(name, _size(dataset, root), is_rebuilt(dataset, root))
        for name, dataset in _lines()
        if not missing_files(dataset, root)
    ]


def _lines() -> Iterator[tuple[str, Dataset]]:
    """Yield the name of each line of the listing, and the first dataset that it covers."""
    for family in FAMILIES.values():
        lines: dict[str, Dataset] = {}
        for dataset in family.datasets:
            if dataset.files and not dataset.part and not dataset.listed:
                lines.setdefault(line_of(dataset), dataset)
        yield from lines.items()


def _size(dataset: Dataset, root: Path) -> int:
    paths = [root / file for file in dataset.files]
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def verify(name: str, root: str | Path | None = None) -> Report:
    """Read a dataset and compare it with what is known: ok, mismatch, or unknown where nothing is.

    A part, such as cifar10/train-90, is verified by the whole, and an interpolation by its source. Missing files are
    an error; damaged ones a mismatch.
    """
    root, whole = data_root(root), find(find(name).whole)
    try:
        images = load(whole.name, root=root)
    except MissingDataError:
        raise
    except ValueError as error:
        return Report(name, "mismatch", detail=str(error))
    if "rebuilt" in images.info:
        return Report(name, "unknown", images.fingerprint, "rebuilt, so it may differ from the official")
    if whole.content:
        return Report(name, "ok", images.fingerprint)
    for file, expected in whole.checksums.items():
        if (checksum := file_sum(root / file, expected)) != expected:
            return Report(name, "mismatch", images.fingerprint, f"{file}: expected {expected}, found {checksum}")
    if whole.checksums:
        return Report(name, "ok", images.fingerprint, "the files are those published")
    return Report(name, "unknown", images.fingerprint, "no checksum is known for this dataset")


def contact_sheet(images: LabelledImages, path: str | Path, rows: int = 6, columns: int = 10) -> None:
    """Write a PNG with rows x columns images, evenly spaced over the set, each under the name of its class.

    Photographs are upright by their EXIF orientation, as `finetune` trains on them.
    """
    import torch
    from PIL import Image, ImageDraw, ImageFont

    from regmixup.data.decode import EvalTransform, open_rgb

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
