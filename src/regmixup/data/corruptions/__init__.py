"""The 19 corruptions of CIFAR-C and ImageNet-C (Hendrycks and Dietterich, 2019), batched in torch, on any device.

Each corruption is a function `(images, *constants, generator=...) -> images`, uint8 (N, C, H, W) in and out, in a file
with similar ones; `constants` holds the numbers for severities 1 to 5. CIFAR-C fixed no seed, so what is
rebuilt here equals the released files in distribution, not bit for bit. Where more than chance differs (frost), the
file says so. JPEG is compressed by Pillow, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from regmixup.data.catalogue import SEVERITIES
from regmixup.data.corruptions import blur, digital, drops, noise, weather
from regmixup.data.corruptions.constants import CONSTANTS, Constants, Levels, nearest_constants
from regmixup.mixing import check_generator
from regmixup.names import check_name

_FUNCTIONS: tuple[Callable[..., Tensor], ...] = (
    noise.gaussian_noise, noise.shot_noise, noise.impulse_noise,
    blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur,
    weather.snow, weather.frost, weather.fog, digital.brightness,
    digital.contrast, digital.elastic_transform, digital.pixelate, digital.jpeg_compression,
    blur.gaussian_blur, digital.saturate, drops.spatter, noise.speckle_noise,
)  # fmt: skip
CORRUPTIONS = {function.__name__: function for function in _FUNCTIONS}
BLOCK = 2**20  # values; a block of images fits the processor's cache, and its size is part of the random stream


def corrupt(
    images: Tensor,
    name: str,
    *,
    severity: int,
    generator: torch.Generator | None = None,
    constants: Literal["auto"] | Constants = "auto",
) -> Tensor:
    """Corrupt images; the result has the same shape, type and device, and depends on `generator` alone.

    images: uint8 (N, 3, H, W), or (N, 1, H, W) for grey. severity: 1 to 5.
    generator: random numbers are drawn on its own device, so a CPU generator gives the same noise on every device.
        None is the global generator of the images' device.
    constants: whose strengths to use: "cifar" (made for 32x32), "imagenet" (224x224) or "digits" (8x8; five
        corruptions only). "auto" takes the one whose side is nearest to the image's shorter side: up to 20 pixels
        digits, up to 128 cifar, above that imagenet.

    Images are processed in blocks of about a million values, so memory stays small however many there are.

    >>> grey = torch.full((1, 1, 8, 8), 100, dtype=torch.uint8)
    >>> corrupt(grey, "brightness", severity=1).unique().tolist()  # 100 + 0.1 * 255, cut to an integer
    [125]
    """
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity!r}")
    check_generator(generator)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 (N, 3 or 1, H, W), got {images.dtype} {tuple(images.shape)}")
    height, width = images.shape[-2:]
    strength = choose_constants(name, height, width, constants)[severity - 1]
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    if images.numel() == 0:
        return result
    size = max(1, BLOCK // images[0].numel())
    for source, target in zip(images.split(size), result.split(size), strict=True):
        target.copy_(CORRUPTIONS[name](source, *strength, generator=generator))
    return result


def choose_constants(name: str, height: int, width: int, constants: Literal["auto"] | Constants = "auto") -> Levels:
    """Return the strengths of a corruption for images of a size; raise where there are none. constants: see `corrupt`.

    >>> choose_constants("defocus_blur", 32, 32)[0]
    (0.3, 0.4)
    """
    check_name("corruption", name, CORRUPTIONS)
    check_name("constants", constants, ["auto", *CONSTANTS])
    chosen = nearest_constants(height, width) if constants == "auto" else constants
    if name not in CONSTANTS[chosen]:
        raise ValueError(
            f"{name} has no constants for {chosen} ({height} x {width} images with constants={constants!r}): pass "
            f"constants='cifar' or 'imagenet', or use {', '.join(CONSTANTS[chosen])}"
        )
    return CONSTANTS[chosen][name]
