"""`path:NAME`: interpolations between pairs of a dataset's images, for the entropy-versus-lambda profile (Figure 3).

1,000 random pairs with different labels; for each, 20 equally spaced lambdas from 0 to 1, pair after pair:
image (p, l) is lam_l x_i(p) + (1 - lam_l) x_j(p), kept in float32. Mixing pixels and mixing normalised pixels is the
same, since mixing is affine. The label is that of the nearer end.
"""

from __future__ import annotations

import torch

from regmixup.data.images import ImageSet
from regmixup.data.splits import generator_for
from regmixup.mixing import to_float

PAIRS, LAMBDAS = 1000, 20


def interpolate(source: ImageSet, *, pairs: int = PAIRS, lambdas: int = LAMBDAS) -> ImageSet:
    """Return the set of `pairs` x `lambdas` images that lie between pairs of a dataset's images."""
    first, second = pair_ends(source, pairs=pairs)
    lam = torch.linspace(0, 1, lambdas, dtype=torch.float64)
    images = to_float(source.images)
    weight = lam.float().reshape(1, -1, 1, 1, 1)
    mixed = weight * images[first].unsqueeze(1) + (1 - weight) * images[second].unsqueeze(1)
    labels = torch.where(lam >= 0.5, source.labels[first, None], source.labels[second, None])
    info = {"pairs": str(pairs), "lambdas": str(lambdas)}
    return ImageSet(mixed.flatten(0, 1), labels.flatten(), source.classes, f"path:{source.name}", info)


def pair_ends(source: ImageSet, *, pairs: int = PAIRS) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices i and j, (pairs,) each, of the images at lambda = 1 and at lambda = 0."""
    if int(source.labels.min()) == int(source.labels.max()):
        raise ValueError(f"path:{source.name} needs at least two classes, {source.name} holds one")
    return _pairs(source.labels, pairs, generator_for(0, "path", source.fingerprint))


def _pairs(labels: torch.Tensor, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw `count` index pairs, uniform over those with different labels, by rejection."""
    found = torch.empty(0, 2, dtype=torch.int64)
    while len(found) < count:
        pairs = torch.randint(len(labels), (2 * count, 2), generator=generator)
        found = torch.cat([found, pairs[labels[pairs[:, 0]] != labels[pairs[:, 1]]]])
    return found[:count, 0], found[:count, 1]
