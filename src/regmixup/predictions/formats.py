"""Read predictions of any model: safetensors, npz, npy, pt, and tables of text. Nothing in a file is executed.

Each reader returns arrays by name, and notes in words what it decided where there was a choice.
"""

from __future__ import annotations

import csv
import pickle
import zipfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regmixup.names import check_name
from regmixup.storage import load_tensors


@dataclass
class Contents:
    """The content of a file.

    arrays: by the field of `Predictions`; the names of the classes under "classes".
    info: text that came with them. notes: what a reader decided, in words.
    """

    arrays: dict[str, Any]
    info: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(path: Path, *, columns: Sequence[str] = ()) -> Contents:
    """Read a file of any known format; an error names it. columns: of tables, see `store.load`."""
    readers: dict[str, Callable[[], Contents]] = {
        ".safetensors": lambda: Contents(*load_tensors(path)),
        ".npz": lambda: Contents(_read_npz(path)),
        ".npy": lambda: Contents({"logits": np.lib.format.open_memmap(path, mode="c")}),  # changes stay in memory
        ".pt": lambda: Contents(_read_torch(path)),
        ".csv": lambda: _read_table(path, columns),
        ".tsv": lambda: _read_table(path, columns),
    }
    if path.is_dir():
        raise ValueError(f"cannot read predictions from {path}: name a file; those of a run folder are in predictions/")
    reader = readers[check_name(f"predictions format of {path}", path.suffix, readers)]
    try:
        return reader()
    except Exception as error:  # whatever damaged bytes lead a reader to
        raise ValueError(f"cannot read predictions from {path}: {error}") from error


def number_labels(labels: Any, names: Sequence[str]) -> tuple[Any, str]:
    """Return labels (N,) as integers, and what was decided: names of classes become their places among these.

    Numbers are names, too, where all of them are among classes that are called by numbers, such as 1 to K.
    names: those of the classes; none where the file does not have them.

    >>> number_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    (array([1, 0]), 'labels are names of classes')
    """
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iufU":
        return labels, ""  # which `Predictions` describes in its error
    if all(name.isdecimal() for name in names):
        names = [str(int(name)) for name in names]  # 01 is called by a number, too
    texts = [str(label) for label in array.tolist()]
    if not {*texts} <= {*names}:  # as they are written, they are no names; as whole numbers they may be
        array = _whole(array)
        texts = [str(label) for label in array.tolist()]
    places = {name: place for place, name in enumerate(names)}
    strange = [text for text in texts if text not in places]
    if not strange:
        counted_from_0 = list(places) == [str(place) for place in range(len(names))]
        numbers = np.array([places[text] for text in texts], dtype=np.int64)  # also where there are none
        return numbers, "" if counted_from_0 else "labels are names of classes"
    if array.dtype.kind in "iu":
        return array, ""
    contract = "labels must be numbers, or among the classes that the file names"
    raise ValueError(f"{contract} ({', '.join(places)[:80] or 'none'}), got {strange[0][:80]!r}")


def _whole(labels: np.ndarray) -> np.ndarray:
    """Return labels that are numbers, of any type or written as text, as integers; names as they are."""
    if labels.dtype.kind == "U":
        try:
            labels = labels.astype(float)
        except ValueError:
            return labels
    if labels.dtype.kind == "f":
        whole = (labels == labels.round()) & (abs(labels) < 2**53)
        if not whole.all():
            row = int(whole.argmin())
            raise ValueError(f"labels must be integers, got {labels[row]} in row {row} (counted from 0)")
        labels = labels.astype(np.int64)
    return labels


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:  # an error if it is missing, which to `is_zipfile` is no archive
        if not zipfile.is_zipfile(file):  # of which NumPy says to trust it
            raise ValueError("it is no .npz file, or a damaged one")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, EOFError) as error:  # of which torch says to trust it, or nothing
        raise ValueError("it holds other things than a dictionary of tensors, or is empty or damaged") from error
    if not isinstance(loaded, dict):
        raise ValueError(f"it must hold a dictionary of logits and labels, got {type(loaded).__name__}")
    return {
        str(key): array.detach().to_dense() if isinstance(array, Tensor) else array for key, array in loaded.items()
    }


LABEL_COLUMNS = ("label", "labels", "target", "targets", "class", "y", "y_true")
_PREFIXES = {"logit": "logit", "logits": "logit", "prob": "prob", "probs": "prob", "class": "class"}


class _Column(NamedTuple):
    """A column of a table: its place and name, the prefix of the name, if it has one that we know, and the rest."""

    place: int
    name: str
    prefix: str
    class_name: str


