"""Checks before anything is trained: missing data, sets that do not fit, a folder of another study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from regmixup.data.catalogue import find, sets_of
from regmixup.data.files import MissingDataError, data_root, missing_files
from regmixup.data.folders import find_folder
from regmixup.data.roles import overlap, role_of
from regmixup.names import shortened
from regmixup.storage import read_table
from regmixup.study.plan import Study
from regmixup.study.planned_run import PlannedRun


def missing_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> dict[str, list[str]]:
    """Return the datasets of a plan that are incomplete under the root, with their missing files. Reads no image."""
    where = data_root(root)
    names: dict[str, None] = {}
    for planned in plan:
        used = [*(model.train_set for model in planned.models()), *planned.evaluate.datasets()]
        names |= dict.fromkeys(find(name).whole for name in used)
    missing = {name: missing_files(find(name), where) for name in names}
    missing |= {name: [name] for name in names if find(name).is_folder and find_folder(name, where) is None}
    return {name: files for name, files in missing.items() if files}


def check_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> None:
    """Raise unless every dataset of a plan is there and fits the models that are to predict it."""
    plan = list(plan)
    for planned in plan:
        if problem := next(_misfits(planned), ""):
            raise ValueError(f"{planned.recipe}: {problem}")
    if missing := missing_data(plan, root):
        where = f" --root {root}" if root is not None else ""
        fetchable = next((name for name in missing if not find(name).is_folder), None)
        fetch = f" To fetch one: `regmixup data fetch {fetchable}{where}`." if fetchable is not None else ""
        raise MissingDataError(
            f"{explain_missing(missing)}\nunder {data_root(root)}.{fetch} If you have the files, name their folder by "
            "--root or the environment variable REGMIXUP_DATA"
        )


def explain_missing(missing: dict[str, list[str]]) -> str:
    """Return one line per family, with its first missing file."""
    families: dict[str, list[str]] = {}
    for name, files in missing.items():
        families.setdefault(find(name).family, []).extend(files)
    lines = [f"  {family}: {shortened(list(dict.fromkeys(files)), 1)}" for family, files in families.items()]
    return "the study needs data that is missing:\n" + "\n".join(lines)


def _misfits(planned: PlannedRun) -> Iterator[str]:
    """Yield problems: sets that the model cannot predict, whose labels mean nothing to it, or that it has seen."""
    config, sets = planned.config, planned.evaluate
    trained = find(config.train_set)
    side = trained.side or config.image_size
    for name in sets.datasets():
        if (other_side := find(name).side or side) != side:
            sizes = f"{other_side}x{other_side}, models of {config.train_set} see images of {side}x{side}"
            yield f"{name} has images of {sizes}"
    if not sets.test:
        return
    shifted_and_ood = [(role, name) for role in ("shift", "ood") for name in getattr(sets, role)]
    for role, name in (("test", sets.test), *shifted_and_ood):
        dataset = (sets_of(name) or [find(name)])[0]
        if overlap(dataset, trained):
            yield f"{role} must be a set that the models are not trained on, got {name} for models of {trained.name}"
        if role != "test" and name == sets.test:
            yield f"{role} must not name the test set, got {name}"
        if dataset.is_folder or trained.is_folder:
            continue
        if role != "ood" and dataset.benchmark != trained.benchmark:
            yield f"{name} does not show the classes of {trained.name}: it may be an OOD set, no other"
        if role == "ood" and role_of(dataset.name, trained.name) in ("validation", "test"):
            yield f"ood must be a set unlike that trained on, got {name} for models of {trained.name}"


def check_folder(study: Study, folder: Path) -> None:
    """Raise if the folder holds another study of the same name: its rows and report would be overwritten.

    A file that was edited is still the same study; one of another title, or other content in another place, is not.
    """
    record = _read_record(folder)
    moved = record.get("source", study.source) != study.source and record.get("content") != study.content
    if record.get("title", study.title) != study.title or moved:
        raise ValueError(
            f"{folder} belongs to the study {record['title']!r} of {record['source']}, not to {study.title!r} of "
            f"{study.source}: give one of the two its own `name`, or choose another --runs folder"
        )


def is_current(study: Study, folder: Path) -> bool:
    """Return whether the table in a study's folder was made from the study as it is now, not before an edit."""
    return _read_record(folder).get("content") == study.content


def _read_record(folder: Path) -> dict[str, Any]:
    """Read what a study recorded in its folder; empty if there is nothing that can be read, as after a kill."""
    try:
        return read_table(folder / "study.json")
    except (FileNotFoundError, ValueError):
        return {}
