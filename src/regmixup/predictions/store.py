"""Write and read Predictions, the file between training and evaluation.

Files are safetensors (memory-mapped, nothing is executed on loading). `formats` reads those of other programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regmixup.metrics.fisher import ClassMoments
from regmixup.names import check_name, shortened
from regmixup.predictions.formats import Contents, number_labels, read
from regmixup.storage import save_tensors
from regmixup.types import LOG_OF_PROBS, Predictions, Role, as_tensor, check_probs
from regmixup.types import PREDICTION_TENSORS as TENSORS

_LONGEST_STEM = 50
"""Characters: with a hash, 4 bytes for each and a temporary name, a file system's 255 bytes suffice."""


def join(parts: list[Predictions]) -> Predictions:
    """Concatenate predictions for the parts of one dataset; the head is that of the first."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for name in ("logits", "labels", "features", "probs", "logit_variance"):
        if getattr(parts[0], name) is not None:
            joined[name] = torch.cat([getattr(part, name) for part in parts])
    if parts[0].class_count is not None:
        moments = [stored for part in parts if (stored := ClassMoments.stored(part)) is not None]
        joined |= reduce(add, moments).packed()
    return replace(parts[0], **joined)


def file_name(dataset: str) -> str:
    """Return the name of the file of a dataset's predictions.

    Where that does not give the dataset's name back, or is long, it ends in a hash of the dataset's name.

    >>> file_name("a/b"), file_name("a__b")
    ('a__b.safetensors', 'a__b-63e5c1c4.safetensors')
    """
    stem = dataset.replace("/", "__").replace(":", "--")
    if _dataset_of(stem) != dataset or len(stem) > _LONGEST_STEM:
        stem = f"{stem[-_LONGEST_STEM:]}-{hashlib.sha256(dataset.encode()).hexdigest()[:8]}"
    return f"{stem}.safetensors"


def _dataset_of(stem: str) -> str:
    return stem.replace("__", "/")


def save(predictions: Predictions, path: str | Path) -> None:
    """Write a .safetensors file, atomically."""
    if Path(path).suffix != ".safetensors":
        raise ValueError(f"path must end in .safetensors, the format it writes, got {path}")
    tensors = {name: tensor for name in TENSORS if (tensor := getattr(predictions, name)) is not None}
    role = {"role": predictions.role} if predictions.role else {}
    save_tensors(Path(path), tensors, {"dataset": predictions.dataset, **role, **predictions.info})


def read_header(path: Path) -> tuple[list[str], dict[str, str]]:
    """Read which fields a file of `save` holds, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.keys(), dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ValueError(f"cannot read predictions from {path}: {error}") from error


def load(
    path: str | Path, *, labels: str | Path | None = None, columns: Sequence[str] | str = (), labelled: bool = True
) -> Predictions:
    """Read predictions of any model from .safetensors, .npz, .npy (logits alone), .pt (tensors alone), .csv or .tsv.

    Keys are the fields of `Predictions`, and "classes", names for labels. Instead of logits, `probs` do: `from_probs`.

    Tables have a line of names, then a line per sample: the label, under the name "label", and a column per class,
    called `logit_<class>`, `prob_<class>` or `class_<class>`; or called as the labels are, or 0 to K - 1. All other
    columns are left out; `info["read_as"]` says which. docs/evaluation.md has the whole rule.
    labels: an .npy file of them. columns: the columns of the classes in tables, by names or patterns such as `logit_*`.
    labelled: if False, labels are ignored and become -1, unknown, as those of an OOD set, which has other classes.

    A file without labels (an out-of-distribution set needs none) gets labels -1. One that does not say what dataset it
    is of is named after itself, as `file_name` would name it: "toy-c__fog__3.npz" is of "toy-c/fog/3".
    """
    path = Path(path)
    contents = read(path, columns=[columns] if isinstance(columns, str) else columns)
    if labels is not None:
        if "labels" in contents.arrays:
            raise ValueError(f"labels of {path} must be given once, got some in it and {labels}")
        if Path(labels).suffix != ".npy":
            raise ValueError(f"labels must be an .npy file, got {labels}")
        contents.arrays["labels"] = read(Path(labels)).arrays["logits"]  # the only array of an .npy file
    if not labelled:
        contents.arrays.pop("labels", None)
    for name in contents.arrays:
        check_name(f"key in {path}", name, (*TENSORS, "classes"))
    try:
        return _assemble(contents, dataset=_dataset_of(path.stem))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def from_probs(probs: Tensor, labels: Tensor, *, dataset: str = "") -> Predictions:
    """Return predictions of a model of which only probabilities (N, K) are known: their logarithm replaces the logits.

    Probabilities are raised to 1e-12 first, so that no logarithm is infinite, and rows are taken relative to their sum.
    Scores that need the scale of logits (Dempster-Shafer, energy, max_logit, ODIN, DUQ) cannot be had from them.

    >>> predictions = from_probs(torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
    >>> predictions.logits.softmax(dim=1).round(decimals=4).tolist(), predictions.from_probs
    ([[0.75, 0.25]], True)
    """
    probs = as_tensor("probs", probs)
    exact = torch.promote_types(probs.dtype, torch.float32)
    logits = probs.to(exact).clamp(min=1e-12).log()
    predictions = Predictions(logits, labels, dataset=dataset, info={"logits": LOG_OF_PROBS})
    check_probs(probs)
    return predictions


def _assemble(contents: Contents, dataset: str) -> Predictions:
    """Return the content of a file as Predictions. dataset: the name for one that does not state it."""
    arrays, info, notes = contents.arrays, dict(contents.info), contents.notes
    classes = arrays.pop("classes", None)
    if classes is not None and np.ndim(classes) != 1:
        raise ValueError(f"classes must be a list of names, got {classes!r:.80}")
    names = [str(name) for name in classes] if classes is not None else []
    if "labels" in arrays:
        arrays["labels"], note = number_labels(arrays["labels"], names)
        notes += [note] if note else []
    tensors = {name: as_tensor(name, array) for name, array in arrays.items()}
    table = tensors.get("logits", tensors.get("probs"))
    if table is None or table.ndim != 2 or len(table) == 0 or table.shape[1] < 2:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"it must hold logits or probs of shape (N, K), N >= 1, K >= 2, got {shapes or 'nothing'}")
    if classes is not None and not len({*names}) == len(names) == table.shape[1]:
        raise ValueError(f"classes must be {table.shape[1]} different names, got {shortened(names, 20)}")
    tensors.setdefault("labels", torch.full((len(table),), -1))
    info = {"dataset": dataset, "role": "", **info}
    if "logits" not in tensors:
        tensors["logits"] = from_probs(tensors["probs"], tensors["labels"]).logits
        del tensors["probs"]
        info["logits"] = LOG_OF_PROBS
        notes.append("probs alone: no score that needs the scale of logits, such as dempster_shafer")
    elif "probs" in tensors:
        check_probs(tensors["probs"])
    if notes:
        info["read_as"] = "; ".join(notes)
    predictions = Predictions(**tensors, dataset=info.pop("dataset"), role=cast("Role", info.pop("role")), info=info)
    low, high = (int(bound) for bound in predictions.labels.aminmax())
    if high >= table.shape[1] or low < -1:
        raise ValueError(f"labels must lie in [0, {table.shape[1]}) (-1: unknown), got {low} to {high}")
    return predictions
