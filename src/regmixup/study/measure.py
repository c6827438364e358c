"""From a planned run to its rows and the data of its figures: train, predict, apply the posthoc map, evaluate.

Both are computed once, and again only if the predictions, their settings or the code that measures them change.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from regmixup import data, evaluation, metrics, posthoc, run_folder
from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages, pair_ends
from regmixup.evaluation.curves import SIDE, Look, examples, path_curves, reliability_bins, score_curves
from regmixup.evaluation.evaluate import evaluate, fit_temperature
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.scores import fit_scores
from regmixup.posthoc import FittedPosthoc, LastLayerLaplace, Posthoc, as_given
from regmixup.storage import InUseError, digest, read_rows, read_table, write_json, write_rows, write_table
from regmixup.study.archive import archived_rows, outcomes_path, write_outcomes
from regmixup.study.planned import Evaluation, PlannedRun
from regmixup.training.config import TrainConfig, choose_device, resolve
from regmixup.training.engine import Engine
from regmixup.training.loading import reader
from regmixup.training.reporting import counted_on
from regmixup.training.run import Run
from regmixup.training.train import Hooks, train
from regmixup.types import Predictions, Row

PAIRS = 8
"""Paths between two images that a reader can explore: the first of those behind the profile."""
_FIGURES_VERSION = 2
"""Version of the figure data: with another one they are made again."""


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
    """
    device = choose_device(device)
    config, companion, choices = resolve(planned.config, device), planned.choosing, None
    with (own := Run.of(config, runs)).owned():
        epochs_before = config.all_epochs if own.finished else 0

        def train_next(one: TrainConfig) -> Run:
            """Train the run or its companion; callbacks see the epochs of both counted through, as `Task.epochs`."""
            nonlocal epochs_before
            one = resolve(one, device)
            more = 0 if Run.of(one, runs).finished else one.all_epochs
            run = train(
                one, runs, root=root, device=device, workers=workers, engine=engine, on_start=hooks.get("on_start"),
                on_step=counted_on(hooks.get("on_step"), epochs_before),
                on_epoch=counted_on(hooks.get("on_epoch"), epochs_before),
            )  # fmt: skip
            epochs_before += more
            return run

        if companion is not None and chosen is None:
            with suppress(InUseError):  # another process trains it; this run needs it only at the end
                train_next(companion.config)
        run = train_next(config)
        if companion is not None:
            if chosen is not None:
                found = archived_rows(chosen, companion.stem)
            else:
                found = measure(companion, train_next(companion.config), root=root, device=device)
            choices = {row.metric: row.value for row in found}
        return measure(planned, run, root=root, device=device, choices=choices)


