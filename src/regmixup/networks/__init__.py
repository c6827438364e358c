"""Networks: images -> features -> logits. `build` makes any of them by name. Importing this package imports no torch.

Heads and constraints with values of their own are classes here: `networks.GPHead(num_features=512)`,
`networks.SpectralNorm(c=0.5)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regmixup import plugins
from regmixup.config import check_count, check_number
from regmixup.names import check_name, counted, unknown

if TYPE_CHECKING:
    from torch import nn

    from regmixup.networks.constraints import Constraint, SpectralNorm, StableRank, bake
    from regmixup.networks.contract import Classifier, Head, LinearHead, Normalization, RotationHead
    from regmixup.networks.cosine_head import CosineHead
    from regmixup.networks.gp_head import GPHead
    from regmixup.networks.libraries import library_names, library_state_dict
    from regmixup.networks.rbf_head import RBFHead


@dataclass(frozen=True)
class Entry:
    """One line about a network, constraint or head.

    cls: the name of a constraint's or head's class. factory: what builds a registered network; a function of
    `backbones` builds each of the others.
    """

    description: str
    cls: str = ""
    factory: Callable[..., nn.Module] | None = None


NETWORKS = {
    "small": Entry("three 3x3 convolutions for 8x8 images, 24 k parameters, 64-d features"),
    "resnet18": Entry("ResNet-18 with a CIFAR stem, 11.2 M parameters, 512-d features"),
    "resnet50": Entry("ResNet-50 with a CIFAR stem, 23.5 M parameters, 2048-d features"),
    "wrn28-10": Entry("Wide ResNet-28-10, 36.5 M parameters, 640-d features, dropout 0.1"),
    "wrn28-10-sngp": Entry(
        "Wide ResNet-28-10 of SNGP's reference, 36.5 M parameters, 640-d features, dropout 0.1 of whole channels"
    ),
    "densenet121": Entry("DenseNet-121 with a CIFAR stem, 7.0 M parameters, 1024-d features"),
    "pyramidnet200": Entry("PyramidNet-200, widening 240, 26.8 M parameters, 1024-d features"),
}
CONSTRAINTS = {
    "spectral_norm": Entry("largest singular value at most c", "SpectralNorm"),
    "stable_rank": Entry("spectral norm 1 and stable rank at most a share of the full", "StableRank"),
}
HEADS = {
    "linear": Entry("one linear layer", "LinearHead"),
    "gp": Entry("random-feature Gaussian process with a Laplace covariance (SNGP)", "GPHead"),
    "rbf": Entry("distances to running class centroids (DUQ)", "RBFHead"),
    "cosine": Entry("cosines between features and class vectors (SURE)", "CosineHead"),
    "rotation": Entry("one linear layer, and one more that predicts rotations in training", "RotationHead"),
}

_LAZY = {
    "Classifier": "contract", "Constraint": "constraints", "Head": "contract", "LinearHead": "contract",
    "CosineHead": "cosine_head", "GPHead": "gp_head", "RBFHead": "rbf_head", "RotationHead": "contract",
    "SpectralNorm": "constraints", "StableRank": "constraints", "bake": "constraints", "library_names": "libraries",
    "library_state_dict": "libraries",
}  # fmt: skip

__all__ = [
    "CONSTRAINTS", "HEADS", "NETWORKS", "Classifier", "Constraint", "CosineHead", "GPHead", "Head", "LinearHead",
    "RBFHead", "RotationHead", "SpectralNorm", "StableRank", "bake", "build", "check_network", "constraint_of",
    "head_of", "import_components", "library_names", "library_state_dict", "name_of", "register",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(str(unknown("name in regmixup.networks", name, __all__)))
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    normalize: Normalization | None = None,
    dropout: float | None = None,
    constraint: Constraint | str | None = None,
    head: Head | str = "linear",
    image_size: int | tuple[int, int] | None = None,
) -> Classifier:
    """Build a network by name, with the interface of `Classifier`: `features(x) -> (N, D)`, `head`, `forward`.

    name: one of NETWORKS, to which `register` adds, or "timm/" and the name of any of timm's image models, for example
        "timm/resnet50".
    normalize: (mean, std) per channel applied to pixels in [0, 1]; None if you feed normalised tensors.
    dropout: None keeps the network's own rate (0.1 inside the blocks of wrn28-10 and wrn28-10-sngp, else mostly 0).
    constraint: on every convolution, by name or with its own values: SpectralNorm(c=0.5).
    head: by name or with its own values: GPHead(num_features=512).
    image_size: side, or (height, width), of the images; needed by constraints on whole convolutions and by
        networks with a fixed input size, such as transformers. None: 32 for our own networks, timm's default for its.

    >>> sum(p.numel() for p in build("wrn28-10", num_classes=10).parameters())
    36479194
    """
    check_network(name)
    check_count("num_classes", num_classes)
    check_count("in_channels", in_channels)
    normalize = plain_normalize(normalize, in_channels)
    if dropout is not None:
        check_number("dropout", dropout, least=0, below=1)
    head, constraint = head_of(head), constraint_of(constraint)

    import torch

    from regmixup.networks.contract import Classifier, LinearHead

    sides = _sides(name, image_size)
    backbone, dim, last = _backbone(name, num_classes, in_channels, sides, dropout)
    if constraint is not None:
        constraint.apply(backbone, torch.zeros(1, in_channels, *sides))
    if last is None or not isinstance(head, LinearHead):
        last = head.build(dim, num_classes)
    return Classifier(backbone, last, feature_dim=dim, normalize=normalize)


def _sides(name: str, image_size: int | tuple[int, int] | None) -> tuple[int, int]:
    """Return height and width of the images, by default those that the network was made for."""
    from regmixup.mixing import height_and_width

    if image_size is not None:
        return height_and_width(image_size)
    if name in NETWORKS:
        return 32, 32
    from regmixup.networks.timm_models import published

    return published(name).input_size[1:]


def _backbone(
    name: str, num_classes: int, in_channels: int, sides: tuple[int, int], dropout: float | None
) -> tuple[nn.Module, int, nn.Module | None]:
    """Return the backbone, its number of features and, of a registered classifier, its own last layer."""
    if name not in NETWORKS:
        from regmixup.networks.timm_models import timm_backbone

        return *timm_backbone(name, in_channels=in_channels, dropout=dropout, image_size=sides), None
    if (factory := NETWORKS[name].factory) is not None:
        from regmixup.networks.factories import from_factory

        options = {"num_classes": num_classes, "in_channels": in_channels, "image_size": sides, "dropout": dropout}
        return from_factory(name, factory, options)
    make = getattr(import_module(f"{__name__}.backbones"), name.replace("-", "_"))
    return *make(in_channels=in_channels, **({} if dropout is None else {"dropout": dropout})), None


def register(name: str, factory: Callable[..., nn.Module], *, description: str = "", version: str = "") -> None:
    """Make a network of your own known by name, for `build`, the command line and studies. See `regmixup.plugins`.

    factory: a function or class that returns a module. Of num_classes, in_channels, image_size (height and width) and
    dropout it is given those that it has parameters for. With num_classes it returns a classifier whose last layer is
    an `nn.Linear`, which any head can replace; without, a backbone from images to features (N, D).
    """
    if not callable(factory):
        raise ValueError(f"factory of network {name} must be callable and return a module, got {factory!r}")
    if name.startswith("timm/"):
        raise ValueError(f"name of a network must not begin with timm/, got {name!r}")
    plugins.record("network", name, NETWORKS, version=version)
    about = description or f"registered by {plugins.REGISTERED['network', name].module}"
    NETWORKS[name] = Entry(about, factory=factory)


def check_network(name: str) -> str:
    """Return `name` if it is one of NETWORKS or of timm's models, else raise. timm is imported for "timm/..." only.

    >>> check_network("densenet121")
    'densenet121'
    """
    if name.startswith("timm/"):
        from regmixup.networks.timm_models import check_timm_name

        return check_timm_name(name)
    plugins.load_if_unknown(name, NETWORKS)
    if name not in NETWORKS:
        listed = ", ".join(sorted(NETWORKS))
        summary = f"{listed}, what a plugin registers (--plugin MODULE); for a model of timm's write timm/{name}"
        raise unknown("network", name, NETWORKS, summary=summary)
    return name


def head_of(head: Head | str, **fields: Any) -> Head:
    """Return a head's configuration: itself, or by name with some fields given, head_of("gp", num_features=512)."""
    return _component("head", head, HEADS, fields)


