"""Datasets that stay on disk: image files in one folder per class, or labelled by a CSV table.

`folder:PATH` is any such tree or table; `folder:PATH/train-90` and the like are parts of one, cut by the content of its
files.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from regmixup.data.decode import EXTENSIONS
from regmixup.data.images import FolderSet
from regmixup.data.label_table import is_table, read_table_files
from regmixup.data.records import TEST, TRAIN, VALIDATION, Dataset
from regmixup.data.splits import stratified
from regmixup.names import counted, printable, shortened, warn_user
from regmixup.storage import digest

SPLITS = (*TRAIN, *VALIDATION, *TEST)
_UNREAD = (
    ".heic", ".heif", ".avif", ".jpe", ".jfif", ".jp2", ".jxl", ".pgm", ".pnm", ".tga", ".dng", ".cr2", ".nef", ".arw",
)  # fmt: skip
_SHOWN = 50
"""Names of classes that a message lists."""


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of a folder's subfolders, without hidden ones."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))


def image_files(folder: str | Path, suffixes: tuple[str, ...] = EXTENSIONS) -> list[str]:
    """Return the sorted paths of all image files under a folder, but for hidden ones.

    Links are followed, but not those that lead back to a folder around them: its files would come again and again.
    """
    paths = []
    for where, folders, files in os.walk(folder, onerror=_fail, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and not _leads_back(Path(where, name))]
        paths += [os.path.join(where, f) for f in files if f.lower().endswith(suffixes) and not f.startswith(".")]  # noqa: PTH118
    return sorted(paths)


def _leads_back(folder: Path) -> bool:
    """Return whether a folder is a link to one of the folders around it, also where these are links themselves."""
    if not folder.is_symlink():
        return False
    target = folder.resolve()
    return any(around.resolve().is_relative_to(target) for around in folder.absolute().parents)


def _fail(error: OSError) -> None:
    raise error  # os.walk would skip a folder that cannot be read, silently


def describe_unread(folder: Path) -> str:
    """Return a line that counts the images under a folder whose formats, by their names, are not read; "" for none."""
    counts = Counter(Path(path).suffix.lower() for path in image_files(folder, _UNREAD))
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(counts.items()))
    advice = f"files of formats that are not read were left out ({listed}): convert them to .png or .jpg"
    return advice if counts else ""


def from_class_folders(name: str, folder: Path, labels: dict[str, int], classes: tuple[str, ...]) -> FolderSet:
    """Return the files of the class folders named in `labels`, folder by folder."""
    files = [(path, label) for subfolder, label in labels.items() for path in image_files(folder / subfolder)]
    numbers = torch.tensor([label for _, label in files], dtype=torch.int64)
    return FolderSet(tuple(path for path, _ in files), numbers, classes, name, folder)


def find_folder(name: str, root: Path) -> Path | None:
    """Return the folder or table that `folder:PATH` names, from the working directory or else the root, or None."""
    path = Path(name.removeprefix("folder:")).expanduser()
    return next((place.absolute() for place in (path, root / path) if place.is_dir() or is_table(place)), None)


def load_folder(dataset: Dataset, root: Path) -> FolderSet:
    """Load `folder:PATH`: every subfolder of PATH that holds images is a class, in sorted order; see `find_folder`.

    Where PATH is a CSV file, see `label_table`.
    """
    name = dataset.name
    folder = find_folder(name, root)
    if folder is None:
        raise ValueError(
            f"{name}: expected a folder with one subfolder of images per class, or a .csv file with the columns "
            f"path and label, found no folder of this name in {Path.cwd()} or in {root} (a part of a folder "
            "ends in train-90, val-10, fold-2-of-5 or without-2-of-5)"
        )
    return _load_table(name, folder) if is_table(folder) else _load_class_folders(name, folder)


def _load_table(name: str, table: Path) -> FolderSet:
    """Load the files of a table; raise with all its problems, and warn about columns that are not used."""
    images, problems = read_table_files(name, table)
    if problems or images is None:
        raise ValueError(f"{name}: {'; '.join(problems)}")
    if columns := images.info["other_columns"]:
        warn_user(f"{name}: columns beside path and label are not used: {columns}")
    return images


def _load_class_folders(name: str, folder: Path) -> FolderSet:
    """Load the subfolders that hold images; warn about those that hold none, and about images beside them."""
    subfolders = class_folders(folder)
    if not subfolders:
        raise ValueError(f"{name}: expected one subfolder of images per class in {folder}, found no subfolder")
    whole = from_class_folders(name, folder, {c: label for label, c in enumerate(subfolders)}, subfolders)
    filled = whole.labels.bincount(minlength=len(subfolders)) > 0
    classes = tuple(subfolders[label] for label in filled.nonzero().flatten().tolist())
    _check_classes(name, folder, classes)
    if empty := [c for c in subfolders if c not in classes]:
        warn_user(f"{name}: left out subfolders without images: {printable(shortened(empty, _SHOWN))}")
    loose = sorted(path.name for path in folder.glob("[!.]*") if path.suffix.lower() in EXTENSIONS)
    if loose:
        example = printable(loose[0])
        warn_user(f"{name}: left out {counted(len(loose), 'image')} outside of class folders, such as {example}")
    return replace(whole, labels=(filled.cumsum(0) - 1)[whole.labels], classes=classes)


def _check_classes(name: str, folder: Path, classes: tuple[str, ...]) -> None:
    """Raise if subfolders are parts of a dataset, each with classes of its own."""
    parts = [c for c in classes if c.lower() in SPLITS and class_folders(folder / c)]
    if parts and (len(parts) > 1 or parts == list(classes)):
        names = " or ".join(f"{name.rstrip('/')}/{part}" for part in parts)
        listed = ", ".join(parts)
        raise ValueError(f"{name}: {folder} holds {listed}, which are parts and not classes: name {names}")


def cut_folder(whole: FolderSet, name: str, fractions: tuple[float, ...]) -> tuple[FolderSet, list[Tensor]]:
    """Cut a folder, or a part of one, by the SHA-256 of its files: see `stratified`.

    Returns the folder with its digests, and the pieces. name: of the part that is loaded, for errors.
    """
    whole = replace(whole, digests=whole.digests or hash_files(whole.paths))
    pieces = stratified(whole.labels, fractions, digests=whole.digests)
    counts = torch.stack([whole.labels[piece].bincount(minlength=len(whole.classes)) for piece in pieces])
    for label in (counts.amin(dim=0) == 0).nonzero().flatten().tolist():
        files = [whole.digests[place] for place in (whole.labels == label).nonzero().flatten().tolist()]
        raise ValueError(
            f"{name}: every class must have an image in each of the {len(pieces)} parts, and copies of a file "
            f"stay together; {printable(whole.classes[label])} has {counted(len(files), 'image')}, "
            f"{len(set(files))} of them different, some maybe also in other classes: add images, leave the class out, "
            "or cut fewer parts"
        )
    return whole, pieces


def hash_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Return `hash_file` of each file."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing lets other threads run
        return tuple(pool.map(hash_file, paths))


def hash_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes. A file that has not changed since it was last read is not read again."""
    state = os.stat(path)  # noqa: PTH116
    if time.time_ns() - state.st_ctime_ns < 10**9:  # the time of files steps: it may change again within one step
        return digest(Path(path))
    # The last one changes also where a copy has kept the time of its original.
    return _digest(str(path), state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns)


@lru_cache(maxsize=1 << 20)
def _digest(path: str, *state: int) -> str:
    return digest(Path(path))
