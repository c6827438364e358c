"""Image files -> RGB pixels, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regmixup.data.files import reading

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM")
MAX_PIXELS = 100_000_000


def open_rgb(path: str | Path, *, size: tuple[int, int] | None = None) -> Image.Image:
    """An image file as RGB; the content decides the format, not the name. A ValueError names the file.

    size: the (width, height) that it must have. An image of more than 10^8 pixels is refused before it is decoded.
    """
    with reading(Path(path), "an image"), Image.open(path, formats=FORMATS) as image:
        if size is not None and image.size != size:
            raise ValueError(f"expected {size[0]}x{size[1]} pixels, found {image.width}x{image.height}")
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"expected at most {MAX_PIXELS} pixels, found {image.width}x{image.height}")
        if image.mode.startswith("I;16"):  # Pillow would cut 16-bit grey at 255 instead of scaling it
            return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
        return image.convert("RGB")


def decode_all(paths: Iterable[str | Path], decode: Callable[[str | Path], Image.Image]) -> Tensor:
    """Files, each decoded by `decode`, in order -> uint8 (N, 3, H, W). All must come out equally large."""
    # Pillow lets other threads run while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pixels = list(pool.map(lambda path: np.asarray(decode(path)), paths))
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()
