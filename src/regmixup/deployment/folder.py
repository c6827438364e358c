"""Look at a folder of photographs before training: classes, parts, unreadable files, copies; and suggest settings.

    photos = inspect("~/photos")          # reads every file once
    print(photos.describe())
    settings = suggest(photos, minutes=10)

A folder of class folders is cut by the content of its files into 70 % to train on, 15 % to choose and calibrate on, and
15 % to test. A folder with train/ keeps its own parts; see `_name_parts`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unicodedata import normalize

from PIL import Image

from regmixup.config import check_number
from regmixup.data.decode import EXTENSIONS, MAX_PIXELS, open_rgb
from regmixup.data.folders import (
    SPLITS,
    FolderSet,
    class_folders,
    describe_nested,
    describe_unread,
    hash_files,
    image_files,
    loose_files,
    unread_files,
)
from regmixup.data.reading import load_files
from regmixup.data.records import TEST, TRAIN, VALIDATION
from regmixup.names import counted, printable, shortened
from regmixup.recipes import BACKBONE

Advance = Callable[[str, int, int], object]
"""Called with a name of the work, the number of images just done, and that of all."""
IMBALANCED = 3.0
"""The largest class over the smallest one from which class weights are suggested."""
PASSES = 8000
"""Images, repeated or not, that fine-tuning sees: the epochs are this over the number of train images, 3 to 30."""
_SHOWN = 10
_FEW = 30


class Copies(NamedTuple):
    """A file of the train part with the same bytes as one of another part."""

    train: str
    other: str


@dataclass(frozen=True)
class PhotoFolder:
    """A folder of photographs, and its three parts as datasets.

    train, validation, test: names for `regmixup.data.load`. origin: which of them come from the folder as they are, and
    which were cut, in words. classes: in label order. counts: images of each class, over all parts. sizes: images of
    each part, by name. side: the median of the images' shorter sides.
    copies: files that are in the train part and in another one. repeated: files whose content is in the folder already.
    contradictions: contents that are in several classes, each by its files. unread: files of other formats, by suffix.
    nested: an example, if all images lie in subfolders of their class folders.
    """

    path: Path
    train: str
    validation: str
    test: str
    origin: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    sizes: dict[str, int]
    side: int
    copies: tuple[Copies, ...] = ()
    repeated: int = 0
    contradictions: tuple[tuple[str, ...], ...] = ()
    unread: tuple[tuple[str, int], ...] = ()
    fingerprint: str = ""
    nested: str = ""

    @property
    def images(self) -> int:
        """The number of images in all parts."""
        return sum(self.counts)

    @property
    def imbalance(self) -> float:
        """The images of the largest class over those of the smallest."""
        return max(self.counts) / min(self.counts)

    def describe(self) -> str:
        """Return lines about all this, with a warning for what can spoil a model."""
        entries = [f"{printable(c)} {count:,}" for c, count in zip(self.classes, self.counts, strict=True)]
        parts = [f"{role} {self.sizes[name]:,}" for role, name in self.parts().items()]
        lines = [
            f"photos       {self.images:,} images of {len(self.classes):,} classes in {self.path}, median shorter side "
            f"{self.side} pixels; all can be read",
            f"classes      {shortened(entries, 50)}",
            f"split        {', '.join(parts)} ({self.origin})",
        ]
        if self.nested:
            lines.append(
                f"note         images in subfolders count for the class folder around them: {self.nested}. If the "
                "subfolders are your classes, put them side by side"
            )
        if self.imbalance >= IMBALANCED:
            lines.append(
                f"warning      the largest class has {self.imbalance:.1f} times the images of the smallest: "
                "--class-weights balanced gives every class the same weight"
            )
        if (few := self.sizes[self.validation]) < _FEW:
            lines.append(
                f"warning      {few} validation images choose the model, temperature and threshold: too few for more "
                f"than a rough choice; {_FEW} or more are better"
            )
        if self.unread:
            lines.append(f"warning      {describe_unread(self.unread)}")
        if self.contradictions:
            shown = shortened([" = ".join(map(printable, files)) for files in self.contradictions], _SHOWN)
            lines.append(f"warning      images that are in several classes, as copies of one file: {shown}")
        if self.copies:
            shown = shortened([f"{printable(c.other)} = {printable(c.train)}" for c in self.copies], 3)
            lines.append(
                f"warning      {len(self.copies)} images to choose or test on are copies of train images, so results "
                f"look better than they are; delete one of each: {shown}"
            )
        elif self.repeated:
            told = "image is a copy of another" if self.repeated == 1 else "images are copies of others"
            lines.append(f"copies       {self.repeated} {told}; copies are in the same part")
        return "\n".join(lines)

    def parts(self) -> dict[str, str]:
        """Return the names of the datasets by role."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class Settings:
    """The training that is suggested, before any time is measured.

    image_size: the side that the backbone's weights were trained on. epochs: by the number of train images.
    minutes: the time for everything.
    """

    backbone: str
    image_size: int
    epochs: int
    batch_size: int
    minutes: float


