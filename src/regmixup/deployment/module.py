"""Everything from pixels to a decision as one module of pure tensor code, which `torch.export` and ONNX can hold."""

from __future__ import annotations

import math

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

    s(x) are the network's logits; where its head gives their variance v, the mean-field predictive, logits /
    sqrt(1 + pi / 8 * v). probs = softmax(s / temperature), score = score(s), without temperature, and accepted =
    score <= threshold. By default probs are the plain softmax, and everything is accepted: before anything is fitted.

    network: becomes part of this module, in evaluation mode, and its constraints are baked. A module of any kind that
    maps a batch to logits, or to something that `logits_of` finds them in.
    normalize: (mean, std) per channel, where the network wants normalised images: applied to uint8 images, while
    floating-point ones must come normalised. None: the network takes pixels, of which uint8 ones are scaled to [0, 1].
    Probabilities and scores are float64 (float32 on devices without it), as in evaluation.

    >>> network = nn.Linear(2, 2)
    >>> network.weight.data, network.bias.data = torch.eye(2), torch.zeros(2)
    >>> module = Deployable(network, temperature=2.0, score="max_logit", threshold=-1.0)
    >>> {name: value.tolist() for name, value in module(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).items()}
    {'probs': [[0.5, 0.5], [0.5, 0.5]], 'score': [-0.0, -1.0], 'accepted': [False, True]}
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        temperature: float = 1.0,
        score: str = "entropy",
        threshold: float = math.inf,
        normalize: Normalization | None = None,
    ) -> None:
        super().__init__()
        self.network = bake(network)
        self.temperature = temperature
        self.score = SCORES[check_name("score", score, SCORES)]
        self.threshold = threshold
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return self.decide(self.logits(images))

    def logits(self, images: Tensor) -> Tensor:
        """Return s(x), (N, K)."""
        if self.normalize is not None and images.dtype == torch.uint8:
            images = self.normalize(images)
        images = to_float(images)
        weights = [p for p in self.parameters() if p.is_floating_point()]
        if weights and images.is_floating_point():  # a model in half or double precision takes no others
            images = images.to(weights[0].dtype)
        head = getattr(self.network, "head", None)
        if isinstance(self.network, Classifier) and isinstance(head, GaussianProcess):
            features = self.network.features(images)
            return precise(mean_field(head(features), head.variance(features)))
        return precise(logits_of(self.network, images))

    def decide(self, logits: Tensor) -> dict[str, Tensor]:
        """Return probabilities, score and decision of logits s(x)."""
        score = self.score(logits)
        probs = (logits / self.temperature).softmax(dim=1)
        return {"probs": probs, "score": score, "accepted": score <= self.threshold}


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside DataParallel, DistributedDataParallel, AveragedModel, timm's EMA or torch.compile."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    around = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
    of_timm = type(model).__module__ == "timm.utils.model_ema"  # not imported here, which takes a second
    inside = getattr(model, "module" if isinstance(model, around) or of_timm else "_orig_mod", None)
    return model if inside is None else unwrapped(inside)