def measure(
    planned: PlannedRun,
    run: Run,
    *,
    root: str | Path | None = None,
    device: torch.device,
    choices: Mapping[str, float] | None = None,
) -> list[Row]:
    """Predict the datasets that are not predicted yet, evaluate them, and keep the rows in the run folder.

    Other labels and studies may share the run. choices: T and sigma_0 as its companion chose them, if it has one.
    """
    here: dict[str, Any] = {"root": root, "device": device}
    sets, mapped, temperature = planned.evaluate, planned.posthoc, None
    if choices is not None:  # so that this run needs no validation set
        temperature, sets = choices["temperature"], replace(sets, validation="", calibration="holdout")
        if mapped is not None and mapped.needs_validation:
            assert isinstance(mapped, LastLayerLaplace), "no other map chooses anything on a validation set"
            mapped = replace(mapped, prior_variance=choices.get("prior_variance"))
    run = replace(run, batch_norm=planned.batch_norm, predicts_in=sets.precision)
    features = True if planned.keeps_features else None
    names = [*sets.datasets(), *_fitted_on(run, sets, mapped)]
    run.store(names, features=features, **here)
    # Sampling and resampling are faster where the model was; scores of features are fitted on the CPU.
    where = torch.device("cpu") if sets.feature_scores else device
    intervals = Bootstrap(resamples=sets.resamples)
    row = Row(
        run=run.fingerprint[:12],
        method=planned.label,
        network=run.config.network,
        train_set=run.config.train_set,
        seed=run.config.seed,
    )

    @cache
    def validation() -> Predictions | None:
        return run.predict(sets.validation, **here).to(where) if sets.validation else None

    @cache
    def fitted() -> FittedPosthoc:
        """Fit the map, for the rows and the figures, if any of these are not stored."""
        if mapped is None:
            return as_given
        train = run.predict(run.config.train_set, **here) if mapped.needs_train else None
        return mapped.fit(train=train, validation=validation())

    def compute() -> list[Row]:
        held_out = validation()
        if held_out is not None and not sets.test:
            # A study that selects may know no more: validation metrics, and the T with the smallest ECE.
            found = evaluate(held_out, posthoc=fitted(), bootstrap=intervals, row=row)
            named = replace(row, dataset=held_out.dataset, posthoc="temperature", metric="temperature")
            return [*found, replace(named, value=fit_temperature(fitted(), held_out))]
        return evaluate(
            run.predict(sets.test, **here).to(where),
            validation=held_out,
            temperature=temperature,
            train=_train_predictions(run, sets, **here),
            posthoc=fitted(),
            shift=[p.to(where) for p in run.predict_all(sets.shift_sets(), features=features, **here)],
            ood=[p.to(where) for p in run.predict_all(list(sets.ood), **here)],
            bootstrap=intervals,
            row=row,
        )

    files = [run.predictions_path(name) for name in names]
    settings = (sets, mapped, row) if temperature is None else (sets, mapped, row, temperature)
    rows = cached_rows(run_folder.rows_path(run.folder, planned.stem), files, settings, compute)
    figure_data(run, sets, planned.stem, root, rows=rows, posthoc=mapped, fitted=fitted, device=device)
    return rows


def figure_data(
    run: Run,
    evaluation: Evaluation,
    stem: str,
    root: str | Path | None = None,
    *,
    rows: Sequence[Row] = (),
    posthoc: Posthoc | None = None,
    fitted: Callable[[], FittedPosthoc] = lambda: as_given,
    device: torch.device = torch.device("cpu"),  # noqa: B008 a constant
) -> dict[str, Any]:
    """Return the data of a run's figures; computed again only if it is damaged, or its inputs or the code changed.

    stem: the stem of its files in the run folder. rows: the rows of the evaluation, for the temperature.
    posthoc: the method's posthoc map; fitted: returns the fitted map, which is applied on `device`. A run that is
    evaluated on no test set has no figures. The outcome of every image is written beside them.
    The result has "test", the test set's name; "reliability", "scores" and, where the images are here, "examples", as
    `regmixup.evaluation.curves` makes them; and where the study has a profile, "path" likewise and "images", the two
    ends of its first paths with their classes.
    """
    if not evaluation.test:
        return {}
    temperature = next((row.value for row in rows if row.metric == "temperature"), None)
    names = [evaluation.validation, evaluation.test, *evaluation.ood, evaluation.profile]
    files = [run.predictions_path(name) for name in (*names, *_fitted_on(run, evaluation, posthoc)) if name]
    settings = (_FIGURES_VERSION, evaluation, posthoc, temperature)
    path = run_folder.figures_path(run.folder, stem)
    outcomes = outcomes_path(run.folder, stem)
    if path.is_file() and outcomes.is_file():
        try:
            if (stored := read_table(path)).get("key") == cache_key(files, settings):
                return stored
        except ValueError as error:
            warnings.warn(f"{error}; made again", stacklevel=2)
    here: dict[str, Any] = {"root": root, "device": device}

    def treat(given: Predictions, at: float = 1.0) -> Predictions:
        return fitted()(given.to(device), at).to("cpu")

    test = run.predict(evaluation.test, **here)
    versions = {"none": treat(test)}
    if temperature is not None:
        versions["temperature"] = treat(test, temperature)
    others = [treat(run.predict(name, **here)) for name in evaluation.ood]
    write_outcomes(outcomes, [versions["none"], *others])
    found: dict[str, Any] = {
        "test": evaluation.test,
        "reliability": reliability_bins(versions),
        "scores": score_curves(versions["none"], others, fit_scores(_train_predictions(run, evaluation, **here))),
    }
    looks, _ = find_images([evaluation.test, *evaluation.ood], root)
    if looks:
        classes = run.provenance()["classes"]  # which number the labels; a test folder may lack some of them
        found["examples"] = examples(versions["none"], others, looks, classes=classes)
    if evaluation.profile:
        found["path"] = path_curves(treat(run.predict(evaluation.profile, **here)), pairs=PAIRS)
        found["images"] = _path_ends(evaluation.profile.removeprefix("path:"), root)
    found = {"key": cache_key(files, settings), **found}  # at the end, as a damaged file may have been made again
    write_table(path, found, indent=None)
    return found


