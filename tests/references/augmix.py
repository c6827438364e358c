"""Slow, obvious twin of AugMix: one image, one chain, one operation at a time, with PIL and plain Python."""

import math

import numpy as np
from PIL import Image, ImageOps

from regmixup.augmentations._operations import NAMES

AFFINE, BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR


def _shift(image, *coefficients):
    return image.transform(image.size, AFFINE, coefficients, resample=BILINEAR)


OPERATIONS = {
    "identity": lambda image, level, sign: image,
    "autocontrast": lambda image, level, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, level, sign: ImageOps.equalize(image),
    "posterize": lambda image, level, sign: ImageOps.posterize(image, 4 - int(0.4 * level)),
    "rotate": lambda image, level, sign: image.rotate(sign * int(3 * level), resample=BILINEAR),
    "solarize": lambda image, level, sign: ImageOps.solarize(image, 256 - int(25.6 * level)),
    "shear_x": lambda image, level, sign: _shift(image, 1, sign * 0.03 * level, 0, 0, 1, 0),
    "shear_y": lambda image, level, sign: _shift(image, 1, 0, 0, sign * 0.03 * level, 1, 0),
    "translate_x": lambda image, level, sign: _shift(image, 1, 0, sign * int(level * image.width / 30), 0, 1, 0),
    "translate_y": lambda image, level, sign: _shift(image, 1, 0, 0, 0, 1, sign * int(level * image.height / 30)),
}


def operate(pixels, name, level, sign):
    """One operation on one image. pixels: (C, H, W) uint8 array with 1 or 3 channels."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))
    changed = np.asarray(OPERATIONS[name](image, level, int(sign)))
    return changed[None] if len(pixels) == 1 else np.moveaxis(changed, -1, 0)


def augment(pixels, draw, index):
    """Row `index` of the draw applied to one image: (C, H, W) floats in [0, 1]."""
    mixture = np.zeros(pixels.shape)
    for chain, weight in enumerate(draw.weight[index].tolist()):
        changed = pixels
        for position in range(draw.operation.shape[-1]):
            place = (index, chain, position)
            name = NAMES[int(draw.operation[place])]
            changed = operate(changed, name, float(draw.level[place]), float(draw.sign[place]))
        mixture += weight * changed / 255
    blend = float(draw.blend[index])
    return (1 - blend) * pixels / 255 + blend * mixture


def divergence(p, q):
    """KL(p || q) in nats."""
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def jensen_shannon(versions):
    """The mean of KL(p || M) over the distributions of one image; M is their mean, at least 1e-7 and at most 1."""
    mixture = [min(max(sum(column) / len(versions), 1e-7), 1) for column in zip(*versions, strict=True)]
    return sum(divergence(p, mixture) for p in versions) / len(versions)
