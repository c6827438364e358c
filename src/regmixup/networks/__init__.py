"""Networks: images -> features -> logits. `build` makes any of them by name. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regmixup.config import check_count, check_number
from regmixup.names import check_name

if TYPE_CHECKING:
    from regmixup.networks.contract import Classifier, Normalization


@dataclass(frozen=True)
class Architecture:
    """Where a backbone is made ("module:function"), its own dropout rate, and a line about it."""

    backbone: str
    description: str
    dropout: float = 0.0


NETWORKS = {
    "small": Architecture("small:small", "three 3x3 convolutions for 8x8 images, 24 k parameters, 64-d features"),
    "resnet18": Architecture("resnet:resnet18", "ResNet-18 with a CIFAR stem, 11.2 M parameters, 512-d features"),
    "resnet50": Architecture("resnet:resnet50", "ResNet-50 with a CIFAR stem, 23.5 M parameters, 2048-d features"),
    "wrn28-10": Architecture(
        "wide_resnet:wrn28_10", "Wide ResNet-28-10, 36.5 M parameters, 640-d features, dropout 0.1", dropout=0.1
    ),
}
HEADS = ("linear",)

__all__ = ["HEADS", "NETWORKS", "build"]


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    normalize: Normalization | None = None,
    dropout: float | None = None,
    constraint: None = None,
    head: str = "linear",
) -> Classifier:
    """A network by name, with the contract of `Classifier`: `features(x) -> (N, D)`, `head`, `forward`.

    normalize: (mean, std) per channel applied to pixels in [0, 1]; None if you feed normalised tensors.
    dropout: None keeps the network's own rate (0.1 inside the blocks of wrn28-10, else 0).

    >>> sum(p.numel() for p in build("wrn28-10", num_classes=10).parameters())
    36479194
    """
    architecture = NETWORKS[check_name("network", name, NETWORKS)]
    check_count("num_classes", num_classes)
    check_count("in_channels", in_channels)
    check_name("head", head, HEADS)
    if constraint is not None:
        raise ValueError(f"constraint must be None: no weight constraint is available yet, got {constraint!r}")
    _check_normalize(normalize, in_channels)
    rate = architecture.dropout if dropout is None else dropout
    check_number("dropout", rate, least=0, below=1)

    from torch import nn

    from regmixup.networks.contract import Classifier

    module, _, function = architecture.backbone.partition(":")
    make = getattr(import_module(f"{__name__}.{module}"), function)
    backbone, dim = make(in_channels=in_channels, dropout=rate)
    return Classifier(backbone, nn.Linear(dim, num_classes), feature_dim=dim, normalize=normalize)


def _check_normalize(normalize: Any, in_channels: int) -> None:
    """None, or a pair of sequences with one number per channel, the second positive."""
    if normalize is None:
        return
    try:
        mean, std = normalize
        fits = len(mean) == len(std) == in_channels and all(float(s) > 0 for s in std)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"normalize must be (mean, std) for {in_channels} channels with std > 0, got {normalize!r}")
