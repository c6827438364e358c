"""Look at a folder of photographs before training: classes, parts, unreadable files, copies; and suggest settings.

    photos = inspect("~/photos")          # reads every file once
    print(photos.describe())
    settings = suggest(photos)

A folder of class folders is cut by the content of its files into 70 % to train on, 15 % to choose and calibrate on, and
15 % to test. A folder with train/ keeps its own parts; see `_name_parts`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from PIL import Image

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


@dataclass(frozen=True)
class PhotoFolder:
    """A folder of photographs, and its three parts as datasets.

    train, validation, test: names for `regmixup.data.load`. origin: which of them come from the folder as they are, and
    which were cut, in words. classes: in label order. counts: images of each class, over all parts. sizes: images of
    each part, by name. side: the median of the images' shorter sides. copies: how many images of other parts are copies
    of train images. notes: what can spoil a model, in words.
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
    copies: int = 0
    notes: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def imbalance(self) -> float:
        """The images of the largest class over those of the smallest."""
        return max(self.counts) / min(self.counts)

    def describe(self, *, class_weights: str = "none") -> str:
        """Return lines about all this, with a warning for what can spoil a model. class_weights: those chosen."""
        entries = [f"{printable(c)} {count:,}" for c, count in zip(self.classes, self.counts, strict=True)]
        parts = [f"{role} {self.sizes[name]:,}" for role, name in self.parts().items()]
        notes = list(self.notes)
        if self.imbalance >= IMBALANCED and class_weights != "balanced":
            notes.append(
                f"the largest class has {self.imbalance:.1f} times the images of the smallest: "
                "--class-weights balanced gives every class the same weight"
            )
        if (few := self.sizes[self.validation]) < _FEW:
            notes.append(f"{few} validation images are few to choose a model and a threshold; {_FEW} are better")
        return "\n".join([
            f"photos       {sum(self.counts):,} images of {len(self.classes):,} classes in {self.path}, median shorter "
            f"side {self.side} pixels; all can be read",
            f"classes      {shortened(entries, 50)}",
            f"split        {', '.join(parts)} ({self.origin})",
            *(f"warning      {note}" for note in notes),
        ])  # fmt: skip

    def parts(self) -> dict[str, str]:
        """Return the names of the datasets by role."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class Settings:
    """The training that is suggested, before any time is measured.

    image_size: the side that the backbone's weights were trained on. epochs: by the number of train images.
    """

    backbone: str
    image_size: int
    epochs: int
    batch_size: int


def find_folder(path: str | Path) -> Path:
    """Return the resolved path of a folder, so that its runs have one name; raise if there is none."""
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"photos must be a folder with one subfolder of images per class, found no folder {folder}")
    return folder


def inspect(path: str | Path, advance: Advance = lambda *_: None) -> PhotoFolder:
    """Look at a folder of class folders, or at one with train/ and val/ or test/. Every file is read once.

    Raises where nothing can be learned from it: no folder, no images, one class, classes with fewer than three
    different images, files that cannot be decoded. The error says what to do.
    """
    folder = find_folder(path)
    names = _name_parts(folder)
    roots = sorted({name.removeprefix("folder:") for name in names.wholes})
    inside = {root: {name: image_files(Path(root) / name) for name in class_folders(Path(root))} for root in roots}
    _check_classes(folder, inside)
    sides, unreadable = _decode(
        [file for part in inside.values() for files in part.values() for file in files], advance
    )
    if unreadable:
        told = [f"{file} ({reason.replace(file, Path(file).name)})" for file, reason in unreadable.items()]
        raise ValueError(
            f"photos must be files that can be decoded, {len(told)} in {folder} cannot: "
            f"{printable(shortened(told, _SHOWN))}. Replace or delete them, or give --hide-unreadable "
            "(hide_unreadable=True), which puts a dot before their names: hidden files are not used"
        )
    wholes = [load_files(name) for name in names.wholes]
    check_counts(wholes[0], max(names.cut, 2), "one for each part")
    sets = {role: load_files(name) for role, name in names.parts.items()}
    classes = sets["train"].classes
    for role, part in sets.items():
        if strange := [c for c in part.classes if c not in classes]:
            raise ValueError(
                f"{role} must have classes of the train part alone, {part.folder} also has "
                f"{shortened(strange, _SHOWN)}: add images of them to train/, or remove these folders"
            )
    counts = Counter(whole.classes[label] for whole in wholes for label in whole.labels.tolist())
    return PhotoFolder(
        folder,
        **names.parts,
        origin=names.origin,
        classes=classes,
        counts=tuple(counts[c] for c in classes),
        sizes={names.parts[role]: len(part) for role, part in sets.items()},
        side=round(median(sides)),
        copies=len(copies := _find_copies(sets)),
        notes=tuple(_find_problems(wholes[0], sets, copies, unread_files(*inside))),
        fingerprint="-".join(part.fingerprint[:16] for part in sets.values()),
    )


def suggest(photos: PhotoFolder, *, backbone: str = BACKBONE, image_size: int | None = None) -> Settings:
    """Return the settings that `finetune` starts from; it lowers the epochs to what the measured pace allows."""
    train = photos.sizes[photos.train]
    epochs = min(30, max(3, math.ceil(PASSES / train)))
    return Settings(backbone, image_size or native_size(backbone), epochs, suggest_batch(train))


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
    parts = {name: inside[name] for name in SPLITS if name in inside and class_folders(folder / inside[name])}
    train, validation, test = (
        next((parts[name] for name in usual if name in parts), "") for usual in (TRAIN, VALIDATION, TEST)
    )
    if not train and (len(parts) > 1 or (parts and len(parts) == len(inside))):
        raise ValueError(
            f"photos must have train/ beside {', '.join(sorted(parts.values()))}/, found none in {folder}: rename "
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
        content = f"{counted(len(loose), 'image')} outside of class folders" if loose else "no images"
        remedy = f"make a folder for each class, such as {folder.name}/cats and {folder.name}/dogs"
        raise ValueError(
            f"photos must have one subfolder per class with images ({', '.join(EXTENSIONS)}), found {content} in "
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


def check_counts(whole: FolderSet, least: int, purpose: str) -> None:
    """Raise if a class has fewer different images than `least`. purpose: why so many, for the error."""
    different: dict[str, set[str]] = {c: set() for c in whole.classes}
    for digest, label in zip(hash_files(whole), whole.labels.tolist(), strict=True):
        different[whole.classes[label]].add(digest)
    few = [f"{printable(c)} {len(digests)}" for c, digests in different.items() if len(digests) < least]
    if few:
        raise ValueError(
            f"photos must have at least {least} different images of every class, {purpose}, better 20 or more, found "
            f"{shortened(few, _SHOWN)} in {whole.folder}: add images, or remove the folder of that class"
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

    sides: list[int] = []
    unreadable: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, side in zip(files, pool.map(shorter_side, files), strict=True):
            if isinstance(side, int):
                sides.append(side)
            else:
                unreadable[file] = side
            advance("reading", 1, len(files))
    return sides, unreadable


def hide_files(path: str | Path) -> list[str]:
    """Put a dot before the names of files that cannot be decoded, and return their new paths.

    More dots where a hidden file has that name already: renaming would delete it.
    """
    _, unreadable = _decode(image_files(find_folder(path)))
    hidden = []
    for file in map(Path, unreadable):
        target = file.with_name(f".{file.name}")
        while os.path.lexists(target):
            target = target.with_name(f".{target.name}")
        hidden.append(str(file.rename(target)))
    return hidden


def _find_copies(sets: Mapping[str, FolderSet]) -> list[str]:
    """Return the files of other parts whose content is in the train part, each with the train file."""
    train = dict(zip(hash_files(sets["train"]), sets["train"].paths, strict=True))
    tested = [part for role, part in sets.items() if role != "train"]
    return [
        f"{printable(path)} = {printable(train[digest])}"
        for part in tested
        for path, digest in zip(part.paths, hash_files(part), strict=True)
        if digest in train
    ]


def _find_problems(
    whole: FolderSet, sets: Mapping[str, FolderSet], copies: Sequence[str], unread: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """Yield what can spoil a model: folders a level too deep, formats that are not read, wrong labels, copies."""
    if nested := describe_nested(whole):
        yield (
            f"images in subfolders count for the class folder around them: {nested}. If the subfolders are your "
            "classes, put them side by side"
        )
    if unread:
        yield describe_unread(unread)
    files: dict[str, dict[str, str]] = {}
    for part in sets.values():
        for path, digest, label in zip(part.paths, hash_files(part), part.labels.tolist(), strict=True):
            files.setdefault(digest, {}).setdefault(part.classes[label], printable(path))
    if contradictions := [" = ".join(by_class.values()) for by_class in files.values() if len(by_class) > 1]:
        yield f"images that are in several classes, as copies of one file: {shortened(contradictions, _SHOWN)}"
    if copies:
        yield (
            f"{len(copies)} images to choose or test on are copies of train images, so results look better than they "
            f"are; delete one of each: {shortened(copies, 3)}"
        )