def find_folder(path: str | Path) -> Path:
    """Return the absolute path of a folder, without `..`, so that its runs have one name; raise if there is none."""
    parts = Path(path).expanduser().absolute().parts
    up = len(parts) - [*reversed(parts), ".."].index("..")
    folder = Path(*parts[:up]).resolve().joinpath(*parts[up:])  # a link after the last `..` keeps its name
    if not folder.is_dir():
        raise ValueError(f"photos must be a folder with one subfolder of images per class, found no folder {folder}")
    return folder


def find_classes(path: str | Path) -> tuple[Path, _Names, dict[str, dict[str, list[str]]]]:
    """Return the folder, its parts, and of each part's folder the files by class; raise without two classes.

    No file is read, so what is wrong with the folder is told before weights are downloaded.
    """
    folder = find_folder(path)
    names = _name_parts(folder)
    roots = sorted({name.removeprefix("folder:") for name in names.wholes})
    inside = {root: {name: image_files(Path(root) / name) for name in class_folders(Path(root))} for root in roots}
    _check_classes(folder, inside)
    return folder, names, inside


def inspect(path: str | Path, advance: Advance = lambda *_: None) -> PhotoFolder:
    """Look at a folder of class folders, or at one with train/ and val/ or test/. Every file is read once.

    Raises where nothing can be learned from it: no folder, no images, one class, classes with fewer than three
    different images, files that cannot be decoded. The error says what to do.
    """
    folder, names, inside = find_classes(path)
    every = [file for found in inside.values() for files in found.values() for file in files]
    sides, unreadable = _decode(every, advance)
    if unreadable:
        told = [f"{file} ({reason.replace(file, Path(file).name)})" for file, reason in unreadable.items()]
        raise ValueError(
            f"photos must be files that can be decoded, {len(told)} in {folder} cannot: "
            f"{printable(shortened(told, _SHOWN))}. Replace or delete them, or give --hide-unreadable "
            "(hide_unreadable=True), which puts a dot before their names: hidden files are not used"
        )
    wholes = [load_files(name) for name in names.wholes]
    _check_counts(folder, wholes[0], cut=names.cut)
    sets = {role: load_files(name) for role, name in names.parts.items()}
    classes = sets["train"].classes
    for role, part in sets.items():
        if strange := [c for c in part.classes if c not in classes]:
            alike = {normalize("NFC", c) for c in classes} & {normalize("NFC", c) for c in strange}
            hint = f". {shortened(sorted(alike), _SHOWN)} is there in two Unicode normal forms (NFC, NFD): rename one"
            raise ValueError(
                f"{role} must have classes of the train part alone, {part.folder} also has "
                f"{shortened(strange, _SHOWN)}: add images of them to train/, or remove these folders"
                f"{hint if alike else ''}"
            )
    counts = Counter(whole.classes[label] for whole in wholes for label in whole.labels.tolist())
    return PhotoFolder(
        folder,
        **(_copies(sets) | names.parts),
        origin=names.origin,
        classes=classes,
        counts=tuple(counts[c] for c in classes),
        sizes={names.parts[role]: len(part) for role, part in sets.items()},
        side=round(median(sides)),
        fingerprint="-".join(part.fingerprint[:16] for part in sets.values()),
        unread=unread_files(*inside),
        nested=describe_nested(wholes[0]),
    )


