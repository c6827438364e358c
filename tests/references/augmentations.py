"""Slow, obvious twins of the augmentations: one image, one pixel or one round at a time, in plain Python."""

import numpy as np

from regmixup.augmentations._operations import NAMES
from tests.references.augmix import operate


def cutout(image, box, colour):
    """Pixels in the square take the colour. image: (C, H, W)."""
    changed = image.copy()
    top, bottom, left, right = box
    for row in range(top, bottom):
        for column in range(left, right):
            changed[:, row, column] = colour
    return changed


def add(mixed, other, a, b):
    """Sum of images with pixels from -1 to 1."""
    return (a * (mixed * 2 - 1) + b * (other * 2 - 1) + 1) / 2


def multiply(mixed, other, a, b):
    """Product of powers of images with pixels from 0 to 2."""
    return (mixed * 2) ** a * np.clip(other * 2, 1e-37, None) ** b / 2


def pixmix(pixels, picture, draw, index):
    """Image `index` of the draw: start, then its rounds. pixels, picture: (C, H, W) uint8."""

    def copy(number):
        name = NAMES[int(draw.operation[index, number])]
        return operate(pixels, name, float(draw.level[index, number]), float(draw.sign[index, number])) / 255

    shift = draw.picture[index, 1:].tolist()
    shifted = np.roll(picture, [-places for places in shift], axis=(1, 2)) / 255
    mixed = copy(0)
    for number in range(int(draw.rounds[index])):
        other = shifted if draw.takes_picture[index, number] else copy(number + 1)
        mix = multiply if draw.multiplies[index, number] else add
        mixed = np.clip(mix(mixed, other, *draw.weight[:, index, number].tolist()), 0, 1)
    return mixed
