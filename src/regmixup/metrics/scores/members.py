"""What the members of an ensemble disagree about."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regmixup.metrics.ordering import precise
from regmixup.threads import each_piece

_CHUNK = 2**20


def mutual_information(member_logits: Tensor) -> Tensor:
    """H(mean_m p_m) - mean_m H(p_m), in nats: what a sample's class would tell about the member (Houlsby et al., 2011).

    member_logits: (M, N, K), p_m = softmax of member m -> (N,) float64, from 0, where all agree, to log min(M, K).
    Written as mean_m KL(p_m || mean p), whose terms do not cancel where the entropies are large and alike.

    >>> mutual_information(torch.tensor([[[100.0, 0.0]], [[0.0, 100.0]]])).exp()
    tensor([2.], dtype=torch.float64)
    """
    member_logits = torch.as_tensor(member_logits)
    if member_logits.ndim != 3 or 0 in (member_logits.shape[0], member_logits.shape[2]):
        raise ValueError(f"member_logits must have shape (M, N, K), got {tuple(member_logits.shape)}")
    rows = max(1, _CHUNK // (member_logits.shape[0] * member_logits.shape[2]))
    return torch.cat(each_piece(_mean_divergence, member_logits.split(rows, dim=1)))


def _mean_divergence(member_logits: Tensor) -> Tensor:
    log_probs = precise(member_logits).log_softmax(dim=2)
    log_mean = log_probs.logsumexp(dim=0) - math.log(len(log_probs))
    divergence = (log_probs.exp() * (log_probs - log_mean)).sum(dim=2)
    return divergence.mean(dim=0).clamp(min=0)
