"""PixMix: rounds of mixing an image with structured pictures and with copies of itself (Hendrycks et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.augmentations._operations import Severity, apply_step, draw_steps
from regmixup.augmentations._pictures import COUNT, HEIGHTS, bank
from regmixup.augmentations.basic import Augmentation, as_pixels
from regmixup.config import CountOrZero, Positive
from regmixup.mixing import Draw, ImageSize, full_precision, height_and_width, sample_uniform, take
from regmixup.names import check_name


@dataclass(frozen=True, kw_only=True)
class PixMixDraw(Draw):
    """The randomness for N images and at most K rounds.

    operation, level, sign: (N, K + 1), as in AugMix: of the image that mixing starts from, where the operation may be
    0, the identity, and of the copy in each round. rounds: (N,) int64, from 0 to K.
    picture: (N, 3) int64, the place in the bank and the shift in rows and columns.
    takes_picture, multiplies: (N, K) bool, what is mixed in, and how. weight: (2, N, K) float64, a and b.
    """

    operation: Tensor
    level: Tensor
    sign: Tensor
    rounds: Tensor
    picture: Tensor
    takes_picture: Tensor
    multiplies: Tensor
    weight: Tensor


@dataclass(frozen=True, kw_only=True)
class PixMix(Augmentation):
    """Start from x, or by a coin from an augmented copy; mix it R ~ U{0, ..., rounds} times; clip after each.

    Each round mixes in the image's picture or, by a coin, another augmented copy of x, and by a coin it adds or
    multiplies (m: mixed so far, o: what comes in):
        add         (a (2 m - 1) + b (2 o - 1) + 1) / 2
        multiply    (2 m)^a (2 o)^b / 2
    with a ~ Beta(beta, 1), b ~ Beta(1, beta), or by a coin a ~ 1 + Beta(1, beta), b ~ -Beta(1, beta).
    A copy is changed by one of AugMix's nine operations, none of which is a corruption of CIFAR-C or ImageNet-C.

    The released code has 14,000 fractals and feature visualisations as pictures, ours are 512 procedural ones, shifted
    at random. Images must be pixels, uint8 or floats in [0, 1].
    """

    rounds: CountOrZero = field(default=4, kw_only=False)
    """K, the most rounds; 4 in the released code."""
    beta: Positive = 3.0
    """> 0: the larger, the more an image keeps of itself in a round; 3 on CIFAR in the released code."""
    severity: Severity = 3.0
    """The highest level of AugMix's operations, at most 10."""
    pictures: tuple[str, ...] = ("plasma", "gratings", "perlin")
    """Kinds of pictures, of plasma, gratings and perlin. Fog of CIFAR-C adds plasma, too, a grey one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pictures or not isinstance(self.pictures, tuple):
            raise ValueError(f"pictures must name one kind or more, in a tuple, got {self.pictures!r}")
        for kind in self.pictures:
            check_name("kind of pictures", kind, HEIGHTS)

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        operation, level, sign = draw_steps((batch_size, self.rounds + 1), self.severity, generator)
        coin, end, place, down, right = sample_uniform((batch_size, 5), generator).unbind(1)
        operation[:, 0] *= coin < 0.5
        height, width = height_and_width(image_size)
        picture = torch.stack([COUNT * place, height * down, width * right], dim=1).long()
        each_round = (batch_size, self.rounds)
        takes_picture, multiplies, negative = sample_uniform((3, *each_round), generator) < 0.5
        a, b = 1 - sample_uniform((2, *each_round), generator) ** (1 / self.beta)  # Beta(1, beta)
        weight = torch.where(negative, torch.stack([1 + a, -b]), torch.stack([1 - a, b]))
        return PixMixDraw(
            operation=operation, level=level, sign=sign, rounds=((self.rounds + 1) * end).long(), picture=picture,
            takes_picture=takes_picture, multiplies=multiplies, weight=weight,
        )  # fmt: skip

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        take(draw, "operation", (len(x), self.rounds + 1), self)
        assert isinstance(draw, PixMixDraw)
        dtype = full_precision(x).dtype
        images = as_pixels(x, self).repeat(self.rounds + 1, 1, 1, 1)
        changed = apply_step(images, draw.operation.T, draw.level.T, draw.sign.T).to(dtype) / 255
        mixed, *copies = changed.split(len(x))
        picture = self.shifted_pictures(x, draw.picture).to(dtype) / 255
        for number, copy in enumerate(copies):
            takes_picture = draw.takes_picture[:, number, None, None, None]
            multiplies = draw.multiplies[:, number, None, None, None]
            ended = (draw.rounds <= number)[:, None, None, None]
            a, b = draw.weight[:, :, number, None, None, None].to(dtype)
            other = torch.where(takes_picture, picture, copy)
            total = (a * (2 * mixed - 1) + b * (2 * other - 1) + 1) / 2
            product = (2 * mixed) ** a * (2 * other).clamp(min=1e-37) ** b / 2
            mixed = torch.where(ended, mixed, torch.where(multiplies, product, total).clamp(0, 1))
        return torch.empty_like(x).copy_(mixed)  # in the type and memory order of x

    def shifted_pictures(self, x: Tensor, place: Tensor) -> Tensor:
        """Return the picture of each image of x, (N, C, H, W) uint8, shifted around its borders."""
        _, channels, height, width = x.shape
        pictures = bank(self.pictures, (channels, height, width), x.device).permute(0, 2, 3, 1)
        row = (place[:, 1, None] + torch.arange(height, device=x.device)) % height
        column = (place[:, 2, None] + torch.arange(width, device=x.device)) % width
        return pictures[place[:, 0, None, None], row[:, :, None], column[:, None]].permute(0, 3, 1, 2)
