"""An objective as a transform of batches, for frameworks that own the forward pass and the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from regmixup.config import Count, check_fields
from regmixup.losses import CrossEntropy, LossLike
from regmixup.mixing import Draw, can_look
from regmixup.names import warn_user
from regmixup.objectives._base import Objective, has_loss
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.augmix import AugMix


@dataclass(frozen=True, kw_only=True)
class BatchTransform:
    """Map a batch to images and soft targets on which plain cross-entropy is the objective's loss.

    Soft-target cross-entropy is linear in the target. So if all images that the objective forwards are one batch, with
    targets scaled by the weights of their terms, the mean of `F.cross_entropy` (or timm's `SoftTargetCrossEntropy`)
    over its rows is exactly the loss of the objective, for any eta, scale, number of samples and lambda. For RegMixup
    with m samples and scale="mean", the targets of clean images sum to (1 + m) / (1 + eta) and those of mixed ones to
    eta (1 + m) / (m (1 + eta)). Do not smooth them again in the loss: smoothing takes rows that sum to 1.

    Class weights and smoothing of a loss `CrossEntropy(weight, smoothing)` become part of the targets. AugMix, DUQ,
    Rotation and other losses are no cross-entropy of soft targets and are rejected, and so are separate passes, which
    batch norm would tell from this one.

    >>> from regmixup.objectives.regmixup import RegMixup
    >>> transform = BatchTransform(RegMixup(20, samples=2), num_classes=10)
    >>> images, targets = transform(torch.rand(8, 3, 32, 32), torch.randint(10, (8,)))
    >>> tuple(images.shape), tuple(targets.shape), targets.sum(dim=1)[[0, 8]].tolist()
    ((24, 3, 32, 32), (24, 10), [1.5, 0.75])
    """

    objective: Objective = field(kw_only=False)
    """The objective to train with."""
    num_classes: Count
    """K, the number of columns of the targets."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.objective, Objective):
            raise ValueError(f"objective must be an Objective such as rm.RegMixup(), got {self.objective!r}")
        sides = self.objective.sides if isinstance(self.objective, Alternate) else (self.objective,)
        for side in sides:
            _check_cross_entropy(side)

    def __call__(
        self, x: Tensor, y: Tensor, generator: torch.Generator | None = None, draw: Draw | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return images (R, ...) and targets (R, K); x, y, generator and draw as the objective takes them.

        The same generator gives the same draw as in `objective(model, x, y, generator=...)`. Soft labels that are no
        one-hot rows may come from another library's mixing, of which there is one warning.
        """
        # The objective runs once, with a model that records its images, and losses that record their targets and are 0.
        # The derivative of its total by the loss of an image is the weight of that image.
        recorded: list[Tensor] = []
        targets: list[Tensor] = []
        losses: list[Tensor] = []

        def record_images(images: Tensor) -> Tensor:
            recorded.append(images)
            return images.new_ones(len(images), self.num_classes)  # not 0, which would hide a penalty on logits

        def recorder_for(loss: LossLike | None) -> LossLike:
            def record_targets(logits: Tensor, labels: Tensor) -> Tensor:
                targets.append(_plain_targets(loss, labels))
                losses.append(logits.new_zeros(len(logits), requires_grad=True))
                return losses[-1]

            return record_targets

        with torch.inference_mode(False):  # which enables gradients, too
            out = _with_losses(self.objective, recorder_for)(record_images, x, y, generator, draw)
            weights = torch.cat(torch.autograd.grad(out.loss, losses))
        if can_look(out.loss) and out.loss.item() != 0:
            raise ValueError(f"objective must have no term beside its cross-entropies, got {self.objective!r}")
        soft = y.is_floating_point() and y.ndim == 2 and not torch.compiler.is_compiling()
        if soft and bool((y.amax(dim=1) < 1).any()):
            _warn_of_mixed_labels()
        images = torch.cat(recorded)
        return images, len(images) * weights[:, None] * torch.cat(targets)


@cache  # once a process
def _warn_of_mixed_labels() -> None:
    warn_user(
        "y must be class indices or one-hot rows, got soft labels: if another library has mixed these images (timm's "
        "collate or mixup_fn), leave that out, or they are mixed twice; labels that are soft on purpose are fine",
    )


def _with_losses(objective: Objective, change: Callable[[LossLike | None], LossLike]) -> Objective:
    """Return the objective with changed losses."""
    if isinstance(objective, Alternate):
        first, second = (_with_losses(side, change) for side in objective.sides)
        return replace(objective, first=first, second=second, loss=None)
    return replace(objective, loss=change(objective.loss))  # type: ignore[attr-defined, call-arg]


def _check_cross_entropy(objective: Objective) -> None:
    """Raise unless the loss of an objective is a cross-entropy of soft targets in one forward pass."""
    if isinstance(objective, AugMix) or objective.head or not has_loss(objective):
        raise ValueError(f"objective must be one whose loss is a cross-entropy of soft targets, got {objective!r}")
    loss: LossLike | None = objective.loss  # type: ignore[attr-defined]
    if not (loss is None or isinstance(loss, CrossEntropy)):
        raise ValueError(f"loss must be None or CrossEntropy() for a transform, got {loss!r}")
    if (passes := getattr(objective, "passes", "joint")) != "joint":
        raise ValueError(f"passes must be joint for a transform, whose images are forwarded together, got {passes!r}")


def _plain_targets(loss: LossLike | None, targets: Tensor) -> Tensor:
    """Return targets for which plain cross-entropy is that of the loss: smoothed, and weighted by class."""
    if not isinstance(loss, CrossEntropy):
        return targets
    smooth = (1 - loss.smoothing) * targets + loss.smoothing / targets.shape[1]
    weight = loss.weight_like(targets)
    return smooth if weight is None else smooth * weight
