"""Carrying a study out: every run trained, predicted and evaluated; what is done already is not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from regmixup import methods, posthoc
from regmixup.config import encode
from regmixup.evaluation.evaluate import evaluate
from regmixup.evaluation.shift import relative_rows
from regmixup.progress import describe
from regmixup.storage import owning, write_json, write_rows
from regmixup.study.cached_rows import cached_rows
from regmixup.study.plan import Study
from regmixup.training.config import TrainConfig, choose_device, resolve
from regmixup.training.loop import train
from regmixup.training.members import EpochRecord
from regmixup.training.run import Run
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
    for method, config in study.runs():
        _check_posthoc(method, config, _posthoc(study, method))
    folder = study_folder(study, runs)
    device = choose_device(device)
    with owning(folder):
        rows: list[Row] = []
        entries = []
        for method, config in study.runs():
            config = resolve(config, device)
            label = f"{method} seed {config.seed}"
            if progress is not None:
                progress.begin(label, config.epochs * config.members)
            on_epoch = progress.epoch if progress is not None else None
            run = train(config, runs, root=root, device=device, workers=workers, on_epoch=on_epoch)
            if progress is not None:
                progress.end(label, describe(run.history()))
            with run.owned():
                rows += _evaluate(study, method, run, root, device)
            entries.append({"method": method, "seed": config.seed, "folder": run.folder.name})
            # After every run, so that a study that stops half-way has a table of what is done.
            write_json(folder / "study.json", {**encode(study), "runs": entries})
            write_rows(folder / "rows.csv", [*rows, *relative_rows(rows, reference=REFERENCE)])
    return folder


def _posthoc(study: Study, method: str) -> posthoc.Posthoc | None:
    """What a method does to predictions before they are scored."""
    spec = methods.get(method).at(study.recipe).posthoc
    return posthoc.build(spec.name, **spec.fields) if spec is not None else None


def _check_posthoc(method: str, config: TrainConfig, chosen: posthoc.Posthoc | None) -> None:
    """Refuse what could not be evaluated, before it is trained."""
    if chosen is not None and (config.head_name != chosen.head or config.members > 1):
        raise ValueError(
            f"{method} needs one model with the {chosen.head} head, for {type(chosen).__name__}, "
            f"got head {config.head_name!r} and members {config.members}"
        )


def _evaluate(study: Study, method: str, run: Run, root: str | Path | None, device: torch.device) -> list[Row]:
    """Predict what is not predicted yet, and keep the rows of this method beside the run: others may share it."""
    sets = study.evaluate
    names = sets.datasets()
    chosen = _posthoc(study, method)
    features = True if chosen is not None and chosen.needs_features else None
    run.store(names, root=root, device=device, features=features)
    needs_train = sets.feature_scores or (chosen is not None and chosen.needs_train)
    fitted_on = [run.config.train_set] if needs_train else []
    run.store(fitted_on, root=root, device=device)

    def measure() -> list[Row]:
        found = dict(zip(names, run.predict_all(names, root=root, device=device, features=features), strict=True))
        train = run.predict(run.config.train_set, root=root, device=device) if needs_train else None
        fitted = None
        if chosen is not None:
            fitted = chosen.fit(train=train, validation=found[sets.validation])
        return evaluate(
            found[sets.test],
            validation=found[sets.validation],
            train=train if sets.feature_scores and run.config.members == 1 else None,
            posthoc=fitted,
            shift=[found[name] for name in sets.shift_sets()],
            ood=[found[name] for name in sets.ood],
            row=row,
        )

    row = Row(
        run=run.fingerprint[:12],
        method=method,
        network=run.config.network,
        train_set=run.config.train_set,
        seed=run.config.seed,
    )
    files = [run.predictions_path(name) for name in (*names, *fitted_on)]
    rows = cached_rows(run.folder / f"rows-{method}.csv", files, (sets, chosen, row), measure)
    return [replace(r, study=study.name) for r in rows]
