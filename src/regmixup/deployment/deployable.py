"""Everything between pixels and a decision as one module of tensor code, which `torch.export` and ONNX can hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regmixup.metrics.ordering import precise
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name
from regmixup.networks import bake
from regmixup.networks.contract import Classifier
from regmixup.posthoc.predictive import shrink
from regmixup.predictions import HasVariance


class Deployable(nn.Module):
    """Images (N, C, H, W), uint8 or float in [0, 1] -> {"probs": (N, K), "score": (N,), "accepted": (N,) bool}.

    s(x) = 1/M sum_m f_m(x) over the M members, where f_m is a network's logits, shrunk by their variance v_m where its
    head has one: f_m / sqrt(1 + factor * v_m), the mean-field predictive. Then
    probs = softmax(s / temperature), score = score(s), without temperature, and accepted = score <= threshold.

    members: networks in evaluation mode; they become part of this module and their constraints are baked.
    Probabilities and scores are float64 (float32 on devices without it), like everything that is evaluated here.

    >>> network = nn.Linear(2, 2)
    >>> network.weight.data, network.bias.data = torch.eye(2), torch.zeros(2)
    >>> module = Deployable([network], temperature=2.0, score="max_logit", threshold=-1.0)
    >>> {name: value.tolist() for name, value in module(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).items()}
    {'probs': [[0.5, 0.5], [0.5, 0.5]], 'score': [-0.0, -1.0], 'accepted': [False, True]}
    """

    def __init__(
        self, members: Sequence[nn.Module], *, temperature: float, score: str, threshold: float, factor: float = 0.0
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(bake(member) for member in members)
        self.temperature = temperature
        self.score = SCORES[check_name("score", score, SCORES)]
        self.threshold = threshold
        self.factor = factor
        self.eval().requires_grad_(False)

    def logits(self, images: Tensor) -> Tensor:
        """s(x), (N, K)."""
        return precise(torch.stack([self._of_member(member, images) for member in self.members])).mean(dim=0)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        logits = self.logits(images)
        score = self.score(logits)
        probs = (logits / self.temperature).softmax(dim=1)
        return {"probs": probs, "score": score, "accepted": score <= self.threshold}

    def _of_member(self, member: nn.Module, images: Tensor) -> Tensor:
        if not (isinstance(member, Classifier) and isinstance(member.head, HasVariance)):
            return member(images)
        features = member.features(images)
        variance = member.head.variance(features)
        return shrink(member.head(features), variance if variance.ndim == 2 else variance[:, None], self.factor)