def suggest(photos: PhotoFolder, minutes: float = 10.0, *, backbone: str = "") -> Settings:
    """Return the settings that `finetune` starts from; it lowers size and epochs to what the measured pace allows."""
    check_number("minutes", minutes, above=0)
    backbone = backbone or BACKBONE
    train = photos.sizes[photos.train]
    epochs = min(30, max(3, math.ceil(PASSES / train)))
    return Settings(backbone, native_size(backbone), epochs, suggest_batch(train), minutes)


def native_size(backbone: str) -> int:
    """Return the side of the images that a backbone's own weights were trained on; 32 for our small networks."""
    if not backbone.startswith("timm/"):
        return 32
    from regmixup.networks.timm_models import check_timm_name, default_image_size

    return max(default_image_size(check_timm_name(backbone)))


def expected_pixels(backbone: str) -> dict[str, Any]:
    """Return the normalisation and the interpolation that a backbone's weights expect; ImageNet's for our networks."""
    if not backbone.startswith("timm/"):
        return {}
    from regmixup.networks.timm_models import expected_input, expected_interpolation

    mean, std = expected_input(backbone)
    return {"mean": mean, "std": std, "eval_interpolation": expected_interpolation(backbone)}


def suggest_batch(images: int) -> int:
    """Return the batch size: 32, or less where it leaves a single image over, which has no batch statistics.

    >>> [suggest_batch(n) for n in (280, 33, 65, 7, 1)]
    [32, 31, 31, 7, 1]
    """
    return next((size for size in range(min(32, images), 1, -1) if images % size != 1), images)


class _Names(NamedTuple):
    """The datasets of the three parts by role, what they are cut from, into how many, and how that came about."""

    parts: dict[str, str]
    wholes: tuple[str, ...]
    cut: int
    origin: str


def _name_parts(folder: Path) -> _Names:
    """Name the parts. Nothing is selected or calibrated on test images, so there is always a part for each purpose.

    train/, val/ and test/: as they are. train/ and one other: the other is the test set, and 20 % of train/ are the
    validation set. Class folders: 70 % train, 15 % validation, 15 % test. Cuts are by content: copies of a file are
    always in the same part.
    """
    base = f"folder:{folder}"
    inside = {name.lower(): name for name in class_folders(folder)}
    own = {name: inside[name] for name in SPLITS if name in inside and class_folders(folder / inside[name])}
    train, validation, test = (
        next((own[name] for name in usual if name in own), "") for usual in (TRAIN, VALIDATION, TEST)
    )
    if not train and (len(own) > 1 or (own and len(own) == len(inside))):
        raise ValueError(
            f"photos must have train/ beside {', '.join(sorted(own.values()))}/, found none in {folder}: rename "
            "the folder with the train images to train"
        )
    whole = f"{base}/{train}" if train else base
    if train and validation and test:
        parts = {"train": whole, "validation": f"{base}/{validation}", "test": f"{base}/{test}"}
        return _Names(parts, tuple(parts.values()), 1, "the folder's own parts")
    if train and (other := test or validation):
        parts = {"train": f"{whole}/train-80", "validation": f"{whole}/val-20", "test": f"{base}/{other}"}
        origin = f"{other}/ is kept for the test, validation is 20 % of {train}/, cut by content"
        return _Names(parts, (whole, f"{base}/{other}"), 2, origin)
    kept = f"{whole}/train-85"
    parts = {"train": f"{kept}/train-82", "validation": f"{kept}/val-18", "test": f"{whole}/val-15"}
    origin = "cut by content, 70/15/15 of every class"
    return _Names(parts, (whole,), 3, f"{train}/ {origin}" if train else origin)


