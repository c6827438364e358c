"""Image files -> RGB pixels, several at a time."""

from __future__ import annotations

import io
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


Source = str | Path | bytes | Image.Image
"""An image file, the bytes of one, or an image that Pillow has opened."""


def open_rgb(source: Source, *, size: tuple[int, int] | None = None) -> Image.Image:
    """An image as RGB; the content decides the format, not the name. A ValueError names the file.

    size: the (width, height) that it must have. An image of more than 10^8 pixels is refused before it is decoded.
    """
    with reading(described(source), "an image"):
        if isinstance(source, Image.Image):
            return _rgb(source, size)
        if not isinstance(source, bytes) and not Path(source).is_file():  # a pipe would be waited for
            raise ValueError("expected a regular file")
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return _rgb(image, size)


def described(source: Source) -> str:
    """What an error calls an image: its path, if it has one."""
    return str(source) if isinstance(source, (str, Path)) else f"the {type(source).__name__} given"


def _rgb(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    if size is not None and image.size != size:
        raise ValueError(f"expected {size[0]}x{size[1]} pixels, found {image.width}x{image.height}")
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"expected at most {MAX_PIXELS} pixels, found {image.width}x{image.height}")
    # Pillow would cut whatever has more than 8 bits at 255 instead of scaling it.
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"expected 8 or 16 bits per channel, found Pillow's mode {image.mode}")
    return image.convert("RGB")


def decode_all(sources: Iterable[Source], decode: Callable[[Source], Image.Image]) -> Tensor:
    """Images, each decoded by `decode`, in order -> uint8 (N, 3, H, W). All must come out equally large."""
    # Pillow lets other threads run while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pixels = list(pool.map(lambda source: np.asarray(decode(source)), sources))
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()
