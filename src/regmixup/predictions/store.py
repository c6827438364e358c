"""Write and read Predictions, the file between training and evaluation.

Files are safetensors (memory-mapped, nothing is executed on loading). Those of models that are not ours are read by
`prediction_files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, cast, get_args

import torch
from safetensors import safe_open
from torch import Tensor

from regmixup.metrics.fisher import ClassMoments
from regmixup.names import check_name
from regmixup.predictions.formats import UNREADABLE, Found, LabelColumn, digest_of_ids, numbered, read, read_labels
from regmixup.storage import save_tensors
from regmixup.types import (
    LOG_OF_PROBS,
    Predictions,
    Role,
    as_tensor,
    look_like_probabilities,
    not_finite,
    with_known_scale,
)
from regmixup.types import PREDICTION_TENSORS as TENSORS


def join(parts: list[Predictions]) -> Predictions:
    """Concatenate predictions for the parts of one dataset; the head is that of the first."""
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
    """Return the name of the file of a dataset's predictions: "digits/test" -> "digits__test.safetensors"."""
    return dataset.replace("/", "__").replace(":", "--") + ".safetensors"


def save(predictions: Predictions, path: str | Path) -> None:
    """Write a safetensors file, atomically."""
    tensors = {name: value for name in TENSORS if (value := getattr(predictions, name)) is not None}
    role = {"role": predictions.role} if predictions.role else {}
    save_tensors(Path(path), tensors, {"dataset": predictions.dataset, **role, **predictions.info})


@dataclass(frozen=True)
class Header:
    """The names of the tensors in a stored safetensors file, and its metadata."""

    fields: frozenset[str]
    info: Mapping[str, str]


