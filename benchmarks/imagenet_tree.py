"""A small tree of JPEG files laid out like ImageNet, made of scikit-learn's two sample photographs.

    python benchmarks/imagenet_tree.py FOLDER                  400 images: 10 classes of 32 in train and 8 in val
    regmixup train --recipe imagenet-resnet50 --root FOLDER --epochs 10 --cooldown-epochs 1

A class is a part of a photograph, an image a random cut of it, enlarged to about 500x375 pixels as ImageNet's are. It
shows that everything from files to metrics works, and how fast; accuracies on it mean nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

CLASSES = 10


def write_tree(root: Path, *, train: int = 32, val: int = 8, width: int = 500, seed: int = 0) -> None:
    """Write `root/imagenet/{train,val}/<class>/*.JPEG` with so many images per class, marked as rebuilt."""
    rng = np.random.default_rng(seed)
    parts = [part for name in ("china", "flower") for part in _parts(load_sample_image(f"{name}.jpg"))]
    base = root / "imagenet"
    for number, part in enumerate(parts):
        for split, count in (("train", train), ("val", val)):
            folder = base / split / f"n{90_000_000 + number}"
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                name = f"ILSVRC2012_val_{1 + number + CLASSES * index:08d}" if split == "val" else f"{index:04d}"
                _cut(part, width, rng).save(folder / f"{name}.JPEG", quality=90)
    (base / "provenance.json").write_text(json.dumps({"rebuilt": True}) + "\n")


def _parts(photograph: np.ndarray) -> list[Image.Image]:
    """Cut a photograph (427, 640, 3) into five upright strips."""
    return [Image.fromarray(strip) for strip in np.array_split(photograph, CLASSES // 2, axis=1)]


def _cut(part: Image.Image, width: int, rng: np.random.Generator) -> Image.Image:
    """Cut out between a half and all of a part's width at random, with ImageNet's usual 4:3, and enlarge it."""
    side = int(rng.integers(part.width // 2, part.width))
    height = 3 * side // 4
    left, top = int(rng.integers(part.width - side + 1)), int(rng.integers(part.height - height + 1))
    wide = int(width * rng.uniform(0.8, 1.2))
    return part.resize((wide, 3 * wide // 4), Image.Resampling.BICUBIC, box=(left, top, left + side, top + height))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=32, help="train images per class")
    parser.add_argument("--val", type=int, default=8, help="validation images per class")
    parser.add_argument("--width", type=int, default=500, help="mean width of an image in pixels")
    args = parser.parse_args()
    write_tree(args.folder, train=args.train, val=args.val, width=args.width)
