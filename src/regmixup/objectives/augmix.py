"""AugMix: consistent predictions for an image and two random mixtures of its augmentations (Hendrycks et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.augmentations.augmix_chains import AugMixChains
from regmixup.config import NotNegative, check_count, introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import Draw, ImageSize, full_precision, repeat
from regmixup.networks.outputs import logits_of
from regmixup.objectives._base import Objective
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput

_VERSIONS = 2


@dataclass(frozen=True, kw_only=True)
class AugMix(Objective):
    """CE(f(x), y) + jsd_weight JS(p, p_1, p_2), Section 3 and Algorithm 1 of the AugMix paper.

    JS = 1/3 [KL(p || M) + KL(p_1 || M) + KL(p_2 || M)], averaged over the batch: p, p_1 and p_2 are the class
    probabilities of x and of two augmented versions of it, forwarded together; M is their mean, clamped to [1e-7, 1].

    The versions are those of `AugMixChains`, which says what images must hold.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    >>> out = AugMix()(model, torch.rand(8, 3, 8, 8), torch.randint(10, (8,)))
    >>> bool(torch.isclose(out.loss, out.parts["clean"] + 12 * out.parts["jsd"])), tuple(out.logits.shape)
    (True, (8, 10))
    """

    width: int = 3
    """Chains per version."""
    depth: int = -1
    """Operations per chain; -1 draws 1, 2 or 3 for every chain."""
    severity: float = 3.0
    """The highest level, at most 10; 3 on CIFAR, 1 on ImageNet in the released code."""
    jsd_weight: NotNegative = 12.0
    """>= 0: 0 skips the draw and the augmentation and is ERM exactly."""
    alpha: float = field(default=1.0, kw_only=False)
    """Parameter of the Dirichlet and Beta distributions."""
    operations: Literal["core"] = "core"
    """The nine operations that do not overlap the corruptions of CIFAR-C and ImageNet-C. The released code has four
    more, which do: colour, contrast, brightness and sharpness. The only value: fingerprints hold it."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets in place of the cross-entropy; JS stays. None is cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.chains  # made now: the lock of a cached property would break a compiled graph on Python 3.11

    @cached_property
    def chains(self) -> AugMixChains:
        """The augmentation that makes a version."""
        return AugMixChains(self.alpha, width=self.width, depth=self.depth, severity=self.severity)

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.jsd_weight == 0:
            return Draw()
        check_count("batch_size", batch_size, least=0)
        return self.chains.draw(_VERSIONS * batch_size, image_size, generator)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.jsd_weight == 0:
            return clean_loss(model, x, y, self.loss)
        versions = self.chains.apply(repeat(x, _VERSIONS), draw)
        all_logits = logits_of(model, torch.cat([x, versions]))
        logits = all_logits[: len(x)]
        clean = image_losses(logits, y, self.loss).mean()
        jsd = jensen_shannon(all_logits.reshape(1 + _VERSIONS, len(x), -1))
        total = clean + self.jsd_weight * jsd
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "jsd": jsd.detach()})


def jensen_shannon(logits: Tensor) -> Tensor:
    """Return the mean over V versions and N images of KL(p_v || M), in at least float32. logits: (V, N, K).

    Zero where all versions agree, log V where each is certain of another class (M clamped to [1e-7, 1] apart).

    >>> logits = 100 * torch.eye(3, 4).unsqueeze(1)
    >>> round(jensen_shannon(logits).item(), 4)  # log 3
    1.0986
    """
    log_probs = F.log_softmax(full_precision(logits), dim=-1)
    probs = log_probs.exp()
    mixture = probs.mean(dim=0).clamp(1e-7, 1)
    return (probs * (log_probs - mixture.log())).sum(dim=-1).mean()
