"""Read predictions of any model: safetensors, npz, npy, pt, and tables of text. Nothing in a file is executed.

Each reader returns arrays by name, and notes in words what it decided where there was a choice.
"""

from __future__ import annotations

import csv
import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regmixup.names import check_name
from regmixup.storage import load_tensors
from regmixup.types import as_tensor

LabelColumn = Literal["first", "last", "none"]


@dataclass
class Contents:
    """The content of a file.

    arrays: by the field of `Predictions`; the names of the classes under "classes", of the images under "ids".
    info: text that came with them. notes: what a reader decided, in words.
    """

    arrays: dict[str, Any]
    info: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(path: Path, *, labels: LabelColumn | None = None, columns: Sequence[str] = ()) -> Contents:
    """Read a file of any known format; an error names it. labels, columns: of tables, see `store.load`."""
    readers: dict[str, Callable[[], Contents]] = {
        ".safetensors": lambda: Contents(*load_tensors(path)),
        ".npz": lambda: Contents(_read_npz(path)),
        ".npy": lambda: Contents({"logits": _map_npy(path)}),
        ".pt": lambda: _read_torch(path),
        ".pth": lambda: _read_torch(path),
        ".csv": lambda: _read_table(path, labels, columns),
        ".tsv": lambda: _read_table(path, labels, columns),
    }
    if path.is_dir():
        raise ValueError(f"cannot read predictions from {path}: name a file; those of a run folder are in predictions/")
    reader = readers[check_name(f"predictions format of {path}", path.suffix, readers)]
    try:
        return reader()
    except Exception as error:  # whatever damaged bytes lead a reader to
        raise ValueError(f"cannot read predictions from {path}: {_reason(error)}") from error


