"""Weights that training starts from: a file's, or timm's own for its networks, matched by name and shape.

`by-order:PATH` matches the tensors of a .pth or .pt file by their order instead, for files whose names differ; all
shapes must agree.

A file is known by its checksum: `identify` adds it to the path, and the fingerprint of a configuration has the checksum
in place of the path. Reading a file executes nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regmixup import networks
from regmixup.data.folders import hash_file
from regmixup.names import shortened
from regmixup.networks.constraints import power_vectors, settle_vectors
from regmixup.networks.contract import Classifier
from regmixup.recipes import Recipe
from regmixup.training.checkpoint import COUNTERS, MODELS, PREFIXES

TIMM, BY_ORDER = "timm", "by-order:"
_MARK = "@sha256:"
_ENOUGH = 0.9
"""Least share of the backbone's numbers that a file must have, and of the file's that the network must take."""
_INSIDE = ("state_dict", "model_state_dict", "model")
"""Where training scripts put the state dict in what they save."""


@dataclass(frozen=True)
class InitialWeights:
    """The tensors that a model begins with: how many were loaded from a file, and the names of the others.

    source: timm or a path. initialised: the model's tensors that the file lacks. left_out: the file's tensors that the
    model does not take.
    """

    source: str
    sha256: str
    loaded: int
    initialised: tuple[str, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        count, file = self.loaded + len(self.initialised), Path(self.source).name
        parts = [f"{self.loaded} of {count} tensors from {file} (sha256 {self.sha256[:12]})"]
        if self.initialised:
            parts.append(f"initialised: {shortened(self.initialised, 4)}")
        if self.left_out:
            parts.append(f"left out: {shortened(self.left_out, 4)}")
        return f"init: {'; '.join(parts)}"


def identify(init: str, network: str) -> str:
    """Return where initial weights come from, with the checksum of the file; nothing for random ones.

    timm's are downloaded here, if they are not in its cache.
    """
    if not init or _MARK in init:
        return init
    path = _file_of(init, network)
    if init != TIMM:
        init = f"{BY_ORDER}{path}" if init.startswith(BY_ORDER) else str(path)
    return f"{init}{_MARK}{hash_file(path)}"


def load_initial_weights(model: Classifier, config: Recipe, *, input_shape: Sequence[int]) -> InitialWeights:
    """Give a model the weights that `init` names, in place; what has none there keeps the values it was built with.

    input_shape: channels, height and width of the images.
    """
    source, _, recorded = identify(config.init, config.network).rpartition(_MARK)
    path = _file_of(source, config.network)
    checksum = hash_file(path)
    if checksum != recorded:
        raise ValueError(
            f"init must be the file that the run began with (sha256 {recorded}), got {path} with {checksum}"
        )
    targets = _without_counters(model.state_dict())
    library_names = networks.library_names(config.network, model)
    tensors = read_tensors(path)
    if source == TIMM:
        from regmixup.networks.timm_models import pretrained_state

        channels, height, width = input_shape
        state = pretrained_state(config.network, tensors, in_channels=channels, image_size=(height, width))
        tensors = _without_counters(state)
    if source.startswith(BY_ORDER):
        tensors = _in_order(path, targets, tensors)
    if config.network.startswith("timm/") and _has_other_shapes(targets, tensors, library_names):
        from regmixup.networks.timm_models import fitted_state

        tensors = fitted_state(next(model.backbone.children()), tensors)
    names = _match(targets, tensors, library_names)
    heads = ["head."]
    if "head.weight" in library_names:
        heads.append(library_names["head.weight"].removesuffix("weight"))
    _check_fit(config.network, path, _without(heads, targets), _without(heads, tensors), names)
    with torch.no_grad():
        for ours, theirs in names.items():
            targets[ours].copy_(tensors[theirs])
    if power_vectors(model).keys() - names.keys():  # they are those of the random weights
        settle_vectors(model)
    used = set(names.values())
    return InitialWeights(
        source,
        checksum,
        loaded=len(names),
        initialised=tuple(ours for ours in targets if ours not in names),
        left_out=tuple(theirs for theirs in tensors if theirs not in used),
    )


def _match(targets: dict[str, Tensor], tensors: dict[str, Tensor], library_names: dict[str, str]) -> dict[str, str]:
    """Return, for each of the network's tensors that a file has, its name there: that of the library, or ours.

    A tensor of another shape is another tensor.
    """
    names = {}
    for ours, target in targets.items():
        theirs = library_names[ours] if library_names[ours] in tensors else ours
        if theirs in tensors and tensors[theirs].shape == target.shape:
            names[ours] = theirs
    return names


def _has_other_shapes(targets: dict[str, Tensor], tensors: dict[str, Tensor], library_names: dict[str, str]) -> bool:
    """Return whether a tensor of the backbone has another shape in the file, as positions have for another size."""
    backbone = _without(["head."], targets)
    names = {ours: library_names[ours] for ours in backbone if library_names[ours] in tensors}
    return any(tensors[theirs].shape != backbone[ours].shape for ours, theirs in names.items())


def _in_order(path: Path, targets: dict[str, Tensor], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors under the names of the network's, in order; the head's may have other shapes."""
    first_wrong = ""
    for (ours, target), (theirs, tensor) in zip(targets.items(), tensors.items(), strict=False):
        if tensor.shape != target.shape and not ours.startswith("head."):
            first_wrong = f"; {theirs} has another shape than {ours}"
            break
    if path.suffix == ".safetensors" or len(targets) != len(tensors) or first_wrong:
        raise ValueError(
            f"init by order must be a .pth or .pt file with the network's {len(targets)} tensors, all of the same "
            f"shapes, got {path} with {len(tensors)}{first_wrong}"
        )
    return dict(zip(targets, tensors.values(), strict=True))


