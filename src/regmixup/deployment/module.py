"""Everything from pixels to a decision as one module of pure tensor code, which `torch.export` and ONNX can hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from regmixup.metrics.pieces import precise
from regmixup.metrics.scores import SCORES
from regmixup.mixing import to_float
from regmixup.names import check_name
from regmixup.networks import bake
from regmixup.networks.contract import Classifier, Normalization, Normalize
from regmixup.networks.gp_head import GaussianProcess
from regmixup.networks.outputs import logits_of
from regmixup.posthoc.predictive import mean_field


class Deployable(nn.Module):
    """Map images (N, C, H, W), uint8 or float in [0, 1], to {"probs": (N, K), "score": (N,), "accepted": (N,) bool}.

    s(x) = 1/M sum_m f_m(x) over the M members, where f_m is a network's logits, shrunk by their variance v_m where its
    head has one: f_m / sqrt(1 + factor * v_m), the mean-field predictive. Then
    probs = softmax(s / temperature), score = score(s), without temperature, and accepted = score <= threshold.

    members: networks in evaluation mode; they become part of this module and their constraints are baked. Modules of
    any kind that map a batch to logits, or to something that `logits_of` finds them in.
    normalize: (mean, std) per channel, where the members want normalised images: applied to uint8 images, while
    floating-point ones must come normalised. None: the members take pixels, of which uint8 ones are scaled to [0, 1].
    Probabilities and scores are float64 (float32 on devices without it), as in evaluation.

    >>> network = nn.Linear(2, 2)
    >>> network.weight.data, network.bias.data = torch.eye(2), torch.zeros(2)
    >>> module = Deployable([network], temperature=2.0, score="max_logit", threshold=-1.0)
    >>> {name: value.tolist() for name, value in module(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).items()}
    {'probs': [[0.5, 0.5], [0.5, 0.5]], 'score': [-0.0, -1.0], 'accepted': [False, True]}
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        *,
        temperature: float,
        score: str,
        threshold: float,
        factor: float = 0.0,
        normalize: Normalization | None = None,
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(bake(member) for member in members)
        self.temperature = temperature
        self.score = SCORES[check_name("score", score, SCORES)]
        self.threshold = threshold
        self.factor = factor
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return self.decide(self.logits(images))

    def logits(self, images: Tensor) -> Tensor:
        """Return s(x), (N, K)."""
        if self.normalize is not None and images.dtype == torch.uint8:
            images = self.normalize(images)
        images = to_float(images)
        if images.is_floating_point():  # a model in half or double precision takes no others
            images = images.to(next((p.dtype for p in self.parameters() if p.is_floating_point()), images.dtype))
        return precise(torch.stack([self._member_logits(member, images) for member in self.members])).mean(dim=0)

    def decide(self, logits: Tensor) -> dict[str, Tensor]:
        """Return probabilities, score and decision of logits s(x)."""
        score = self.score(logits)
        probs = (logits / self.temperature).softmax(dim=1)
        return {"probs": probs, "score": score, "accepted": score <= self.threshold}

    def _member_logits(self, member: nn.Module, images: Tensor) -> Tensor:
        if not (isinstance(member, Classifier) and isinstance(member.head, GaussianProcess)):
            return logits_of(member, images)
        features = member.features(images)
        return mean_field(member.head(features), member.head.variance(features), self.factor)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside DataParallel, DistributedDataParallel, AveragedModel or torch.compile."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    around = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
    while isinstance(model, around) or hasattr(model, "_orig_mod"):
        inside = model.module if isinstance(model, around) else model._orig_mod
        assert isinstance(inside, nn.Module)
        model = inside
    return model
