"""Draw every corruption at every severity on one photograph, at 224 and at 32 pixels: docs/images/corruptions.png.

python docs/make_corruption_figure.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

from regmixup.data import corrupt
from regmixup.data.catalogue import BENCHMARK, EXTRA
from regmixup.data.splits import generator_for

LARGE, SMALL = 80, 64  # pixels shown of the 224x224 and 32x32 versions
GAP, LABEL, HEAD = 2, 118, 20


def photograph(side: int) -> torch.Tensor:
    """The middle square of scikit-learn's china.jpg, shrunk: uint8 (1, 3, side, side)."""
    image = Image.fromarray(load_sample_image("china.jpg"))
    left = (image.width - image.height) // 2
    square = image.crop((left, 0, left + image.height, image.height)).resize((side, side), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).unsqueeze(0)


def tile(images: torch.Tensor, shown: int) -> Image.Image:
    """(1, 3, H, W) -> a picture of shown x shown pixels: smoothly if smaller, in blocks if larger."""
    picture = Image.fromarray(images[0].permute(1, 2, 0).contiguous().numpy())
    smaller = shown < picture.width
    return picture.resize((shown, shown), Image.Resampling.BOX if smaller else Image.Resampling.NEAREST)


def draw() -> Image.Image:
    """Rows: corruptions. Columns: severities 1 to 5 at 224 pixels, then at 32."""
    names = (*BENCHMARK, *EXTRA)
    step = LARGE + GAP
    width = LABEL + 5 * (LARGE + GAP) + 8 + 5 * (LARGE + GAP)
    sheet = Image.new("RGB", (width, HEAD + step * len(names)), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    for half, (side, shown) in enumerate(((224, LARGE), (32, SMALL))):
        start = LABEL + half * (5 * step + 8)
        clean = photograph(side)
        for severity in range(1, 6):
            left = start + (severity - 1) * step
            pen.text((left + 2, 4), f"{side} px, {severity}", fill="black", font=font)
            for row, name in enumerate(names):
                generator = generator_for(0, "figure", name, severity)
                picture = tile(corrupt(clean, name, severity=severity, generator=generator), shown)
                margin = (LARGE - shown) // 2
                sheet.paste(picture, (left + margin, HEAD + row * step + margin))
    for row, name in enumerate(names):
        pen.text((4, HEAD + row * step + LARGE // 2 - 7), name, fill="black", font=font)
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "corruptions.png")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw().quantize(192).save(options.out, optimize=True)
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