def _check_fit(
    network: str, path: Path, ours: dict[str, Tensor], theirs: dict[str, Tensor], names: dict[str, str]
) -> None:
    """Reject weights of another architecture.

    ours, theirs: the tensors of the backbone and of the file, by name. names: from ours to those of the file.
    """
    filled = [name for name in ours if name in names]
    needed = _ENOUGH * max(_count_numbers(ours.values()), _count_numbers(theirs.values()))
    if _count_numbers(ours[name] for name in filled) < needed:
        raise ValueError(
            f"init must hold weights of {network}: {path} fits {len(filled)} of its backbone's {len(ours)} tensors by "
            f"name and shape, and {len(theirs) - len(filled)} of the file's {len(theirs)} are left. The file has names "
            f"such as {shortened([*theirs], 2)}; wanted are such as {shortened([*ours], 2)}, or those of timm or "
            f"torchvision. If only the names differ and the order is the same: --init {BY_ORDER}{path}"
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the state dict in a .safetensors file, or in a .pth or .pt file of plain tensors.

    Of a checkpoint of ours it is the run's model. Counters are left out.
    """
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        elif path.suffix in (".pth", ".pt"):
            content = torch.load(path, map_location="cpu", weights_only=True)
        else:
            raise ValueError(f"init must be a .safetensors, .pth or .pt file, or timm, got {path}")
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise ValueError(
            f"init must be a file of plain tensors, but {path} cannot be read as one ({type(error).__name__}). If it "
            "holds a whole model, load it where it was made and save model.state_dict()"
        ) from error
    for inside in _INSIDE:
        if isinstance(content, dict) and isinstance(content.get(inside), dict):
            content = content[inside]
    named = content.items() if isinstance(content, dict) else ()
    tensors = {str(name): tensor for name, tensor in named if isinstance(tensor, Tensor)}
    if not tensors:
        raise ValueError(f"init must hold named tensors (a state dict), found none in {path}")
    return _without_counters(_without_prefix(tensors))


def _without_counters(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a state dict without counters: batch norm's of batches, and a checkpoint's."""
    names = [name for name in tensors if not name.endswith("num_batches_tracked") and name not in COUNTERS]
    return {name: tensors[name] for name in names}


def _without(prefixes: Sequence[str], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(prefixes))}


def _count_numbers(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _without_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the model alone: what wrappers and checkpoints put before their names is removed."""
    for prefix in (*MODELS, "module.", "_orig_mod."):
        inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        whole = all(name.startswith((prefix, *PREFIXES)) for name in tensors)
        if inner and whole:
            tensors = inner
    return tensors


def _file_of(init: str, network: str) -> Path:
    if init != TIMM:
        path = Path(init.removeprefix(BY_ORDER)).expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"init must be timm or the path of a file with weights, found no file {path}")
        return path
    if not network.startswith("timm/"):
        raise ValueError(f"init must be a file or empty for {network}, got 'timm', which fits networks timm/...")
    from regmixup.networks.timm_models import pretrained_file

    return pretrained_file(network)
