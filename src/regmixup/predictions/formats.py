"""Read predictions of any model: safetensors, npz, npy, pt, and tables of text. Nothing in a file is executed.

Each reader returns arrays by name, and notes in words what it decided where there was a choice.
"""

from __future__ import annotations

import csv
import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regmixup.names import check_name
from regmixup.storage import load_tensors


@dataclass
class Contents:
    """The content of a file.

    arrays: by the field of `Predictions`; the names of the classes under "classes", of the images under "ids".
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
        ".npy": lambda: Contents({"logits": _map_npy(path)}),
        ".pt": lambda: _read_torch(path),
        ".pth": lambda: _read_torch(path),
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


def read_labels(path: Path) -> Any:
    """Read labels alone: an array in .npy, or one per line of a text file, under the name "label" or none."""
    try:
        if path.suffix == ".npy":
            return _map_npy(path)
        lines = [line.strip().strip('"') for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        return np.array(lines[1:] if lines and lines[0].lower() in _LABELS else lines)
    except Exception as error:  # whatever damaged bytes lead a reader to
        raise ValueError(f"cannot read labels from {path}: {error}") from error


def number_labels(labels: Any, classes: Sequence[str] | None) -> tuple[Any, str]:
    """Return labels (N,) as integers, and what was decided: names of classes become their places among these.

    Numbers are names, too, where all of them are among classes that are called by numbers, such as 1 to K.

    >>> number_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    (array([1, 0]), 'labels are names of classes')
    """
    array = np.asarray(labels.tolist() if isinstance(labels, Tensor) else labels)
    if array.dtype.kind == "U" and all(_is_number(label) for label in array.ravel()):
        array = array.astype(float)
    if array.ndim != 1 or array.dtype.kind not in ("iuf" if classes is None else "iufU"):
        return labels, ""  # which `Predictions` describes in its error
    if array.dtype.kind == "f":
        whole = (array == array.round()) & (abs(array) < 2**53)
        if not whole.all():
            row = int(whole.argmin())
            raise ValueError(f"labels must be integers, got {array[row]} in row {row} (counted from 0)")
        array = array.astype(np.int64)
    classes = [] if classes is None else list(classes)
    places = {str(name): place for place, name in enumerate(classes)}
    if len(places) < len(classes):
        raise ValueError(f"classes must have names of their own, got {', '.join(map(str, classes))[:80]}")
    texts = [str(label) for label in array.tolist()]
    strange = sorted(set(texts) - set(places))
    if array.dtype.kind in "iu" and (strange or list(places) == [str(place) for place in range(len(places))]):
        return array, ""
    if strange:
        raise ValueError(f"labels must be among the classes {', '.join(places)[:80]}, got {strange[0][:80]!r}")
    return np.array([places[text] for text in texts]), "labels are names of classes"


def digest_of_ids(ids: Any) -> str:
    """Return the digest of an array of identifiers: it tells whether two files are in one order."""
    digest = hashlib.sha256()
    for identifier in np.asarray(ids).ravel():
        digest.update(str(identifier).strip().encode() + b"\n")
    return digest.hexdigest()


def _map_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file, mapped and not read; changes stay in memory."""
    return np.lib.format.open_memmap(path, mode="c")


def _check_size(size: int, path: Path) -> None:
    """Refuse a small file that would fill the memory: what a model says does not shrink a hundredfold."""
    limit = max(1 << 30, 100 * path.stat().st_size)
    if size > limit:
        raise ValueError(f"its arrays must take at most {limit} bytes, they claim {size}")


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()), path)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_torch(path: Path) -> Contents:
    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    match loaded:
        case Tensor():
            contents = Contents({"logits": loaded}, notes=["one tensor: logits"])
        case [Tensor() as logits, Tensor() as labels]:
            contents = Contents({"logits": logits, "labels": labels}, notes=["two tensors: logits, labels"])
        case dict():
            contents = Contents({str(key): array for key, array in loaded.items()})
        case _:
            raise ValueError(f"it must hold a tensor, two, or a dictionary of tensors, got {type(loaded).__name__}")
    tensors = {name: array.detach() for name, array in contents.arrays.items() if isinstance(array, Tensor)}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(f"{name} must be a dense tensor, got {tensor.layout} on the device {tensor.device}")
    # An expanded tensor takes next to nothing in the file.
    _check_size(sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()), path)
    contents.arrays |= tensors
    return contents


_LABELS = ("label", "labels", "target", "targets", "class", "y", "y_true")
_IDENTIFIERS = ("id", "ids", "image_id", "filename", "path")
_COMPANIONS = (
    "", "index", "idx", "unnamed: 0", *_IDENTIFIERS, "fold", "split", "pred", "y_pred", "prediction", "predicted",
    "correct", "confidence", "score", "max_prob", "entropy", "uncertainty", "loss",
)  # fmt: skip
"""Columns of a table without prefixes that are never classes, unless labels are called so."""
_PREFIX = re.compile(r"(?:logit|prob)s?_(.+)", re.IGNORECASE)
_CLASS_PREFIX = re.compile(r"class_(.+)", re.IGNORECASE)
_PROBS = re.compile(r"prob(s|ability|abilities)?(_.+)?", re.IGNORECASE)


