"""Temperature scaling: divide logits by one number, chosen on validation data (Guo et al., 2017).

The grid has 9,901 temperatures, and each needs log sum_k exp(s_k / T) of every sample. That is a smooth function of
log T, so it is computed at a few Chebyshev nodes and interpolated to 1e-10; whatever that could leave in doubt (samples
that close to the edge of a bin, and the best temperatures) is then computed again exactly. The answer is that of the
whole grid by brute force.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_choices, check_count, check_number
from regmixup.posthoc._ece import ece_of_confidence, ece_of_probs

_TOLERANCE = 1e-10
_CHUNK = 2**22


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
        logits, labels = _checked(logits, labels)
        shifted = logits - logits.amax(dim=1, keepdim=True)
        grid = self._grid().to(logits.device)

        def values(temperatures: Tensor, log_norm: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
            parts = temperatures.split(max(1, _CHUNK // len(labels)))
            found = [self._criterion(log_norm(part), shifted, labels, part) for part in parts]
            return torch.cat([value for value, _ in found]), torch.cat([doubt for _, doubt in found])

        value, doubtful = values(grid, _interpolated_log_norm(shifted, self.low, self.high))
        again = doubtful | (value <= value.min() + 10 * _TOLERANCE)
        value[again] = values(grid[again], lambda temperatures: _log_norm(shifted, temperatures))[0]
        best = int(value.argmin())
        return self._fitted(grid, best, float(value[best]))

    def fit_predictive(self, probs_at: Callable[[float], Tensor], labels: Tensor) -> FittedTemperature:
        """Fit where probabilities are no softmax of logits / T, but have to be computed anew for each temperature.

        probs_at: temperature -> (N, K). The grid is searched from coarse to fine: in steps of about 0.1 everywhere,
        then of 0.01 and 0.001 around the best so far. That is some 140 temperatures and not the 9,901 of the whole
        grid: where the criterion has several valleys, it can miss the deepest.
        """
        grid = self._grid()
        values: dict[int, float] = {}

        def best_of(indices: range) -> int:
            for i in indices:
                if i not in values:
                    values[i] = self._value(probs_at(round(float(grid[i]), 9)), labels)
            return min(sorted(values), key=values.__getitem__)

        # The widest of 1, 10 and 100 steps of the grid that is no more than about 0.1.
        coarse = max(stride for stride in (1, 10, 100) if stride == 1 or stride * self.step < 0.11)
        best = best_of(range(0, len(grid), coarse))
        while coarse > 1:
            finer = coarse // 10
            best = best_of(range(max(best - coarse, 0), min(best + coarse + 1, len(grid)), finer))
            coarse = finer
        return self._fitted(grid, best, values[best])

    def _grid(self) -> Tensor:
        count = round((self.high - self.low) / self.step) + 1
        return torch.linspace(self.low, self.high, count, dtype=torch.float64)

    def _fitted(self, grid: Tensor, best: int, value: float) -> FittedTemperature:
        """The result, with a warning if it lies on the edge."""
        if best in (0, len(grid) - 1) and len(grid) > 1:
            warnings.warn(
                f"the best temperature, {grid[best]:g}, lies on the edge of [{self.low:g}, {self.high:g}]: "
                "the search range may be too narrow for these logits",
                stacklevel=3,
            )
        return FittedTemperature(round(float(grid[best]), 9), value)

    def _value(self, probs: Tensor, labels: Tensor) -> float:
        """The criterion of probabilities."""
        probs, labels = _checked(probs, labels, name="probs")
        if self.criterion == "nll":
            return float(-probs.gather(1, labels[:, None]).log().mean())
        return ece_of_probs(probs, labels, self.num_bins)

    def _criterion(
        self, log_norm: Tensor, shifted: Tensor, labels: Tensor, temperatures: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The criterion at several temperatures, (T,), and whether an error of the tolerance could change it much.

        shifted: logits whose largest is 0, so log_norm (T, N) is minus the logarithm of the confidence.
        """
        if self.criterion == "nll":
            own = shifted.gather(1, labels[:, None]).squeeze(1) / temperatures[:, None]
            return (log_norm - own).mean(dim=1), torch.zeros_like(temperatures, dtype=torch.bool)
        confidence = (-log_norm).exp()
        correct = (shifted.argmax(dim=1) == labels).double()
        position = confidence * self.num_bins
        near_edge = ((position - position.round()).abs() < 2 * self.num_bins * _TOLERANCE) & (confidence < 1)
        return ece_of_confidence(confidence, correct, self.num_bins), near_edge.any(dim=1)


def _checked(logits: Tensor, labels: Tensor, name: str = "logits") -> tuple[Tensor, Tensor]:
    logits, labels = torch.as_tensor(logits).double(), torch.as_tensor(labels)
    if labels.is_floating_point():
        raise ValueError(f"labels must be integers, got {labels.dtype}")
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(logits) == 0:
        raise ValueError(
            f"{name} and labels must be (N, K) and (N,), N >= 1, got {tuple(logits.shape)}, {tuple(labels.shape)}"
        )
    if not torch.isfinite(logits).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(
            f"labels must lie in [0, {logits.shape[1]}), got values from {int(labels.min())} to {int(labels.max())}"
        )
    return logits, labels.long()


def _log_norm(shifted: Tensor, temperatures: Tensor) -> Tensor:
    """log sum_k exp(s_k / T), (T, N), as written; in chunks, so that memory stays small."""
    parts = temperatures.split(max(1, _CHUNK // shifted.numel()))
    return torch.cat([(shifted / part[:, None, None]).exp().sum(dim=2).log() for part in parts])


def _interpolated_log_norm(shifted: Tensor, low: float, high: float) -> Callable[[Tensor], Tensor]:
    """The same function, interpolated over Chebyshev nodes in log T; exact where that misses the tolerance."""
    if high > low:
        probes = torch.exp(torch.linspace(math.log(low), math.log(high), 13, dtype=torch.float64)).to(shifted.device)
        exact = _log_norm(shifted, probes)
        for nodes in (64, 128, 256):
            interpolant = _Chebyshev(shifted, low, high, nodes)
            if float((interpolant(probes) - exact).abs().max()) < _TOLERANCE:
                return interpolant
    return lambda temperatures: _log_norm(shifted, temperatures)


class _Chebyshev:
    """Barycentric interpolation in log T between the values at Chebyshev nodes."""

    def __init__(self, shifted: Tensor, low: float, high: float, nodes: int) -> None:
        angle = torch.arange(nodes, dtype=torch.float64, device=shifted.device) * (math.pi / (nodes - 1))
        self.middle, self.half = (math.log(high) + math.log(low)) / 2, (math.log(high) - math.log(low)) / 2
        self.nodes = angle.cos()
        self.weights = torch.ones_like(angle)
        self.weights[1::2] = -1
        self.weights[0] /= 2
        self.weights[-1] /= 2
        self.values = _log_norm(shifted, (self.middle + self.half * self.nodes).exp())

    def __call__(self, temperatures: Tensor) -> Tensor:
        distance = ((temperatures.log() - self.middle) / self.half)[:, None] - self.nodes
        # On a node the formula divides by zero; a distance this small gives that node's value to the last digit.
        distance = torch.where(distance == 0, 1e-300, distance)
        terms = self.weights / distance
        return (terms / terms.sum(dim=1, keepdim=True)) @ self.values
