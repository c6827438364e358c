"""Image files: decoded with Pillow, several at a time, and transformed for training or evaluation."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
Reader = Callable[[Source], Image.Image]
"""A function from an image file to an RGB image of a network's size."""


def open_rgb(source: Source, *, size: tuple[int, int] | None = None) -> Image.Image:
    """Open an image as RGB; the content decides the format, not the name. A ValueError names the file.

    size: the (width, height) that it must have. An image of more than 10^8 pixels is rejected before it is decoded.
    """
    with reading(described(source), "an image"):
        if isinstance(source, Image.Image):
            return _rgb(source, size)
        if not isinstance(source, bytes) and not Path(source).is_file():  # a pipe would be waited for
            raise ValueError("expected a regular file")
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return _rgb(image, size)


def described(source: Source) -> str:
    """Return what an error calls an image: its path, if it has one."""
    return str(source) if isinstance(source, (str, Path)) else f"the {type(source).__name__} given"


def _rgb(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    if size is not None and image.size != size:
        raise ValueError(f"expected {size[0]}x{size[1]} pixels, found {image.width}x{image.height}")
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"expected at most {MAX_PIXELS} pixels, found {image.width}x{image.height}")
    # Pillow would clip values of more than 8 bits at 255 instead of scaling them.
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"expected 8 or 16 bits per channel, found Pillow's mode {image.mode}")
    return image.convert("RGB")


def decode_all(sources: Iterable[Source], decode: Reader) -> Tensor:
    """Decode images, each by `decode`, to uint8 (N, 3, H, W), in order. All must come out equally large."""
    # Pillow lets other threads run while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pixels = list(pool.map(lambda source: np.asarray(decode(source)), sources))
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True, kw_only=True)
class TrainTransform:
    """The paper's ImageNet augmentation: random resized crop, flip, colour jitter.

    size: side of the square crop. scale and ratio: area and aspect of the crop relative to the image.
    interpolation: how the crop is resized; random: bilinear or bicubic, drawn for every image, as in timm.
    jitter: strength of brightness, contrast and saturation changes; 0 for none.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Literal["bilinear", "random"] = "bilinear"
    flip: float = 0.5
    jitter: float = 0.4

    def build(self) -> Any:
        """Return the torchvision transform."""
        from torchvision.transforms import v2

        modes = [v2.InterpolationMode.BILINEAR]
        if self.interpolation == "random":
            modes.append(v2.InterpolationMode.BICUBIC)
        crops = [v2.RandomResizedCrop(self.size, self.scale, self.ratio, mode, antialias=True) for mode in modes]
        steps: list[Any] = [
            crops[0] if len(crops) == 1 else v2.RandomChoice(crops),
            v2.RandomHorizontalFlip(self.flip),
        ]
        if self.jitter:
            steps.append(v2.ColorJitter(self.jitter, self.jitter, self.jitter))
        return v2.Compose(steps)


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Resize the shorter side to `resize` (antialiased), then crop the central `size` square."""

    size: int = 224
    resize: int = 256
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def build(self) -> Any:
        """Return the torchvision transform."""
        from torchvision.transforms import v2

        mode = v2.InterpolationMode(self.interpolation)
        return v2.Compose([v2.Resize(self.resize, mode, antialias=True), v2.CenterCrop(self.size)])
