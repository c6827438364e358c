"""Look at a folder of photographs before training: classes, parts, unreadable files, copies.

    photos = inspect("~/photos")          # reads every file once
    print(photos.describe())

A folder of class folders, or a CSV table of path and label, is cut by the content of its files into 70 % to train on,
15 % to choose and calibrate on, and 15 % to test. A folder with train/ keeps its own parts; see `_name_parts`.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import torch
from PIL import Image

from regmixup.data.catalogue import find
from regmixup.data.decode import FORMATS, MAX_PIXELS, open_rgb
from regmixup.data.folders import class_folders, describe_unread, hash_file, hash_files, image_files
from regmixup.data.images import FolderSet
from regmixup.data.label_table import is_table, read_table_files
from regmixup.data.reading import load_files
from regmixup.data.records import TEST, TRAIN, VALIDATION
from regmixup.names import counted, printable, shortened

Advance = Callable[[str, int, int], object]
"""Called with a name of the work, the number of images just done, and that of all."""
IMBALANCED = 3.0
"""The largest class over the smallest one from which class weights are suggested."""
_SHOWN = 10


@dataclass(frozen=True)
class PhotoFolder:
    """A folder of photographs, and its parts by role: train, validation, test.

    origin: which parts come from the folder as they are, and which were cut, in words. counts: images of each class,
    over all parts. copies: how many images of other parts are copies of train images. notes: what can spoil a model.
    """

    path: Path
    parts: Mapping[str, FolderSet]
    origin: str
    counts: Mapping[str, int]
    copies: int = 0
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes in label order."""
        return self.parts["train"].classes

    @property
    def fingerprint(self) -> str:
        """Return what names the images of all parts by their content."""
        return "-".join(part.fingerprint[:16] for part in self.parts.values())

    def record(self) -> dict[str, Any]:
        """Return the facts as plain values; the parts by their names as datasets."""
        return {
            "path": str(self.path),
            **{role: part.name for role, part in self.parts.items()},
            "sizes": {role: len(part) for role, part in self.parts.items()},
            "origin": self.origin,
            "classes": list(self.classes),
            "copies": self.copies,
            "fingerprint": self.fingerprint,
        }

    def describe(self, *, class_weights: str = "none") -> str:
        """Return lines about all this, with a warning for what can spoil a model. class_weights: those chosen."""
        entries = [f"{printable(name)} {count:,}" for name, count in self.counts.items()]
        sizes = [f"{role} {len(part):,}" for role, part in self.parts.items()]
        notes = list(self.notes)
        imbalance = max(self.counts.values()) / min(self.counts.values())
        if imbalance >= IMBALANCED and class_weights != "balanced":
            notes.append(
                f"the largest class has {imbalance:.1f} times the images of the smallest: "
                "--class-weights balanced gives every class the same weight"
            )
        lines = [
            f"photos       {sum(self.counts.values()):,} images of {len(self.counts):,} classes in {self.path}",
            f"classes      {shortened(entries, 50)}",
            f"split        {', '.join(sizes)} ({self.origin})",
            *(f"warning      {note}" for note in notes),
        ]
        return "\n".join(lines)


