"""Image files that a CSV table labels: `folder:labels.csv`, with the columns `path` and `label` and a header.

    path,label
    2024/a.jpg,cat

Paths are relative to the folder of the table and stay below it: absolute ones and those with .. are refused, so that a
table of somebody else names no other file of this machine. Links below it are followed, as in folders. Classes are the
labels, sorted as text. All problems of a table are reported at once.
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath

import torch

from regmixup.data.decode import EXTENSIONS
from regmixup.data.files import explaining_damage
from regmixup.data.images import FolderSet
from regmixup.names import counted, printable, shortened

_SHOWN = 3


def is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv" and path.is_file()


def read_table_files(name: str, table: Path) -> tuple[FolderSet | None, list[str]]:
    """Return the files of a table that can be used, None where there are none, and a line for each kind of problem."""
    labels, faults, others = _read_labels(table)
    problems = [
        f"{counted(len(cases), 'row')} of {table.name} {fault}: {printable(shortened(cases, _SHOWN))}"
        for fault, cases in faults.items()
    ]
    if not labels:
        return None, problems or [f"{table} must have rows below its header, found none"]
    classes = tuple(sorted(set(labels.values())))
    position = {label: number for number, label in enumerate(classes)}
    paths = sorted(labels)
    numbers = torch.tensor([position[labels[path]] for path in paths])
    info = {"table": table.name, "other_columns": printable(shortened(others, _SHOWN))}
    return FolderSet(tuple(paths), numbers, classes, name, table.parent, info), problems


def _read_labels(table: Path) -> tuple[dict[str, str], Mapping[str, list[str]], list[str]]:
    """Return the label of each file, the rows that cannot be used by what is wrong with them, and the other columns."""
    labels: dict[str, str] = {}
    faults: dict[str, list[str]] = defaultdict(list)
    with explaining_damage(table, "a CSV table in UTF-8"), table.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        header = [column.strip().lower() for column in next(rows, [])]
        if header.count("path") != 1 or header.count("label") != 1:
            raise ValueError(f"expected a header with the columns path and label, found {printable(str(header)):.200}")
        for row in filter(None, rows):
            entry = dict(zip(header, map(str.strip, row), strict=False))
            path, label = entry.get("path", ""), entry.get("label", "")
            place = str(table.parent / path)
            fault = _fault(path, label, place, labels.get(place, label))
            if "".join(row[len(header) :]).strip():  # of a label with a comma, the part before it would be the class
                fault = f"must have at most {len(header)} fields, with quotes around one that has a comma"
            if fault:
                faults[fault].append(f"{path or 'nothing'} in line {rows.line_num}")
            else:
                labels[place] = label
    return labels, faults, [column for column in header if column not in ("path", "label")]


def _fault(path: str, label: str, place: str, earlier: str) -> str:
    """Return what is wrong with a row; "" for nothing. place: the path of the file. earlier: its label in a row before.

    >>> _fault("../../etc/x.png", "cat", "", "cat")
    'must have paths below its folder, without / in front and without ..'
    """
    if not path or not label:
        return "must have a path and a label"
    if PurePath(path).is_absolute() or ".." in PurePath(path).parts:
        return "must have paths below its folder, without / in front and without .."
    if not path.lower().endswith(EXTENSIONS):
        return f"must name image files ({', '.join(EXTENSIONS)})"
    if not os.path.isfile(place):  # noqa: PTH113  a name that no file can have is none, and no error
        return "must name files that exist"
    return "" if label == earlier else "must not give a file a second label"
