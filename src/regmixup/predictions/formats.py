"""Reading predictions of any model: safetensors, npz, npy, pt, and tables of text. Nothing in a file is executed.

Each reader returns arrays by name, and describes in words what it decided where there was a choice.
"""

from __future__ import annotations

import csv
import hashlib
import re
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from regmixup.names import check_name
from regmixup.predictions.numpy_files import map_npy, read_npz
from regmixup.storage import load_tensors

LabelColumn = Literal["first", "last", "none"]

# What numpy, zipfile and safetensors raise for files that are damaged, or are not what their name says.
UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SafetensorError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

_LABELS = ("label", "labels", "target", "targets", "class", "y", "y_true")
_IDS = ("id", "ids", "filename", "path")
_ANSWERS = ("pred", "prediction", "predicted", "confidence")
_LEFT_OUT = ("index", "idx", "unnamed: 0", "loss", *_ANSWERS, *_IDS)
_KIND = re.compile(r"(logit|prob)(?:s|ability|abilities)?(?:(?:[_.:\- ]+|(?=\d))(.+))?", re.IGNORECASE)


@dataclass
class Found:
    """arrays: by the field of `Predictions`, and the names of the classes under "classes"; info: text that came with
    them; understood: what a reader decided, in words."""

    arrays: dict[str, Any]
    info: dict[str, str] = field(default_factory=dict)
    understood: list[str] = field(default_factory=list)


def read(path: Path, labels: LabelColumn | None = None) -> Found:
    """Read a file of any known format; raise an error that names it if it cannot be read.

    labels: which column of a table holds them, where none is called so; a table without names is read only with this.
    """
    readers: dict[str, Callable[[], Found]] = {
        ".safetensors": lambda: Found(*load_tensors(path)),
        # What a model says does not shrink a hundredfold; a file made to fill the memory does.
        ".npz": lambda: Found(dict(read_npz(path, limit=max(1 << 30, 100 * path.stat().st_size)))),
        ".npy": lambda: Found({"logits": map_npy(path)}),
        ".pt": lambda: _from_pt(path),
        ".pth": lambda: _from_pt(path),
        ".csv": lambda: _from_table(path, labels),
        ".tsv": lambda: _from_table(path, labels),
    }
    if path.is_dir():
        raise ValueError(f"cannot read predictions from {path}: name a file; those of a run folder are in predictions/")
    chosen = readers[check_name(f"predictions format of {path}", path.suffix, readers)]
    try:
        return chosen()
    except UNREADABLE as error:
        raise ValueError(f"cannot read predictions from {path}: {_reason(error)}") from error


def read_labels(path: Path) -> Any:
    """Read labels alone: an array in .npy, or one per line of a text file, under the name "label" or none."""
    try:
        if path.suffix == ".npy":
            return map_npy(path)
        lines = [line.strip().strip('"') for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        lines = lines[1:] if lines and lines[0].lower() in _LABELS else lines
        return np.array([float(line) for line in lines] if all(map(_is_number, lines)) else lines)
    except UNREADABLE as error:
        raise ValueError(f"cannot read labels from {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if not isinstance(error, UnicodeDecodeError):
        return str(error)
    return f"its text must be UTF-8, got the byte {error.object[error.start]:#x}: save it once more, as UTF-8"


def numbered(labels: Any, classes: list[str] | None) -> tuple[Any, str]:
    """Return labels as numbers, and what was decided: names of classes become their places among these.

    >>> numbered(np.array(["dog", "cat"]), ["cat", "dog"])
    (array([1, 0]), 'labels are names of classes')
    """
    array = np.asarray(labels) if not isinstance(labels, Tensor) else None
    if array is None or classes is None or array.ndim != 1 or len(classes) < 2:
        return labels, ""
    if array.dtype.kind in "iuf":
        # Classes that are called 1 to K are meant where no label is 0.
        own = [str(number) for number in range(len(classes))]
        names = {float(name): place for place, name in enumerate(classes) if _is_number(name)}
        if classes == own or len(names) != len(classes) or not set(array.tolist()) <= set(names):
            return labels, ""
        return np.array([names[label] for label in array.tolist()]), "labels are names of classes"
    places = _places(classes)
    strange = sorted({str(label) for label in array} - set(places))
    if strange:
        raise ValueError(f"labels must be among the classes {', '.join(classes[:10])}, got {strange[0][:80]!r}")
    return np.array([places[str(label)] for label in array]), "labels are names of classes"


def _places(classes: list[str]) -> dict[str, int]:
    if len(set(classes)) < len(classes):
        raise ValueError(f"classes must have names of their own where labels are names, got {', '.join(classes[:10])}")
    return {name: place for place, name in enumerate(classes)}


def _from_pt(path: Path) -> Found:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever damaged bytes lead the unpickler to
        raise ValueError(f"it must hold tensors, lists and dictionaries alone: {error}"[:300]) from error
    match loaded:
        case Tensor():
            return Found({"logits": loaded.detach()}, understood=["one tensor: logits"])
        case [Tensor() as logits, Tensor() as labels]:
            return Found({"logits": logits.detach(), "labels": labels}, understood=["two tensors: logits, labels"])
        case dict():
            return Found({str(k): v.detach() if isinstance(v, Tensor) else v for k, v in loaded.items()})
    raise ValueError(f"it must hold a tensor, two, or a dictionary of tensors, got {type(loaded).__name__}")


@dataclass
class _Table:
    """The format of a table's lines: `columns` holds for every column "label", "" for left out, or its field."""

    separator: str
    columns: list[str]
    classes: list[str] | None
    named: bool
    decimal_comma: bool = False

    def cells(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self.separator), [])]

    def lines(self, path: Path) -> Iterator[str]:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file):
                if number or not self.named:
                    yield line.replace(",", ".") if self.decimal_comma else line

    @property
    def contract(self) -> str:
        counts = {kind: self.columns.count(kind) for kind in ("logits", "probs")}
        parts = ["a label"] * ("label" in self.columns) + [f"{count} {kind}" for kind, count in counts.items() if count]
        separators = {",": "commas", ";": "semicolons", "\t": "tabs"}
        return f"{' and '.join(parts)}, separated by {separators[self.separator]}"


