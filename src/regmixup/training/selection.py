"""Model selection: the validation set is predicted after every epoch, and the weights of the best epoch are kept.

Where the last epoch is the model, the history gets the same numbers, and no weights are kept.

The set is one that `roles.check_validation` admits: no test, shifted or OOD set, and no image that was trained on. The
kept weights, their epoch and their value are part of every checkpoint, so a resumed run selects as one that was never
interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.data.images import LabelledImages, labels_among
from regmixup.metrics import accuracy, brier
from regmixup.metrics.pieces import precise
from regmixup.networks.precision import products
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.loading import clean_parts, evaluation_transform, input_shape, match_channels, reader
from regmixup.training.optim import Copy, copy_values
from regmixup.types import higher_is_better

METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "val-accuracy": lambda logits, labels: accuracy(logits.softmax(dim=1), labels),
    # From logits, so that one image with a probability that rounds to 0 does not make it infinite.
    "val-nll": lambda logits, labels: float(F.cross_entropy(logits, labels)),
    "val-brier": lambda logits, labels: brier(logits.softmax(dim=1), labels),
}
"""Metrics that an epoch can be selected by: from logits (N, K) and labels to a number."""
_BATCH = 250
"""Images per forward pass."""


class Selection(Copy):
    """The weights of the best epoch so far. Before the first epoch has ended these are the initial ones.

    With `select` "last" there are none. dataset: the validation set. train_set: the images that are trained on.
    """

    prefix = "best."

    def __init__(
        self, model: nn.Module, config: TrainConfig, dataset: LabelledImages, *, train_set: LabelledImages
    ) -> None:
        super().__init__(model)
        self.metric, self.dataset, self.shape = config.select, dataset, input_shape(train_set, config)
        self.read = reader(evaluation_transform(config, files=train_set.shape is None), self.shape[1:])
        self.known = labels_among(dataset.classes, train_set.classes)
        missing = [name for name, label in zip(dataset.classes, self.known.tolist(), strict=True) if label < 0]
        if missing:
            raise ValueError(
                f"validation must have the classes of the train set, got {dataset.name} with {', '.join(missing[:5])}"
            )
        if dataset.shape is not None and dataset.shape not in (self.shape, (3, *self.shape[1:])):  # colours become grey
            raise ValueError(f"validation must have images of {self.shape}, as the network sees, got {dataset.shape}")
        self.epoch = torch.zeros((), dtype=torch.int64, device=self.device)
        self.value = precise(torch.full((), math.nan, device=self.device))
        self.counters = {"selected_epoch": self.epoch, "selected_value": self.value}
        if self.metric == "last":
            self.counters, self.values = {}, {}

    def end_epoch(self, epoch: int, model: nn.Module, average: Copy | None, ranks: Ranks) -> dict[str, float]:
        """Measure the model, or its running mean if there is one, and keep the weights if they are the best so far.

        epoch: how many have ended. Return all metrics by the names of the history.
        """
        with average.in_place() if average is not None else nullcontext():
            measured = self.measure(model, ranks)
        if self.metric != "last" and self._is_best(measured[self.metric]):
            copy_values(average.values if average is not None else self.live, self.values)
            self.epoch.fill_(epoch)
            self.value.fill_(measured[self.metric])
        return {name.replace("-", "_"): number for name, number in measured.items()}

    def _is_best(self, number: float) -> bool:
        sign = 1 if higher_is_better(self.metric.removeprefix("val-")) else -1
        return int(self.epoch) == 0 or bool(sign * self.value.new_tensor(number) > sign * self.value)

    @torch.no_grad()
    def measure(self, model: nn.Module, ranks: Ranks) -> dict[str, float]:
        """Return each metric on the validation images, not augmented, in float32. Ranks share whole batches."""
        model.eval()
        logits: list[Tensor] = []
        rows = ranks.share(len(self.dataset), unit=_BATCH)
        with products("float32"):
            for part in clean_parts(self.dataset, self.read, rows=rows):
                images = match_channels(part.images, self.shape[0])
                logits += [model(x.to(self.device)).float().cpu() for x in images.split(_BATCH)]
        gathered = [batch for part in ranks.to_first(logits) for batch in part]
        if not ranks.first:
            return ranks.from_first({})
        whole, labels = torch.cat(gathered).double(), self.known[self.dataset.labels]
        return ranks.from_first({name: metric(whole, labels) for name, metric in METRICS.items()})

    def record(self) -> dict[str, Any]:
        return {"epoch": int(self.epoch), "by": self.metric, "value": float(self.value), "on": self.dataset.name}
