"""From a trained run to its rows and the data of its figures: predict, apply the posthoc map, evaluate.

Where the temperature T of the tables is chosen:

    1. `Study._companion` in plan.py says which model chooses: the run itself, on validation images that it was not
       trained on (calibration "holdout"), or a companion that was trained without them.
    2. `_complete` in tasks.py trains the companion, and passes its rows on as `companion_rows`;
       `evaluate_run` below takes T from the row "temperature".
    3. `fit_temperature` in evaluation/evaluate.py passes validation predictions through the posthoc map.
    4. `TemperatureScaling.fit` in posthoc/temperature.py searches the T with the smallest ECE.

The prior variance sigma_0 of a Laplace approximation takes the same way; its `fit` chooses it.

Rows and figures are kept in the run folder, and computed again if the predictions, the settings or the code that
turns the one into the other have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch

from regmixup import plugins, run_folder
from regmixup.evaluation.evaluate import evaluate, fit_temperature
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.posthoc import FittedPosthoc, LastLayerLaplace, as_given
from regmixup.predictions.predict import store_predictions
from regmixup.storage import digest, read_rows, read_table, write_json, write_rows, write_table
from regmixup.study import figures
from regmixup.study.archive import outcomes_path, write_outcomes
from regmixup.study.planned_run import PlannedRun
from regmixup.training.run import Run
from regmixup.types import Predictions, Row


def evaluate_run(
    planned: PlannedRun,
    run: Run,
    *,
    root: str | Path | None = None,
    device: torch.device,
    companion_rows: Sequence[Row] = (),
) -> list[Row]:
    """Predict the datasets that are not predicted yet, evaluate them, and keep rows and figures in the run folder.

    Other lines and studies may share the run. companion_rows: the rows of its companion, if it has one; T and
    sigma_0 are those of that.
    """
    stem, temperature = planned.stem, None
    if companion_rows:
        values = {row.metric: row.value for row in companion_rows}
        temperature, planned = values["temperature"], _with_companions_choice(planned, values)
    evaluation = planned.evaluate
    run = replace(run, batch_norm=planned.batch_norm, predicts_in=evaluation.precision)
    names = evaluation.datasets()
    if _needs_train(planned):
        names.append(run.config.train_set)
    store_predictions(run, names, features=planned.keeps_features or None, root=root, device=device)
    predicted = [run.predictions_path(name) for name in names]
    settings = (planned.label, run.fingerprint, evaluation, planned.posthoc, temperature)

    results = {"rows": run_folder.rows_path(run.folder, stem)}
    if evaluation.test:
        results["figures"] = run_folder.figures_path(run.folder, stem)
        results["outcomes"] = outcomes_path(run.folder, stem)
    note, key = results["rows"].with_suffix(".json"), cache_key(predicted, settings)
    with suppress(OSError, ValueError):  # missing or damaged: all is computed again
        if read_table(note) == _marks(results, key):
            return read_rows(results["rows"])
    _measure(planned, run, results, temperature=temperature, root=root, device=device)
    # The key is computed anew, as a damaged file of predictions may have been made again.
    write_json(note, _marks(results, cache_key(predicted, settings)))
    return read_rows(results["rows"])


def _with_companions_choice(planned: PlannedRun, values: dict[str, float]) -> PlannedRun:
    """Return a line that needs no validation set: what its companion chose there, by metric, is fixed."""
    posthoc_map = planned.posthoc
    if posthoc_map is not None and posthoc_map.needs_validation:
        assert isinstance(posthoc_map, LastLayerLaplace), "no other map chooses anything on a validation set"
        posthoc_map = replace(posthoc_map, prior_variance=values.get("prior_variance"))
    evaluation = replace(planned.evaluate, validation="", calibration="holdout")
    return replace(planned, evaluate=evaluation, posthoc=posthoc_map)


def _needs_train(planned: PlannedRun) -> bool:
    """Return whether anything is fitted on the train set: scores of features, or the posthoc map."""
    return planned.evaluate.feature_scores or (planned.posthoc is not None and planned.posthoc.needs_train)


def _measure(
    planned: PlannedRun,
    run: Run,
    results: dict[str, Path],
    *,
    temperature: float | None,
    root: str | Path | None,
    device: torch.device,
) -> None:
    """Compute and write the rows of a run and, with a test set, the data of its figures and the outcome of each image.

    results: where to write these, by kind. temperature: that of its companion, else None.
    """
    evaluation, config = planned.evaluate, run.config
    predict = partial(run.predict, features=planned.keeps_features or None, root=root, device=device)
    # Scores of features are fitted on the CPU. Sampling and resampling are faster where the model was.
    place = "cpu" if evaluation.feature_scores else device
    train = predict(config.train_set) if _needs_train(planned) else None
    scored_train = train if evaluation.feature_scores and config.members == 1 else None  # an ensemble has no features
    validation = predict(evaluation.validation).to(place) if evaluation.validation else None
    fitted: FittedPosthoc = as_given
    if planned.posthoc is not None:
        fitted = planned.posthoc.fit(train=train if planned.posthoc.needs_train else None, validation=validation)

    template = Row(
        run=run.fingerprint[:12],
        method=planned.label,
        network=config.network,
        train_set=config.train_set,
        seed=config.seed,
    )
    measure = partial(evaluate, posthoc=fitted, bootstrap=Bootstrap(resamples=evaluation.resamples), row=template)
    if not evaluation.test:
        # A study that selects, or a companion: validation metrics, and the T with the smallest ECE.
        assert validation is not None, "an evaluation without a test set has a validation set"
        named = replace(template, dataset=validation.dataset, posthoc="temperature", metric="temperature")
        write_rows(results["rows"], [*measure(validation), replace(named, value=fit_temperature(fitted, validation))])
        return
    rows = measure(
        predict(evaluation.test).to(place),
        validation=validation,
        temperature=temperature,
        train=scored_train,
        shift=[predict(name).to(place) for name in evaluation.shift_sets()],
        ood=[predict(name).to(place) for name in evaluation.ood],
    )
    write_rows(results["rows"], rows)

    def mapped(name: str, at: float = 1.0) -> Predictions:
        return fitted(predict(name).to(device), at).to("cpu")

    versions = {"none": mapped(evaluation.test)}
    for row in rows:
        if row.metric == "temperature":
            versions["temperature"] = mapped(evaluation.test, row.value)
    ood = [mapped(name) for name in evaluation.ood]
    drawn = figures.figure_data(
        versions,
        ood,
        profile=mapped(evaluation.profile) if evaluation.profile else None,
        classes=run.provenance()["classes"],
        root=root,
    )
    write_table(results["figures"], drawn, indent=None)
    write_outcomes(results["outcomes"], [versions["none"], *ood])


def _marks(results: dict[str, Path], key: str) -> dict[str, str]:
    """Return the note beside the rows: the key of what the results were computed from, and the digest of each."""
    return {"key": key, **{kind: digest(path) for kind, path in results.items()}}


def stored_rows(folder: Path, stem: str) -> list[Row]:
    """Read the rows of a run folder, whatever they were computed from; ValueError if they were edited."""
    path = run_folder.rows_path(folder, stem)
    return read_rows(path, expected=read_table(path.with_suffix(".json")).get("rows"))


def cache_key(files: Iterable[Path], settings: object) -> str:
    """Return a digest of what a result depends on: files, by name, size and time of change, settings, and code.

    Code is ours and, as every evaluation has all registered scores, the modules of these.
    """
    plugins.load()
    marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    scores = sorted(repr(origin) for (kind, _), origin in plugins.REGISTERED.items() if kind == "score")
    text = json.dumps([marks, repr(settings), _code(), *scores])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Return a digest of the code that turns predictions into rows, so that a corrected metric is computed again."""
    folders = [Path(__file__).parents[1] / room for room in ("evaluation", "metrics", "posthoc")]
    sources = sorted(source for folder in folders for source in folder.rglob("*.py"))
    content = [source.read_bytes() for source in (*sources, Path(figures.__file__))]
    return hashlib.sha256(b"".join(content)).hexdigest()
