"""Making, writing and reading Predictions: the seam between training and evaluation.

Files are safetensors (memory-mapped, nothing is executed on loading). For models that are not ours, `.npz`, `.npy` and
`.csv` are read too: keys `logits` and `labels`, and any other field of `Predictions`.
"""

from __future__ import annotations

import re
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regmixup.evaluation.fisher import ClassMoments
from regmixup.mixing import logits_of, to_float
from regmixup.names import unknown
from regmixup.storage import load_tensors, save_tensors
from regmixup.types import PREDICTION_TENSORS as TENSORS
from regmixup.types import Predictions, as_tensor, not_finite


@runtime_checkable
class HasFeatures(Protocol):
    """The networks' contract, by which prediction knows that what reaches `head` is features."""

    head: nn.Module

    def features(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class HasVariance(Protocol):
    """A head that knows how uncertain its logits are, as a Gaussian process does."""

    def variance(self, features: Tensor) -> Tensor:
        """Features (N, D) -> the variance of the logits: (N, K), or (N,) or (N, 1) if shared by all classes."""
        ...


def predict(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    dataset: str = "",
    batch_size: int = 1000,
    features: bool = True,
    moments: bool = False,
    info: Mapping[str, str] | None = None,
) -> Predictions:
    """What `model` says about images (N, C, H, W) with labels (N,); the rest as in `predict_batches`."""
    if len(images) == 0 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"images and labels must be (N, C, H, W) and (N,), N >= 1, got {tuple(images.shape)}, {tuple(labels.shape)}"
        )
    batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
    return predict_batches(model, batches, dataset=dataset, features=features, moments=moments, info=info)


@torch.no_grad()
def predict_batches(
    model: nn.Module,
    batches: Iterable[Sequence[Tensor] | Tensor],
    *,
    dataset: str = "",
    features: bool = True,
    moments: bool = False,
    labelled: bool = True,
    info: Mapping[str, str] | None = None,
) -> Predictions:
    """What `model` says about batches (x, y), in evaluation mode, without augmentation, in float32.

    batches: any iterable of pairs, such as a DataLoader; x: (N, C, H, W) uint8 or floating point, y: (N,).
    A tensor alone is no pair and is refused.
    labelled: if False, labels are not looked at and become -1, unknown; x alone will do.
    features: whether to keep what reaches the head, where the model has `features` and `head`; the head's weight and
    bias are kept with it where it is linear. A head with `variance` is asked for the logits' in any case.
    moments: whether to keep the class moments of that, which the Fisher criterion needs and which are much smaller;
    samples of unknown class, label -1, are left out.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    logits: list[Tensor] = []
    labels: list[Tensor] = []
    kept: list[Tensor] = []
    variances: list[Tensor] = []
    reached: list[Tensor] = []
    total: ClassMoments | None = None

    def look(head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        reached[:] = inputs[:1]
        if features:
            kept.append(inputs[0].float().cpu())
        if isinstance(head, HasVariance):
            variance = head.variance(inputs[0]).float().cpu()
            variances.append(variance if variance.ndim == 2 else variance[:, None])

    # What reaches the head, whatever `forward` does before it; one pass gives all.
    hook = model.head.register_forward_pre_hook(look) if isinstance(model, HasFeatures) else None
    try:
        for batch in batches:
            x, y = _pair(batch, dataset, labelled=labelled)
            found = logits_of(model, to_float(x.to(device, non_blocking=True)))
            logits.append(found.float())
            labels.append(y.cpu())
            if moments and reached:
                known = labels[-1] >= 0
                own = reached[0][known.to(device)].float(), labels[-1][known].to(device)
                part = ClassMoments.of(*own, found.shape[1])
                total = total + part if total is not None else part
    finally:
        if hook is not None:
            hook.remove()
        for module, training in modes.items():
            module.training = training
    if not logits:
        raise ValueError(f"batches of {dataset or 'a dataset'} must hold at least one (x, y), got none")
    head = getattr(model, "head", None)
    linear = head if kept and isinstance(head, nn.Linear) else None
    every = torch.cat(logits).cpu()
    return Predictions(
        logits=every,
        labels=torch.cat(labels),
        features=torch.cat(kept) if kept else None,
        logit_variance=torch.cat(variances).expand_as(every).contiguous() if variances else None,
        head_weight=linear.weight.detach().float().cpu().clone() if linear is not None else None,
        head_bias=linear.bias.detach().float().cpu().clone()
        if linear is not None and linear.bias is not None
        else None,
        **(total.packed() if total is not None else {}),
        dataset=dataset,
        info=info or {},
    )


def _pair(batch: object, dataset: str, *, labelled: bool) -> tuple[Tensor, Tensor]:
    """Images and labels of a batch, whatever else stands behind them."""
    match batch:
        case [Tensor() as x, y, *_] if labelled:
            y = as_tensor(f"labels of {dataset or 'a batch'}", y)
            if y.shape == x.shape[:1] != ():
                return x, y
            got = f"images and labels of shapes {tuple(x.shape)} and {tuple(y.shape)}"
        case (Tensor() as x) | [Tensor() as x, *_] if not labelled:
            return x, torch.full((len(x),), -1)
        case Tensor():
            got = f"one tensor of shape {tuple(batch.shape)}"
        case Mapping():
            got = f"{type(batch).__name__} with the keys {list(batch)}"
        case list() | tuple():
            got = f"{type(batch).__name__} of {', '.join(type(value).__name__ for value in batch[:5]) or 'nothing'}"
        case _:
            got = type(batch).__name__
    contract = "(images, labels) pairs of tensors (N, ...) and (N,)" if labelled else "images or (images, labels) pairs"
    raise ValueError(f"batches of {dataset or 'a dataset'} must be {contract}, got {got}")


def join(parts: list[Predictions]) -> Predictions:
    """Predictions for the parts of one dataset, one after the other; the head is that of the first."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for name in ("logits", "labels", "features", "probs", "logit_variance"):
        if getattr(parts[0], name) is not None:
            joined[name] = torch.cat([getattr(part, name) for part in parts])
    if parts[0].class_count is not None:
        moments = [own for part in parts if (own := ClassMoments.stored(part)) is not None]
        joined |= reduce(add, moments).packed()
    return replace(parts[0], **joined)