def _from_table(path: Path, labels: LabelColumn | None) -> Found:
    with path.open(encoding="utf-8-sig") as file:
        first, second = file.readline(), file.readline()
    table, understood = _layout(first.rstrip("\r\n"), labels)
    if table.separator == ";" and "," in (second if table.named else first):
        table.decimal_comma = True
        understood.append("numbers have decimal commas")
    column = table.columns.index("label") if "label" in table.columns else None
    skipped: dict[int | str, Callable[[str], float]] = {
        i: lambda _: 0.0 for i, held in enumerate(table.columns) if not held
    }
    names = table.cells(first.rstrip("\r\n")) if table.named else []
    ids = {i: hashlib.sha256() for i, name in enumerate(names) if i in skipped and name.lower() in _IDS}
    for i, digest in ids.items():
        skipped[i] = partial(_note, digest)
    if column is not None and table.classes is not None:
        cells = table.cells(second)
        if len(cells) > column and not _is_number(cells[column]):
            places = _places(table.classes)
            skipped[column] = lambda cell: float(places[cell.strip()])
            understood.append("labels are names of classes")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            numbers = np.loadtxt(
                table.lines(path),
                delimiter=table.separator,
                ndmin=2,
                quotechar='"',
                comments=None,
                converters=skipped or None,
                encoding=None,
            )
    except (ValueError, KeyError):
        _check_lines(path, table, skipped)
        raise
    if len(numbers) == 0:
        raise ValueError("it is empty: there is no line after the first")
    if numbers.shape[1] != len(table.columns):
        _check_lines(path, table, skipped)
    found: dict[str, Any] = {}
    for kind in ("logits", "probs"):
        if kind in table.columns:
            found[kind] = numbers[:, [held == kind for held in table.columns]]
    if column is not None:
        found["labels"] = numbers[:, column]
        if column not in skipped:
            found["classes"] = table.classes
    info = {"ids": " ".join(f"{names[i].lower()}:{digest.hexdigest()}" for i, digest in ids.items())} if ids else {}
    return Found(found, info, understood)


def digest_of_ids(ids: Any) -> str:
    """Return what `info["ids"]` keeps of an array of identifiers: enough to tell whether two files are in one order."""
    digest = hashlib.sha256()
    for one in np.asarray(ids).ravel():
        _note(digest, one.decode() if isinstance(one, bytes) else str(one))
    return f"ids:{digest.hexdigest()}"


def _note(digest: Any, cell: str) -> float:
    """Add a cell to a digest; what it stands for in a table of numbers is left out later."""
    digest.update(cell.strip().encode() + b"\n")
    return 0.0