def read_labels(path: Path) -> Any:
    """Read labels alone: an array in .npy, or one per line of a text file, under the name "label" or none."""
    try:
        if path.suffix == ".npy":
            return _map_npy(path)
        lines = [line.strip().strip('"') for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        return np.array(lines[1:] if lines and lines[0].lower() in _LABELS else lines)
    except Exception as error:  # whatever damaged bytes lead a reader to
        raise ValueError(f"cannot read labels from {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"its text must be UTF-8, got the byte {error.object[error.start]:#x}: save it once more, as UTF-8"
    return str(error)


def number_labels(labels: Any, classes: Sequence[str] | None) -> tuple[Any, str]:
    """Return labels (N,) as integers, and what was decided: names of classes become their places among these.

    Numbers are names, too, where all of them are among classes that are called by numbers, such as 1 to K.

    >>> number_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    (array([1, 0]), 'labels are names of classes')
    """
    array = np.asarray(as_tensor("labels", labels).tolist() if isinstance(labels, Tensor) else labels)
    if array.dtype.kind in "US" and all(_is_number(str(label)) for label in array.ravel()):
        array = array.astype(float)
    if array.ndim != 1 or array.dtype.kind not in ("iuf" if classes is None else "iufUS"):
        return labels, ""
    if array.dtype.kind == "f":
        whole = (array == array.round()) & (abs(array) < 2**53)
        if not whole.all():
            row = int(whole.argmin())
            raise ValueError(f"labels must be integers, got {array[row]} in row {row} (counted from 0)")
        array = array.astype(np.int64)
    names = [str(name) for name in classes] if classes is not None and len(classes) > 1 else []
    if len(set(names)) < len(names):
        raise ValueError(f"classes must have names of their own, got {', '.join(names[:10])}")
    texts = [str(label) for label in array.tolist()]
    strange = sorted(set(texts) - set(names))
    if array.dtype.kind in "iu" and (strange or names == [str(place) for place in range(len(names))]):
        return array, ""
    if strange:
        raise ValueError(f"labels must be among the classes {', '.join(names[:10])}, got {strange[0][:80]!r}")
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[text] for text in texts]), "labels are names of classes"


def digest_of_ids(ids: Any) -> str:
    """Return the digest of an array of identifiers: it tells whether two files are in one order."""
    digest = hashlib.sha256()
    for identifier in np.asarray(ids).ravel():
        text = identifier.decode() if isinstance(identifier, bytes) else str(identifier)
        digest.update(text.strip().encode() + b"\n")
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
        # The header of an LZMA stream says how much memory its decompressor takes; NumPy writes no such file.
        if not {member.compress_type for member in archive.infolist()} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("its arrays must be stored or deflated, as NumPy writes them")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_torch(path: Path) -> Contents:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever damaged bytes lead the unpickler to
        raise ValueError(f"it must hold tensors, lists and dictionaries alone: {error}"[:300]) from error
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


@dataclass(frozen=True)
class _Table:
    """A table of text. names: of its columns, "" where its first line holds none. named: whether it does."""

    path: Path
    separator: str
    names: list[str]
    named: bool

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of every line that is not empty, but for the line of names."""
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=self.separator, skipinitialspace=True)
            if self.named:
                next(reader, None)
            for cells in reader:
                if cells in ([], [""]):
                    continue
                if len(cells) != len(self.names):
                    contract = f"line {reader.line_num} must have {len(self.names)} columns"
                    raise ValueError(f"{contract}, got {len(cells)}: {cells!r:.80}")
                yield reader.line_num, [cell.strip() for cell in cells]

    def column(self, place: int) -> list[str]:
        return [cells[place] for _, cells in self.lines()]


def _read_table(path: Path, labels: LabelColumn | None, columns: Sequence[str]) -> Contents:
    table = _open_table(path)
    if not table.named and (labels is None or columns):
        advice = "or say where the labels of a table without names are (--labels first, last or a file of them)"
        raise ValueError(f"the first line must be a name per column, {advice}")
    if next(table.lines(), None) is None:
        raise ValueError("it is empty: there is no line of numbers")
    place = _label_column(table.names, labels)
    texts = table.column(place) if place is not None else None
    notes = [] if table.named else ["no line of names"]
    if place:
        notes.append(f"labels are in column {place + 1}")
    if table.named:
        names = [name if i != place else "" for i, name in enumerate(table.names)]
        class_columns = _class_columns(names, texts or [], columns)
        probs = [i for i in class_columns if _PROBS.fullmatch(names[i])]
    else:
        names = list(map(str, range(len(table.names))))
        class_columns, probs = [i for i in range(len(names)) if i != place], []
    fields = {"logits": [i for i in class_columns if i not in probs], "probs": probs}
    fields = {name: _in_order(places, names) for name, places in fields.items() if places}
    class_names = [[_class_of(names[i]) for i in places] for places in fields.values()]
    if class_names[0] != class_names[-1]:
        contract = "columns of logits and of probs must name the same classes in the same order"
        raise ValueError(f"{contract}, {_got(names)}")
    left_out = [i for i in range(len(names)) if i != place and i not in class_columns]
    if left_out:
        notes.append(f"left out: {', '.join(repr(names[i]) for i in left_out)}")
    arrays: dict[str, Any] = {name: _numbers(table, places) for name, places in fields.items()}
    if texts is not None:
        arrays["labels"] = np.array(texts)
    if table.named:
        arrays["classes"] = class_names[0]
    identifiers = [i for i in left_out if names[i].lower() in _IDENTIFIERS]
    ids = " ".join(f"{names[i].lower()}:{digest_of_ids(table.column(i))}" for i in identifiers)
    return Contents(arrays, {"ids": ids} if ids else {}, notes)


def _open_table(path: Path) -> _Table:
    """Read the first line of a table, which separates by tabs, semicolons or commas."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    separator = max(",;\t", key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator, skipinitialspace=True), [])]
    # Classes may be called 0, 1, 2, ...; other numbers are the values of a table without names.
    if names and all(map(_is_number, names)) and names != [str(i) for i in range(len(names))]:
        return _Table(path, separator, [""] * len(names), named=False)
    return _Table(path, separator, names, named=True)


def _label_column(names: list[str], labels: LabelColumn | None) -> int | None:
    """Return the place of the labels: that of the column called so, else the first or last if that is asked for."""
    places = [i for i, name in enumerate(names) if name.lower() in _LABELS]
    if len(places) != 1 and labels in ("first", "last"):
        return 0 if labels == "first" else len(names) - 1
    if len(places) > 1:
        listed = ", ".join(repr(names[i]) for i in places)
        raise ValueError(f"the first line must name one column of labels (or say --labels first or last), got {listed}")
    return places[0] if places else None


def _class_columns(names: list[str], labels: list[str], patterns: Sequence[str]) -> list[int]:
    """Return the columns of the classes: those that match a pattern, or else have a prefix, or else labels tell them.

    >>> _class_columns(["y_pred", "logit_cat", "logit_dog"], ["cat"], [])
    [1, 2]
    """
    if patterns:
        chosen = [i for i, name in enumerate(names) if name and any(fnmatchcase(name, each) for each in patterns)]
        if not chosen:
            raise ValueError(f"columns must name some of the table's, {_got(names)} for {', '.join(patterns)}")
        return chosen
    prefixed = [i for i, name in enumerate(names) if _PREFIX.fullmatch(name)]
    of_class = [i for i, name in enumerate(names) if _CLASS_PREFIX.fullmatch(name)]
    if prefixed:
        return prefixed
    # A single one, such as class_id, is no table of classes.
    return of_class if len(of_class) > 1 else _bare_columns(names, labels)


def _bare_columns(names: list[str], labels: list[str]) -> list[int]:
    """Return the columns of the classes where none has a prefix; raise an error unless labels or numbers tell them.

    They are the columns called 0 to K - 1, those called as the labels are, or, where labels are the numbers 0 to K - 1,
    all K columns that are no companions. In the last two cases no column may be left that could be a class.
    """
    numbers = [i for i, name in enumerate(names) if name.isdecimal()]
    if numbers and sorted(int(names[i]) for i in numbers) == list(range(len(numbers))):
        return numbers
    occurring = set(labels)
    candidates = [i for i, name in enumerate(names) if name in occurring or name.lower() not in _COMPANIONS]
    places = {str(place) for place in range(len(candidates))}
    if len(candidates) > 1 and occurring in ({names[i] for i in candidates}, places):
        return candidates
    raise ValueError(
        "the columns of the classes must be called logit_NAME, prob_NAME or class_NAME, as the labels are, or 0 to "
        f"K - 1; or name them, such as --columns 'logit_*', {_got(names)}"
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
    classes = {i: _class_of(names[i]) for i in columns}
    if len(set(classes.values())) < len(columns):
        raise ValueError(f"classes must have names of their own, got {', '.join(classes.values())[:80]}")
    if all(name.isdecimal() for name in classes.values()):
        return sorted(columns, key=lambda i: int(classes[i]))
    return columns


def _numbers(table: _Table, columns: list[int]) -> np.ndarray:
    """Return the numbers of some columns, (N, K)."""
    rows = []
    for number, cells in table.lines():
        try:
            rows.append(np.array([float(cells[i]) for i in columns]))
        except ValueError as error:
            raise ValueError(f"line {number} must have numbers such as 0.5 for the classes: {error}") from error
    return np.stack(rows)


def _got(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names if name)
    return f"got the columns {listed[:300]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
