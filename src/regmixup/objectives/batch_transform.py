"""An objective as a transform of batches, for frameworks that own the forward pass and the loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import check_count
from regmixup.losses import CrossEntropy, LossLike
from regmixup.mixing import Draw, joined
from regmixup.objectives._base import Objective
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.augmix import AugMix


@dataclass(frozen=True, kw_only=True)
class BatchTransform:
    """Map a batch to images and soft targets on which plain cross-entropy is the objective's loss.

    Soft-target cross-entropy is linear in the target. So if all images that the objective forwards are one batch, with
    targets scaled by the weights of their terms, the mean of `F.cross_entropy` (or timm's `SoftTargetCrossEntropy`)
    over its rows is exactly the loss of the objective, for any eta, scale, number of samples and lambda. For RegMixup
    with m samples and scale="mean", the targets of clean images sum to (1 + m) / (1 + eta) and those of mixed ones to
    eta (1 + m) / (m (1 + eta)). Do not smooth them again in the loss: smoothing takes rows that sum to 1. `check` tells
    whether a framework's loss will do.

    Class weights and smoothing of a loss `CrossEntropy(weight, smoothing)` become part of the targets. AugMix, DUQ and
    other losses are no cross-entropy of soft targets and are rejected, and so are separate passes, which batch norm
    would tell from this one.

    >>> from regmixup.objectives.regmixup import RegMixup
    >>> transform = BatchTransform(RegMixup(20, samples=2), num_classes=10)
    >>> images, targets = transform(torch.rand(8, 3, 32, 32), torch.randint(10, (8,)))
    >>> tuple(images.shape), tuple(targets.shape), targets.sum(dim=1)[[0, 8]].tolist()
    ((24, 3, 32, 32), (24, 10), [1.5, 0.75])
    """

    objective: Objective = field(kw_only=False)
    """The objective to train with."""
    num_classes: int
    """K, the number of columns of the targets."""

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes)
        _with_losses(self.objective, lambda loss: loss)  # raises for what is no cross-entropy of soft targets

    def __call__(
        self, x: Tensor, y: Tensor, generator: torch.Generator | None = None, draw: Draw | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return images (R, ...) and targets (R, K); x, y, generator and draw as the objective takes them.

        The same generator gives the same draw as in `objective(model, x, y, generator=...)`. Soft labels that are no
        one-hot rows may come from another library's mixing, of which there is one warning.
        """
        soft = y.is_floating_point() and y.ndim == 2 and not torch.compiler.is_compiling()
        if soft and bool((y.amax(dim=1) < 1).any()):
            _warn_of_mixed_labels()
        inputs: list[Tensor] = []
        targets: list[Tensor] = []
        losses: list[Tensor] = []

        def model(x: Tensor) -> Tensor:
            inputs.append(x)
            return x.new_zeros(len(x), self.num_classes)

        def recording(loss: LossLike | None) -> LossLike:
            def record(logits: Tensor, labels: Tensor) -> Tensor:
                targets.append(_plain_targets(loss, labels))
                losses.append(logits.new_zeros(len(logits), requires_grad=True))
                return losses[-1]

            return record

        with torch.inference_mode(False):  # which enables gradients, too
            # The objective itself says how much each image counts: the derivative of the total by the image's loss.
            total = _with_losses(self.objective, recording)(model, x, y, generator, draw).loss
            shares = torch.autograd.grad(total, losses)
        images, share = joined(inputs), torch.cat(shares)
        return images, len(images) * share[:, None] * torch.cat(targets)

    def check(self, criterion: Callable[[Tensor, Tensor], Any]) -> None:
        """Raise unless a criterion (logits, targets) -> () is linear in the target and a mean over rows, on a trial.

        Then its value on the transformed batch is the objective's loss, with the criterion's loss of a row for
        cross-entropy. Losses of class indices, binary cross-entropy, label smoothing in the criterion, and sums over
        rows are not of this kind. Class weights in both the objective's loss and the criterion would count twice, and
        are refused, too. The trial uses no global random numbers.

        >>> from regmixup.objectives.regmixup import RegMixup
        >>> transform = BatchTransform(RegMixup(20), num_classes=10)
        >>> transform.check(nn.CrossEntropyLoss())
        >>> transform.check(nn.CrossEntropyLoss(label_smoothing=0.1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: criterion must be linear in the target, ...
        """
        generator, shape = torch.Generator().manual_seed(0), (3, _ROWS, self.num_classes)
        logits, t, u = torch.rand(shape, generator=generator).to(_device_of(criterion))
        of_t, of_u, of_both = (_mean_loss(criterion, logits, targets) for targets in (t, u, 2 * t + 0.5 * u))
        expected = 2 * of_t + 0.5 * of_u
        if not _close(of_both, expected):
            raise ValueError(
                "criterion must be linear in the target, because the rows of the targets are scaled and do not sum to "
                f"1, got {of_both:.4f} in place of {expected:.4f} from {criterion!r}. Binary cross-entropy and label "
                "smoothing are not linear; smooth with the objective's loss=rm.losses.CrossEntropy(smoothing=...)"
            )
        rows = [_mean_loss(criterion, *row) for row in zip(logits.split(1), t.split(1), strict=True)]
        if not _close(of_t, sum(rows) / _ROWS):
            raise ValueError(
                f"criterion must be the mean over rows, {sum(rows) / _ROWS:.4f} for {_ROWS} rows with a sum of "
                f"{sum(rows):.4f}, got {of_t:.4f} from {criterion!r}; reduction='mean' is what frameworks call it"
            )

        def check_weights(loss: LossLike | None) -> LossLike | None:
            if isinstance(loss, CrossEntropy) and len(set(loss.weight or ())) > 1:
                equal, labels = torch.zeros_like(logits[:1]), torch.eye(self.num_classes).to(logits)
                by_class = [_mean_loss(criterion, equal, label) for label in labels.split(1)]
                if not _close(min(by_class), max(by_class)):
                    raise ValueError(
                        "class weights must stand in the objective's loss or in the criterion: in both they count "
                        f"twice, got {loss} and {criterion!r}"
                    )
            return loss

        _with_losses(self.objective, check_weights)


_ROWS = 4


@cache  # once a process
def _warn_of_mixed_labels() -> None:
    warnings.warn(
        "y must be class indices or one-hot rows, got soft labels: if another library has mixed these images (timm's "
        "collate or mixup_fn), leave that out, or they are mixed twice; labels that are soft on purpose are fine",
        stacklevel=3,
    )


def _mean_loss(criterion: Callable[[Tensor, Tensor], Any], logits: Tensor, targets: Tensor) -> float:
    try:
        loss = criterion(logits, targets)
    except Exception as error:  # whatever the code of others raises
        raise ValueError(
            f"criterion must take logits (N, K) and soft targets (N, K), as F.cross_entropy and timm's "
            f"SoftTargetCrossEntropy do and losses of class indices do not, got {criterion!r}, which fails: {error}"
        ) from error
    if loss.numel() != 1:
        raise ValueError(f"criterion must return one number, got shape {tuple(loss.shape)} from {criterion!r}")
    return float(loss.detach())


def _close(mean_loss: float, expected: float) -> bool:
    return abs(mean_loss - expected) <= 1e-4 * max(abs(mean_loss), abs(expected))  # float32, as most class weights


def _device_of(criterion: object) -> torch.device | str:
    """Return the device of a criterion's class weights, if it has any."""
    tensors = chain(criterion.buffers(), criterion.parameters()) if isinstance(criterion, nn.Module) else iter(())
    return next((tensor.device for tensor in tensors), "cpu")


def _with_losses(objective: Objective, change: Callable[[LossLike | None], LossLike | None]) -> Objective:
    """Return the objective with changed losses; raise unless they are cross-entropies of soft targets."""
    if isinstance(objective, Alternate):
        first, second = (_with_losses(side, change) for side in objective.sides)
        return replace(objective, first=first, second=second, loss=None)
    if "loss" not in {f.name for f in fields(objective)} or (
        isinstance(objective, AugMix) and objective.jsd_weight > 0
    ):
        raise ValueError(f"objective must be one whose loss is a cross-entropy of soft targets, got {objective!r}")
    loss: LossLike | None = objective.loss  # type: ignore[attr-defined]
    if not (loss is None or (isinstance(loss, CrossEntropy) and loss.ignore_index is None)):
        raise ValueError(f"loss must be None or CrossEntropy() without ignore_index for a transform, got {loss!r}")
    if (passes := getattr(objective, "passes", "joint")) != "joint":
        raise ValueError(f"passes must be joint for a transform, whose images are forwarded together, got {passes!r}")
    return replace(objective, loss=change(loss))  # type: ignore[call-arg]


def _plain_targets(loss: LossLike | None, targets: Tensor) -> Tensor:
    """Return targets for which plain cross-entropy is that of the loss: smoothed, and weighted by class."""
    if not isinstance(loss, CrossEntropy):
        return targets
    smooth = (1 - loss.smoothing) * targets + loss.smoothing / targets.shape[1]
    return smooth if loss.weight is None else smooth * targets.new_tensor(loss.weight)
