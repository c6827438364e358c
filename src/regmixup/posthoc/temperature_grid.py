"""Find the temperature of the smallest ECE among thousands, exactly, at the cost of a few hundred sums.

With s_k <= 0 the logits of a sample less their largest, its confidence at temperature T is c(T) = 1 / Z(T), where
Z(T) = sum_k exp(s_k / T). Three facts make the search quick:

1. c is analytic in u = log T as long as |Im u| < w, where cot w = (2 / pi) log(2 (K - 1)): a term of Z whose real part
   is negative there has turned by more than pi / 2, so it is smaller than exp(-cot(w) pi / 2) = 1 / (2 (K - 1)); hence
   Re Z > 1/2 and |c| < 2. Interpolation between n + 1 Chebyshev points on a range of length 2 h is therefore within
   8 rho^-n / (rho - 1) of c, with rho = w/h + sqrt(1 + (w/h)^2) (Trefethen, Approximation Theory and Approximation
   Practice, Theorem 8.2). The range is cut into halvings of T, on each of which n follows from K and the tolerance.
2. Halving T squares every exp(s_k / T): one multiplication instead of one exponential.
3. c falls as T grows, so over the grid a sample leaves each bin once. When, a binary search tells; the sums over a bin
   then change by those samples only, and are sums over Chebyshev points until the very end.

Temperatures at which the tolerance could matter (a sample as close as that to an edge, or an ECE as close to the
smallest) are computed again as the formula stands. The result is that of trying every temperature.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regmixup.metrics.calibration import ece_from_gaps, ece_of_confidence
from regmixup.metrics.outcomes import equal_width_edges
from regmixup.metrics.pieces import in_order

_TOLERANCE = 1e-10
_CHUNK = 2**22
_PIECE = 2**18  # float64 numbers that stay in the cache while they are squared again and again
_SQUARINGS = 8  # each doubles the rounding error of 1e-16


def smallest_ece(logits: Tensor, labels: Tensor, temperatures: Tensor, num_bins: int) -> tuple[int, float]:
    """Return the first place of the smallest ECE among rising temperatures (T,), float64, and that ECE.

    logits: (N, K). labels: (N,).
    """
    correct = (logits.argmax(dim=1) == labels).double()
    ece, doubt = interpolated_ece(logits, correct, temperatures, num_bins)
    places = (ece - doubt <= (ece + doubt).min()).nonzero().squeeze(1)
    parts = temperatures[places].split(max(1, _CHUNK // len(labels)))
    exact = torch.cat([ece_of_confidence(_confidence(logits, part), correct, num_bins) for part in parts])
    best = int(exact.argmin())
    return int(places[best]), float(exact[best])


def interpolated_ece(logits: Tensor, correct: Tensor, temperatures: Tensor, num_bins: int) -> tuple[Tensor, Tensor]:
    """Return the ECE at every temperature, (T,), and by how much each may be off. correct: (N,), 1 or 0."""
    low, high = float(temperatures[0]), float(temperatures[-1])
    ece, doubt = torch.empty_like(temperatures), torch.empty_like(temperatures)
    nodes = _nodes(high, logits)
    norms = _norms(logits, nodes, panels=int(math.log2(high / low)) + 1)
    for panel, norm in enumerate(norms):
        scaled = temperatures * 2**panel
        inside = (scaled <= high) & (2 * scaled > high)
        if inside.any():
            ece[inside], close = _ece(_weights(scaled[inside], nodes), norm.reciprocal(), correct, num_bins)
            # Moving one sample to another bin changes two gaps by at most 1 / N each.
            doubt[inside] = 10 * _TOLERANCE + 2 * close / len(correct)
    return ece, doubt


def _ece(weights: Tensor, confidence: Tensor, correct: Tensor, num_bins: int) -> tuple[Tensor, Tensor]:
    """Return the ECE at each temperature, and how many samples are too close to an edge to be sure of their bin.

    The confidences at the T temperatures are weights (T, m) @ confidence (m, N).
    """
    count, samples = len(weights), len(correct)
    edges = equal_width_edges(num_bins, weights)[1:-1]
    edges = torch.cat([edges + 2 * _TOLERANCE, edges - 2 * _TOLERANCE])
    columns = torch.cat([confidence, correct[None]]).T.contiguous()
    # leaving[b, t]: the sums of `columns` over the samples above edge b at the first t temperatures and no more.
    leaving = weights.new_zeros(num_bins + 1, count + 1, columns.shape[1])
    leaving[0, count] = columns.sum(dim=0)
    close = weights.new_zeros(count + 1)
    for rows in torch.arange(samples, device=weights.device).split(max(1, _CHUNK // count)):
        rising = confidence[:, rows].T @ weights.flip(0).T
        above = count - torch.searchsorted(rising, edges.repeat(len(rows), 1), right=True)
        surely, possibly = above[:, : num_bins - 1], above[:, num_bins - 1 :]
        for b in range(1, num_bins):
            leaving[b].index_add_(0, surely[:, b - 1], columns[rows])
        ones = close.new_ones(1).expand(surely.numel())
        close.index_add_(0, surely.flatten(), ones).index_add_(0, possibly.flatten(), ones, alpha=-1)
    staying = leaving.flip(1).cumsum_(1).flip(1)[:, 1:]
    gap = (staying[..., :-1] * weights).sum(dim=2) - staying[..., -1]
    return ece_from_gaps(gap.diff(dim=0).T, samples), close.cumsum(0)[:-1]


def _shifted(logits: Tensor) -> Tensor:
    logits = logits.double()
    return logits - logits.amax(dim=1, keepdim=True)


def _confidence(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Return 1 / Z of every sample, (T, N), as written; in chunks, so that memory stays small."""
    parts = logits.split(max(1, _CHUNK // (logits.shape[1] * len(temperatures))))
    by_temperature = temperatures[:, None, None]
    return torch.cat([(_shifted(part) / by_temperature).exp_().sum(dim=2) for part in parts], dim=1).reciprocal()


def _nodes(high: float, logits: Tensor) -> Tensor:
    """Return (m,) Chebyshev points in log T on [high / 2, high], as many as K and the tolerance ask for."""
    classes = max(2, logits.shape[1])
    ratio = math.atan(math.pi / (2 * math.log(2 * (classes - 1)))) / (math.log(2) / 2)
    rho = ratio + math.sqrt(1 + ratio**2)
    degree = math.ceil(math.log(8 / ((rho - 1) * _TOLERANCE)) / math.log(rho))
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
    list(in_order(fill, logits, piece))
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
