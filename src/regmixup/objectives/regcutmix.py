"""RegCutMix: plain cross-entropy, regularised by CutMix (the paper's appendix on other vicinal distributions)."""

from __future__ import annotations

from dataclasses import dataclass

from regmixup.objectives._two_terms import Regularised
from regmixup.objectives.cutmix import CutMix


@dataclass(frozen=True, kw_only=True)
class RegCutMix(Regularised, CutMix):
    """CE(f(x), y) + eta CE(f(x_cut), y_cut): RegMixup with CutMix's vicinal distribution. Fields as in `RegMixup`."""

    alpha: float = 1.0
