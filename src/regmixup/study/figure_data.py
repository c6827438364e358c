"""What a report draws of one run, made once from its stored predictions and kept beside its rows."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from regmixup import data
from regmixup.data.interpolation import pair_ends
from regmixup.evaluation.curves import path_curves, reliability_bins, score_curves
from regmixup.evaluation.scores import fit_scores
from regmixup.posthoc import Posthoc, as_given
from regmixup.storage import read_table, write_table
from regmixup.study.archive import outcomes_path, write_outcomes
from regmixup.study.cached_rows import cache_key
from regmixup.study.plan import Evaluation
from regmixup.training.run import Run
from regmixup.types import Row

PAIRS = 8
"""Paths between two images that a reader can walk along: the first of those the profile is made of."""
_VERSION = 1


def figure_data(
    run: Run,
    evaluation: Evaluation,
    stem: str,
    root: str | Path | None = None,
    *,
    rows: Sequence[Row] = (),
    posthoc: Posthoc | None = None,
) -> dict[str, Any]:
    """The data of a run's figures; made anew only if it is damaged, or what it is made from or by has changed.

    stem: what its files in the run folder are called. rows: those rows, for the temperature.
    posthoc: what the method does to predictions. A run that is evaluated on no test set has no figures.
    The result has "test", the test set's name; "reliability" and "scores", as `regmixup.evaluation.curves` makes them;
    and where the study has a profile, "path" likewise and "images", the two ends of its first paths with their classes.
    """
    if not evaluation.test:
        return {}
    temperature = next((row.value for row in rows if row.metric == "temperature"), None)
    needs_train = evaluation.feature_scores or (posthoc is not None and posthoc.needs_train)
    names = [evaluation.validation, evaluation.test, *evaluation.ood, evaluation.profile]
    names += [run.config.train_set] if needs_train else []
    files = [run.predictions_path(name) for name in names if name]
    settings = (_VERSION, evaluation, posthoc, temperature)
    path = figure_path(run.folder, stem)
    outcomes = outcomes_path(run.folder, stem)
    if path.is_file() and outcomes.is_file():
        try:
            if (stored := read_table(path)).get("key") == cache_key(files, settings):
                return stored
        except ValueError as error:
            warnings.warn(f"{error}; made again", stacklevel=2)
    measured = _measured(run, evaluation, posthoc, temperature, needs_train, outcomes)
    found = {"key": cache_key(files, settings), **measured}
    if evaluation.profile:
        found["images"] = _images(evaluation.profile.removeprefix("path:"), root)
    write_table(path, found, indent=None)
    return found


def figure_path(folder: Path, stem: str) -> Path:
    """Where a run folder keeps the data of its figures."""
    return folder / f"figures-{stem}.json"


def _measured(
    run: Run,
    evaluation: Evaluation,
    posthoc: Posthoc | None,
    temperature: float | None,
    needs_train: bool,
    outcomes: Path,
) -> dict[str, Any]:
    """Measure what the figures show; on the way, write the outcome of every image to the file `outcomes`."""
    train = run.predict(run.config.train_set) if needs_train else None
    validation = run.predict(evaluation.validation) if evaluation.validation else None
    treat = as_given if posthoc is None else posthoc.fit(train=train, validation=validation)
    test = run.predict(evaluation.test)
    versions = {"none": treat(test)}
    if temperature is not None:
        versions["temperature"] = treat(test, temperature)
    others = [treat(run.predict(name)) for name in evaluation.ood]
    write_outcomes(outcomes, [versions["none"], *others])
    fitted = fit_scores(train if evaluation.feature_scores and run.config.members == 1 else None)
    found = {
        "test": evaluation.test,
        "reliability": reliability_bins(versions),
        "scores": score_curves(versions["none"], others, fitted),
    }
    if evaluation.profile:
        found["path"] = path_curves(treat(run.predict(evaluation.profile)), pairs=PAIRS)
    return found


def _images(dataset: str, root: str | Path | None) -> list[dict[str, Any]]:
    """Both ends of the first paths, lambda = 1 first: PNG in base64, and the names of their classes."""
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
    """A (C, H, W) uint8 image as base64 text."""
    from PIL import Image

    pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