def file_name(dataset: str) -> str:
    """The file that holds a dataset's predictions: "digits/test" -> "digits__test.safetensors"."""
    return dataset.replace("/", "__").replace(":", "--") + ".safetensors"


def save(predictions: Predictions, path: str | Path) -> None:
    """Write a safetensors file, atomically."""
    tensors = {name: value for name in TENSORS if (value := getattr(predictions, name)) is not None}
    save_tensors(Path(path), tensors, {"dataset": predictions.dataset, **predictions.info})


@dataclass(frozen=True)
class Header:
    """What a stored safetensors file says about itself before any tensor is read."""

    fields: frozenset[str]
    info: Mapping[str, str]


def read_header(path: str | Path) -> Header:
    """Which fields a file of `save` holds, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return Header(frozenset(file.keys()), dict(file.metadata() or {}))
    except _UNREADABLE as error:
        raise ValueError(f"cannot read predictions from {path}: {error}") from error


def load(path: str | Path) -> Predictions:
    """Read predictions from .safetensors, .npz, .npy (logits alone) or .csv (a line of names, then a line of numbers
    per sample: the label, under the name "label", and the logits, under the classes' names).

    A file without labels (an out-of-distribution set needs none) gets labels -1. One that does not say what dataset it
    is of is named after itself, as `file_name` would name it: "toy-c__fog__3.npz" is of "toy-c/fog/3".
    """
    path = Path(path)
    readers = {".safetensors": _from_safetensors, ".npz": _from_npz, ".npy": _from_npy, ".csv": _from_csv}
    if path.suffix not in readers:
        raise unknown(f"predictions format of {path}", path.suffix, readers)
    try:
        tensors, metadata = readers[path.suffix](path)
    except _UNREADABLE as error:
        raise ValueError(f"cannot read predictions from {path}: {error}") from error
    return _assemble(path, tensors, metadata)


def _assemble(path: Path, found: dict[str, Any], metadata: dict[str, str]) -> Predictions:
    for name in found:
        if name not in TENSORS:
            raise unknown(f"key in {path}", name, TENSORS)
    if "logits" not in found:
        raise ValueError(f"{path} must hold logits, found {', '.join(found) or 'nothing'}")
    tensors = {name: as_tensor(f"{path}: {name}", value) for name, value in found.items()}
    if tensors["logits"].ndim and len(tensors["logits"]) == 0:
        raise ValueError(f"{path} is empty: logits have shape {tuple(tensors['logits'].shape)}")
    tensors.setdefault("labels", torch.full(tensors["logits"].shape[:1], -1))
    labels = tensors["labels"]
    if labels.ndim == 1 and labels.is_floating_point() and bool((labels == labels.round()).all()):
        tensors["labels"] = labels.long()  # a table of numbers, such as a csv, has no other way to write integers
    dataset = metadata.pop("dataset", path.stem.replace("__", "/"))
    try:
        predictions = Predictions(**tensors, dataset=dataset, info=metadata)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if bad := not_finite(predictions.logits):
        raise ValueError(f"{path}: logits must be finite, found {bad}")
    low, high = int(predictions.labels.min()), int(predictions.labels.max())
    if high >= predictions.logits.shape[1] or low < -1:
        raise ValueError(
            f"{path}: labels must lie in [0, {predictions.logits.shape[1]}) (-1: unknown), got {low} to {high}"
        )
    return predictions


# What numpy, zipfile and safetensors raise for files that are damaged, or are not what their name says.
_UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, SafetensorError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip

_Read = tuple[dict[str, Any], dict[str, str]]


def _from_safetensors(path: Path) -> _Read:
    return load_tensors(path)


def _from_npz(path: Path) -> _Read:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: _entry(archive, name) for name in archive.files}, {}


def _entry(archive: Any, name: str) -> Any:
    try:
        return archive[name]
    except ValueError as error:  # an array of Python objects
        raise ValueError(f"{name}: {error}") from error


def _from_npy(path: Path) -> _Read:
    with path.open("rb") as file:
        return {"logits": np.load(file, allow_pickle=False)}, {}


def _from_csv(path: Path) -> _Read:
    with path.open(encoding="utf-8-sig") as file:
        header = [name.strip() for name in file.readline().split(",")]
    if len(header) == 1 and re.search(r"[;|\t ]", header[0]):
        raise ValueError(f"the first line must be names separated by commas, got {header[0]!r}")
    labelled = _has_labels(header)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8-sig")
    except ValueError:
        _check_lines(path, len(header), labelled=labelled)
        raise
    if len(table) == 0:
        raise ValueError("it is empty: there is no line after the first")
    if table.shape[1] != len(header):
        _check_lines(path, len(header), labelled=labelled)
    return ({"labels": table[:, 0], "logits": table[:, 1:]} if labelled else {"logits": table}), {}


def _check_lines(path: Path, columns: int, *, labelled: bool) -> None:
    """Raise for the first line of a table that is not as many numbers as the first line has names."""
    parts = f"a label and {columns - 1} logits" if labelled else f"{columns} logits"
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            text = line.partition("#")[0].strip()
            if number > 1 and text and [_is_number(cell) for cell in text.split(",")] != [True] * columns:
                raise ValueError(f"line {number} must be {parts}, separated by commas, got {text[:80]!r}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_labels(header: list[str]) -> bool:
    """Whether a table's first column is labels; an error for a first line that may be something else than classes."""
    names = [name.lower() for name in header]
    if names[0] == "label" and "label" not in names[1:]:
        return True
    numbers = all(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", name, re.IGNORECASE) for name in header)
    # Classes may be called 0, 1, 2, ...; other numbers are the logits of a file without names.
    nameless = numbers and header != [str(number) for number in range(len(header))]
    mistaken = {names[0], names[-1]} & {"label", "labels", "target", "targets", "class", "y"} or "label" in names
    if nameless or mistaken or "" in header:
        contract = "a name per class, after 'label' if there are labels, which must be the first column"
        raise ValueError(f"the first line must be {contract}, got {','.join(header)!r}")
    return False
