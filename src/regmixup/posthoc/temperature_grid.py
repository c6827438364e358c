"""Find the best of thousands of temperatures, exactly, at the cost of a few hundred sums.

With s_k <= 0 the logits of a sample less their largest, its confidence at temperature T is c(T) = 1 / Z(T), where
Z(T) = sum_k exp(s_k / T). Three facts make the search quick:

1. c is analytic in u = log T as long as |Im u| < w, where cot w = (2 / pi) log(2 (K - 1)): a term of Z whose real part
   is negative there has turned by more than pi / 2, so it is smaller than exp(-cot(w) pi / 2) = 1 / (2 (K - 1)); hence
   Re Z > 1/2 and |c| < 2. Interpolation between n + 1 Chebyshev points on a range of length 2 h is therefore within
   4 M rho^-n / (rho - 1) of c, with rho = w/h + sqrt(1 + (w/h)^2) and M = 2, and of log Z with M = 2 + log K
   (Trefethen, Approximation Theory and Approximation Practice, Theorem 8.2). The range is cut into halvings of T, on
   each of which n follows from K and the tolerance.
2. Halving T squares every exp(s_k / T): one multiplication instead of one exponential.
3. c falls as T grows, so over the grid a sample leaves each bin once. When, a binary search tells; the sums over a bin
   then change by those samples only, and are sums over Chebyshev points until the very end.

Temperatures at which the tolerance could matter (a sample as close as that to an edge, or a value as close to the
smallest) are computed again as the formula stands. The result is that of trying every temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from regmixup.metrics.calibration import ece_from_gaps, ece_of_confidence
from regmixup.metrics.ordering import pieces_of
from regmixup.metrics.outcomes import equal_width_edges
from regmixup.metrics.threads import in_order

_TOLERANCE = 1e-10
_CHUNK = 2**22
_PIECE = 2**18  # float64 numbers that stay in the cache while they are squared again and again
_SQUARINGS = 8  # each doubles the rounding error of 1e-16


@dataclass(frozen=True)
class TemperatureSearch:
    """The smallest value of a criterion at rising temperatures (T,), float64, on logits (N, K) and labels (N,)."""

    logits: Tensor
    labels: Tensor
    temperatures: Tensor
    criterion: Literal["ece", "nll"]
    num_bins: int

    def smallest(self) -> tuple[int, float]:
        """Return the first place of the smallest value, and that value."""
        objective, doubt = self._interpolated()
        places = (objective - doubt <= (objective + doubt).min()).nonzero().squeeze(1)
        exact = self._exact(self.temperatures[places])
        best = int(exact.argmin())
        return int(places[best]), float(exact[best])

    def _interpolated(self) -> tuple[Tensor, Tensor]:
        """Return every value, (T,), and by how much each may be off."""
        low, high = float(self.temperatures[0]), float(self.temperatures[-1])
        objective = torch.empty_like(self.temperatures)
        doubt = torch.full_like(objective, 10 * _TOLERANCE)
        nodes = _nodes(high, self.logits)
        norms = _norms(self.logits, nodes, panels=int(math.log2(high / low)) + 1)
        for panel, norm in enumerate(norms):
            scaled = self.temperatures * 2**panel
            inside = (scaled <= high) & (2 * scaled > high)
            if not inside.any():
                continue
            weights = _weights(scaled[inside], nodes)
            if self.criterion == "nll":
                mean = self._label_logit.mean()
                objective[inside] = weights @ norm.log().mean(dim=1) - mean / self.temperatures[inside]
            else:
                objective[inside], close = self._ece(weights, norm.reciprocal())
                # Moving one sample to another bin changes two gaps by at most 1 / N each.
                doubt[inside] += 2 * close / len(self.labels)
        return objective, doubt

    def _ece(self, weights: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ECE at each temperature, and how many samples are too close to an edge to be sure of their bin.

        The confidences at the T temperatures are weights (T, m) @ confidence (m, N).
        """
        count, samples = len(weights), len(self.labels)
        edges = equal_width_edges(self.num_bins, weights)[1:-1]
        edges = torch.cat([edges + 2 * _TOLERANCE, edges - 2 * _TOLERANCE])
        columns = torch.cat([confidence, self._correct[None]]).T.contiguous()
        # leaving[b, t]: the sums of `columns` over the samples above edge b at the first t temperatures and no more.
        leaving = weights.new_zeros(self.num_bins + 1, count + 1, columns.shape[1])
        leaving[0, count] = columns.sum(dim=0)
        close = weights.new_zeros(count + 1)
        for rows in torch.arange(samples, device=weights.device).split(max(1, _CHUNK // count)):
            rising = confidence[:, rows].T @ weights.flip(0).T
            above = count - torch.searchsorted(rising, edges.repeat(len(rows), 1), right=True)
            surely, possibly = above[:, : self.num_bins - 1], above[:, self.num_bins - 1 :]
            for b in range(1, self.num_bins):
                leaving[b].index_add_(0, surely[:, b - 1], columns[rows])
            ones = close.new_ones(1).expand(surely.numel())
            close.index_add_(0, surely.flatten(), ones).index_add_(0, possibly.flatten(), ones, alpha=-1)
        staying = leaving.flip(1).cumsum_(1).flip(1)[:, 1:]
        gap = (staying[..., :-1] * weights).sum(dim=2) - staying[..., -1]
        return ece_from_gaps(gap.diff(dim=0).T, samples), close.cumsum(0)[:-1]

    def _exact(self, temperatures: Tensor) -> Tensor:
        """Return the criterion as written, (T,), from log Z, which is minus the logarithm of the confidence."""
        objectives = []
        for part in temperatures.split(max(1, _CHUNK // len(self.labels))):
            log_norm = _log_norm(self.logits, part)
            if self.criterion == "nll":
                objectives.append((log_norm - self._label_logit / part[:, None]).mean(dim=1))
            else:
                objectives.append(ece_of_confidence((-log_norm).exp(), self._correct, self.num_bins))
        return torch.cat(objectives)

    @cached_property
    def _correct(self) -> Tensor:
        """(N,): 1 where the largest logit is the label's, else 0."""
        return (self.logits.argmax(dim=1) == self.labels).double()

    @cached_property
    def _label_logit(self) -> Tensor:
        """(N,): the label's logit less the largest."""
        label_logit = self.logits.gather(1, self.labels[:, None]).squeeze(1)
        return label_logit.double() - self.logits.amax(dim=1).double()


def _shifted(logits: Tensor) -> Tensor:
    logits = logits.double()
    return logits - logits.amax(dim=1, keepdim=True)


def _log_norm(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Return log Z of every sample, (T, N), as written; in chunks, so that memory stays small."""
    parts = logits.split(max(1, _CHUNK // (logits.shape[1] * len(temperatures))))
    by_temperature = temperatures[:, None, None]
    return torch.cat([(_shifted(part) / by_temperature).exp_().sum(dim=2).log() for part in parts], dim=1)


def _nodes(high: float, logits: Tensor) -> Tensor:
    """Return (m,) Chebyshev points in log T on [high / 2, high], as many as K and the tolerance ask for."""
    classes = max(2, logits.shape[1])
    ratio = math.atan(math.pi / (2 * math.log(2 * (classes - 1)))) / (math.log(2) / 2)
    rho = ratio + math.sqrt(1 + ratio**2)
    degree = math.ceil(math.log(4 * (2 + math.log(classes)) / ((rho - 1) * _TOLERANCE)) / math.log(rho))
    angle = torch.arange(degree + 1, dtype=torch.float64, device=logits.device) * (math.pi / degree)
    return high * 2 ** ((angle.cos() - 1) / 2)


def _norms(logits: Tensor, nodes: Tensor, panels: int) -> Tensor:
    """Return Z, (P, m, N), at the nodes, at half their temperatures, and so on."""
    norms = nodes.new_empty(panels, len(nodes), len(logits))
    ones = nodes.new_ones(logits.shape[1])

    def fill(rows: slice) -> None:
        shifted = _shifted(logits[rows])
        for node, temperature in enumerate(nodes.tolist()):
            for panel in range(panels):
                if panel % _SQUARINGS == 0:
                    power = (shifted / (temperature / 2**panel)).exp_()
                else:
                    power.square_()
                norms[panel, node, rows] = power @ ones

    piece = _PIECE if logits.device.type == "cpu" else _CHUNK
    list(in_order(fill, pieces_of(logits, piece), logits.device))
    return norms


def _weights(temperatures: Tensor, nodes: Tensor) -> Tensor:
    """Return barycentric weights (T, m): values at these temperatures are weights @ (values at the nodes)."""
    signs = torch.ones_like(nodes)
    signs[1::2] = -1
    signs[0] /= 2
    signs[-1] /= 2
    distance = temperatures.log()[:, None] - nodes.log()
    # On a node the formula divides by zero; a distance this small gives that node's value to the last digit.
    terms = signs / torch.where(distance == 0, 1e-300, distance)
    return terms / terms.sum(dim=1, keepdim=True)