def find_photos(path: str | Path, *, listed: bool = False) -> Path:
    """Return the resolved path of a folder or table, so that its runs have one name; raise if there is none.

    listed: also raise for what the names of folders and the rows of a table show, without a look into the files.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir() and not is_table(folder):
        raise ValueError(
            "photos must be a folder with one subfolder of images per class, or a .csv file with the columns path and "
            f"label, found no folder {folder}"
        )
    if listed and (problems := _load_wholes(folder, _name_parts(folder)[0])[1]):
        raise ValueError(f"photos must be named by {folder}: {'; '.join(problems)}")
    return folder


def inspect(path: str | Path, advance: Advance = lambda *_: None) -> PhotoFolder:
    """Look at a folder of class folders, at one with train/ and val/ or test/, or at a CSV table of path and label.

    Every file is read once. Raises where nothing can be learned from it: no images, one class, classes with too few
    different images, files that cannot be decoded, ... The error names all of these at once and says what to do.
    """
    folder = find_photos(path)
    unread = describe_unread(folder) if folder.is_dir() else ""
    if unread and not image_files(folder):
        raise ValueError(f"photos must be .jpg or .png files in class folders, {folder}: {unread}")
    names, origin = _name_parts(folder)
    wholes, problems = _load_wholes(folder, names)
    unreadable = find_unreadable([file for whole in wholes for file in whole.paths], advance)
    train, *other_parts = wholes
    problems += _find_problems(train, other_parts, unreadable, len(names) - len(wholes) + 1)
    notes = [note for note in (unread, *_find_notes(folder, train, other_parts)) if note]
    if problems:
        listed = "\n".join(f"- {line}" for line in (*problems, *notes))
        raise ValueError(f"photos must be mended, {counted(len(problems), 'problem')} in {folder}:\n{listed}")
    loaded = {role: load_files(name) for role, name in names.items()}
    # A part that was not cut is otherwise known by the sizes of its files alone.
    parts = {role: replace(part, digests=part.digests or hash_files(part.paths)) for role, part in loaded.items()}
    counts = Counter(whole.classes[label] for whole in wholes for label in whole.labels.tolist())
    if copies := _find_copies(parts):
        notes.append(
            f"{len(copies)} images to choose or test on are copies of train images, so results look better than they "
            f"are; delete one of each: {shortened(copies, 3)}"
        )
    if doubtful := _find_doubtful(parts):
        notes.append(
            f"{counted(len(doubtful), 'image')} in more than one class, of which a model can learn nothing; delete the "
            f"wrong copies: {shortened(doubtful, 3)}"
        )
    by_class = {name: counts[name] for name in parts["train"].classes}
    return PhotoFolder(folder, parts, origin, by_class, copies=len(copies), notes=tuple(notes))


def _load_wholes(folder: Path, names: Mapping[str, str]) -> tuple[list[FolderSet], list[str]]:
    """Return the sets of files that the parts are cut from, that of the train images first, and problems of a table."""
    if folder.is_dir():
        return [load_files(name) for name in dict.fromkeys(find(name).whole for name in names.values())], []
    images, problems = read_table_files(f"folder:{folder}", folder)
    if images is None:
        raise ValueError(f"photos must be named by {folder}: {'; '.join(problems)}")
    return [images], problems


def _find_problems(
    train: FolderSet, other_parts: Sequence[FolderSet], unreadable: Mapping[str, str], least: int
) -> Iterator[str]:
    """Yield a line for each kind of problem, with what to do. least: different images that a class must have."""
    if unreadable:
        files = [f"{file} ({reason})" for file, reason in unreadable.items()]
        yield (
            f"files must be images that can be decoded, {len(files)} cannot: {printable(shortened(files, _SHOWN))}. "
            "Replace or delete them"
        )
    if len(train.classes) < 2:
        yield (
            f"there must be at least two classes, found {printable(train.classes[0])} in {train.folder}: add images "
            "that are not of this class, or name its folder if the classes are folders in it"
        )
    if few := describe_few(train, least, "one for each part", without=unreadable):
        yield few
    for part in other_parts:
        if strange := [printable(name) for name in part.classes if name not in train.classes]:
            yield (
                f"other parts must have classes of the train part alone, {part.folder} also has "
                f"{shortened(strange, _SHOWN)}: add images of them to train/, or remove these folders"
            )


def _find_notes(folder: Path, train: FolderSet, other_parts: Sequence[FolderSet]) -> Iterator[str]:
    """Yield a line about each thing in the names of folders and classes that may be a mistake."""
    parts = {part.folder.name for part in (train, *other_parts)}
    beside = [name for name in class_folders(folder) if name not in parts] if train.folder.parent == folder else []
    if left_out := [printable(name) for name in beside if image_files(folder / name)]:
        yield (
            f"images beside the parts {', '.join(sorted(parts))} are left out: {shortened(left_out, _SHOWN)}. If "
            f"{train.folder.name} is a class, it must have no subfolders"
        )
    for part in other_parts:
        if lacking := [printable(name) for name in train.classes if name not in part.classes]:
            yield f"{part.folder.name}/ has no image of {shortened(lacking, _SHOWN)}: its results leave them out"
    alike = defaultdict(list)
    for name in sorted({name for part in (train, *other_parts) for name in part.classes}):
        alike[" ".join(normalize("NFKC", name).casefold().split())].append(printable(name))
    if doubled := [" and ".join(group) for group in alike.values() if len(group) > 1]:
        yield f"names of classes look alike, which may be one class: {shortened(doubled, _SHOWN)}"
    if "table" not in train.info and all(Path(file).parents[1] != train.folder for file in train.paths):
        yield (
            "images in subfolders count for the class folder around them; if the subfolders are your classes, put them "
            "side by side"
        )


def find_outliers(path: str | Path) -> FolderSet:
    """Return all image files under a folder of OOD images, whatever its subfolders; raise if it has none."""
    folder = Path(path).expanduser().resolve()
    files = tuple(image_files(folder)) if folder.is_dir() else ()
    if not files:
        raise ValueError(f"ood must be a folder of images, found none in {folder}")
    return FolderSet(files, torch.zeros(len(files), dtype=torch.int64), ("none",), f"folder:{folder}", folder)


def check_outliers(outliers: FolderSet, photos: PhotoFolder, advance: Advance) -> None:
    """Raise if files cannot be decoded, or are photographs of a class."""
    unreadable = find_unreadable(outliers.paths, advance)
    of_a_class = {digest for part in photos.parts.values() for digest in part.digests}
    wrong = [path for path in outliers.paths if path in unreadable or hash_file(path) in of_a_class]
    if wrong:
        raise ValueError(
            f"ood must hold images that can be decoded, {len(wrong)} of {len(outliers)} are damaged or "
            f"among the photos: {printable(shortened(wrong, _SHOWN))}"
        )


def _name_parts(folder: Path) -> tuple[dict[str, str], str]:
    """Return the names of the parts as datasets, by role, and how they came about.

    Nothing is selected or calibrated on test images, so there is always a part for each purpose. train/, val/ and
    test/: as they are. train/ and one other: the other is the test set, and 20 % of train/ are the validation set.
    Class folders: 70 % train, 15 % validation, 15 % test. Cuts are by content: copies of a file stay together.
    """
    base = f"folder:{folder}"
    inside = {name.lower(): name for name in class_folders(folder)} if folder.is_dir() else {}

    def find_part(usual_names: Sequence[str]) -> str:
        for name in usual_names:
            if name in inside and class_folders(folder / inside[name]):
                return inside[name]
        return ""

    train, validation, test = find_part(TRAIN), find_part(VALIDATION), find_part(TEST)
    whole = f"{base}/{train}" if train else base
    if train and validation and test:
        names = {"train": whole, "validation": f"{base}/{validation}", "test": f"{base}/{test}"}
        return names, "the folder's own parts"
    if train and (other := test or validation):
        names = {"train": f"{whole}/train-80", "validation": f"{whole}/val-20", "test": f"{base}/{other}"}
        return names, f"{other}/ is kept for the test, validation is 20 % of {train}/, cut by content"
    kept = f"{whole}/train-85"
    names = {"train": f"{kept}/train-82", "validation": f"{kept}/val-18", "test": f"{whole}/val-15"}
    return names, "cut by content, 70/15/15 of every class"


def find_unreadable(files: Sequence[str], advance: Advance) -> dict[str, str]:
    """Return the files that cannot be decoded, each with the reason. JPEGs are decoded at an eighth of their size."""

    def problem(file: str) -> str:
        try:
            with Image.open(file, formats=FORMATS) as image:
                if image.format == "JPEG" and image.width * image.height <= MAX_PIXELS:
                    image.draft("RGB", (64, 64))
                    image.load()
                    return ""
            open_rgb(file)
        except Exception as error:  # what Pillow raises for a damaged file differs between formats
            return str(error).partition("\n")[0].replace(file, Path(file).name)
        return ""

    unreadable: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, reason in zip(files, pool.map(problem, files), strict=True):
            if reason:
                unreadable[file] = reason
            advance("reading", 1, len(files))
    return unreadable


def describe_few(whole: FolderSet, least: int, purpose: str, *, without: Container[str] = ()) -> str:
    """Return a line about classes with fewer different images than `least`; "" for none.

    purpose: why so many, in words. without: files that do not count.
    """
    pairs = zip(whole.paths, whole.labels.tolist(), strict=True)
    labels = {file: label for file, label in pairs if file not in without}
    contents = set(zip(hash_files(list(labels)), labels.values(), strict=True))
    counts = Counter(whole.classes[label] for _, label in contents)
    few = [f"{printable(name)} {counts[name]}" for name in whole.classes if counts[name] < least]
    if not few:
        return ""
    return (
        f"there must be at least {least} different images of every class, {purpose}, better 20 or more, found "
        f"{shortened(few, _SHOWN)} in {whole.folder}: add images, or remove these classes"
    )


def _find_doubtful(parts: Mapping[str, FolderSet]) -> list[str]:
    """Return the files of each content that is in several classes."""
    files: dict[str, dict[str, str]] = defaultdict(dict)
    for part in parts.values():
        for path, digest, label in zip(part.paths, part.digests, part.labels.tolist(), strict=True):
            files[digest].setdefault(part.classes[label], path)
    return [printable(" = ".join(by_class.values())) for by_class in files.values() if len(by_class) > 1]


def _find_copies(parts: Mapping[str, FolderSet]) -> list[str]:
    """Return the files of other parts that are copies of train files."""
    train = dict(zip(parts["train"].digests, parts["train"].paths, strict=True))
    copies = []
    for part in (parts["validation"], parts["test"]):
        for path, digest in zip(part.paths, part.digests, strict=True):
            if digest in train:
                copies.append(printable(f"{path} = {train[digest]}"))
    return copies
