"""Weights that training starts from: a file's, or timm's own for its networks, matched by name and shape.

`by-order:PATH` matches the tensors of a .pth or .pt file by their order instead, for files whose names differ; all
shapes must agree.

A file is known by its checksum: `identify` adds it to the path, and the fingerprint of a configuration has the checksum
in place of the path. Reading a file executes nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
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
    tensors = read_tensors(path)
    if source == TIMM:
        from regmixup.networks.timm_models import pretrained_state

        channels, height, width = input_shape
        state = pretrained_state(config.network, tensors, in_channels=channels, image_size=(height, width))
        tensors = _without_counters(state)
    names = networks.library_names(config.network, model)
    targets = _without_counters(model.state_dict())
    if source.startswith(BY_ORDER):
        tensors = _in_order(path, targets, tensors)
    if config.network.startswith("timm/") and _differ(targets, tensors, names):
        from regmixup.networks.timm_models import fitted_state

        tensors = fitted_state(next(model.backbone.children()), tensors)
    taken = {name: theirs for name in targets for theirs in (name, names[name]) if theirs in tensors}
    loaded = {name: theirs for name, theirs in taken.items() if tensors[theirs].shape == targets[name].shape}
    heads = ("head.", names["head.weight"].removesuffix("weight")) if "head.weight" in names else ("head.",)
    _check_fit(config.network, path, _without(heads, targets), _without(heads, tensors), loaded)
    with torch.no_grad():
        for name, theirs in loaded.items():
            targets[name].copy_(tensors[theirs])
    if power_vectors(model).keys() - loaded.keys():  # they are those of the random weights
        settle_vectors(model)
    used = set(loaded.values())
    return InitialWeights(
        source,
        checksum,
        loaded=len(loaded),
        initialised=tuple(name for name in targets if name not in loaded),
        left_out=tuple(name for name in tensors if name not in used),
    )


def _differ(targets: dict[str, Tensor], tensors: dict[str, Tensor], names: Mapping[str, str]) -> bool:
    """Return whether a tensor of the backbone has another shape in the file, as positions have for another size."""
    backbone = _without(("head.",), targets)
    return any(names[n] in tensors and tensors[names[n]].shape != tensor.shape for n, tensor in backbone.items())


def _in_order(path: Path, targets: dict[str, Tensor], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors under the names of the network's, in order; the head's may have other shapes."""
    pairs = list(zip(targets.items(), tensors.items(), strict=False))
    wrong = [(ours, theirs) for (ours, a), (theirs, b) in pairs if a.shape != b.shape and not ours.startswith("head.")]
    if path.suffix == ".safetensors" or len(targets) != len(tensors) or wrong:
        first = f"; {wrong[0][1]} has another shape than {wrong[0][0]}" if wrong else ""
        raise ValueError(
            f"init by order must be a .pth or .pt file with the network's {len(targets)} tensors, all of the same "
            f"shapes, got {path} with {len(tensors)}{first}"
        )
    return dict(zip(targets, tensors.values(), strict=True))


def _check_fit(
    network: str, path: Path, ours: dict[str, Tensor], theirs: dict[str, Tensor], loaded: dict[str, str]
) -> None:
    """Reject weights of another architecture. ours, theirs: the tensors of the backbone and of the file, by name."""
    filled = [name for name in ours if name in loaded]
    most = max(sum(tensor.numel() for tensor in tensors.values()) for tensors in (ours, theirs))
    if sum(ours[name].numel() for name in filled) < _ENOUGH * most:
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


def _without(prefixes: tuple[str, ...], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(prefixes)}


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