def constraint_of(constraint: Constraint | str | None, **fields: Any) -> Constraint | None:
    """Return a constraint's configuration: itself, or by name with some fields given; None for none."""
    return _component("constraint", constraint, CONSTRAINTS, fields)


def _component(kind: str, component: Any, known: dict[str, Entry], fields: dict[str, Any]) -> Any:
    if not isinstance(component, str):
        return component
    return __getattr__(known[check_name(kind, component, known)].cls)(**fields)


def name_of(component: Constraint | Head | None) -> str:
    """Return the name of a constraint or head in CONSTRAINTS or HEADS; "none" for no constraint."""
    if component is None:
        return "none"
    cls = type(component).__name__
    names = {entry.cls: name for name, entry in (CONSTRAINTS | HEADS).items()}
    return names.get(cls, cls.lower())


def import_components() -> None:
    """Import every constraint and head, so that a stored configuration can name any of them."""
    for component in (CONSTRAINTS | HEADS).values():
        __getattr__(component.cls)


def plain_normalize(normalize: Any, *channels: int) -> Normalization | None:
    """Return None, or means and standard deviations as tuples of floats; raise an error for anything else.

    channels: how many numbers there may be of each; any, if not given.
    """
    if normalize is None:
        return None
    try:
        mean, std = (tuple(map(float, numbers)) for numbers in normalize)
    except (TypeError, ValueError):
        mean, std = (), ()
    fits = 0 < len(mean) == len(std) and (not channels or len(mean) in channels)
    if not fits or not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        count = " or ".join(counted(number, "channel") for number in channels) or "one or more channels"
        raise ValueError(f"normalize must be finite (mean, std) for {count} with std > 0, got {normalize!r}")
    return mean, std