def _read_table(path: Path, patterns: Sequence[str]) -> Contents:
    """Read a line of names, then a line per sample, in two passes: the second reads the numbers of the classes."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    separator = max(",;\t", key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator, skipinitialspace=True), [])]
    label_column = _label_column(names)
    texts: dict[int, list[str]] = {
        i: [] for i, name in enumerate(names) if i == label_column or name.lower() in _IDENTIFIERS
    }
    count = 0
    for _, cells in _lines(path, separator, len(names)):
        count += 1
        for i, column in texts.items():
            column.append(cells[i])
    if count == 0:
        raise ValueError("it is empty: there is no line of numbers")
    labels = texts.pop(label_column) if label_column is not None else None
    candidates = {i: name for i, name in enumerate(names) if i != label_column}
    chosen = _in_order(_class_columns(candidates, labels or [], patterns), names)
    probs = [i for i in chosen if _PROBS.fullmatch(names[i])]
    fields = {"logits": [i for i in chosen if i not in probs], "probs": probs}
    fields = {name: columns for name, columns in fields.items() if columns}
    class_names = [[_class_of(names[i]) for i in columns] for columns in fields.values()]
    if class_names[0] != class_names[-1]:
        contract = "columns of logits and of probs must name the same classes in the same order"
        raise ValueError(f"{contract}, {_got(names)}")
    numbers = _numbers(path, separator, names, chosen)
    arrays: dict[str, Any] = {"classes": class_names[0]}
    for name, columns in fields.items():
        arrays[name] = numbers[:, [chosen.index(i) for i in columns]]
    if labels is not None:
        arrays["labels"] = np.array(labels)
    notes = [f"labels are in column {label_column + 1}"] if label_column else []
    left_out = [i for i in candidates if i not in chosen]
    if left_out:
        notes.append(f"left out: {', '.join(repr(names[i]) for i in left_out)}")
    ids = " ".join(f"{names[i].lower()}:{digest_of_ids(texts[i])}" for i in left_out if i in texts)
    return Contents(arrays, {"ids": ids} if ids else {}, notes)


def _lines(path: Path, separator: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line below the names that is not empty."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        next(reader, None)
        for cells in reader:
            if cells in ([], [""]):
                continue
            if len(cells) != width:
                contract = f"line {reader.line_num} must have {width} columns"
                raise ValueError(f"{contract}, got {len(cells)}: {cells!r:.80}")
            yield reader.line_num, [cell.strip() for cell in cells]


def _label_column(names: list[str]) -> int | None:
    """Return the place of the column that is called as labels are; None if there is none."""
    if names and all(map(_is_number, names)) and names != [str(i) for i in range(len(names))]:
        raise ValueError("the first line must be a name per column, such as label, logit_cat, logit_dog, got numbers")
    places = [i for i, name in enumerate(names) if name.lower() in _LABELS]
    if len(places) > 1:
        listed = ", ".join(repr(names[i]) for i in places)
        raise ValueError(f"the first line must name one column of labels, got {listed}")
    return places[0] if places else None


def _class_columns(names: dict[int, str], labels: list[str], patterns: Sequence[str]) -> list[int]:
    """Return the columns of the classes: those that match a pattern, or else have a prefix, or else labels tell them.

    Without a prefix they are the columns called 0 to K - 1, those called as the labels are, or, where labels are the
    numbers 0 to K - 1, all K columns that are no companions. In the last two cases no column may be left that could be
    a class.

    >>> _class_columns({1: "y_pred", 2: "logit_cat", 3: "logit_dog"}, ["cat"], [])
    [2, 3]
    """
    if patterns:
        matching = [i for i, name in names.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if not matching:
            raise ValueError(f"columns must name some of the table's, {_got(names.values())} for {', '.join(patterns)}")
        return matching
    if prefixed := [i for i, name in names.items() if _PREFIX.fullmatch(name)]:
        return prefixed
    of_class = [i for i, name in names.items() if _CLASS_PREFIX.fullmatch(name)]
    if len(of_class) > 1:  # a single one, such as class_id, is no table of classes
        return of_class
    numbers = [i for i, name in names.items() if name.isdecimal()]
    if numbers and sorted(int(names[i]) for i in numbers) == list(range(len(numbers))):
        return numbers
    occurring = set(labels)
    candidates = [i for i, name in names.items() if name in occurring or name.lower() not in _COMPANIONS]
    places = {str(place) for place in range(len(candidates))}
    if len(candidates) > 1 and occurring in ({names[i] for i in candidates}, places):
        return candidates
    raise ValueError(
        "the columns of the classes must be called logit_NAME, prob_NAME or class_NAME, as the labels are, or 0 to "
        f"K - 1; or name them, such as --columns 'logit_*', {_got(names.values())}"
    )


def _class_of(name: str) -> str:
    """Return the name of a column's class, that of the column without a prefix."""
    parts = _PREFIX.fullmatch(name) or _CLASS_PREFIX.fullmatch(name)
    return parts[1] if parts else name


def _in_order(columns: list[int], names: list[str]) -> list[int]:
    """Return columns in the order of their classes: that of numbers where all are called by numbers.

    >>> _in_order([0, 1, 2], ["class_9", "class_10", "class_8"]), _in_order([0, 1], ["dog", "cat"])
    ([2, 0, 1], [0, 1])
    """
    if all(_class_of(names[i]).isdecimal() for i in columns):
        return sorted(columns, key=lambda i: int(_class_of(names[i])))
    return columns


def _numbers(path: Path, separator: str, names: list[str], columns: list[int]) -> np.ndarray:
    """Return the numbers of some columns, (N, K)."""
    rows = []
    for number, cells in _lines(path, separator, len(names)):
        try:
            rows.append(np.array([float(cells[i]) for i in columns]))
        except ValueError as error:
            raise ValueError(f"line {number} must have numbers such as 0.5 for the classes: {error}") from error
    return np.stack(rows)


def _got(names: Iterable[str]) -> str:
    listed = ", ".join(repr(name) for name in names if name)
    return f"got the columns {listed[:300]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
