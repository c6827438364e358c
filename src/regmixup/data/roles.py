"""The role of a dataset for a model of a train set, and which datasets a temperature or threshold may be fitted on."""

from __future__ import annotations

from pathlib import Path

from regmixup.data.catalogue import find, members
from regmixup.data.records import TEST, TRAIN, VALIDATION, Dataset, SplitPart
from regmixup.types import Role


def role_of(name: str, train_set: str) -> Role:
    """Return the role of a dataset for a model of a train set; "" for a folder, whose role only its user knows.

    Whatever shows other classes is "ood". Sets that share images with the train set are "train", and a train set that
    does not is "validation": new images like those trained on. So are other parts of the folder that was trained on.

    >>> [role_of("cifar100/test", f"{family}/train") for family in ("cifar100", "cifar10")]
    ['test', 'ood']
    >>> [role_of("cifar10/val-10", f"cifar10/{split}") for split in ("train-90", "train")]
    ['validation', 'train']
    """
    dataset, trained = find(name), find(train_set)
    if not dataset.is_interpolated and overlap(dataset, trained):
        return "train"
    if dataset.is_folder:
        is_same_folder = dataset.part and trained.is_folder and _place(dataset) == _place(trained)
        return "validation" if is_same_folder else ""
    if trained.is_folder:
        return dataset.role
    if dataset.benchmark != trained.benchmark:
        return "ood"
    return "validation" if dataset.role == "train" else dataset.role


def overlap(a: Dataset, b: Dataset) -> bool:
    """Return whether two datasets may share images: one is the other or a part of it, or both have a part in common.

    Folders are compared by the place that their names and links lead to. Parts of differently cut splits may share
    images, so they count as if they did; and so do lists, unless one leaves out the images of the other.
    """
    if a.is_folder and b.is_folder:
        place, other_place = _place(a), _place(b)
        if place != other_place:
            return place.is_relative_to(other_place) or other_place.is_relative_to(place)
    elif a.whole != b.whole:
        return False
    if a.listed and b.listed:
        return a.listed.file not in b.listed.without and b.listed.file not in a.listed.without
    for cut, other_cut in zip(_cuts(a), _cuts(b), strict=False):
        if cut.fractions != other_cut.fractions:
            return True
        if cut.pieces != other_cut.pieces:
            return not set(cut.pieces).isdisjoint(other_cut.pieces)
    return True


def _place(folder: Dataset) -> Path:
    """Return where the files of a folder, or of what it is a part of, lie."""
    return Path(folder.whole.removeprefix("folder:")).expanduser().resolve()


def _cuts(dataset: Dataset) -> list[SplitPart]:
    """Return the parts that lead from the whole to a dataset, the coarsest first: a part may be split again."""
    return [*_cuts(find(dataset.part.of)), dataset.part] if dataset.part else []


def validation_of(train_set: str) -> str:
    """Return the validation set that belongs to a train set; an error where there is none.

    That of folder:PATH/train is folder:PATH/val, if there is such a folder (also valid, validation or dev).

    >>> validation_of("digits/train"), validation_of("cifar10/train-90"), validation_of("imagenet/train")
    ('digits/val', 'cifar10/val-10', 'imagenet/val-tune')
    """
    trained = find(train_set)
    if trained.is_folder and trained.role == "train":
        return rest_of(train_set)
    if trained.is_folder and (beside := _validation_beside(trained)):
        return beside
    for dataset in sorted(members(trained.family), key=lambda d: d.part is None):  # parts of the train set first
        if dataset.role == "validation" and not dataset.listed and role_of(dataset.name, train_set) == "validation":
            return dataset.name
    raise ValueError(
        f"validation must be named: {train_set} has no validation set of its own. Name a `folder:PATH` of images that "
        f"were not trained on, give Predictions of a companion run, or train on a part, such as cifar10/train-90 or "
        "folder:PATH/train-90"
    )


def _validation_beside(trained: Dataset) -> str:
    """Return the name of the folder of validation images beside a folder called train; "" where there is none."""
    base, slash, name = trained.name.removeprefix("folder:").rstrip("/").rpartition("/")
    if trained.part or name.lower() not in TRAIN:
        return ""
    folders = [entry for entry in Path(base or slash).expanduser().glob("*/") if entry != Path("/dev")]  # the devices
    beside = {entry.name.lower(): entry.name for entry in folders}
    return next((f"folder:{base}{slash}{beside[split]}" for split in VALIDATION if split in beside), "")


def _folder_name(dataset: Dataset) -> str:
    """Return the last part of the path of a folder, in lower case."""
    return Path(dataset.name.removeprefix("folder:")).name.lower()


def check_validation(name: str, train_set: str, *, seen: bool = True) -> None:
    """Raise unless `name` is unlike any test set, and holds new images like those of the train set.

    seen: whether what predicted it was trained on `train_set`; a companion may have been trained on a part of it.

    >>> check_validation("digits/test", "digits/train")
    Traceback (most recent call last):
    ValueError: validation must not be a test, shifted or OOD set for a model of digits/train, got 'digits/test'
    """
    dataset, trained = find(name), find(train_set)
    if dataset.is_folder and _folder_name(dataset) in ("test", "testing"):
        raise ValueError(f"validation must not be a test set, as {name!r} is by its name")
    is_alike = dataset.benchmark == trained.benchmark and dataset.role in ("train", "validation")
    if not dataset.is_folder and not is_alike:
        raise ValueError(f"validation must not be a test, shifted or OOD set for a model of {train_set}, got {name!r}")
    if seen and overlap(dataset, trained):
        raise ValueError(f"validation must be images that were not trained on, got {name!r} for a model of {train_set}")


def check_ood_validation(name: str, train_set: str) -> None:
    """Raise unless `name` shows other things than the train set, and is not a set that results are reported on.

    >>> check_ood_validation("svhn/test", "cifar10/train-90")
    Traceback (most recent call last):
    ValueError: ood must be no test set, and of other classes than cifar10/train-90, got 'svhn/test'
    """
    dataset = find(name)
    is_reported = dataset.role in ("test", "shifted", "ood") or bool(dataset.listed and dataset.listed.without)
    if dataset.is_folder:
        is_reported = _folder_name(dataset) in TEST
    if is_reported or role_of(name, train_set) not in ("ood", ""):
        raise ValueError(f"ood must be no test set, and of other classes than {train_set}, got {name!r}")


def rest_of(part: str) -> str:
    """Return the name of the other part of the split that a dataset is a part of; an error where it is none.

    >>> rest_of("cifar10/val-10")
    'cifar10/train-90'
    """
    dataset = find(part)
    if dataset.is_folder and dataset.part:
        whole, _, end = part.rstrip("/").rpartition("/")
        side, _, share = end.partition("-")
        other_side = {"train": "val", "val": "train", "fold": "without", "without": "fold"}[side]
        other_share = str(100 - int(share)) if side in ("train", "val") else share
        return f"{whole}/{other_side}-{other_share}"
    siblings = members(dataset.family) if dataset.part else []
    for sibling in siblings:
        if sibling.part and sibling.part != dataset.part:
            return sibling.name
    raise ValueError(
        f"validation must be part of a split, such as cifar10/val-10, for a companion to be trained on the rest, "
        f"got {part!r}"
    )