def read_header(path: str | Path) -> Header:
    """Read which fields a file of `save` holds, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return Header(frozenset(file.keys()), dict(file.metadata() or {}))
    except UNREADABLE as error:
        raise ValueError(f"cannot read predictions from {path}: {error}") from error


def load(path: str | Path, *, labels: LabelColumn | Path | None = None) -> Predictions:
    """Read predictions of any model from .safetensors, .npz, .npy (logits alone), .pt (tensors alone), .csv or .tsv.

    Keys are the fields of `Predictions`, and "classes", the classes' names, where labels are such names, and "ids",
    which name the images: by them two files are known to be of the same ones in the same order. Without logits,
    `probs` will do: see `from_probs`. A single column is the logit, or the probability, of class 1 of two.
    Tables have a line of names, then a line per sample: the label, under the name "label", and the logits, under the
    classes' names, or `probs_<class>`. docs/evaluation.md lists what else is read; `info["read_as"]` then says how.
    labels: the "first" or "last" column of a table that names none, "none", or a file of them. Only with this may a
    table have no line of names.

    A file without labels (an out-of-distribution set needs none) gets labels -1. One that does not say what dataset it
    is of is named after itself, as `file_name` would name it: "toy-c__fog__3.npz" is of "toy-c/fog/3".
    """
    path = Path(path)
    found = read(path, "none" if isinstance(labels, Path) else labels)
    if isinstance(labels, Path):
        if "labels" in found.arrays:
            raise ValueError(f"labels of {path} must be given once, got some in it and {labels}")
        found.arrays["labels"] = read_labels(labels)
    return _assemble(path, found)


LEAST_PROBABILITY = 1e-12


def from_probs(
    probs: Tensor, labels: Tensor, *, dataset: str = "", info: Mapping[str, str] | None = None
) -> Predictions:
    """Return predictions of a model of which only probabilities (N, K) are known: their logarithm replaces the logits.

    Probabilities are raised to 1e-12 first, so that no logarithm is infinite, and rows are taken relative to their sum.
    Scores that need the scale of logits (Dempster-Shafer, energy, max_logit, ODIN, DUQ) cannot be had from them.

    >>> found = from_probs(torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
    >>> found.logits.softmax(dim=1).round(decimals=4).tolist(), found.from_probs
    ([[0.75, 0.25]], True)
    """
    probs = as_tensor("probs", probs)
    if probs.ndim != 2 or not probs.is_floating_point() or probs.numel() == 0:
        raise ValueError(f"probs must be a floating-point (N, K) tensor, got {probs.dtype} of {tuple(probs.shape)}")
    _check_probs(probs)
    exact = torch.promote_types(probs.dtype, torch.float32)
    logits = probs.to(exact).clamp(min=LEAST_PROBABILITY).log()
    return Predictions(logits, labels, dataset=dataset, info={**(info or {}), "logits": LOG_OF_PROBS})


def _check_probs(probs: Tensor) -> None:
    if not look_like_probabilities(probs):
        low, high = (float(value) for value in probs.aminmax())
        total = probs.sum(dim=1, dtype=torch.float64)
        raise ValueError(
            f"probs must be >= 0 and sum to 1 in every row, got values from {low:g} to {high:g} and sums from "
            f"{float(total.min()):g} to {float(total.max()):g}"
        )


def _assemble(path: Path, found: Found) -> Predictions:
    classes = found.arrays.pop("classes", None)
    if (ids := found.arrays.pop("ids", None)) is not None:
        found.info["ids"] = digest_of_ids(ids)
    for name in found.arrays:
        check_name(f"key in {path}", name, (*TENSORS, "classes", "ids"))
    if not {"logits", "probs"} & set(found.arrays):
        raise ValueError(f"{path} must hold logits or probs, found {', '.join(found.arrays) or 'nothing'}")
    try:
        if "labels" in found.arrays:
            names = [str(name) for name in classes] if classes is not None else None
            found.arrays["labels"], told = numbered(found.arrays["labels"], names)
            found.understood += [told] if told else []
        tensors = {name: as_tensor(name, value) for name, value in found.arrays.items()}
        table = tensors["logits" if "logits" in tensors else "probs"]
        if table.ndim and len(table) == 0:
            raise ValueError(f"it is empty: logits have shape {tuple(table.shape)}")
        found.understood += _two_classes(tensors)
        labels = tensors.setdefault("labels", torch.full(table.shape[:1], -1))
        if labels.ndim == 1 and labels.is_floating_point():  # a csv has no other way to write integers
            whole = (labels == labels.round()) & (labels.abs() < 2**53)
            if not bool(whole.all()):
                row = int(whole.int().argmin())
                raise ValueError(f"labels must be integers, got {float(labels[row])} in row {row} (counted from 0)")
            tensors["labels"] = labels.long()
        info = dict(found.info)
        dataset = info.pop("dataset", path.stem.replace("__", "/"))
        role = cast("Role", info.pop("role")) if info.get("role") in get_args(Role) else ""
        if "logits" not in tensors:
            tensors["logits"] = from_probs(tensors["probs"], tensors["labels"]).logits
            info["logits"] = LOG_OF_PROBS
            del tensors["probs"]
            found.understood.append("probs alone: no score that needs the scale of logits, such as dempster_shafer")
        given = Predictions(**tensors, dataset=dataset, role=role, info=info)
        predictions = with_known_scale(given)
        if predictions is not given:
            found.understood.append("log-probabilities: no score that needs the scale of logits")
        if predictions.probs is not None and "dataset" not in found.info:  # ours may be of Monte-Carlo samples
            _check_probs(predictions.probs)
            others = int((predictions.probs.argmax(dim=1) != predictions.logits.argmax(dim=1)).sum())
            told = f"probs name another class than logits in {others} of {len(predictions)} rows: accuracy is of probs"
            found.understood += [told] if others else []
        if found.understood:
            predictions = replace(predictions, info={**predictions.info, "read_as": "; ".join(found.understood)})
        if bad := not_finite(predictions.logits):
            raise ValueError(f"logits must be finite, found {bad}")
        low, high = int(predictions.labels.min()), int(predictions.labels.max())
        if high >= predictions.logits.shape[1] or low < -1:
            contract = f"labels must lie in [0, {predictions.logits.shape[1]}) (-1: unknown)"
            raise ValueError(f"{contract}, got {low} to {high}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return predictions


def _two_classes(tensors: dict[str, Tensor]) -> list[str]:
    """Make two columns of one, in place: that of class 1 of two. Return what was done, in words."""
    done = []
    for name in ("logits", "probs"):
        one = tensors.get(name)
        if one is None or not one.is_floating_point() or one.ndim not in (1, 2) or one.shape[1:] not in ((), (1,)):
            continue
        one = one.reshape(-1, 1)
        if name == "logits" and len(one) and float(one.min()) >= 0 and float(one.max()) <= 1:
            raise ValueError("logits of one column look like probabilities, numbers in [0, 1]: call them probs")
        tensors[name] = torch.cat([torch.zeros_like(one) if name == "logits" else 1 - one, one], dim=1)
        done.append(f"one column of {name}: that of class 1 of two")
    return done
