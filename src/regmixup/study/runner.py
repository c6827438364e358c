"""Carrying a study out: every run trained, predicted and evaluated; what is done already is not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from regmixup.evaluation.shift import relative_rows
from regmixup.progress import describe
from regmixup.storage import owning, write_json, write_rows
from regmixup.study.check import check_data, check_folder
from regmixup.study.measure import measure
from regmixup.study.plan import Study
from regmixup.study.select import write_selected
from regmixup.training.config import choose_device, resolve
from regmixup.training.loop import EpochRecord, train
from regmixup.types import Row

REFERENCE = "dnn"
"""The method that errors under shift are relative to, where a study has it."""


class Progress(Protocol):
    """What a display is told while a study runs."""

    def begin(self, label: str, epochs: int) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...
    def end(self, label: str, note: str) -> None: ...


def study_folder(study: Study, runs: str | Path) -> Path:
    """Where a study keeps its rows and report; the runs lie beside it and can serve several studies."""
    return Path(runs) / f"study-{study.name}"


def run_study(
    study: Study,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Run a study to its end and return its folder, with study.json and rows.csv in it."""
    plan = list(study.runs())
    check_data(plan, root)
    folder = study_folder(study, runs)
    check_folder(study, folder)
    device = choose_device(device)
    with owning(folder):
        rows: list[Row] = []
        entries = []
        for planned in plan:
            config = resolve(planned.config, device)
            label = planned.name
            if progress is not None:
                progress.begin(label, config.epochs * config.members)
            on_epoch = progress.epoch if progress is not None else None
            run = train(config, runs, root=root, device=device, workers=workers, on_epoch=on_epoch)
            if progress is not None:
                progress.end(label, describe(run.history()))
            with run.owned():
                found = measure(planned, run, root=root, device=device, workers=workers)
            rows += [replace(row, study=study.name) for row in found]
            entries.append(planned.entry(run.folder.name))
            # After every run, so that a study that stops half-way has a table of what is done.
            write_json(folder / "study.json", {**study.record(), "runs": entries})
            write_rows(folder / "rows.csv", [*rows, *relative_rows(rows, reference=REFERENCE)])
        write_selected(study, folder)
    return folder
