"""Compare two methods on a folder of photographs: `regmixup finetune PHOTOS --against METHOD`.

The images, but for the part that `finetune` tests on, are cut by content into 5 folds. For each fold both methods train
all weights on the other folds, from the same linear probe, with the same seed, so in the same order, for equally many
epochs; each model is measured on the fold, as it would be deployed: with a temperature from validation images.

Differences are paired by fold. Folds share train images, so their differences are correlated, and the interval is that
of the corrected resampled t statistic (Nadeau and Bengio, 2003; Bouckaert and Frank, 2004, for folds): the variance of
the k differences times 1 / k + n_test / n_train, with k - 1 degrees of freedom. All trainings are ordinary runs, so the
same command goes on where it was stopped; nothing is concluded before all of them are done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from regmixup import metrics
from regmixup.data.catalogue import find
from regmixup.data.reading import load_files
from regmixup.deployment.calibration import Labelled, fit_temperature
from regmixup.deployment.finetune import Job, Request, Watch, check_method, prepare
from regmixup.deployment.finish import Say
from regmixup.deployment.folder import Advance, check_counts, suggest
from regmixup.deployment.predictor import deployed_score
from regmixup.deployment.probe import FEWEST_EPOCHS
from regmixup.metrics.scores import SCORES
from regmixup.names import percent
from regmixup.report.significance import LEVEL, resampled_difference
from regmixup.storage import write_table
from regmixup.training.run import Run
from regmixup.training.train import train

FOLDS = 5


class Metric(NamedTuple):
    """A measured quantity: its title, and the factor and the digits by which it is shown."""

    title: str
    factor: int
    digits: int

    def shown(self, value: float, sign: str = "") -> str:
        """Return a value, or with the sign "+" a difference, as it is printed."""
        return f"{self.factor * value:{sign}.{self.digits}f}"


METRICS = {
    "accuracy": Metric("accuracy %", 100, 1),
    "nll": Metric("NLL", 1, 3),
    "augrc": Metric("AUGRC x 1000", 1000, 1),
}
"""Accuracy decides the verdict; NLL and AUGRC are better if smaller."""


class Effect(NamedTuple):
    """The mean difference of two methods in a metric, with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float

    def shown(self, metric: Metric, unit: str = "") -> str:
        """Return the difference and its interval, such as "+0.4 points [-1.0, +1.8]"."""
        mean, low, high = (metric.shown(value, "+") for value in self)
        return f"{mean}{unit} [{low}, {high}]"


@dataclass(frozen=True)
class Comparison:
    """Two methods, the values of each metric in each fold, and the number of test images in all folds.

    values: {method: {metric: [value of each fold]}}, the reference first; the difference is the second's less its.
    """

    values: Mapping[str, Mapping[str, Sequence[float]]]
    images: int

    def effect(self, metric: str) -> Effect:
        """Return the paired difference in a metric.

        Accuracies count whole images, so a difference may be the same in every fold by chance, with no spread at all.
        At least as many images changed sides as the net gain, and one might have: the interval is no narrower than
        McNemar's for so many.

        >>> values = {"a": {"accuracy": [0.9, 0.8, 0.9, 0.9, 0.8]}, "b": {"accuracy": [0.9, 0.9, 0.9, 0.9, 0.9]}}
        >>> effect = Comparison(values, images=500).effect("accuracy")
        >>> [round(bound, 3) for bound in (effect.mean, effect.low, effect.high)]
        [0.04, -0.062, 0.142]
        """
        first, second = (by_metric[metric] for by_metric in self.values.values())
        difference = resampled_difference(second, first, test_share=1 / (len(first) - 1))
        low, high = difference.interval(1 - LEVEL)
        if metric == "accuracy":
            changed = abs(difference.mean) + 1 / self.images
            half = NormalDist().inv_cdf(1 - LEVEL / 2) * math.sqrt(changed / self.images)
            low, high = min(low, difference.mean - half), max(high, difference.mean + half)
        return Effect(difference.mean, low, high)

    def table(self) -> str:
        """Return the mean of every metric for both methods, and the differences with their intervals."""
        rows = [["", *(metric.title for metric in METRICS.values())]]
        for method, by_metric in self.values.items():
            rows.append([method, *(metric.shown(fmean(by_metric[name])) for name, metric in METRICS.items())])
        rows.append(["difference", *(self.effect(name).shown(metric) for name, metric in METRICS.items())])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def verdict(self) -> str:
        """Return one sentence about the accuracy."""
        first, second = self.values
        effect = self.effect("accuracy")
        numbers = effect.shown(METRICS["accuracy"], " points")
        if effect.low > 0:
            return f"{second} is more accurate than {first} on these images: {numbers}"
        if effect.high < 0:
            return f"{second} is less accurate than {first} on these images: {numbers}"
        return f"We could not show a difference in accuracy between {second} and {first}: {numbers}"


