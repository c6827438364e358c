"""Any image model of timm (Wightman, 2019) as an untrained backbone, and timm's pretrained weights for it.

Nothing is downloaded but by `pretrained_file`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import PretrainedCfg
from torch import Tensor, nn
from torch.func import functional_call

from regmixup.names import unknown
from regmixup.networks.contract import evaluated

PREFIX = "timm/"
_TRIALS: dict[tuple[str, int, tuple[int, int]], object] = {}
"""The features of a trial by network, channels and image size: a run builds the same network several times."""


@cache
def _names() -> frozenset[str]:
    return frozenset(PREFIX + name for name in chain(timm.list_models(), timm.list_models(include_tags=True)))


def check_timm_name(network: str) -> str:
    """Return `network` if it is "timm/" and a name of timm's, with or without a tag; else raise with the nearest."""
    if network not in _names():
        raise unknown("network", network, _names(), summary="those of timm.list_models()")
    return network


def timm_backbone(
    network: str, *, in_channels: int, dropout: float | None, image_size: tuple[int, int]
) -> tuple[nn.Sequential, int]:
    """Return timm's model up to its pooled features, and their dimension.

    dropout: on the features. timm's own `drop_rate` acts there, everywhere or nowhere, depending on the architecture,
    so it is kept for None and replaced otherwise.
    image_size: (height, width); the input size of architectures that have a fixed one, as most transformers do.
    """
    settings: dict[str, Any] = {} if dropout is None else {"drop_rate": 0.0}
    key = (network, in_channels, image_size)
    try:
        model = _create(network, in_channels, image_size, num_classes=0, **settings)
        if key not in _TRIALS:
            _TRIALS[key] = _trial(model, (in_channels, *image_size))
    except Exception as error:  # timm's architectures refuse in many ways, bare assertions among them
        sizes = f"image_size={image_size}, in_channels={in_channels}"
        raise ValueError(f"image_size and in_channels must suit {network}, got {sizes}: {error}") from error
    features = _TRIALS[key]
    if not isinstance(features, Tensor) or features.ndim != 2 or features.numel() == 0:
        raise ValueError(f"network must give features (N, D), which {network} does not for an image of {image_size}")
    return nn.Sequential(model, nn.Dropout(dropout or 0.0)), features.shape[1]


def _create(network: str, in_channels: int, image_size: tuple[int, int], **settings: Any) -> nn.Module:
    """Return timm's model for images of these channels and this size."""
    name = network.removeprefix(PREFIX)
    return timm.create_model(name, in_chans=in_channels, **_fixed_size(network, image_size), **settings)


def _fixed_size(network: str, image_size: tuple[int, int]) -> dict[str, Any]:
    """Return the setting of the input size for architectures that have a fixed one, as most transformers do."""
    if not published(network).fixed_input_size:
        return {}
    height, width = image_size
    return {"img_size": height if height == width else image_size}  # some architectures only know squares


def _trial(model: nn.Module, shape: tuple[int, int, int]) -> object:
    """Return the model's output for one image on the meta device: shapes only, nothing is computed."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    shapes = {name: tensor.to("meta") for name, tensor in tensors}
    return evaluated(model, torch.zeros(1, *shape, device="meta"), lambda x: functional_call(model, shapes, (x,)))


# ------------------------------------------------------------------------- what timm knows about its own weights


def published(network: str) -> PretrainedCfg:
    """Return what timm records about a network's own weights: input_size (C, H, W), mean, std, interpolation, ..."""
    record = timm.get_pretrained_cfg(network.removeprefix(PREFIX))
    assert record is not None
    return record


def classifier_name(network: str) -> str:
    """Return the name of the last layer in timm's own model.

    >>> classifier_name("timm/convnext_tiny"), classifier_name("timm/resnet50")
    ('head.fc', 'fc')
    """
    names = published(network).classifier or "head"
    return names if isinstance(names, str) else names[0]


def tensor_names(network: str) -> list[str]:
    """Return the names of the tensors of timm's model, its last layer aside, in order."""
    with torch.device("meta"):
        return list(timm.create_model(network.removeprefix(PREFIX), num_classes=0).state_dict())


def pretrained_file(network: str) -> Path:
    """Return timm's own weights for a network as a file: from the cache, or downloaded into it from the hub."""
    record = published(network)
    if not record.hf_hub_id:
        raise ValueError(f"init must be a file or empty for {network}, which timm has no weights for, got 'timm'")
    try:
        return _download(record.hf_hub_id, record.hf_hub_filename or "model.safetensors")
    except Exception as error:  # what fails differs between hubs and versions: no network, no such file, a timeout
        from huggingface_hub.constants import HF_HUB_CACHE

        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"init must find timm's weights for {network}, but they are not in its cache and could not be downloaded "
            f"({type(error).__name__}: {reason}). Get model.safetensors from https://huggingface.co/{record.hf_hub_id} "
            f"where there is a network and give it as init (--init PATH), or copy that machine's cache ({HF_HUB_CACHE})"
        ) from error


def _download(repository: str, name: str) -> Path:
    from urllib.request import urlopen

    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError
    from timm.models._hub import hf_split

    repository, revision = hf_split(repository)
    try:  # a cached file needs no network, and stays the one that earlier runs began with
        return Path(hf_hub_download(repository, name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        # Without a network the hub's own tries would take half a minute.
        urlopen(constants.ENDPOINT, timeout=5).close()
        return Path(hf_hub_download(repository, name, revision=revision))


def pretrained_state(
    network: str, weights: dict[str, Tensor], *, in_channels: int, image_size: tuple[int, int]
) -> dict[str, Tensor]:
    """Return timm's weights as the state dict of its model, fitted by timm to the channels and the size of the images.

    weights: the tensors of timm's file.
    """
    overlay = {"state_dict": weights}
    return _create(network, in_channels, image_size, pretrained=True, pretrained_cfg_overlay=overlay).state_dict()


def fitted_state(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file as timm fits them to a model of its: a transformer's positions, to its patches.

    Where timm has no such rule for the architecture, or it fails, they stay as they are.
    """
    convert = getattr(import_module(type(model).__module__), "checkpoint_filter_fn", None)
    with suppress(Exception):  # these rules take the files they know, and fail in many ways for others
        return convert(dict(weights), model) if convert is not None else weights
    return weights


def published_config(
    network: str,
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    interpolation: str,
    crop: tuple[int, int],
) -> dict[str, Any]:
    """Return the content of a config.json from which timm builds this network and loads weights of it.

    input_shape: (C, H, W). crop: the side of the central crop and that of the image which it is cut from.
    """
    known = published(network)
    channels, height, width = input_shape
    side, resized = crop
    share = side / resized
    if side // share != resized:  # timm divides again and rounds down
        share = side / (resized + 0.25)
    return {
        "architecture": network.removeprefix(PREFIX).partition(".")[0],
        "model_args": {"in_chans": channels, **_fixed_size(network, (height, width))},
        "pretrained_cfg": {
            "input_size": list(input_shape),
            "fixed_input_size": known.fixed_input_size,
            "interpolation": interpolation,
            "crop_pct": share,
            "crop_mode": "center",
            "mean": list(mean),
            "std": list(std),
            "num_classes": num_classes,
            "pool_size": known.pool_size,
            # Where this layer is named, timm takes its weights for those of three channels, and adapts them.
            "first_conv": known.first_conv if channels == 3 else None,
            "classifier": known.classifier,
        },
    }
