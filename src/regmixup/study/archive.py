"""Archived runs: a finished run without its weights, predictions and images, 50 to 250 kilobytes for CIFAR.

An archive is a folder with the run's own name, so archives are merged by copying folders:

    config.json provenance.json history.jsonl   as the run has them
    rows-STEM.csv.gz figures-STEM.json.gz       every row and figure of an evaluation, but for the images to look at
    outcomes-STEM.npz                           per test and OOD image: right or wrong, 1 - MSP, DS, of some lines
    archive.json                                the evaluations, and checksums of all of these

Archives of earlier versions may also hold logits-STEM.npz, the logits of the test and OOD sets in float16.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from regmixup import run_folder
from regmixup.metrics.scores import dempster_shafer
from regmixup.posthoc import probabilities
from regmixup.storage import digest, read_rows, replacing, write_table
from regmixup.study.plan import Study
from regmixup.study.planned_run import PlannedRun
from regmixup.training.config import TrainConfig
from regmixup.training.run import Run
from regmixup.types import Predictions, Row


def archive_places(study: Study, *folders: Path | None) -> list[Path]:
    """Return where a study's archives may lie: in some folders, and beside each in those of the studies it reuses."""
    places = []
    for folder in filter(None, folders):
        places += [folder, *(folder.absolute().parent / name for name in study.reuses)]
    return places


def find_archive(places: Iterable[Path], config: TrainConfig, stem: str) -> Path | None:
    """Return the folder of an archived run that holds an evaluation, from the first place that has one.

    config: that of the run, resolved.
    """
    for folder in (place / config.name for place in places):
        try:
            note = run_folder.read_archived(folder)
        except (OSError, ValueError):  # which `check_archive` raises again where the archive is used
            return folder
        if stem in note.get("evaluations", []):
            return folder
    return None


def archived_rows(folder: Path, stem: str) -> list[Row]:
    """Read the rows of an archived evaluation; damage to any file of the archive is an error that names it."""
    run_folder.check_archive(folder)
    return read_rows(folder / f"rows-{stem}.csv.gz")


def check_trainable(run: Run) -> None:
    """Raise if a run's folder is an archive: training would write over what other lines and studies read from it."""
    if (run.folder / run_folder.ARCHIVED).is_file() and not run.checkpoint.is_file():
        raise ValueError(
            f"{run.folder} is an archived run without weights, which was not evaluated as this study asks and must be "
            f"trained again: choose another --runs folder, and name this one by --archive {run.folder.parent}"
        )


def write_archive(run: Run, planned: PlannedRun, into: Path) -> Path:
    """Archive an evaluated run in the folder `into`, adding to what is archived of it already; return its folder."""
    folder, stem = into / run.config.name, planned.stem
    before = run_folder.read_archived(folder)
    names = [run_folder.CONFIG, run_folder.PROVENANCE, run_folder.HISTORY]
    # Lines with refreshed statistics go without outcomes, which are five times the size of everything else.
    if planned.batch_norm == "trained" and (outcomes := outcomes_path(run.folder, stem)).is_file():
        names.append(outcomes.name)
    contents = {name: (run.folder / name).read_bytes() for name in names}
    rows = run_folder.rows_path(run.folder, stem)
    contents[f"{rows.name}.gz"] = gzip.compress(rows.read_bytes(), mtime=0)
    if figures := run_folder.read_figures(run.folder, stem):
        figures.pop("examples", None)  # images of a dataset, which is not ours to pass on; and 80 kilobytes
        text = json.dumps(figures, separators=(",", ":"))
        contents[f"{run_folder.figures_path(folder, stem).name}.gz"] = gzip.compress(text.encode(), mtime=0)
    for name, content in contents.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    note = {
        "evaluations": sorted({*before.get("evaluations", []), stem}),
        "files": {**before.get("files", {}), **{name: digest(folder / name) for name in sorted(contents)}},
    }
    write_table(folder / run_folder.ARCHIVED, note)  # at the end: a run without it is not archived
    return folder


def outcomes_path(folder: Path, stem: str) -> Path:
    """Return where a run folder keeps the outcomes of every image of an evaluation."""
    return folder / f"outcomes-{stem}.npz"


def write_outcomes(path: Path, sets: Iterable[Predictions]) -> None:
    """Write for every image of some sets whether it was right, and its two usual scores, in float16.

    Keys: SET:correct (bool; always false where no label is known), SET:uncertainty, which is 1 - the largest
    probability (float16 has few numbers near 1), and SET:dempster_shafer.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for predicted in sets:
        top = probabilities(predicted).max(dim=1)
        arrays[f"{predicted.dataset}:correct"] = (top.indices == predicted.labels).numpy()
        arrays[f"{predicted.dataset}:uncertainty"] = (1 - top.values).half().numpy()
        arrays[f"{predicted.dataset}:dempster_shafer"] = dempster_shafer(predicted.logits).half().numpy()
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
