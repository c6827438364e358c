"""Augmentations: images -> changed images that keep their label. `objectives.Vicinal` trains on them."""

from __future__ import annotations

from regmixup.augmentations.augmix_chains import AugMixChains
from regmixup.augmentations.basic import Augmentation, Cutout, GaussianNoise
from regmixup.augmentations.pixmix import PixMix
from regmixup.names import check_name

AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "gaussian_noise": GaussianNoise, "cutout": Cutout, "augmix_chains": AugMixChains, "pixmix": PixMix,
}  # fmt: skip
"""The augmentations that the command line knows, by name."""

__all__ = ["AUGMENTATIONS", "AugMixChains", "Augmentation", "Cutout", "GaussianNoise", "PixMix", "build"]


def build(name: str, **fields: object) -> Augmentation:
    """Return an augmentation by its command-line name: build("cutout", side=8)."""
    return AUGMENTATIONS[check_name("transform", name, AUGMENTATIONS)](**fields)
