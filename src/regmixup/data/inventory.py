"""The datasets under a root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regmixup.data.catalogue import DATASETS
from regmixup.data.files import data_root, is_rebuilt, missing_files
from regmixup.data.records import Dataset


@dataclass(frozen=True)
class Present:
    """A dataset that is there; for CIFAR-C one corruption at all severities, named cifar10-c/fog.

    bytes: of its files. rebuilt: whether somebody made them, see `files.is_rebuilt`.
    """

    name: str
    bytes: int
    rebuilt: bool


def present(root: str | Path | None = None) -> list[Present]:
    """Return the datasets under the root, in the catalogue's order; parts such as cifar10/train-90 are not listed."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise ValueError(f"root must name a folder, got {root}")
    root = data_root(root)
    lines: dict[str, Dataset] = {}
    for name, dataset in DATASETS.items():
        if dataset.files and not dataset.part and not dataset.listed and not missing_files(dataset, root):
            lines.setdefault(f"{dataset.family}/{dataset.corruption}" if dataset.corruption else name, dataset)
    return [Present(line, _size(dataset, root), is_rebuilt(dataset, root)) for line, dataset in lines.items()]


def _size(dataset: Dataset, root: Path) -> int:
    paths = [root / file for file in dataset.files]
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())
