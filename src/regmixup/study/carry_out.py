"""One planned run, from its first epoch to its rows: complete in itself, so that any process anywhere can do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from regmixup import methods, posthoc
from regmixup.evaluation.evaluate import evaluate
from regmixup.study.cached_rows import cached_rows
from regmixup.study.figure_data import figure_data
from regmixup.study.plan import PlannedRun, Study
from regmixup.training.config import choose_device, resolve
from regmixup.training.loop import EpochRecord, train
from regmixup.training.run import Run
from regmixup.types import Row


def carry_out(
    study: Study,
    planned: PlannedRun,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> list[Row]:
    """Train, predict and evaluate one run of a study; what is done already is not done again. Arguments as of `train`.

    The run folder is held from beginning to end: another process that asks for it meanwhile gets an InUseError.
    """
    device = choose_device(device)
    config = resolve(planned.config, device)
    with Run(Path(runs) / config.name, config).owned():
        run = train(config, runs, root=root, device=device, workers=workers, on_epoch=on_epoch)
        return _evaluate(study, planned, run, root, device)


def check_posthoc(planned: PlannedRun) -> None:
    """Refuse what could not be evaluated, before it is trained."""
    chosen, config = _posthoc(planned), planned.config
    if chosen is not None and (config.head_name != chosen.head or config.members > 1):
        raise ValueError(
            f"{planned.method} needs one model with the {chosen.head} head, for {type(chosen).__name__}, "
            f"got head {config.head_name!r} and members {config.members}"
        )


def _posthoc(planned: PlannedRun) -> posthoc.Posthoc | None:
    """What a method does to predictions before they are scored."""
    spec = methods.get(planned.method).at(planned.recipe).posthoc
    return posthoc.build(spec.name, **spec.fields) if spec is not None else None


def _evaluate(study: Study, planned: PlannedRun, run: Run, root: str | Path | None, device: torch.device) -> list[Row]:
    """Predict what is not predicted yet, and keep the rows of this method beside the run: others may share it."""
    sets = study.evaluate
    names = sets.datasets()
    chosen = _posthoc(planned)
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
        method=planned.label,
        network=run.config.network,
        train_set=run.config.train_set,
        seed=run.config.seed,
    )
    files = [run.predictions_path(name) for name in (*names, *fitted_on)]
    rows = cached_rows(run.folder / f"rows-{planned.label}.csv", files, (sets, chosen, row), measure)
    figure_data(run, sets, planned.label, root, rows=rows, posthoc=chosen)
    return [replace(r, study=study.name) for r in rows]