def _layout(first: str, labels: LabelColumn | None) -> tuple[_Table, list[str]]:
    """Decide what each column holds from the first line; raise an error if that may not be names."""
    # Decimal commas may outnumber semicolons by one.
    semicolons = ";" in first and first.count(";") + 1 >= first.count(",")
    separator = "\t" if "\t" in first else ";" if semicolons else ","
    table = _Table(separator, [], None, named=True)
    names = table.cells(first)
    if len(names) < 2 and re.search(r"[| ]", first):
        raise ValueError(f"the first line must be names separated by commas, semicolons or tabs, got {first!r}")
    understood = [f"separated by {'semicolons' if separator == ';' else 'tabs'}"] if separator != "," else []
    numbers = all(re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?", name, re.IGNORECASE) for name in names)
    # Classes may be called 0, 1, 2, ...; other numbers are the logits of a table without names.
    if names and numbers and names != [str(number) for number in range(len(names))]:
        if labels is None:
            advice = "or say where the labels of a table without names are (--labels first, last or a file of them)"
            raise ValueError(f"the first line must be a name per column, {advice}, got {first[:80]!r}")
        table.named = False
        table.columns = ["label" if i == _chosen(labels, names) else "logits" for i in range(len(names))]
        understood.append("no line of names")
    else:
        table.columns, table.classes = _column_fields(names, labels)
        out = [name for name, held in zip(names, table.columns, strict=True) if not held]
        understood += [f"column {name!r} is left out" for name in out]
    if "label" in table.columns and (labels is not None or table.columns[0] != "label"):
        place = table.columns.index("label")
        where = {0: "the first column", len(names) - 1: "the last column"}.get(place, f"column {place + 1}")
        understood.append(f"labels are in {where}")
    if not {"logits", "probs"} & set(table.columns):
        raise ValueError(f"the first line must hold a name per class, beside that of the labels, got {first[:80]!r}")
    return table, understood


def _chosen(labels: LabelColumn | None, names: list[str]) -> int:
    return {"first": 0, "last": len(names) - 1}.get(labels or "", -1)


def _column_fields(names: list[str], labels: LabelColumn | None) -> tuple[list[str], list[str]]:
    """Return what every named column holds, and the names of the classes."""
    found = [i for i, name in enumerate(names) if name.lower() in _LABELS]
    if len(found) != 1 and labels in ("first", "last"):
        found = [_chosen(labels, names)]
    if len(found) > 1:
        listed = ", ".join(repr(names[i]) for i in found)
        raise ValueError(f"the first line must name one column of labels (or say --labels first or last), got {listed}")
    columns = ["label" if i in found else "logits" for i in range(len(names))]
    for i, name in enumerate(names):
        if columns[i] != "label" and (name.lower() in _LEFT_OUT or (name == "" and i == 0)):
            columns[i] = ""
    rest = [i for i, held in enumerate(columns) if held == "logits"]
    if not rest or any(names[i] == "" for i in rest):
        got = ",".join(names)[:80]
        raise ValueError(f"the first line must be a name per class, and 'label' for labels, got {got!r}")
    kinds = [kind for i in rest if (kind := _KIND.fullmatch(names[i]))]
    if len(kinds) < len(rest):
        lower = {name.lower() for name in names}
        if "loss" in lower and lower.isdisjoint(_ANSWERS):
            remedy = "write logit_ or prob_ before the names of all classes, or remove the column"
            raise ValueError(f"column 'loss' may be a class or the loss of each image: {remedy}, got {names!r:.80}")
        return columns, [names[i] for i in rest]
    for i, kind in zip(rest, kinds, strict=True):
        columns[i] = kind[1].lower() + "s"
    return columns, [kind[2] or kind[0] for kind in kinds if kind[1].lower() == kinds[0][1].lower()]


def _check_lines(path: Path, table: _Table, converted: dict[int | str, Callable[[str], float]]) -> None:
    """Raise for the first line of a table that is not what its first line promises."""

    def fits(place: int, cell: str) -> bool:
        try:
            converted.get(place, float)(cell)
        except (ValueError, KeyError):
            return False
        return True

    for number, line in enumerate(table.lines(path), 2 if table.named else 1):
        text = line.strip()
        cells = table.cells(text)
        if text and (len(cells) != len(table.columns) or not all(fits(i, cell) for i, cell in enumerate(cells))):
            named = any(held == "label" and i in converted for i, held in enumerate(table.columns))
            among = f"; labels are among {', '.join(table.classes[:10])}" if table.classes and named else ""
            raise ValueError(f"line {number} must be {table.contract}, got {text[:80]!r}{among}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
