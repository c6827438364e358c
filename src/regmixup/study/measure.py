"""From a trained run to its rows: predicted, passed through what the method does to predictions, evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regmixup.metrics.bootstrap import Bootstrap
from regmixup.posthoc import FittedPosthoc, LastLayerLaplace, Posthoc, as_given
from regmixup.rows import evaluate, fit_temperature
from regmixup.study.cached_rows import cached_rows
from regmixup.study.figure_data import figure_data
from regmixup.study.plan import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.run import Run
from regmixup.training.train import train
from regmixup.types import Predictions, Row


def measure(
    planned: PlannedRun,
    run: Run,
    *,
    root: str | Path | None = None,
    device: torch.device,
    workers: int | None = None,
) -> list[Row]:
    """Predict what is not predicted yet, and keep the rows beside the run, which other labels and studies may share.

    Where the plan has a companion, it is trained first if nobody has; it lies beside the run.
    """
    here: dict[str, Any] = {"root": root, "device": device}
    sets, chosen = planned.evaluate, planned.posthoc
    how: dict[str, Any] = {"batch_norm": planned.batch_norm, "predicts_in": sets.precision}
    run = replace(run, **how)
    companion = None
    if planned.companion is not None:
        companion = train(resolve(planned.companion, device), run.folder.parent, workers=workers, **here)
        companion = replace(companion, **how)
    features = True if chosen is not None and chosen.needs_features else None
    fits_train = chosen is not None and chosen.needs_train
    own_train = [run.config.train_set] if fits_train or sets.feature_scores else []
    wanted = [(run, [*(sets.datasets() if companion is None else sets.reported()), *own_train])]
    if companion is not None:
        wanted.append((companion, [sets.validation, *([companion.config.train_set] if fits_train else [])]))
    for who, names in wanted:
        who.store(names, features=features, **here)

    def fitted(chosen: Posthoc | None, who: Run, validation: Predictions | None) -> FittedPosthoc:
        if chosen is None:
            return as_given
        own = who.predict(who.config.train_set, **here) if fits_train else None
        return chosen.fit(train=own, validation=validation)

    def compute() -> list[Row]:
        validation = (companion or run).predict(sets.validation, **here) if sets.validation else None
        if validation is not None and not sets.test:
            return _on_validation(validation, fitted(chosen, run, validation), intervals, row)
        temperature, own = None, chosen
        if companion is not None and validation is not None:
            judged = fitted(chosen, companion, validation)
            temperature = fit_temperature(judged, validation)
            own, validation = _settled(chosen, getattr(judged, "prior_variance", None)), None
        # Resampling is faster where the model was; maps and scores of features are fitted on the CPU.
        where = device if own is None and not sets.feature_scores else torch.device("cpu")
        return evaluate(
            run.predict(sets.test, **here).to(where),
            validation=validation.to(where) if validation is not None else None,
            temperature=temperature,
            train=run.predict(run.config.train_set, **here)
            if sets.feature_scores and run.config.members == 1
            else None,
            posthoc=fitted(own, run, validation),
            shift=[p.to(where) for p in run.predict_all(sets.shift_sets(), features=features, **here)],
            ood=[p.to(where) for p in run.predict_all(list(sets.ood), **here)],
            bootstrap=intervals,
            row=row,
        )

    intervals = Bootstrap(resamples=sets.resamples)
    row = Row(
        run=run.fingerprint[:12],
        method=planned.label,
        network=run.config.network,
        train_set=run.config.train_set,
        seed=run.config.seed,
    )
    files = [who.predictions_path(name) for who, names in wanted for name in names]
    rows = cached_rows(run.folder / f"rows-{planned.stem}.csv", files, (sets, chosen, row), compute)
    # A companion has chosen what there was to choose: the figures need no validation set of their own.
    if companion is not None:
        prior_variance = next((row.value for row in rows if row.metric == "prior_variance"), None)
        sets, chosen = replace(sets, validation=""), _settled(chosen, prior_variance)
    figure_data(run, sets, planned.stem, root, rows=rows, posthoc=chosen)
    return rows


def _on_validation(validation: Predictions, posthoc: FittedPosthoc, intervals: Bootstrap, row: Row) -> list[Row]:
    """What a study that selects may know of a run: its validation metrics, and the temperature of the smallest ECE."""
    rows = evaluate(validation, posthoc=posthoc, bootstrap=intervals, row=row)
    temperature = fit_temperature(posthoc, validation)
    named = replace(row, dataset=validation.dataset, posthoc="temperature", metric="temperature")
    return [*rows, replace(named, value=temperature)]


def _settled(chosen: Posthoc | None, prior_variance: float | None) -> Posthoc | None:
    """The map with the prior variance that its companion chose, where there was one to choose."""
    if chosen is None or not chosen.needs_validation:
        return chosen
    assert isinstance(chosen, LastLayerLaplace), "no other map chooses anything on a validation set"
    return replace(chosen, prior_variance=prior_variance)
