"""Model selection: `Validation` measures the model after every epoch, `Selection` keeps the weights of the best one.

Where the last epoch is the model, the history gets the same numbers, and no weights are kept. The set is one that
`roles.check_validation` admits: no test, shifted or OOD set, and no image that was trained on. The kept weights, their
epoch and their value are part of every checkpoint, so a resumed run selects as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.data.images import LabelledImages, labels_among
from regmixup.metrics import accuracy, brier
from regmixup.metrics.pieces import precise
from regmixup.networks.precision import float32_products
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.loading import evaluation_transform, input_shape, make_decoder, match_channels, some_parts
from regmixup.training.weight_copies import WeightCopy, copy_values
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


class Validation:
    """The validation set as the network sees it. train_set: the images that are trained on."""

    def __init__(
        self, config: TrainConfig, dataset: LabelledImages, device: torch.device, *, train_set: LabelledImages
    ) -> None:
        self.dataset, self.device, self.shape = dataset, device, input_shape(train_set, config)
        self.decode = make_decoder(evaluation_transform(config, files=train_set.shape is None), self.shape[1:])
        self.known = labels_among(dataset.classes, train_set.classes)
        missing = [name for name, label in zip(dataset.classes, self.known.tolist(), strict=True) if label < 0]
        if missing:
            raise ValueError(
                f"validation must have the classes of the train set, got {dataset.name} with {', '.join(missing[:5])}"
            )
        if dataset.shape is not None and dataset.shape not in (self.shape, (3, *self.shape[1:])):  # colours become grey
            raise ValueError(f"validation must have images of {self.shape}, as the network sees, got {dataset.shape}")

    @torch.no_grad()
    def measure(self, model: nn.Module, ranks: Ranks) -> dict[str, float]:
        """Return each metric of a model in float32, by its name in the history.

        The images are not augmented; ranks share whole batches.
        """
        model.eval()
        logits: list[Tensor] = []
        rows = ranks.share(len(self.dataset), unit=_BATCH)
        with float32_products("float32"):
            for part in some_parts(self.dataset, rows, self.decode):
                images = match_channels(part.images, self.shape[0])
                logits += [model(x.to(self.device)).float().cpu() for x in images.split(_BATCH)]
        gathered = [batch for part in ranks.to_first(logits) for batch in part]
        measured = {}
        if ranks.is_first:
            whole, labels = torch.cat(gathered).double(), self.known[self.dataset.labels]
            measured = {name.replace("-", "_"): metric(whole, labels) for name, metric in METRICS.items()}
        return ranks.from_first(measured)


class Selection(WeightCopy):
    """The weights of the best epoch by one of `METRICS`; before the first epoch has ended, the initial ones."""

    prefix = "best."

    def __init__(self, model: nn.Module, metric: str) -> None:
        super().__init__(model)
        self.metric = metric
        self.epoch = torch.zeros((), dtype=torch.int64, device=self.device)
        self.value = precise(torch.full((), math.nan, device=self.device))
        self.counters = {"selected_epoch": self.epoch, "selected_value": self.value}

    def keep_best(self, epoch: int, measured: dict[str, float]) -> None:
        """Keep the model's weights if they are the best so far.

        epoch: how many have ended. measured: what `Validation.measure` returned.
        """
        number = measured[self.metric.replace("-", "_")]
        sign = 1 if higher_is_better(self.metric.removeprefix("val-")) else -1
        if int(self.epoch) == 0 or bool(sign * self.value.new_tensor(number) > sign * self.value):
            copy_values(self.live, self.values)
            self.epoch.fill_(epoch)
            self.value.fill_(number)

    def record(self, dataset: str) -> dict[str, Any]:
        return {"epoch": int(self.epoch), "by": self.metric, "value": float(self.value), "on": dataset}
