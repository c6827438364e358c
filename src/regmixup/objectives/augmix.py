"""AugMix: consistent predictions for an image and two random mixtures of its augmentations (Hendrycks et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.config import check_count, check_number, introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import (
    Draw,
    ImageSize,
    can_look,
    check_images,
    full_precision,
    sample_beta,
    sample_dirichlet,
    sample_uniform,
    take,
)
from regmixup.networks.outputs import logits_of
from regmixup.objectives._augmix_operations import NAMES, Step, apply_step
from regmixup.objectives._base import Objective
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput

_VERSIONS = 2
_MOST_OPERATIONS = 3  # of a chain of random depth
_LOWEST_LEVEL = 0.1


@dataclass(frozen=True, kw_only=True)
class AugMixDraw(Draw):
    """The randomness of one AugMix step, for two versions of N images, `width` chains each, up to D operations long.

    operation: (2, N, width, D) int64, indices into `_augmix_operations.NAMES`; 0 where the chain has ended.
    level, sign: (2, N, width, D) float64, the strength of each operation, and 1 or -1.
    weight: (2, N, width) float64, w, the share of each chain; sums to 1 over the chains.
    blend: (2, N) float64, m, the share of all chains together; the image itself has 1 - m.
    """

    operation: Tensor
    level: Tensor
    sign: Tensor
    weight: Tensor
    blend: Tensor


@dataclass(frozen=True, kw_only=True)
class AugMix(Objective):
    """CE(f(x), y) + jsd_weight JS(p, p_1, p_2), Section 3 and Algorithm 1 of the AugMix paper.

    JS = 1/3 [KL(p || M) + KL(p_1 || M) + KL(p_2 || M)], averaged over the batch: p, p_1 and p_2 are the class
    probabilities of x and of two augmented versions of it, forwarded together; M is their mean, clamped to [1e-7, 1].

    Each version is (1 - m) x + m sum_j w_j chain_j(x), m ~ Beta(alpha, alpha), w ~ Dirichlet(alpha, ..., alpha).
    A chain applies operations drawn with replacement, each at its own level L ~ U(0.1, severity), to pixels rounded to
    0..255, as PIL does; `_augmix_operations` lists them. So x must hold pixels, uint8 or floats in [0, 1]; normalising
    is left to the network's first layer. Because the weights sum to one, mixing before it equals mixing after it.

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
    jsd_weight: float = 12.0
    """>= 0: 0 skips the draw and the augmentation and is ERM exactly."""
    alpha: float = field(default=1.0, kw_only=False)
    """Parameter of the Dirichlet and Beta distributions."""
    operations: Literal["core"] = "core"
    """The nine operations that do not overlap the corruptions of CIFAR-C and ImageNet-C. The released code has four
    more, which do: colour, contrast, brightness and sharpness."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets in place of the cross-entropy; JS stays. None is cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("width", self.width)
        check_count("depth", self.depth, least=-1)
        check_number("severity", self.severity, least=_LOWEST_LEVEL, most=10)
        check_number("jsd_weight", self.jsd_weight, least=0)
        check_number("alpha", self.alpha, above=0)

    @property
    def _longest(self) -> int:
        return _MOST_OPERATIONS if self.depth == -1 else self.depth

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.jsd_weight == 0:
            return Draw()
        chains = (_VERSIONS, batch_size, self.width)
        steps = (*chains, self._longest)
        operation = 1 + ((len(NAMES) - 1) * sample_uniform(steps, generator)).long()
        level = _LOWEST_LEVEL + (self.severity - _LOWEST_LEVEL) * sample_uniform(steps, generator)
        sign = 1 - 2 * (sample_uniform(steps, generator) < 0.5).double()
        if self.depth == -1:
            length = 1 + (_MOST_OPERATIONS * sample_uniform((*chains, 1), generator)).long()
            operation = operation * (torch.arange(self._longest, device=operation.device) < length)
        return AugMixDraw(
            operation=operation,
            level=level,
            sign=sign,
            weight=sample_dirichlet(self.alpha, self.width, chains[:2], generator),
            blend=sample_beta(self.alpha, chains[:2], generator),
        )

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.jsd_weight == 0:
            return clean_loss(model, x, y, self.loss)
        check_images(x)
        if can_look(x) and not bool(((x >= 0) & (x <= 1)).all()):
            raise ValueError(
                "x must hold pixels, uint8 or floats in [0, 1]: AugMix works on them and not on normalised images, got "
                f"values from {float(x.min()):g} to {float(x.max()):g}"
            )
        all_logits = logits_of(model, torch.cat([x, *self.augment(x, draw)]))
        logits = all_logits[: len(x)]
        clean = image_losses(logits, y, self.loss).mean()
        jsd = jensen_shannon(all_logits.reshape(1 + _VERSIONS, len(x), -1))
        total = clean + self.jsd_weight * jsd
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "jsd": jsd.detach()})

    def augment(self, x: Tensor, draw: Draw) -> list[Tensor]:
        """Return the two augmented versions, each (N, C, H, W) like x. Half precision is mixed in float32."""
        take(draw, "operation", (_VERSIONS, len(x), self.width, self._longest), self)
        assert isinstance(draw, AugMixDraw)
        exact = full_precision(x)
        pixels = (255 * exact.clamp(0, 1)).round().to(torch.uint8)
        chains = pixels[:, None].expand(_VERSIONS, -1, self.width, *x.shape[1:])
        shape, images = chains.shape, chains.reshape(-1, *x.shape[1:])
        for position in range(self._longest):
            step = Step(*(part[..., position].reshape(-1, 1, 1) for part in (draw.operation, draw.level, draw.sign)))
            images = apply_step(images, step)
        weight, blend = (part.to(exact.dtype)[..., None, None, None] for part in (draw.weight, draw.blend))
        mixed = (weight * images.reshape(shape)).sum(dim=2) / 255
        return [((1 - m) * exact + m * mixture).to(x.dtype) for m, mixture in zip(blend, mixed, strict=True)]


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
