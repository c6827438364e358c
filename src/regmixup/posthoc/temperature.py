"""Temperature scaling: divide logits by one number, chosen on validation data (Guo et al., 2017)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_choices, check_count, check_number


@dataclass(frozen=True)
class FittedTemperature:
    """Logits -> logits / temperature. `objective` is the criterion's value on the data it was fitted on."""

    temperature: float
    objective: float

    def __call__(self, logits: Tensor) -> Tensor:
        return logits / self.temperature


@dataclass(frozen=True, kw_only=True)
class TemperatureScaling:
    """Search T over 0.100, 0.101, ..., 10.000 for the smallest validation criterion, as the paper does with ECE.

    criterion: "ece" over `num_bins` equal-width bins (the paper), or "nll". The first smallest value wins.
    """

    criterion: Literal["ece", "nll"] = "ece"
    low: float = 0.1
    high: float = 10.0
    step: float = 0.001
    num_bins: int = 15

    def __post_init__(self) -> None:
        check_choices(self)
        check_number("low", self.low, above=0)
        check_number("high", self.high, least=self.low)
        check_number("step", self.step, above=0)
        check_count("num_bins", self.num_bins)

    def fit(self, logits: Tensor, labels: Tensor) -> FittedTemperature:
        """Fit on validation logits (N, K) and labels (N,)."""
        logits, labels = torch.as_tensor(logits).double(), torch.as_tensor(labels)
        if labels.is_floating_point():
            raise ValueError(f"labels must be integers, got {labels.dtype}")
        labels = labels.long()
        if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(logits) == 0:
            raise ValueError(
                f"logits and labels must be (N, K) and (N,), N >= 1, got {tuple(logits.shape)}, {tuple(labels.shape)}"
            )
        if not torch.isfinite(logits).all():
            raise ValueError("logits must be finite, got NaN or infinite values")
        if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
            raise ValueError(
                f"labels must lie in [0, {logits.shape[1]}), got values from {int(labels.min())} to {int(labels.max())}"
            )
        count = round((self.high - self.low) / self.step) + 1
        grid = torch.linspace(self.low, self.high, count, dtype=torch.float64, device=logits.device)
        chunk = max(1, 2**22 // logits.numel())
        values = torch.cat([self._criterion(logits, labels, part) for part in grid.split(chunk)])
        best = int(values.argmin())
        if best in (0, count - 1) and count > 1:
            warnings.warn(
                f"the best temperature, {grid[best]:g}, lies on the edge of [{self.low:g}, {self.high:g}]: "
                "the search range may be too narrow for these logits",
                stacklevel=2,
            )
        return FittedTemperature(round(float(grid[best]), 9), float(values[best]))

    def _criterion(self, logits: Tensor, labels: Tensor, temperatures: Tensor) -> Tensor:
        """The criterion at several temperatures at once, (T,). Shifted logits: the largest is 0."""
        shifted = logits - logits.amax(dim=1, keepdim=True)
        log_norm = (shifted / temperatures[:, None, None]).exp().sum(dim=2).log()
        if self.criterion == "nll":
            own = shifted.gather(1, labels[:, None]).squeeze(1) / temperatures[:, None]
            return (log_norm - own).mean(dim=1)
        confidence = (-log_norm).exp()
        correct = (logits.argmax(dim=1) == labels).double()
        edges = torch.arange(self.num_bins + 1, dtype=torch.float64, device=logits.device) / self.num_bins
        index = torch.bucketize(confidence, edges).sub_(1).clamp_(0, self.num_bins - 1)
        gap = torch.zeros(len(temperatures), self.num_bins, dtype=torch.float64, device=logits.device)
        gap.scatter_add_(1, index, confidence - correct)
        return gap.abs().sum(dim=1) / len(labels)
