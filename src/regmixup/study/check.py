"""The data that a study needs: what is missing, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from regmixup.data.catalogue import find
from regmixup.data.files import MissingDataError, data_root, missing_files
from regmixup.data.folders import find_folder
from regmixup.names import shortened
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


def explain_missing(missing: dict[str, list[str]]) -> str:
    """Return one line per family, with its first missing file."""
    families: dict[str, list[str]] = {}
    for name, files in missing.items():
        families.setdefault(find(name).family, []).extend(files)
    lines = [f"  {family}: {shortened(list(dict.fromkeys(files)), 1)}" for family, files in families.items()]
    return "the study needs data that is missing:\n" + "\n".join(lines)


def check_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> None:
    """Raise unless every dataset of a plan is there."""
    if missing := missing_data(plan, root):
        raise MissingDataError(
            f"{explain_missing(missing)}\nunder {data_root(root)}. `regmixup data fetch NAME` fetches one. If you have "
            "the files, name their folder by --root or the environment variable REGMIXUP_DATA"
        )
