"""Metrics that are given their samples batch by batch, also by several processes: `update`, `compute`, `reset`.

They keep the raw scores, of any range, and compute what `auroc` and `augrc` compute of all of them: neither is a mean
over batches or processes. Under torch.distributed `compute` gathers the samples of all processes, which may have
different numbers of them, also none; all must call it, and all get the same number.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch import distributed as dist

from regmixup.metrics.detection import auroc, check_flags, check_vector
from regmixup.metrics.selective import augrc


class _Streaming:
    """Scores, a flag for each, and the number of the sample in the dataset, or -1: (N,) each, on the CPU."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []

    def _add(self, scores: Tensor, name: str, flags: Tensor, index: Tensor | None) -> None:
        scores = torch.as_tensor(scores)
        if scores.shape != (0,):  # a process may have nothing to add
            scores = check_vector("scores", scores)
        flags = check_flags(name, flags, len(scores))
        numbers = torch.full(scores.shape, -1) if index is None else torch.as_tensor(index)
        if numbers.dtype != torch.int64 or numbers.shape != scores.shape:
            got = f"{numbers.dtype} {tuple(numbers.shape)}"
            raise ValueError(f"index must be int64 numbers of shape ({len(scores)},), got {got}")
        self._batches.append((scores.detach().cpu(), flags.cpu(), numbers.cpu()))

    def reset(self) -> None:
        """Forget all samples."""
        self._batches.clear()

    def _gathered(self) -> tuple[Tensor, Tensor]:
        """Return the scores and flags of all processes, rank after rank, every numbered sample once."""
        empty = torch.zeros(0), torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.int64)
        local = tuple(torch.cat(column) for column in zip(*(self._batches or [empty]), strict=True))
        parts: list[tuple[Tensor, ...]] = [local]
        if dist.is_available() and dist.is_initialized():
            parts *= dist.get_world_size()
            dist.all_gather_object(parts, local)
        scores, flags, numbers = (torch.cat(column) for column in zip(*parts, strict=True))
        kept = numbers < 0
        # In- and out-of-distribution samples come from two datasets, so the flag belongs to the number.
        keys = torch.where(kept, -1, 2 * numbers + flags)
        first = {key: place for place, key in reversed(list(enumerate(keys.tolist())))}
        kept[list(first.values())] = True
        return scores[kept], flags[kept]


class AUROC(_Streaming):
    """The AUROC of scores that should be larger for out-of-distribution samples: `auroc` of all batches together.

    Raw scores, never squashed: torchmetrics passes values outside [0, 1] through a sigmoid batch by batch, where large
    scores become ties and batches differ in scale.

    >>> metric = AUROC()
    >>> metric.update(torch.tensor([10.0, 20.0, 30.0]), torch.tensor([False, False, False]))
    >>> metric.update(torch.tensor([20.0, 90.0]), torch.tensor([True, True]))
    >>> metric.compute()
    0.75
    """

    def update(self, scores: Tensor, ood: Tensor, *, index: Tensor | None = None) -> None:
        """Add a batch. scores: (N,). ood: (N,) bool, True for out-of-distribution samples.

        index: (N,) the numbers of the samples in their dataset. One given more than once then counts once. Pass it with
        torch's DistributedSampler, which repeats samples so that all processes have as many.
        """
        self._add(scores, "ood", ood, index)

    def compute(self) -> float:
        """Return the AUROC of all samples since `reset`; all processes must call it."""
        scores, ood = self._gathered()
        if ood.all() or not ood.any():
            raise ValueError(
                "update must be given samples of both kinds before compute, got "
                f"{int((~ood).sum())} in- and {int(ood.sum())} out-of-distribution ones"
            )
        return float(auroc(scores[~ood], scores[ood]))


class AUGRC(_Streaming):
    """The area under the generalised risk-coverage curve: `augrc` of all batches together.

    >>> metric = AUGRC()
    >>> metric.update(torch.tensor([0.1, 0.2]), torch.tensor([True, True]))
    >>> metric.update(torch.tensor([0.3, 0.4]), torch.tensor([False, True]))
    >>> metric.compute()
    0.09375
    """

    def update(self, scores: Tensor, correct: Tensor, *, index: Tensor | None = None) -> None:
        """Add a batch. scores: (N,), larger where the model is less sure. correct: (N,) bool.

        index: see `AUROC.update`.
        """
        self._add(scores, "correct", correct, index)

    def compute(self) -> float:
        """Return the AUGRC of all samples since `reset`; all processes must call it."""
        scores, correct = self._gathered()
        if not len(scores):
            raise ValueError("update must be given samples before compute, got none")
        return float(augrc(scores, correct))
