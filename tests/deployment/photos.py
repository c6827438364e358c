"""Tiny folders of photographs, and weights of a tiny backbone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image

BACKBONE = "timm/test_resnet"
COLOURS = {"apple": (200, 40, 40), "lime": (60, 190, 60), "plum": (90, 40, 160)}


def write_photo(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    """Write a small JPEG of noise around a colour; every seed has other bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-40, 40, (40, 48, 3))
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path, quality=90)


def write_photos(folder: Path, count: int = 10, *, first: int = 0, colours: dict | None = None) -> Path:
    """Write class folders with `count` photographs each."""
    for number, (name, colour) in enumerate((colours or COLOURS).items()):
        for index in range(count):
            write_photo(folder / name / f"{index}.jpg", colour, 10_000 * number + first + index)
    return folder


def write_weights(path: Path) -> Path:
    """Write weights of the backbone under timm's names; random ones stand for pretrained ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(timm.create_model(BACKBONE.removeprefix("timm/")).state_dict(), path)
    return path
