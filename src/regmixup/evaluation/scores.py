"""Out-of-distribution scores from logits (N, K) -> (N,). Larger means more out-of-distribution, always.

Computed in float64 (float32 on devices without it), so that ties come from the logits and not from the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regmixup.types import Predictions


def _precise(logits: Tensor) -> Tensor:
    logits = torch.as_tensor(logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (N, K), got {tuple(logits.shape)}")
    return logits.float() if logits.device.type == "mps" else logits.double()


def entropy(logits: Tensor) -> Tensor:
    """-sum_k p_k log p_k of the softmax, in nats, at most log K (the paper's H).

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    log_probs = _precise(logits).log_softmax(dim=1)
    return torch.special.entr(log_probs.exp()).sum(dim=1)


def dempster_shafer(logits: Tensor) -> Tensor:
    """K / (K + sum_k exp s_k), written as sigmoid(log K - logsumexp s) so that it cannot overflow (the paper's DS).

    >>> dempster_shafer(torch.zeros(1, 4))
    tensor([0.5000], dtype=torch.float64)
    """
    logits = _precise(logits)
    return torch.sigmoid(math.log(logits.shape[1]) - logits.logsumexp(dim=1))


def energy(logits: Tensor) -> Tensor:
    """-logsumexp s: a monotone function of DS, hence the same AUROC."""
    return -_precise(logits).logsumexp(dim=1)


def max_probability(logits: Tensor) -> Tensor:
    """1 - max_k p_k."""
    # The sum of the other probabilities keeps its digits where 1 - p would round to zero.
    probs = _precise(logits).softmax(dim=1)
    top = probs.argmax(dim=1, keepdim=True)
    return probs.scatter(1, top, 0.0).sum(dim=1)


def max_logit(logits: Tensor) -> Tensor:
    """-max_k s_k."""
    return -_precise(logits).amax(dim=1)


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (dempster_shafer, entropy, energy, max_probability, max_logit)
}
# These see nothing of the logits but their softmax, so log-probabilities can stand in for logits.
SCORES_OF_PROBS = frozenset({"entropy", "max_probability"})


def score_all(predictions: Predictions) -> dict[str, Tensor]:
    """Every score of every sample, by name, without temperature.

    Where the predictions have `probs` of their own (Monte-Carlo, mean of probabilities), entropy and max_probability
    are those of `probs`; the other scores are always those of the logits.
    """
    logits = predictions.logits
    log_probs = logits if predictions.probs is None else predictions.probs.log()
    return {name: score(log_probs if name in SCORES_OF_PROBS else logits) for name, score in SCORES.items()}
