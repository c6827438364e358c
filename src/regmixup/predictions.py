"""Making, writing and reading Predictions: the seam between training and evaluation.

Files are safetensors (memory-mapped, nothing is executed on loading). For models that are not ours, `.npz`, `.npy` and
`.csv` are read too: keys `logits` and `labels`, and any other field of `Predictions`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regmixup.names import unknown
from regmixup.storage import replacing
from regmixup.types import Predictions

TENSORS = tuple(f.name for f in fields(Predictions) if f.name not in ("dataset", "info"))


@runtime_checkable
class HasFeatures(Protocol):
    """The networks' contract, as far as prediction uses it."""

    head: nn.Module

    def features(self, x: Tensor) -> Tensor: ...


@torch.inference_mode()
def predict(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    dataset: str = "",
    batch_size: int = 1000,
    info: Mapping[str, str] | None = None,
) -> Predictions:
    """What `model` says about images (N, C, H, W), in evaluation mode, without augmentation, in float32.

    Features are kept where the model has `features` and `head`; the head's weight and bias where it is linear.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        logits, features = [], []
        for x in images.split(batch_size):
            x = x.to(device, non_blocking=True)
            if isinstance(model, HasFeatures):
                features.append(model.features(x))
                logits.append(model.head(features[-1]).float())
            else:
                logits.append(model(x).float())
    finally:
        model.train(was_training)
    head = getattr(model, "head", None)
    linear = head if features and isinstance(head, nn.Linear) else None
    return Predictions(
        logits=torch.cat(logits).cpu(),
        labels=labels,
        features=torch.cat(features).float().cpu() if features else None,
        head_weight=linear.weight.detach().float().cpu() if linear is not None else None,
        head_bias=linear.bias.detach().float().cpu() if linear is not None and linear.bias is not None else None,
        dataset=dataset,
        info=info or {},
    )


def file_name(dataset: str) -> str:
    """The file that holds a dataset's predictions: "digits/test" -> "digits__test.safetensors"."""
    return dataset.replace("/", "__").replace(":", "--") + ".safetensors"


def save(predictions: Predictions, path: str | Path) -> None:
    """Write a safetensors file, atomically."""
    tensors = {name: value.contiguous() for name in TENSORS if (value := getattr(predictions, name)) is not None}
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, metadata={"dataset": predictions.dataset, **predictions.info})


def load(path: str | Path) -> Predictions:
    """Read predictions from .safetensors, .npz, .npy (logits alone) or .csv (a column of labels, then logits).

    A file without labels (an out-of-distribution set needs none) gets labels -1.
    """
    path = Path(path)
    readers = {".safetensors": _from_safetensors, ".npz": _from_npz, ".npy": _from_npy, ".csv": _from_csv}
    if path.suffix not in readers:
        raise unknown(f"predictions format of {path}", path.suffix, readers)
    try:
        tensors, metadata = readers[path.suffix](path)
    except (OSError, ValueError, KeyError, EOFError, SafetensorError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"cannot read predictions from {path}: {error}") from error
    return _assemble(path, tensors, metadata)


def _assemble(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Predictions:
    for name in tensors:
        if name not in TENSORS:
            raise unknown(f"key in {path}", name, TENSORS)
    if "logits" not in tensors:
        raise ValueError(f"{path} must hold logits, found {', '.join(tensors) or 'nothing'}")
    if len(tensors["logits"]) == 0:
        raise ValueError(f"{path} is empty: logits have shape {tuple(tensors['logits'].shape)}")
    tensors.setdefault("labels", torch.full((len(tensors["logits"]),), -1))
    if tensors["labels"].is_floating_point() and bool((tensors["labels"] == tensors["labels"].round()).all()):
        tensors["labels"] = tensors["labels"].long()
    dataset = metadata.pop("dataset", path.stem)
    try:
        predictions = Predictions(**tensors, dataset=dataset, info=metadata)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not torch.isfinite(predictions.logits).all():
        raise ValueError(f"{path}: logits must be finite, found NaN or infinite values")
    if int(predictions.labels.max()) >= predictions.logits.shape[1] or int(predictions.labels.min()) < -1:
        low, high = int(predictions.labels.min()), int(predictions.labels.max())
        raise ValueError(
            f"{path}: labels must lie in [0, {predictions.logits.shape[1]}) (-1: unknown), got {low} to {high}"
        )
    return predictions


_Read = tuple[dict[str, Tensor], dict[str, str]]


def _from_safetensors(path: Path) -> _Read:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def _from_npz(path: Path) -> _Read:
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.as_tensor(file[name]) for name in file.files}, {}


def _from_npy(path: Path) -> _Read:
    return {"logits": torch.as_tensor(np.load(path, allow_pickle=False))}, {}


def _from_csv(path: Path) -> _Read:
    with path.open(encoding="utf-8") as file:
        header = file.readline().strip().split(",")
    if header[0] != "label":
        raise ValueError(f"the first line must be 'label' and then a name per class, got {','.join(header)!r}")
    table = torch.as_tensor(np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2))
    return {"labels": table[:, 0], "logits": table[:, 1:]}, {}
