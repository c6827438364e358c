"""Image files: decoded with Pillow, several at a time, and transformed for training or evaluation."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from regmixup.config import Checked, Count, introduced
from regmixup.data.files import explaining_damage
from regmixup.mixing import in_box, sample_squares

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff", ".gif")
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM", "TIFF", "GIF")
MAX_PIXELS = 100_000_000

Source = str | Path | bytes | Image.Image
"""An image file, the bytes of one, or an image that Pillow has opened."""
Decoder = Callable[[Source], Image.Image]
"""A function from an image file to an RGB image of a network's size."""


def open_rgb(source: Source) -> Image.Image:
    """Open an image as RGB; the content decides the format, not the name. A ValueError names the file.

    An image of more than 10^8 pixels is rejected before it is decoded. Of a file with several images, such as an
    animated GIF, it is the first. The pixels are as they are stored, but for TIFF, which Pillow rotates as it says;
    `upright` rotates the others, by the metadata that the result keeps.
    """
    with explaining_damage(described(source), "an image"):
        if isinstance(source, Image.Image):
            return _rgb(source)
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return _rgb(image)


def _rgb(image: Image.Image) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"expected at most {MAX_PIXELS} pixels, found {image.width}x{image.height}")
    # Pillow would clip values of more than 8 bits at 255 instead of scaling them.
    if image.mode.startswith("I;16"):
        scaled = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
        scaled.info = dict(image.info)
        return scaled
    if image.mode in ("I", "F"):
        raise ValueError(f"expected 8 or 16 bits per channel, found Pillow's mode {image.mode}")
    return image.convert("RGB")


def described(source: Source) -> str:
    """Return what an error calls an image: its path, if it has one."""
    return str(source) if isinstance(source, (str, Path)) else f"the {type(source).__name__} given"


def upright(image: Image.Image) -> Image.Image:
    """Rotate or mirror an image of `open_rgb` as its EXIF orientation says, in place, and return it."""
    with suppress(Exception):  # what Pillow raises for damaged metadata differs; the pixels are good
        ImageOps.exif_transpose(image, in_place=True)
    return image


def decode_all(sources: Iterable[Source], decode: Decoder) -> Tensor:
    """Decode images, each by `decode`, to uint8 (N, 3, H, W), in order. All must come out equally large."""
    # Pillow lets other threads run while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pixels = list(pool.map(lambda source: np.asarray(decode(source)), sources))
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


def to_pixel(colour: Sequence[float], dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return a colour in [0, 1] as a pixel (C,) of images of a type.

    >>> to_pixel((0.5, 1.0))
    tensor([128, 255], dtype=torch.uint8)
    """
    values = torch.tensor(colour, dtype=torch.float64)
    return (255 * values).round().to(dtype) if dtype == torch.uint8 else values.to(dtype)


def cut_out(image: Tensor, *, side: int, fill: Tensor) -> Tensor:
    """Fill a square of an image (C, H, W), drawn by `sample_squares` from torch's global generator, with a pixel."""
    _, height, width = image.shape
    return torch.where(in_box(sample_squares(side, 1, (height, width), None), image)[0], fill[:, None, None], image)


@dataclass(frozen=True, kw_only=True)
class EvalTransform(Checked):
    """Resize the shorter side to `resize` (antialiased), then crop the central `size` square.

    orient: first rotate the image by its EXIF orientation.
    """

    size: Count = 224
    resize: Count = 256
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    orient: bool = introduced(False)

    def build(self) -> Any:
        """Return the torchvision transform."""
        from torchvision.transforms import v2

        mode = v2.InterpolationMode(self.interpolation)
        steps = [v2.Resize(self.resize, mode, antialias=True), v2.CenterCrop(self.size)]
        return v2.Compose([self.check_shape, upright, *steps] if self.orient else [self.check_shape, *steps])

    def check_shape(self, image: Image.Image) -> Image.Image:
        """Return an image if it is not so thin that resizing it would fill the memory; else raise."""
        if self.resize**2 * max(image.size) / min(image.size) > MAX_PIXELS:
            size = f"{image.width}x{image.height}"
            raise ValueError(f"expected at most {MAX_PIXELS} pixels at a shorter side of {self.resize}, found {size}")
        return image