def _check_classes(folder: Path, inside: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Raise unless each part has images in at least two class folders. inside: of each part, by class, its files."""
    if not any(files for classes in inside.values() for files in classes.values()):
        loose, unread = loose_files(folder), unread_files(folder)
        found = f"{counted(len(loose), 'image')} outside of class folders" if loose else "no images"
        remedy = f"make a folder for each class, such as {folder.name}/cats and {folder.name}/dogs"
        raise ValueError(
            f"photos must have one subfolder per class with images ({', '.join(EXTENSIONS)}), found {found} in "
            f"{folder}: {describe_unread(unread) if unread else remedy}"
        )
    for root, classes in inside.items():
        filled = [name for name, files in classes.items() if files]
        if len(filled) < 2:
            deeper = [Path(root) / name for name in filled if len(class_folders(Path(root) / name)) > 1]
            hint = f". If the subfolders of {deeper[0]} are the classes, name that folder" if deeper else ""
            raise ValueError(
                f"photos must have at least two classes, found {shortened(filled, _SHOWN) or 'none'} in {root}: add a "
                f"folder of images that are not of this class, such as other/, beside it{hint}"
            )


def _check_counts(folder: Path, whole: FolderSet, *, cut: int) -> None:
    """Raise if a class has fewer different images than the parts that it is cut into."""
    different: dict[str, set[str]] = {c: set() for c in whole.classes}
    for digest, label in zip(hash_files(whole), whole.labels.tolist(), strict=True):
        different[whole.classes[label]].add(digest)
    few = [f"{printable(c)} {len(found)}" for c, found in different.items() if len(found) < max(cut, 2)]
    if few:
        raise ValueError(
            f"photos must have at least {max(cut, 2)} different images of every class, one for each part and better 20 "
            f"or more, found {shortened(few, _SHOWN)} in {folder}: add images, or remove the folder of that class"
        )


def _decode(files: list[str], advance: Advance = lambda *_: None) -> tuple[list[int], dict[str, str]]:
    """Return the shorter sides of images, and by file what is wrong with others. JPEGs are decoded at an eighth."""

    def shorter_side(file: str) -> int | str:
        try:
            with Image.open(file) as image:
                size = min(image.size)
                if image.format == "JPEG" and image.width * image.height <= MAX_PIXELS:
                    image.draft("RGB", (64, 64))
                    image.load()
                    return size
            return min(open_rgb(file).size)
        except Exception as error:  # what Pillow raises for a damaged file differs between formats
            return str(error).partition("\n")[0]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {}
        for file, side in zip(files, pool.map(shorter_side, files), strict=True):
            found[file] = side
            advance("reading", 1, len(files))
    sides = [side for side in found.values() if isinstance(side, int)]
    return sides, {file: reason for file, reason in found.items() if isinstance(reason, str)}


def hide_files(path: str | Path) -> list[str]:
    """Put a dot before the names of files that cannot be decoded, and return their new paths.

    More dots where a hidden file has that name already: renaming would delete it.
    """
    _, unreadable = _decode(image_files(find_folder(path)))
    hidden = []
    try:
        for file in map(Path, unreadable):
            target = file.with_name(f".{file.name}")
            while os.path.lexists(target):
                target = target.with_name(f".{target.name}")
            hidden.append(str(file.rename(target)))
        return hidden
    except OSError as error:
        raise ValueError(
            f"hide_unreadable must be able to rename files: {error.strerror}, {error.filename}. Copy the folder to "
            "where you may write"
        ) from error


def _copies(sets: dict[str, FolderSet]) -> dict[str, Any]:
    """Return the fields of `PhotoFolder` about files of equal content."""
    first: dict[str, str] = {}
    classes: dict[str, dict[str, str]] = {}
    crossing, repeated = [], 0
    for role, part in sets.items():
        for path, digest, label in zip(part.paths, hash_files(part), part.labels.tolist(), strict=True):
            classes.setdefault(digest, {}).setdefault(part.classes[label], path)
            if digest not in first:
                first[digest] = path if role == "train" else ""
            else:
                repeated += 1
                if role != "train" and first[digest]:
                    crossing.append(Copies(first[digest], path))
    several = tuple(tuple(found.values()) for found in classes.values() if len(found) > 1)
    return {"copies": tuple(crossing), "repeated": repeated, "contradictions": several}