def compare(
    path: str | Path,
    runs: str | Path = "runs",
    *,
    against: str,
    say: Say = print,
    watch: Watch = lambda *_: {},
    advance: Advance = lambda *_: None,
    **options: Any,
) -> Comparison:
    """Train `method` and `against` on five folds of a folder of photographs, and compare them.

    path, runs, say, watch, advance: as in `finetune`. options: the fields of `Request`. The epochs are those that fit
    in `minutes` for all trainings together, at least five, or as given; a line says how long it takes.
    """
    request = Request(**options)
    check_method(against, request.class_weights)
    if against == request.method or request.epochs == 0:
        raise ValueError(f"against must be another method than {request.method}, trained for 1 epoch or more")
    job = prepare(path, runs, request, say=say, advance=advance)
    folds = list(_folds(job))
    work = job.work_folder("against", against)
    plan = folds[0].plan(work, 60 * request.minutes / (2 * FOLDS), say=say)
    epochs = plan.epochs or min(plan.wanted, FEWEST_EPOCHS)
    minutes = 2 * FOLDS * epochs * len(folds[0].images) * plan.pace / 60
    say(
        f"compare      {request.method} and {against} on {FOLDS} folds: {2 * FOLDS} trainings of {epochs} epochs"
        f"{f', about {minutes:.0f} min' if plan.pace else ''}; the same command goes on after Ctrl-C"
    )
    values: dict[str, dict[str, list[float]]] = {
        method: {metric: [] for metric in METRICS} for method in (request.method, against)
    }
    images = 0
    for number, fold in enumerate(folds, 1):
        weights = work / f"probe-{number}.safetensors"
        fold.write_probe(weights, say=lambda _: None, advance=advance)
        for method, by_metric in values.items():
            trained = replace(fold, request=replace(fold.request, method=method))
            config = trained.configure(epochs=epochs, init=str(weights))
            hooks = watch(f"fold {number} of {FOLDS}, {method}", config)
            run = train(config, runs, device=job.device, workers=request.workers, **hooks)
            for metric, value in _measure(run, fold, advance).items():
                by_metric[metric].append(value)
        images += fold.photos.sizes[fold.photos.test]
        accuracies = ", ".join(f"{method} {percent(by_metric['accuracy'][-1])}" for method, by_metric in values.items())
        say(f"fold {number} of {FOLDS}  right: {accuracies}")
    comparison = Comparison(values, images)
    write_table(work / "comparison.json", asdict(comparison))
    say(
        f"\n{comparison.table()}\n\nMeans over {FOLDS} folds, {images} test images, with the temperature; 95 % "
        f"intervals of paired differences. Lower is better for NLL and AUGRC.\n{comparison.verdict()}"
    )
    return comparison


def _folds(job: Job) -> Iterator[Job]:
    """Yield the job of each fold: 15 % of the images outside of it are for validation. Raise with too few images."""
    part = find(job.photos.train).part
    whole = part.of if part is not None else job.photos.train
    check_counts(load_files(whole), FOLDS, "one for each fold, beside those kept for the test")
    for number in range(1, FOLDS + 1):
        outside = f"{whole}/without-{number}-of-{FOLDS}"
        train_set, validation, test = f"{outside}/train-85", f"{outside}/val-15", f"{whole}/fold-{number}-of-{FOLDS}"
        sets = {name: load_files(name) for name in (train_set, validation, test)}
        sizes = {name: len(images) for name, images in sets.items()}
        photos = replace(job.photos, train=train_set, validation=validation, test=test, sizes=sizes)
        request = replace(job.request, seed=job.request.seed + number - 1)
        settings = suggest(photos, backbone=request.backbone, image_size=request.image_size)
        yield replace(job, photos=photos, request=request, settings=settings, images=sets[train_set])


def _measure(run: Run, fold: Job, advance: Advance) -> dict[str, float]:
    """Return the metrics on the images of the fold, with the temperature that validation images give."""
    photos = fold.photos
    total = photos.sizes[photos.validation] + photos.sizes[photos.test]
    advance("measuring", 0, total)
    validation, test = run.predict_all([photos.validation, photos.test], device=fold.device, features=False)
    advance("measuring", total, total)
    temperature = fit_temperature(Labelled(validation.logits, validation.labels))
    probs = (test.logits.double() / temperature).softmax(dim=1)
    score = SCORES[deployed_score(run.config.objective)](test.logits)
    return {
        "accuracy": metrics.accuracy(probs, test.labels),
        "nll": metrics.nll(probs, test.labels),
        "augrc": metrics.augrc(score, probs.argmax(dim=1) == test.labels),
    }
