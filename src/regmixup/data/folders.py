"""Datasets that stay on disk: image files in one folder per class.

`folder:PATH` is any such tree; `folder:PATH/train-90` and the like are parts of one, cut by the content of its files.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.data.catalogue import Dataset, find
from regmixup.data.decode import EXTENSIONS, Reader, decode_all
from regmixup.data.files import data_root
from regmixup.data.images import ImageSet, check_labels
from regmixup.data.records import FOLDER_PARTS, TEST, TRAIN, VALIDATION
from regmixup.data.splits import stratified_by_content
from regmixup.names import counted, printable, shortened
from regmixup.storage import digest

SPLITS = (*TRAIN, *VALIDATION, *TEST)
_UNREAD = (".tif", ".tiff", ".gif", ".heic", ".heif", ".avif", ".jfif", ".jp2", ".tga", ".dng", ".cr2", ".nef", ".arw")
_SHOWN = 50


@dataclass(frozen=True)
class FolderSet:
    """Image files, not decoded. Labels, classes, name and info are as in `LabelledImages`.

    paths: N paths that can be opened. folder: the folder that all of them begin with.
    digests: the SHA-256 of each file, where they have been read, as for the parts of a folder.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    folder: Path
    info: dict[str, str] = field(default_factory=dict)
    digests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError(f"{self.name}: {self.folder} holds no images ({', '.join(EXTENSIONS)}) in class folders")
        check_labels(self.name, self.labels, len(self.paths), self.classes)
        outside = next((p for p in self.paths if not p.startswith(str(self.folder) + os.sep)), None)
        if outside is not None:
            raise ValueError(f"{self.name}: paths must begin with {self.folder}, got {outside}")

    def __repr__(self) -> str:
        return f"FolderSet({self.name!r}, {counted(len(self), 'file')}, {counted(len(self.classes), 'class')})"

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> None:
        """None: files have any size, until a reader brings them to one."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sorted lines "relative path, tab, size in bytes": computed without reading a file.

        Where the files have been read, their SHA-256 stand in place of the sizes.
        """
        start = len(str(self.folder)) + 1
        known = self.digests or (str(_of_file(self, os.stat, p).st_size) for p in self.paths)
        lines = sorted(f"{p[start:].replace(os.sep, '/')}\t{k}" for p, k in zip(self.paths, known, strict=True))
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def select(self, index: Tensor, *, name: str = "", info: dict[str, str] | None = None) -> FolderSet:
        return replace(
            self,
            paths=tuple(self.paths[i] for i in index.tolist()),
            labels=self.labels[index],
            name=name or self.name,
            info={**self.info, **(info or {})},
            digests=tuple(self.digests[i] for i in index.tolist()) if self.digests else (),
        )

    def parts(self, read: Reader, *, size: int = 1000) -> Iterator[ImageSet]:
        """Yield the images in memory, each as `read` returns it, `size` at a time, in order."""
        for start in range(0, len(self), size):
            part = self.select(torch.arange(start, min(start + size, len(self))))
            yield ImageSet(decode_all(part.paths, read), part.labels, part.classes, part.name, part.info)


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of a folder's subfolders, without hidden ones."""
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def image_files(folder: str | Path, suffixes: tuple[str, ...] = EXTENSIONS) -> list[str]:
    """Return the sorted paths of all image files under a folder, without hidden files and folders.

    Links are followed, but no folder is entered twice: a link may lead back to where it came from.
    """
    found, entered = [], set()
    for where, folders, files in os.walk(folder, onerror=_fail, followlinks=True):
        state = os.stat(where)  # noqa: PTH116
        if (state.st_dev, state.st_ino) in entered:
            folders.clear()
            continue
        entered.add((state.st_dev, state.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(where, f) for f in files if f.lower().endswith(suffixes) and not f.startswith(".")]  # noqa: PTH118
    return sorted(found)


def loose_files(folder: Path) -> list[str]:
    """Return the names of the image files that lie in a folder itself, in no class folder."""
    return sorted(f for f in os.listdir(folder) if f.lower().endswith(EXTENSIONS) and not f.startswith("."))  # noqa: PTH208


def _fail(error: OSError) -> None:
    raise error  # os.walk would skip a folder that cannot be read, silently


def unread_files(*folders: str | Path) -> tuple[tuple[str, int], ...]:
    """Count the files under folders that are images of a format that is not read, by their names: (suffix, count)."""
    found = (path for folder in folders for path in image_files(folder, _UNREAD))
    return tuple(sorted(Counter(Path(path).suffix.lower() for path in found).items()))


def describe_unread(unread: Iterable[tuple[str, int]]) -> str:
    """Return a line that says what `unread_files` has found, and what to do."""
    counts = ", ".join(f"{count:,} {suffix}" for suffix, count in unread)
    return f"files of formats that are not read were left out ({counts}): convert them to .png or .jpg"


def from_class_folders(
    name: str, folder: Path, labels: dict[str, int], classes: tuple[str, ...], info: dict[str, str]
) -> FolderSet:
    """Return the files of the class folders named in `labels`, folder by folder."""
    files = [(path, label) for own, label in labels.items() for path in image_files(folder / own)]
    numbers = torch.tensor([label for _, label in files], dtype=torch.int64)
    return FolderSet(tuple(path for path, _ in files), numbers, classes, name, folder, info)


def find_folder(name: str, root: Path) -> Path | None:
    """Return the folder that `folder:PATH` names, from the working directory or else from the root, or None."""
    path = Path(name.removeprefix("folder:")).expanduser()
    return next((place.absolute() for place in (path, root / path) if place.is_dir()), None)


def load_folder(dataset: Dataset, root: Path) -> FolderSet:
    """Load `folder:PATH`: every subfolder of PATH that holds images is a class, in sorted order; see `find_folder`."""
    name = dataset.name
    folder = find_folder(name, root)
    if folder is None:
        path = Path(name.removeprefix("folder:")).expanduser()
        tried = " or ".join(dict.fromkeys(str(place.absolute()) for place in (path, root / path)))
        looks = path.name.startswith(("train-", "val-", "fold-", "without-"))
        hint = f"; a part of a folder ends in {FOLDER_PARTS}" if looks else ""
        raise ValueError(
            f"{name}: expected a folder with one subfolder of images per class, found no folder {tried}{hint}"
        )
    found = class_folders(folder)
    if not found:
        raise ValueError(f"{name}: expected one subfolder of images per class in {folder}, found no subfolder")
    whole = from_class_folders(name, folder, {c: label for label, c in enumerate(found)}, found, {})
    filled = whole.labels.bincount(minlength=len(found)) > 0
    classes = tuple(c for c, kept in zip(found, filled.tolist(), strict=True) if kept)
    _check_classes(name, folder, classes)
    if len(classes) < len(found):
        empty = _listed([c for c in found if c not in classes])
        warnings.warn(
            f"{name}: subfolders without images are no classes and were left out: {empty}", stacklevel=_user_level()
        )
    if loose := loose_files(folder):
        told = f"{counted(len(loose), 'image')} outside of class folders, such as {_listed(loose[:1])}"
        warnings.warn(f"{name}: left out {told}", stacklevel=_user_level())
    return replace(whole, labels=(filled.cumsum(0) - 1)[whole.labels], classes=classes)


def _user_level() -> int:
    """Return the stack level, as its caller counts, of the first frame outside of this package: the user's line."""
    package = str(Path(__file__).parents[1])
    frames = inspect.stack(context=0)[1:]
    return next((level for level, frame in enumerate(frames, 1) if not frame.filename.startswith(package)), 2)


def load_files(name: str, root: Path | None = None) -> FolderSet:
    """Load a folder or a part of one."""
    from regmixup.data import load

    found = load(name, root=root)
    assert isinstance(found, FolderSet)
    return found


def load_part(dataset: Dataset, root: Path) -> FolderSet:
    """Load a part of a folder, or of a part of one, cut by the SHA-256 of the files: see `stratified_by_content`."""
    part, name = dataset.part, dataset.name
    assert part is not None
    if (real := find_folder(name, root)) is not None:
        raise ValueError(f"{name} is both a part of {part.of} and the folder {real}: name the latter by its full path")
    whole = load_files(part.of, root)
    whole = replace(whole, digests=whole.digests or hash_files(whole))
    try:
        pieces = stratified_by_content(whole.labels, whole.digests, part.fractions)
    except ValueError as error:
        few = int(str(error))
        files = [d for d, label in zip(whole.digests, whole.labels.tolist(), strict=True) if label == few]
        raise ValueError(
            f"{name}: every class must have an image in each of the {len(part.fractions)} parts, and copies of a file "
            f"stay together; {_listed([whole.classes[few]])} has {counted(len(files), 'image')}, "
            f"{len(set(files))} of them different, some maybe also in other classes: add images, leave the class out, "
            "or cut fewer parts"
        ) from None
    index = torch.cat([pieces[piece] for piece in sorted(part.pieces)]).sort().values
    return whole.select(index, name=name, info={"part_of": part.of, "whole": whole.fingerprint})


def hash_files(images: FolderSet) -> tuple[str, ...]:
    """Return `hash_file` of each file of a set."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing lets other threads run
        return tuple(pool.map(partial(_of_file, images, hash_file), images.paths))


def _of_file(images: FolderSet, function: Callable[[str], Any], path: str) -> Any:
    """Return function(path); a ValueError names a file that cannot be read, such as a link to one that was moved."""
    try:
        return function(path)
    except OSError as error:
        link = f", a link to {Path(path).readlink()}," if Path(path).is_symlink() else ""
        raise ValueError(
            f"{images.name}: images must be files that can be read, {printable(path + link)} cannot: "
            f"{error.strerror or error}. Restore, replace or delete it"
        ) from error


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


def _check_classes(name: str, folder: Path, classes: tuple[str, ...]) -> None:
    """Raise if subfolders are parts of a dataset, each with classes of its own, or if two are the same folder."""
    parts = [c for c in classes if c.lower() in SPLITS and class_folders(folder / c)]
    if len(parts) > 1 or parts == list(classes):
        names = " or ".join(f"{name.rstrip('/')}/{part}" for part in parts)
        raise ValueError(f"{name}: {folder} holds {_listed(parts)}, which are parts and not classes: name {names}")
    places: dict[Path, str] = {}
    for c in classes:
        other = places.setdefault((folder / c).resolve(), c)
        if other != c:
            raise ValueError(f"{name}: the classes {_listed([other, c])} must be two folders, both are links to one")


def describe_classes(name: str, root: str | Path | None = None) -> str:
    """Return a line with the classes of `folder:PATH` or a part of it, and how many images each has; "" for others."""
    if not find(name).is_folder:
        return ""
    found = load_files(name, data_root(root))
    counts = found.labels.bincount().tolist()
    entries = [f"{_listed([c])} {count:,}" for c, count in zip(found.classes, counts, strict=True)]
    return f"{name}: {counted(len(found), 'image')} of {counted(len(entries), 'class')}: {shortened(entries, _SHOWN)}"


def _listed(names: list[str]) -> str:
    """Join names from the file system for a message; quote those with line breaks or escape sequences."""
    return shortened([c if c.isprintable() else ascii(c) for c in names], _SHOWN)


def describe_nested(images: FolderSet) -> str:
    """Return an example of a class with its subfolders, if all images lie in some; "" otherwise."""
    inside: dict[str, set[str]] = {}
    for file in images.paths:
        name, *between = Path(file).relative_to(images.folder).parts[:-1]
        if not between:
            return ""
        inside.setdefault(name, set()).add(between[0])
    name, found = max(inside.items(), key=lambda entry: len(entry[1]))
    return f"{printable(name)}/ with {shortened([f'{printable(one)}/' for one in sorted(found)], 3)}"
