"""Any image model of timm (Wightman, 2019) as an untrained backbone; nothing is downloaded."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any

import timm
import torch
from timm.layers.patch_embed import PatchEmbed
from timm.models import PretrainedCfg
from torch import Tensor, nn
from torch.func import functional_call

from regmixup.names import unknown

PREFIX = "timm/"


def check_timm_name(network: str) -> str:
    """Return `network` if it is "timm/" and a name of timm's, with or without a tag; else raise with the nearest."""
    if network not in _names():
        raise unknown("network", network, _names(), summary="those of timm.list_models()")
    return network


@cache
def _names() -> frozenset[str]:
    return frozenset(PREFIX + name for name in chain(timm.list_models(), timm.list_models(include_tags=True)))


def default_image_size(network: str) -> tuple[int, int]:
    """Return (height, width) of the images that timm's own weights for this network were trained on.

    >>> default_image_size("timm/resnet50")
    (224, 224)
    """
    _, height, width = _published(network).input_size
    return height, width


def _published(network: str) -> PretrainedCfg:
    """Return what timm records about a network's own weights."""
    record = timm.get_pretrained_cfg(network.removeprefix(PREFIX))
    assert record is not None
    return record


def timm_backbone(
    network: str, *, in_channels: int, dropout: float | None, image_size: tuple[int, int]
) -> tuple[nn.Sequential, int]:
    """Return timm's model up to its pooled features, and their dimension.

    dropout: on the features. timm's own `drop_rate` acts there, everywhere or nowhere, depending on the architecture,
    so it is kept for None and replaced otherwise.
    image_size: (height, width); the input size of architectures that have a fixed one, as most transformers do.
    """
    settings: dict[str, Any] = {} if dropout is None else {"drop_rate": 0.0}
    if _published(network).fixed_input_size:
        height, width = image_size
        settings["img_size"] = height if height == width else image_size  # some architectures only know squares
    try:
        name = network.removeprefix(PREFIX)
        model = timm.create_model(name, pretrained=False, num_classes=0, in_chans=in_channels, **settings)
        if image_size != default_image_size(network):  # timm itself uses a few sizes that patches do not fill
            _check_patches(model, image_size)
        features = _trial(model, (in_channels, *image_size))
    except Exception as error:  # timm's architectures refuse in many ways, bare assertions among them
        got = f"image_size={image_size}, in_channels={in_channels}"
        raise ValueError(f"image_size and in_channels must suit {network}, got {got}: {error}") from error
    if not isinstance(features, Tensor) or features.ndim != 2 or features.numel() == 0:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"network must give features (N, D), got {shape} from {network} for one image")
    return nn.Sequential(model, nn.Dropout(dropout or 0.0)), features.shape[1]


def _check_patches(model: nn.Module, image_size: tuple[int, int]) -> None:
    """Check that images divide into patches: some transformers silently crop them."""
    for module in model.modules():
        if isinstance(module, PatchEmbed) and not module.dynamic_img_pad:
            rows, columns = module.patch_size
            if image_size[0] % rows or image_size[1] % columns:
                raise ValueError(f"images must be divisible into its patches of {rows}x{columns} pixels")


def _trial(model: nn.Module, shape: tuple[int, int, int]) -> object:
    """Return the model's output for one image on the meta device: shapes only, nothing is computed."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    shapes = {name: tensor.to("meta") for name, tensor in tensors}
    with torch.no_grad():
        features = functional_call(model.eval(), shapes, (torch.zeros(1, *shape, device="meta"),))
    model.train()
    return features
