"""The datasets under a root."""

from __future__ import annotations

from pathlib import Path

from regmixup.data.catalogue import DATASETS
from regmixup.data.files import data_root, is_rebuilt, missing_files


def present(root: str | Path | None = None) -> dict[str, bool]:
    """Return the names of the datasets under the root, and whether somebody rebuilt them, see `files.is_rebuilt`.

    A corruption of CIFAR-C is named cifar10-c/fog, without a severity. Parts such as cifar10/train-90 are not listed.
    """
    if root is not None and not Path(root).expanduser().is_dir():
        raise ValueError(f"root must name a folder, got {root}")
    root = data_root(root)
    return {
        f"{dataset.family}/{dataset.corruption or dataset.split}": is_rebuilt(dataset, root)
        for dataset in DATASETS.values()
        if dataset.files and not dataset.part and not dataset.listed and not missing_files(dataset, root)
    }