def _fitted_on(run: Run, sets: Evaluation, mapped: Posthoc | None) -> list[str]:
    """Return the train set where anything is fitted on it: scores of features, or a posthoc map."""
    return [run.config.train_set] if sets.feature_scores or (mapped is not None and mapped.needs_train) else []


def _train_predictions(run: Run, sets: Evaluation, **here: Any) -> Predictions | None:
    """Return the train predictions that scores of features are fitted on; an ensemble has no features."""
    return run.predict(run.config.train_set, **here) if sets.feature_scores and run.config.members == 1 else None


def find_images(names: Sequence[str], root: str | Path | None) -> tuple[dict[str, Look], tuple[str, ...]]:
    """Return how to get at the images of some sets, and the classes of the first; without sets that are not here.

    Predictions may have come from another machine than the data.
    """
    looks: dict[str, Look] = {}
    classes: tuple[str, ...] = ()
    for name in names:
        try:
            source = data.load(name, root=root)
        except (OSError, ValueError):
            continue
        looks[name] = partial(_pick, source)
        classes = source.classes if name == names[0] else classes
    return looks, classes


def _pick(source: LabelledImages, places: Sequence[int]) -> list[Tensor]:
    """Return some images of a set, files upright and at the size of a thumbnail."""
    read = reader(EvalTransform(size=SIDE, resize=SIDE, orient=True), (SIDE, SIDE))
    chosen = source.select(torch.tensor(places, dtype=torch.int64))
    return [image for part in chosen.parts(read) for image in part.images]


def _path_ends(dataset: str, root: str | Path | None) -> list[dict[str, Any]]:
    """Return both ends of the first paths, lambda = 1 first: PNG in base64, and the names of their classes."""
    source = data.load(dataset, root=root)
    ends = [index[:PAIRS].tolist() for index in pair_ends(source)]
    return [
        {
            "classes": [source.classes[int(source.labels[index])] for index in pair],
            "png": [png(source.images[index]) for index in pair],
        }
        for pair in zip(*ends, strict=True)
    ]


def png(image: Tensor) -> str:
    """Encode a (C, H, W) uint8 image as a PNG in base64."""
    from PIL import Image

    pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def cached_rows(path: Path, files: Sequence[Path], settings: object, compute: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows stored at `path` (CSV), or store and return what `compute` returns.

    files: the files that rows are computed from; settings: whatever else they depend on, by its text. A note beside
    `path` identifies these and the rows: rows that have changed since are computed again, with a warning.
    """
    note = path.with_suffix(".json")
    if path.is_file() and note.is_file():
        try:
            kept = read_table(note)
            if kept.get("key") == cache_key(files, settings):
                return read_rows(path, expected=kept.get("rows", ""))
        except ValueError as error:
            warnings.warn(f"{error}; measured again", stacklevel=2)
    rows = compute()
    write_rows(path, rows)
    # After the computation, which may have written a damaged file again.
    write_json(note, {"key": cache_key(files, settings), "rows": digest(path)})
    return rows


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
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
