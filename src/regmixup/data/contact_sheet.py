"""A page of a dataset's images with their labels, to look at."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from regmixup.data.decode import EvalTransform, open_rgb
from regmixup.data.images import LabelledImages
from regmixup.storage import replacing

CELL, CAPTION, GAP = 112, 14, 8
"""Pixels: the side of an image, the height of its caption, and the space between images."""


def contact_sheet(images: LabelledImages, path: str | Path, rows: int = 6, columns: int = 10) -> None:
    """Write a PNG with rows x columns images, evenly spaced over the set, each under the name of its class."""
    if rows < 1 or columns < 1:
        raise ValueError(f"rows and columns must be >= 1, got {rows} and {columns}")
    count = min(rows * columns, len(images))
    chosen = images.select(torch.arange(count) * len(images) // count)
    (shown,) = chosen.parts(lambda file: EvalTransform().build()(open_rgb(file)), size=count)
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
