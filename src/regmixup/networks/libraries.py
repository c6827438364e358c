"""The names that torchvision and timm give to the tensors of our networks."""

from __future__ import annotations

from torch import Tensor, nn

_IN_TIMM = ("resnet18", "resnet50", "densenet121")
_COUNTER = "num_batches_tracked"


def library_names(name: str, model: nn.Module) -> dict[str, str]:
    """Return, for each tensor of a network's state dict, its name in the library that the network comes from.

    That is timm for "timm/...", and timm and torchvision, which agree, for resnet18, resnet50 and densenet121, whose
    tensors have the same order there; the others keep ours, as do heads that are not one linear layer, and the state
    of constraints.

    >>> from regmixup.networks import build
    >>> names = library_names("resnet50", build("resnet50", num_classes=10))
    >>> names["backbone.0.weight"], names["backbone.6.shortcut.0.weight"], names["head.bias"]
    ('conv1.weight', 'layer2.0.downsample.0.weight', 'fc.bias')
    """
    names = {ours: ours.replace(".parametrizations.weight.original", ".weight") for ours in model.state_dict()}
    if not name.startswith("timm/") and name not in _IN_TIMM:
        return names
    from regmixup.networks.timm_models import classifier_name, tensor_names

    if name.startswith("timm/"):
        names = {ours: plain.removeprefix("backbone.0.") for ours, plain in names.items()}
    else:
        state = ".parametrizations."  # of a constraint
        backbone = [ours for ours, plain in names.items() if plain.startswith("backbone.") and state not in plain]
        theirs = [tensor for tensor in tensor_names(name) if ".norm0." not in tensor]  # of DenseNet's larger stem
        if not any(ours.endswith(_COUNTER) for ours in backbone):  # a training run has none
            theirs = [tensor for tensor in theirs if not tensor.endswith(_COUNTER)]
        names |= zip(backbone, theirs, strict=True)
    if isinstance(getattr(model, "head", None), nn.Linear):
        names |= {f"head.{part}": f"{classifier_name(name)}.{part}" for part in ("weight", "bias")}
    return names


def library_state_dict(name: str, model: nn.Module) -> dict[str, Tensor]:
    """Return a network's state dict under the names of its library, see `library_names`.

    Constrained weights are what they were before the constraint; `bake` first for what they are under it.
    """
    names = library_names(name, model)
    return {names[ours]: tensor for ours, tensor in model.state_dict().items()}
