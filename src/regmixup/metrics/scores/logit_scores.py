"""Out-of-distribution scores from logits, (N, K) -> (N,), and from those of ensemble members, (M, N, K) -> (N,).

Larger means more out-of-distribution, always. Computed in float64 (float32 on devices without it), so that ties come
from the logits and not from the arithmetic. Each takes logits, or a `Softmax` of them, which lets scores share a pass.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from regmixup.config import check_count, check_number
from regmixup.metrics.pieces import map_pieces, precise

_PIECE = 2**20


class Softmax:
    """Quantities that scores of the same logits (N, K) share, each computed when it is first asked for."""

    def __init__(self, logits: Tensor) -> None:
        logits = torch.as_tensor(logits)
        if logits.ndim != 2 or logits.shape[1] == 0:
            raise ValueError(f"logits must have shape (N, K), got {tuple(logits.shape)}")
        self.logits = precise(logits)

    @cached_property
    def top(self) -> Tensor:
        """(N, 1) the class of the largest logit."""
        return self.logits.argmax(dim=1, keepdim=True)

    @cached_property
    def largest(self) -> Tensor:
        """(N,) the largest logit."""
        return self.logits.gather(1, self.top).squeeze(1)

    @cached_property
    def probs(self) -> Tensor:
        return self.logits.softmax(dim=1)

    @cached_property
    def log_sum(self) -> Tensor:
        """(N,) logsumexp s = max_k s_k - log max_k p_k."""
        return self.largest - self.probs.gather(1, self.top).squeeze(1).log()

    def nll(self, labels: Tensor) -> Tensor:
        """Return (N,) -log p_y, finite for finite logits."""
        label_logit = self.logits.gather(1, labels[:, None]).squeeze(1)
        return self.largest - label_logit - self.probs.gather(1, self.top).squeeze(1).log()

    @cached_property
    def rest(self) -> Tensor:
        """(N,) 1 - max_k p_k. The sum of the other probabilities keeps its digits where 1 - p would round to zero."""
        return self.probs.scatter(1, self.top, 0.0).sum(dim=1)


def softmax_of(logits: Tensor | Softmax) -> Softmax:
    return logits if isinstance(logits, Softmax) else Softmax(logits)


def entropy(logits: Tensor | Softmax) -> Tensor:
    """Return -sum_k p_k log p_k of the softmax, in nats, at most log K (the paper's H).

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    probs = softmax_of(logits).probs
    if torch.compiler.is_exporting():  # torch 2.10 and 2.11 fail to decompose entr for ONNX
        return -(probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(dim=1)
    return torch.special.entr(probs).sum(dim=1)


def dempster_shafer(logits: Tensor | Softmax) -> Tensor:
    """Return K / (K + sum_k exp s_k), as sigmoid(log K - logsumexp s), which cannot overflow (the paper's DS).

    >>> dempster_shafer(torch.zeros(1, 4))
    tensor([0.5000], dtype=torch.float64)
    """
    softmax = softmax_of(logits)
    return torch.sigmoid(math.log(softmax.logits.shape[1]) - softmax.log_sum)


def energy(logits: Tensor | Softmax) -> Tensor:
    """Return -logsumexp s: a monotone function of DS, hence the same AUROC."""
    return -softmax_of(logits).log_sum


def max_probability(logits: Tensor | Softmax) -> Tensor:
    """Return 1 - max_k p_k."""
    return softmax_of(logits).rest


def max_logit(logits: Tensor | Softmax) -> Tensor:
    """Return -max_k s_k."""
    return -softmax_of(logits).largest


def gen(logits: Tensor | Softmax, *, gamma: float = 0.1, num_top: int = 100) -> Tensor:
    """Return the generalised entropy sum_j (p_j (1 - p_j))^gamma of the `num_top` likeliest classes (Liu et al., 2023).

    The smaller gamma, the more probabilities near 0 and 1 count. With fewer classes than `num_top` all are summed.

    >>> gen(torch.zeros(1, 2), gamma=0.5)  # 2 sqrt(1/4)
    tensor([1.], dtype=torch.float64)
    """
    check_number("gamma", gamma, above=0)
    check_count("num_top", num_top)
    softmax = softmax_of(logits)
    # p (1 - p) orders the classes of a row like p: p_2 <= min(p_1, 1 - p_1) keeps it on the rising side.
    likeliest = softmax.probs.topk(min(num_top, softmax.probs.shape[1]), dim=1).values
    complements = torch.cat([softmax.rest[:, None], 1 - likeliest[:, 1:]], dim=1)
    return (likeliest * complements).pow(gamma).sum(dim=1)


def odin(logits: Tensor | Softmax, *, temperature: float = 1000.0) -> Tensor:
    """Return 1 - max_k softmax(s / T)_k, the temperature half of ODIN (Liang et al., 2018).

    Its other half, a step of the image along the gradient, needs the model and is left out. For large T the score
    approaches 1 - 1 / K - (max_k s_k - mean_k s_k) / (K T).

    >>> round(1 - odin(torch.tensor([[1000.0, 0.0]])).item(), 4)  # 1 / (1 + 1 / e)
    0.7311
    """
    check_number("temperature", temperature, above=0)
    return max_probability(softmax_of(logits).logits / temperature)


def max_logit_pnorm(logits: Tensor | Softmax, *, p: float = 5.0) -> Tensor:
    """Return -max_k c_k / |c|_p of the centred logits c = s - mean s (MaxLogit-pNorm; Cattelan & Silva, 2024).

    |c|_p = (sum_k |c_k|^p)^(1/p). The scale of the logits cancels: only their shape counts. The authors have no fixed
    p: they choose one of 0 to 9 for each network on validation images, or MSP where that is better. 5 is the middle.
    Equal logits score 0, the most. Two classes always score -2^(-1/p), so there the score says nothing.

    >>> max_logit_pnorm(torch.tensor([[3.0, 0.0, 0.0], [300.0, 0.0, 0.0]]), p=1)  # c = 2, -1, -1
    tensor([-0.5000, -0.5000], dtype=torch.float64)
    """
    if p != math.inf:  # whose norm is the largest |c_k|
        check_number("p", p, least=0)
    softmax = softmax_of(logits)
    # From here nothing cancels: nearly equal logits keep their digits.
    below = softmax.logits - softmax.largest[:, None]
    mean = below.mean(dim=1)
    if below.shape[1] == 2 and p > 0:
        return mean.sign() * 2 ** (-1 / p)  # exactly: by their rounding, scores would rank images and detect some
    return mean / torch.linalg.vector_norm(below - mean[:, None], ord=p, dim=1).clamp_min(1e-12)


def mutual_information(member_logits: Tensor) -> Tensor:
    """Return H(mean_m p_m) - mean_m H(p_m), in nats: what the class tells about the member (Houlsby et al., 2011).

    member_logits: (M, N, K), p_m = softmax of member m -> (N,) float64, from 0, where all agree, to log min(M, K).
    Written as mean_m KL(p_m || mean p), whose terms do not cancel where the entropies are large and alike.

    >>> mutual_information(torch.tensor([[[100.0, 0.0]], [[0.0, 100.0]]])).exp()
    tensor([2.], dtype=torch.float64)
    """
    member_logits = torch.as_tensor(member_logits)
    if member_logits.ndim != 3 or 0 in (member_logits.shape[0], member_logits.shape[2]):
        raise ValueError(f"member_logits must have shape (M, N, K), got {tuple(member_logits.shape)}")

    def mean_divergence(rows: slice) -> Tensor:
        log_probs = precise(member_logits[:, rows]).log_softmax(dim=2)
        log_mean = log_probs.logsumexp(dim=0) - math.log(len(log_probs))
        divergence = (log_probs.exp() * (log_probs - log_mean)).sum(dim=2)
        return divergence.mean(dim=0).clamp(min=0)

    return torch.cat(list(map_pieces(mean_divergence, member_logits[0], _PIECE // len(member_logits))))
