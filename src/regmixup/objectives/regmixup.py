"""RegMixup: plain cross-entropy, regularised by cross-entropy on strongly mixed images (Pinto et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from regmixup.objectives._two_terms import Regularised
from regmixup.objectives.mixup import Mixup


@dataclass(frozen=True, kw_only=True)
class RegMixup(Regularised, Mixup):
    """CE(f(x), y) + eta CE(f(x_mix), y_mix), Eq. (3) and Algorithm 1 of the paper.

    x_mix = lam x_i + (1 - lam) x_j and y_mix likewise, lam ~ Beta(alpha, alpha). A large alpha keeps lam near 1/2;
    because the clean images are there too, strong mixing does no harm and raises the entropy between classes.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    >>> x, y = torch.rand(8, 3, 8, 8), torch.randint(10, (8,))
    >>> out = RegMixup(alpha=20)(model, x, y)
    >>> bool(torch.isclose(out.loss, (out.parts["clean"] + out.parts["mixed"]) / 2)), tuple(out.logits.shape)
    (True, (8, 10))
    """

    alpha: float = 20.0
    """Parameter of lambda ~ Beta(alpha, alpha), > 0: 20 on CIFAR-10, 10 on CIFAR-100 and ImageNet in the paper."""
