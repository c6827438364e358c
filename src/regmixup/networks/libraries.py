"""The names that torchvision and timm give to the tensors of our networks."""

from __future__ import annotations

from torch import Tensor, nn


def library_names(name: str, model: nn.Module) -> dict[str, str]:
    """Return, for each tensor of a network's state dict, its name in the library that the network comes from.

    That is timm for "timm/...", and torchvision for resnet18, resnet50 and densenet121 (timm has the same names there);
    the others keep ours, as do heads that are not one linear layer, and the state of constraints.

    >>> from regmixup.networks import build
    >>> names = library_names("resnet18", build("resnet18", num_classes=10))
    >>> names["backbone.0.weight"], names["head.bias"]
    ('conv1.weight', 'fc.bias')
    """
    if name.startswith("timm/"):
        from regmixup.networks.timm_models import classifier_name

        layers = {"backbone.0": "", "head": classifier_name(name)}
    else:
        layers = torchvision_names(name)
    if not isinstance(getattr(model, "head", None), nn.Linear):
        layers.pop("head", None)
    names = {}
    for ours in model.state_dict():
        plain = ours.replace(".parametrizations.weight.original", ".weight")
        parts = plain.split(".")
        prefixes = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
        layer = next((prefix for prefix in prefixes if prefix in layers), None)
        names[ours] = plain if layer is None else (layers[layer] + plain[len(layer) :]).removeprefix(".")
    return names


def library_state_dict(name: str, model: nn.Module) -> dict[str, Tensor]:
    """Return a network's state dict under the names of its library, see `library_names`.

    Constrained weights are what they were before the constraint; `bake` first for what they are under it.
    """
    names = library_names(name, model)
    return {names[ours]: tensor for ours, tensor in model.state_dict().items()}


def torchvision_names(network: str) -> dict[str, str]:
    """Return what torchvision and timm call the layers of a network of this file, by our names; empty for others.

    >>> names = torchvision_names("resnet50")
    >>> names["backbone.0"], names["backbone.6.branch.3"], names["backbone.6.shortcut.0"], names["head"]
    ('conv1', 'layer2.0.conv2', 'layer2.0.downsample.0', 'fc')
    """
    if network in ("resnet18", "resnet50"):
        return _resnet_names((2, 2, 2, 2) if network == "resnet18" else (3, 4, 6, 3), 2 if network == "resnet18" else 3)
    return _densenet_names((6, 12, 24, 16)) if network == "densenet121" else {}


def _resnet_names(depths: tuple[int, ...], convolutions: int) -> dict[str, str]:
    names = {"backbone.0": "conv1", "backbone.1": "bn1", "head": "fc"}
    blocks = [f"layer{stage}.{index}" for stage, depth in enumerate(depths, start=1) for index in range(depth)]
    for number, theirs in enumerate(blocks, start=3):
        ours = f"backbone.{number}"
        for layer in range(convolutions):
            names[f"{ours}.branch.{3 * layer}"] = f"{theirs}.conv{layer + 1}"
            names[f"{ours}.branch.{3 * layer + 1}"] = f"{theirs}.bn{layer + 1}"
        names |= {f"{ours}.shortcut.{part}": f"{theirs}.downsample.{part}" for part in (0, 1)}
    return names


def _densenet_names(depths: tuple[int, ...]) -> dict[str, str]:
    names, number = {"backbone.0": "features.conv0", "head": "classifier"}, 1
    for block, depth in enumerate(depths, start=1):
        if block > 1:
            for part, theirs in ((0, "norm"), (2, "conv")):
                names[f"backbone.{number + part}"] = f"features.transition{block - 1}.{theirs}"
            number += 4
        for layer in range(1, depth + 1):
            for part, theirs in ((0, "norm1"), (2, "conv1"), (3, "norm2"), (5, "conv2")):
                names[f"backbone.{number}.branch.{part}"] = f"features.denseblock{block}.denselayer{layer}.{theirs}"
            number += 1
    return names | {f"backbone.{number}": "features.norm5"}
