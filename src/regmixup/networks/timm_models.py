"""Any image model of timm (Wightman, 2019) as an untrained backbone, and timm's pretrained weights for it.

Nothing is downloaded but by `pretrained_file`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import timm
import torch
from timm.layers.patch_embed import PatchEmbed
from timm.models import PretrainedCfg
from torch import Tensor, nn
from torch.func import functional_call

from regmixup.names import unknown
from regmixup.networks.contract import evaluated

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
    settings |= _fixed_size(network, image_size)
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


def has_fixed_size(network: str) -> bool:
    """Return True if an architecture takes images of one size, as most transformers do."""
    return bool(_published(network).fixed_input_size)


def total_stride(model: nn.Module) -> int:
    """Return how many pixels lie between neighbours in the last features of a timm model; 1 if timm does not say."""
    infos = [getattr(module, "feature_info", None) for module in model.modules()]
    stages = [stage for info in infos if isinstance(info, list) for stage in info]
    return max((int(stage["reduction"]) for stage in stages), default=1)


def _fixed_size(network: str, image_size: tuple[int, int]) -> dict[str, Any]:
    """Return the setting of the input size for architectures that have a fixed one."""
    if not has_fixed_size(network):
        return {}
    height, width = image_size
    return {"img_size": height if height == width else image_size}  # some architectures only know squares


def pretrained_file(network: str) -> Path:
    """Return timm's own weights for a network as a file: from the cache, or downloaded into it."""
    published, name = _published(network), network.removeprefix(PREFIX)
    source = f"https://huggingface.co/{published.hf_hub_id}" if published.hf_hub_id else published.url
    if not source:
        tags = ", ".join(PREFIX + tagged for tagged in timm.list_pretrained(f"{name.split('.')[0]}*")[:5])
        raise ValueError(
            f"init must be a file or empty for {network}, which timm has no weights for, got 'timm'"
            + (f"; it has some for {tags}" if tags else "")
        )
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # twelve lines about retries would stand before the error below
    try:
        return _download(published)
    except Exception as error:  # what fails differs between hubs and versions: no network, no such file, a timeout
        from huggingface_hub.constants import HF_HUB_CACHE

        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"init must find timm's weights for {network}, but they are not in its cache and could not be downloaded "
            f"({type(error).__name__}: {reason}). Get model.safetensors from {source} where there is a network, and "
            f"give it as init (--init PATH), or copy that machine's cache folder ({HF_HUB_CACHE}) to this one"
        ) from error
    finally:
        hub.setLevel(level)


def _download(published: PretrainedCfg) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    from timm.models._hub import download_cached_file, hf_split

    if not published.hf_hub_id:
        assert published.url is not None
        return Path(download_cached_file(published.url))
    repository, revision = hf_split(published.hf_hub_id)
    names = [published.hf_hub_filename] if published.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    for name in names:  # a cached file needs no network, and stays the one that earlier runs began with
        with suppress(LocalEntryNotFoundError):
            return Path(hf_hub_download(repository, name, revision=revision, local_files_only=True))
    try:
        return Path(hf_hub_download(repository, names[0], revision=revision))
    except LocalEntryNotFoundError:  # no network, which says nothing about the file
        raise
    except EntryNotFoundError:
        return Path(hf_hub_download(repository, names[-1], revision=revision))


def pretrained_state(
    network: str, weights: Path | dict[str, Tensor], *, in_channels: int, image_size: tuple[int, int]
) -> dict[str, Tensor]:
    """Return timm's weights as the state dict of its model, fitted by timm to the channels and the size of the images.

    weights: the tensors of a file, or the file where timm must read it itself (see `reads_itself`).
    """
    overlay = {"state_dict": weights} if isinstance(weights, dict) else {"file": str(weights)}
    name, settings = network.removeprefix(PREFIX), _fixed_size(network, image_size)
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, in_chans=in_channels, **settings)
    return model.state_dict()


def reads_itself(network: str) -> bool:
    """Return True if timm reads the weights of this network by code of its own, as those in NumPy's format."""
    return bool(_published(network).custom_load)


def expected_input(network: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of the pixels that timm's weights were trained on."""
    published = _published(network)
    return tuple(published.mean), tuple(published.std)


def expected_interpolation(network: str) -> Literal["bilinear", "bicubic"]:
    """Return how the images were resized that timm evaluates its weights on; bilinear for what is neither."""
    return "bicubic" if _published(network).interpolation == "bicubic" else "bilinear"


def classifier_name(network: str) -> str:
    """Return the name of the last layer in timm's own model.

    >>> classifier_name("timm/convnext_tiny"), classifier_name("timm/resnet50")
    ('head.fc', 'fc')
    """
    name = _published(network).classifier
    return name if isinstance(name, str) else name[0] if name else "head"


def hub_name(network: str) -> str:
    """Return the name of timm's own weights on the hub, OWNER/NAME; "" where they are not there."""
    hub_id = str(_published(network).hf_hub_id or "")
    return hub_id if "/" in hub_id.strip("/") else ""


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
    known, channels = _published(network), input_shape[0]
    side, resized = crop
    share = side / resized
    if side // share != resized:  # timm divides again and rounds down
        share = side / (resized + 0.25)
    return {
        "architecture": network.removeprefix(PREFIX).partition(".")[0],
        "model_args": {"in_chans": channels, **_fixed_size(network, (input_shape[1], input_shape[2]))},
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
    return evaluated(model, torch.zeros(1, *shape, device="meta"), lambda x: functional_call(model, shapes, (x,)))
