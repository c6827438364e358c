"""The strength of each corruption at severities 1 to 5, for images of 8, 32 and 224 pixels.

"cifar" and "imagenet" hold the values of CIFAR-C and ImageNet-C (Hendrycks and Dietterich, 2019), "digits" our own
for 8x8 images: ImageNet-C's noise and tone, and its blur scaled down. Each entry is the argument list of the function
of the same name, so its docstring says what the numbers are. Lengths are in pixels and are not rescaled to the image.
"""

from __future__ import annotations

from typing import Literal

Constants = Literal["digits", "cifar", "imagenet"]
Levels = tuple[tuple[float, ...], ...]

SIDES: dict[Constants, int] = {"digits": 8, "cifar": 32, "imagenet": 224}


def nearest_constants(height: int, width: int) -> Constants:
    """Return the set whose side (8, 32 or 224) is nearest to the image's shorter side; a tie goes to the smaller.

    >>> nearest_constants(8, 8), nearest_constants(64, 64), nearest_constants(160, 200)
    ('digits', 'cifar', 'imagenet')
    """
    side = min(height, width)
    return min(SIDES, key=lambda name: (abs(SIDES[name] - side), SIDES[name]))


def _single(*values: float) -> Levels:
    return tuple((value,) for value in values)


def _elastic(side: int, *shares: tuple[float, float, float]) -> Levels:
    return tuple(tuple(side * share for share in level) for level in shares)


CONSTANTS: dict[Constants, dict[str, Levels]] = {
    "digits": {
        "gaussian_noise": _single(0.08, 0.12, 0.18, 0.26, 0.38),
        "impulse_noise": _single(0.03, 0.06, 0.09, 0.17, 0.27),
        "gaussian_blur": _single(0.4, 0.5, 0.6, 0.8, 1.0),
        "brightness": _single(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _single(0.5, 0.4, 0.3, 0.2, 0.1),
    },
    "cifar": {
        "gaussian_noise": _single(0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": _single(500, 250, 100, 75, 50),
        "impulse_noise": _single(0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "snow": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": _single(0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": _single(0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": _elastic(
            32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
        ),
        "pixelate": _single(0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": _single(80, 65, 58, 50, 40),
        "gaussian_blur": _single(0.4, 0.6, 0.7, 0.8, 1),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "spatter": (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "speckle_noise": _single(0.06, 0.1, 0.12, 0.16, 0.2),
    },
    "imagenet": {
        "gaussian_noise": _single(0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": _single(60, 25, 12, 5, 3),
        "impulse_noise": _single(0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": _single(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _single(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _elastic(
            244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
        ),
        "pixelate": _single(0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": _single(25, 18, 15, 10, 7),
        "gaussian_blur": _single(1, 2, 3, 4, 6),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        "speckle_noise": _single(0.15, 0.2, 0.35, 0.45, 0.6),
    },
}
