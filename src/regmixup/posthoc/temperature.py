"""Temperature scaling: divide logits by one number T, chosen on validation data (Guo et al., 2017).

T is chosen in `TemperatureScaling.fit`: the best of the paper's 9,901 temperatures by the ECE of the validation set.
`temperature_grid` finds it without trying them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import Checked, Count, Positive, check_number
from regmixup.metrics.calibration import ece
from regmixup.metrics.outcomes import check_labels
from regmixup.names import warn_user
from regmixup.posthoc.temperature_grid import smallest_ece
from regmixup.types import as_tensor, refuse_probs


@dataclass(frozen=True)
class FittedTemperature:
    """Logits -> logits / temperature. `objective` is the ECE on the data it was fitted on."""

    temperature: float
    objective: float

    def __call__(self, logits: Tensor) -> Tensor:
        return logits / self.temperature


WORSE = 1.1
"""How much a temperature by ECE may raise the NLL before a warning."""


@dataclass(frozen=True, kw_only=True)
class TemperatureScaling(Checked):
    """Search T over 0.100, 0.101, ..., 10.000 for the smallest validation ECE, as the paper does."""

    low: Positive = 0.1
    high: Positive = 10.0
    step: Positive = 0.001
    num_bins: Count = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("high", self.high, least=self.low)

    def fit(self, logits: Tensor, labels: Tensor) -> FittedTemperature:
        """Fit on validation logits (N, K) and labels (N,).

        By ECE, as the paper's tables. Deployed models, fitted on few images, have a T by NLL with a prior instead:
        `deployment.calibration.fit_temperature`.
        """
        logits, labels = check_logits(logits, labels)
        refuse_probs(logits)
        grid = self._grid().to(logits.device)
        place, error = smallest_ece(logits, labels, grid, self.num_bins)
        fitted = self._fitted(grid, place, error)
        before = float(F.cross_entropy(logits.double(), labels))
        after = float(F.cross_entropy(fitted(logits).double(), labels))
        if after > WORSE * before:
            warn_user(
                f"the best temperature by ECE, {fitted.temperature:g}, makes the NLL of the {len(labels)} validation "
                f"images worse, {before:.3f} to {after:.3f}: they may be too few",
            )
        return fitted

    def fit_predictive(self, probs_at: Callable[[float], Tensor], labels: Tensor) -> FittedTemperature:
        """Fit where probabilities are not the softmax of logits / T and must be computed anew for each temperature.

        probs_at: temperature -> (N, K). The grid is searched from coarse to fine: in steps of about 0.1 everywhere,
        then of 0.01 and 0.001 around the best so far. That is some 140 temperatures and not the 9,901 of the whole
        grid: where the ECE has several valleys, it can miss the deepest.
        """
        grid = self._grid()
        errors: dict[int, float] = {}

        def search(places: range) -> int:
            """Try those of the places that are new; return the best of all so far."""
            for place in places:
                if place not in errors:
                    probs = probs_at(round(float(grid[place]), 9)).double()
                    errors[place] = ece(probs, labels, num_bins=self.num_bins)
            return min(errors, key=lambda place: (errors[place], place))

        # The widest of 1, 10 and 100 steps of the grid that is no more than about 0.1.
        stride = max(steps for steps in (1, 10, 100) if steps == 1 or steps * self.step < 0.11)
        best = search(range(0, len(grid), stride))
        while stride > 1:
            first, last = max(best - stride, 0), min(best + stride, len(grid) - 1)
            stride //= 10
            best = search(range(first, last + 1, stride))
        return self._fitted(grid, best, errors[best])

    def _grid(self) -> Tensor:
        count = round((self.high - self.low) / self.step) + 1
        return torch.linspace(self.low, self.high, count, dtype=torch.float64)

    def _fitted(self, grid: Tensor, best: int, objective: float) -> FittedTemperature:
        """Return the result, with a warning if it lies on the edge of the grid."""
        if best in (0, len(grid) - 1) and len(grid) > 1:
            warn_user(
                f"the best temperature, {grid[best]:g}, lies on the edge of [{self.low:g}, {self.high:g}]: "
                "the search range may be too narrow for these logits",
            )
        return FittedTemperature(round(float(grid[best]), 9), objective)


def check_logits(logits: Tensor, labels: Tensor, name: str = "logits") -> tuple[Tensor, Tensor]:
    """Return finite logits (N, K), or probabilities by their `name`, and labels (N,), to fit on."""
    logits, labels = torch.as_tensor(logits).detach(), as_tensor("labels", labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(logits) == 0:
        raise ValueError(
            f"{name} and labels must be (N, K) and (N,), N >= 1, got {tuple(logits.shape)}, {tuple(labels.shape)}"
        )
    if not torch.isfinite(logits).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    return logits, check_labels(labels, len(logits), logits.shape[1])
