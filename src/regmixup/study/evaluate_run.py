"""From a planned run to its rows and the data of its figures: train, predict, apply the posthoc map, evaluate.

Where the temperature T of the tables is chosen:

    1. `Study._companion` in plan.py says which model chooses: the run itself, on validation images that it was not
       trained on (calibration "holdout"), or a companion that was trained without them.
    2. `complete_run` below trains the companion, or finds its archive, and takes T from its row "temperature".
    3. `fit_temperature` in evaluation/evaluate.py passes validation predictions through the posthoc map.
    4. `TemperatureScaling.fit` in posthoc/temperature.py searches the T with the smallest ECE.

The prior variance sigma_0 of a Laplace approximation takes the same way; its `fit` chooses it.

Rows and figures are kept in the run folder, and computed again if the predictions, the settings or the code that
turns the one into the other have changed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Unpack

import torch

from regmixup import evaluation, metrics, posthoc, run_folder
from regmixup.evaluation.evaluate import evaluate, fit_temperature
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.posthoc import FittedPosthoc, LastLayerLaplace, Posthoc, as_given
from regmixup.storage import InUseError, digest, read_rows, read_table, write_json, write_rows, write_table
from regmixup.study import figures
from regmixup.study.archive import archived_rows, outcomes_path, write_outcomes
from regmixup.study.planned_run import Evaluation, PlannedRun
from regmixup.training.config import TrainConfig, choose_device, resolve
from regmixup.training.engine import Engine
from regmixup.training.reporting import counted_on
from regmixup.training.run import Run
from regmixup.training.train import Hooks, train
from regmixup.types import Predictions, Row


def complete_run(
    planned: PlannedRun,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    chosen: Path | None = None,
    **hooks: Unpack[Hooks],
) -> list[Row]:
    """Train, predict and evaluate one run of a study, skipping what is done. Arguments as of `train`.

    chosen: an archive with what the run's companion chose; without it the companion is trained, beside the run.
    The run folder is held from beginning to end: another process that asks for it meanwhile gets an InUseError.
    Callbacks see the epochs of the companion and of the run counted through, as `Task.epochs` does.
    """
    device = choose_device(device)
    companion = planned.choosing

    def train_here(config: TrainConfig, earlier: int) -> Run:
        return train(
            resolve(config, device),
            runs,
            root=root,
            device=device,
            workers=workers,
            engine=engine,
            on_start=hooks.get("on_start"),
            on_step=counted_on(hooks.get("on_step"), earlier),
            on_epoch=counted_on(hooks.get("on_epoch"), earlier),
        )

    with Run.of(resolve(planned.config, device), runs).owned():
        if companion is None:
            return evaluate_run(planned, train_here(planned.config, 0), root=root, device=device)
        if chosen is not None:
            choices = archived_rows(chosen, companion.stem)  # before training, as it may be damaged
            run = train_here(planned.config, 0)
        else:
            with suppress(InUseError):  # another process trains it; this run needs it only at the end
                train_here(companion.config, 0)
            run = train_here(planned.config, companion.config.total_epochs * companion.config.members)
            choices = evaluate_run(companion, train_here(companion.config, 0), root=root, device=device)
        return evaluate_run(planned, run, root=root, device=device, choices=choices)


def evaluate_run(
    planned: PlannedRun,
    run: Run,
    *,
    root: str | Path | None = None,
    device: torch.device,
    choices: Sequence[Row] = (),
) -> list[Row]:
    """Predict the datasets that are not predicted yet, evaluate them, and keep rows and figures in the run folder.

    Other lines and studies may share the run. choices: the rows of its companion, if it has one; T and sigma_0 are
    those of that.
    """
    sets, posthoc_map, temperature = planned.evaluate, planned.posthoc, None
    if choices:  # so that this run needs no validation set
        values = {row.metric: row.value for row in choices}
        temperature, sets = values["temperature"], replace(sets, validation="", calibration="holdout")
        if posthoc_map is not None and posthoc_map.needs_validation:
            assert isinstance(posthoc_map, LastLayerLaplace), "no other map chooses anything on a validation set"
            posthoc_map = replace(posthoc_map, prior_variance=values.get("prior_variance"))
    run = replace(run, batch_norm=planned.batch_norm, predicts_in=sets.precision)
    features = True if planned.keeps_features else None
    subject = _Subject(planned.label, run, sets, posthoc_map, temperature, features, root, device)
    names = [*sets.datasets(), *subject.fitted_on]
    run.store(names, features=features, root=root, device=device)
    predicted = [run.predictions_path(name) for name in names]
    settings = (planned.label, run.fingerprint, sets, posthoc_map, temperature)

    rows_path = run_folder.rows_path(run.folder, planned.stem)
    figures_path, outcomes = run_folder.figures_path(run.folder, planned.stem), outcomes_path(run.folder, planned.stem)
    results = [rows_path, figures_path, outcomes] if sets.test else [rows_path]
    if not are_current(results, cache_key(predicted, settings)):
        write_rows(rows_path, rows := subject.rows())
        if sets.test:
            subject.write_figures(figures_path, outcomes, rows)
        # The key is computed anew, as a damaged file of predictions may have been made again.
        mark_current(results, cache_key(predicted, settings))
    return read_rows(rows_path)


@dataclass(frozen=True)
class _Subject:
    """A run and what it is evaluated by; its predictions are read, and its posthoc map is fitted, when needed.

    temperature: that of its companion, else None. features: as of `Run.predict`.
    """

    label: str
    run: Run
    sets: Evaluation
    posthoc: Posthoc | None
    temperature: float | None
    features: bool | None
    root: str | Path | None
    device: torch.device

    @property
    def fitted_on(self) -> list[str]:
        """Return the train set where anything is fitted on it: scores of features, or the posthoc map."""
        needs_train = self.posthoc is not None and self.posthoc.needs_train
        return [self.run.config.train_set] if self.sets.feature_scores or needs_train else []

    def predict(self, name: str) -> Predictions:
        return self.run.predict(name, features=self.features, root=self.root, device=self.device)

    def predict_here(self, name: str) -> Predictions:
        """Return predictions where rows are computed: scores of features are fitted on the CPU.

        Sampling and resampling are faster where the model was.
        """
        return self.predict(name).to("cpu" if self.sets.feature_scores else self.device)

    @cached_property
    def validation(self) -> Predictions | None:
        return self.predict_here(self.sets.validation) if self.sets.validation else None

    @cached_property
    def fitted(self) -> FittedPosthoc:
        """Fit the posthoc map, once for rows and figures."""
        if self.posthoc is None:
            return as_given
        train_predictions = self.predict(self.run.config.train_set) if self.posthoc.needs_train else None
        return self.posthoc.fit(train=train_predictions, validation=self.validation)

    def train_predictions(self) -> Predictions | None:
        """Return the train predictions that scores of features are fitted on; an ensemble has no features."""
        used = self.sets.feature_scores and self.run.config.members == 1
        return self.predict(self.run.config.train_set) if used else None

    def rows(self) -> list[Row]:
        """Compute every row, without cache."""
        sets, run, validation = self.sets, self.run, self.validation
        bootstrap = Bootstrap(resamples=sets.resamples)
        template = Row(
            run=run.fingerprint[:12],
            method=self.label,
            network=run.config.network,
            train_set=run.config.train_set,
            seed=run.config.seed,
        )
        if not sets.test:
            # A study that selects may know no more: validation metrics, and the T with the smallest ECE.
            assert validation is not None, "an evaluation without a test set has a validation set"
            rows = evaluate(validation, posthoc=self.fitted, bootstrap=bootstrap, row=template)
            named = replace(template, dataset=validation.dataset, posthoc="temperature", metric="temperature")
            return [*rows, replace(named, value=fit_temperature(self.fitted, validation))]
        return evaluate(
            self.predict_here(sets.test),
            validation=validation,
            temperature=self.temperature,
            train=self.train_predictions(),
            posthoc=self.fitted,
            shift=[self.predict_here(name) for name in sets.shift_sets()],
            ood=[self.predict_here(name) for name in sets.ood],
            bootstrap=bootstrap,
            row=template,
        )

    def write_figures(self, path: Path, outcomes: Path, rows: Sequence[Row]) -> None:
        """Write the data of the figures, and the outcome of every image. rows: for the temperature."""
        sets = self.sets

        def mapped(name: str, at: float = 1.0) -> Predictions:
            return self.fitted(self.predict(name).to(self.device), at).to("cpu")

        versions = {"none": mapped(sets.test)}
        for row in rows:
            if row.metric == "temperature":
                versions["temperature"] = mapped(sets.test, row.value)
        ood = [mapped(name) for name in sets.ood]
        write_outcomes(outcomes, [versions["none"], *ood])
        drawn = figures.figure_data(
            versions,
            ood,
            train=self.train_predictions(),
            profile=mapped(sets.profile) if sets.profile else None,
            classes=self.run.provenance()["classes"],
            root=self.root,
        )
        write_table(path, drawn, indent=None)


def are_current(results: Sequence[Path], key: str) -> bool:
    """Return whether all results are there, unchanged since they were written, and computed from what `key` names.

    results: rows first; beside them `mark_current` has left a note.
    """
    note = results[0].with_suffix(".json")
    if not all(path.is_file() for path in (note, *results)):
        return False
    try:
        stored = read_table(note)
    except ValueError:
        return False
    if stored.get("key") == key and stored != _marks(results, key):
        warnings.warn(f"{results[0]}, or what lies beside it, was changed after it was written", stacklevel=3)
    return stored == _marks(results, key)


def mark_current(results: Sequence[Path], key: str) -> None:
    """Leave a note of what results were computed from; see `are_current`."""
    write_json(results[0].with_suffix(".json"), _marks(results, key))


def _marks(results: Sequence[Path], key: str) -> dict[str, str]:
    """Return the key, and the digests of rows, figures and outcomes under these names."""
    return {"key": key, **{path.name.partition("-")[0]: digest(path) for path in results}}


def stored_rows(folder: Path, stem: str) -> list[Row]:
    """Read the rows of a run folder, whatever they were computed from; ValueError if they were edited."""
    path = run_folder.rows_path(folder, stem)
    return read_rows(path, expected=read_table(path.with_suffix(".json")).get("rows"))


def cache_key(files: Iterable[Path], settings: object) -> str:
    """Return a digest of what a result depends on: files, by name, size and time of change, settings, and code."""
    marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([marks, repr(settings), _code()])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Return a digest of the code that turns predictions into rows, so that a corrected metric is computed again."""
    folders = [Path(str(module.__file__)).parent for module in (metrics, posthoc, evaluation)]
    sources = sorted(source for folder in folders for source in folder.rglob("*.py"))
    content = [source.read_bytes() for source in (*sources, Path(figures.__file__))]
    return hashlib.sha256(b"".join(content)).hexdigest()
