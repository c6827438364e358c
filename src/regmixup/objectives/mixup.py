"""Mixup: train on convex combinations of image pairs (Zhang et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regmixup.mixing import Draw, mixup
from regmixup.objectives._vicinal import Mixing


@dataclass(frozen=True, kw_only=True)
class Mixup(Mixing):
    """Cross-entropy on lam x_i + (1 - lam) x_j with label lam y_i + (1 - lam) y_j (Section 2 of the paper).

    lam ~ Beta(alpha, alpha) is not folded to max(lam, 1 - lam). The default alpha is the paper's choice on CIFAR.
    """

    alpha: float = 0.3

    def mix(self, x: Tensor, draw: Draw) -> Tensor:
        if draw.box is not None:
            raise ValueError(f"draw must not hold a box, which only CutMix uses, got {draw}")
        assert draw.lam is not None
        assert draw.partner is not None
        return mixup(x, draw.lam, draw.partner)
