"""RegGaussianNoise: plain cross-entropy, regularised by cross-entropy on noisy images."""

from __future__ import annotations

from dataclasses import dataclass

from regmixup.objectives._two_terms import Regularised
from regmixup.objectives.gaussian_noise import GaussianNoise


@dataclass(frozen=True, kw_only=True)
class RegGaussianNoise(Regularised, GaussianNoise):
    """CE(f(x), y) + eta CE(f(x + sigma e), y): Eq. (3) with a Gaussian vicinity. An extension of this project.

    sigma and samples as in `GaussianNoise`; eta, scale and passes as in `RegMixup`, and eta = 0 is ERM exactly.
    """
