"""Which datasets may choose a temperature or a threshold: new images like the train set's, and no test set."""

from __future__ import annotations

from pathlib import Path

from regmixup.data import FAMILIES, check_dataset, part_of, whole_of

_TESTS = ("test", "val-test")


def validation_of(train_set: str) -> str:
    """The validation set that belongs to a train set; an error where there is none.

    >>> validation_of("digits/train"), validation_of("cifar10/train-90"), validation_of("imagenet/train")
    ('digits/val', 'cifar10/val-10', 'imagenet/val-tune')
    """
    family, _, _ = train_set.partition("/")
    names = FAMILIES[family].names if family in FAMILIES else ()
    for name in (f"{family}/{split}" for split in ("val-10", "val-tune", "val")):
        if name in names and not _overlap(name, train_set):
            return name
    raise ValueError(
        f"validation must be named: {train_set} has no validation set of its own. Name a `folder:PATH` of images that "
        f"were not trained on, give Predictions of a companion run, or train on a part, such as cifar10/train-90"
    )


def check_validation(name: str, train_set: str, *, seen: bool = True) -> None:
    """Raise unless `name` is unlike any test set, and holds new images like those of the train set.

    seen: whether what predicted it was trained on `train_set`; a companion may have been trained on a part of it.

    >>> check_validation("digits/test", "digits/train")
    Traceback (most recent call last):
    ValueError: validation must not be a test, shifted or OOD set for a model of digits/train, got 'digits/test'
    """
    check_dataset(name)
    if not name.startswith("folder:") and not _is_own_validation(name, train_set):
        raise ValueError(f"validation must not be a test, shifted or OOD set for a model of {train_set}, got {name!r}")
    if seen and _overlap(name, train_set):
        raise ValueError(f"validation must be images that were not trained on, got {name!r} for a model of {train_set}")


def _is_own_validation(name: str, train_set: str) -> bool:
    """Of the train set's family, and neither a test set nor a set that contains one."""
    family = name.partition("/")[0]
    if family not in FAMILIES or family != train_set.partition("/")[0]:
        return False
    tests = [f"{family}/{test}" for test in _TESTS]
    contained = [part.of for test in tests if test in FAMILIES[family].names and (part := part_of(test))]
    return name not in (*tests, *contained)


def _overlap(name: str, other: str) -> bool:
    """Whether two datasets share images: one is the other or a part of it, or both are the same part.

    Folders are compared by the place that their names and links lead to.
    """
    if name.startswith("folder:") and other.startswith("folder:"):
        places = [Path(n.removeprefix("folder:")).expanduser().resolve() for n in (name, other)]
        return places[0].is_relative_to(places[1]) or places[1].is_relative_to(places[0])
    a, b = part_of(name), part_of(other)
    return whole_of(name) == whole_of(other) and (a is None or b is None or a.index == b.index)