def _column(place: int, name: str) -> _Column:
    """
    >>> _column(2, "Logits_cat"), _column(3, "horse")  # doctest: +NORMALIZE_WHITESPACE
    (_Column(place=2, name='Logits_cat', prefix='logit', class_name='cat'),
     _Column(place=3, name='horse', prefix='', class_name='horse'))
    """
    word, _, class_name = name.partition("_")
    prefix = _PREFIXES.get(word.lower(), "") if class_name else ""
    return _Column(place, name, prefix, class_name if prefix else name)


def _read_table(path: Path, patterns: Sequence[str]) -> Contents:
    """Read a line of names, then a line per sample."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        columns = [_column(place, name.strip()) for place, name in enumerate(next(lines, []))]
        of_labels = [column for column in columns if column.name.lower() in LABEL_COLUMNS]
        if len(of_labels) > 1:
            names = ", ".join(column.name for column in of_labels)
            raise ValueError(f"the first line must name one column of labels, got {names}")
        unlabelled = [column for column in columns if column not in of_labels]
        named = _class_columns(unlabelled, patterns)
        chosen = named or unlabelled
        numbers, labels = array("d"), list[str]()
        for cells in filter(None, lines):
            numbers.extend(_numbers(cells, columns, chosen, line=lines.line_num))
            labels += [cells[column.place].strip() for column in of_labels]
    if not (numbers or labels):
        raise ValueError("it is empty: there is no line of numbers")
    # Without a name that tells, columns are the classes only if they are called as the labels that occur.
    if not named and (patterns or {column.name for column in unlabelled} != set(labels)):
        raise ValueError(
            "the columns of the classes must be called logit_NAME, prob_NAME or class_NAME, as the labels are, or 0 to "
            f"K - 1; or name them, such as --columns 'logit_*', {_got(unlabelled)}"
        )
    arrays = _by_field(np.array(numbers).reshape(-1, len(chosen)), chosen)
    if of_labels:
        arrays["labels"] = np.array(labels)
    left_out = [repr(column.name) for column in unlabelled if column not in chosen]
    return Contents(arrays, notes=[f"left out: {', '.join(left_out)}"] if left_out else [])


def _numbers(cells: Sequence[str], columns: Sequence[_Column], chosen: Sequence[_Column], *, line: int) -> list[float]:
    """Return the numbers of a line in the chosen columns. line: its number, for the error."""
    if len(cells) != len(columns):
        raise ValueError(f"line {line} must have {len(columns)} columns, got {len(cells)}: {cells!r:.80}")
    try:
        return [float(cells[column.place]) for column in chosen]
    except ValueError as error:
        contract = f"line {line} must hold numbers for the classes, or --columns must name these"
        raise ValueError(f"{contract}: {error}; {_got(columns)}") from error


def _by_field(table: np.ndarray, columns: Sequence[_Column]) -> dict[str, Any]:
    """Return the logits and the probabilities of a table, as far as it has them, and the names of their classes."""
    arrays: dict[str, Any] = {}
    for name, prefixes in {"logits": ("", "logit", "class"), "probs": ("prob",)}.items():
        places = [place for place, column in enumerate(columns) if column.prefix in prefixes]
        if not places:
            continue
        arrays[name], classes = table[:, places], [columns[place].class_name for place in places]
        if arrays.setdefault("classes", classes) != classes:
            contract = "columns of logits and of probs must name the same classes in the same order"
            raise ValueError(f"{contract}, {_got(columns)}")
    return arrays


def _class_columns(columns: Sequence[_Column], patterns: Sequence[str]) -> list[_Column]:
    """Return the columns whose names tell that they are the classes, in the order of numbers where all are numbers.

    They are those that match a pattern, or else have a prefix, or else are called 0 to K - 1.
    """
    of_models = [column for column in columns if column.prefix in ("logit", "prob")]
    of_classes = [column for column in columns if column.prefix == "class"]  # beside logits class_id is no class
    numbered = [column for column in columns if column.name.isdecimal()]
    if patterns:
        chosen = [column for column in columns if any(fnmatchcase(column.name, pattern) for pattern in patterns)]
    elif of_models or of_classes:
        chosen = of_models or of_classes
    elif sorted(int(column.name) for column in numbered) == list(range(len(numbered))):
        chosen = numbered
    else:
        chosen = []
    if all(column.class_name.isdecimal() for column in chosen):
        chosen.sort(key=lambda column: int(column.class_name))
    return chosen


def _got(columns: Sequence[_Column]) -> str:
    listed = ", ".join(repr(column.name) for column in columns if column.name)
    return f"got the columns {listed[:300]}"
