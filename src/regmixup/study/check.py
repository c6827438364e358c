"""What would stop a study, found before anything is trained: missing data, sets that do not fit, another's folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from regmixup import data
from regmixup.data import whole_of
from regmixup.data.files import MissingDataError, data_root, missing_files
from regmixup.data.folders import FolderSet, find_folder
from regmixup.storage import read_table
from regmixup.study.plan import PlannedRun, Study
from regmixup.training.loading import reader

SIDES = {
    **dict.fromkeys(("digits", "digits-c", "digits-mirrored", "photographs"), 8),
    **dict.fromkeys(("cifar10", "cifar10.1", "cifar10.2", "cifar10-c", "cifar100", "cifar100-c"), 32),
    **dict.fromkeys(("svhn", "tiny-imagenet"), 32),
    "tiny-imagenet-64": 64,
}
"""Side of the images of each family that is held in memory; files are brought to the size of a model of files."""


def missing_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> dict[str, list[str]]:
    """The datasets of a plan that are not complete under the root, and their missing files. Reads no image."""
    where = data_root(root)
    names = dict.fromkeys(whole_of(name) for planned in plan for name in _datasets(planned))
    found = {name: missing_files(name, where) for name in names if not name.startswith("folder:")}
    found |= {name: [name] for name in names if name.startswith("folder:") and find_folder(name, where) is None}
    return {name: files for name, files in found.items() if files}


def check_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> None:
    """Raise unless every dataset of a plan is there and fits the models that are to predict it."""
    plan = list(plan)
    for planned in plan:
        if problem := next(_misfits(planned), ""):
            raise ValueError(f"{planned.recipe}: {problem}")
    if missing := missing_data(plan, root):
        raise MissingDataError(
            f"{explain_missing(missing)}\nunder {data_root(root)}. To fetch one: `regmixup data fetch "
            f"{next(iter(missing))}`. If you have the files, name their folder by --root or the environment variable "
            "REGMIXUP_DATA"
        )
    names = ((SIDES.get(_family(p.config.train_set)), name) for p in plan for name in p.evaluate.datasets())
    for side, name in dict.fromkeys(names):
        if side is not None and _family(name) not in SIDES:
            # What prediction does with every file, for the first one: models of images in memory resize none.
            files = data.load(name, root=root)
            assert isinstance(files, FolderSet)
            reader(None, (side, side))(files.paths[0])


def explain_missing(missing: dict[str, list[str]]) -> str:
    """One line per family, with its first missing file."""
    families: dict[str, list[str]] = {}
    for name, files in missing.items():
        families.setdefault(name.partition("/")[0], []).extend(files)
    lines = []
    for family, files in families.items():
        distinct = list(dict.fromkeys(files))
        more = f" and {len(distinct) - 1} more" if len(distinct) > 1 else ""
        lines.append(f"  {family}: {distinct[0]}{more}")
    return "the study needs data that is missing:\n" + "\n".join(lines)


def check_folder(study: Study, folder: Path) -> None:
    """Raise if the folder holds another study of the same name: its rows and report would be overwritten.

    A file that was edited is still the same study; one of another title, or other content in another place, is not.
    """
    path = folder / "study.json"
    if not path.is_file():
        return
    try:
        found = read_table(path)
    except ValueError as error:
        warnings.warn(f"{error}; written again", stacklevel=2)
        return
    moved = found.get("source", study.source) != study.source and found.get("content") != study.content
    if found.get("title") != study.title or moved:
        raise ValueError(
            f"{folder} belongs to the study {found.get('title')!r} of {found.get('source') or 'another file'}, not to "
            f"{study.title!r} of {study.source}: give one of the two its own `name`, or choose another --runs folder"
        )


def _datasets(planned: PlannedRun) -> list[str]:
    trained = [planned.config.train_set, *([planned.companion.train_set] if planned.companion is not None else [])]
    return [*trained, *planned.evaluate.datasets()]


def _misfits(planned: PlannedRun) -> Iterator[str]:
    """Sets that a model of the planned run cannot predict, whose labels mean nothing to it, or that it has seen."""
    config, sets = planned.config, planned.evaluate
    family = _family(config.train_set)
    side = SIDES.get(family, config.image_size)
    for name in sets.datasets():
        if SIDES.get(_family(name), side) != side:
            found = SIDES[_family(name)]
            yield f"{name} has images of {found}x{found}, models of {config.train_set} see images of {side}x{side}"
    for name in (sets.test, *sets.shift) if sets.test else ():
        own = _family(name)
        if own not in (family, "folder") and family != "folder" and not own.startswith((f"{family}-", f"{family}.")):
            yield f"{name} does not show the classes of {config.train_set}: it may be an OOD set, no other"
    if sets.test == config.train_set:
        yield f"test must be a set that the models are not trained on, got {sets.test}"
    if sets.test in sets.ood:
        yield f"ood must not name the test set, got {sets.test}"


def _family(name: str) -> str:
    return "folder" if name.startswith("folder:") else name.removeprefix("path:").partition("/")[0]
