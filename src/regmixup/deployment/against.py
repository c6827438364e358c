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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from torch.nn import functional as F

from regmixup import metrics
from regmixup.data.catalogue import find
from regmixup.data.reading import load_files
from regmixup.deployment.calibration import AUTO, MSP, fit_temperature
from regmixup.deployment.finetune import Watch
from regmixup.deployment.folder import Advance, describe_few
from regmixup.deployment.job import Job, check_method, prepare
from regmixup.deployment.probe import FEWEST_EPOCHS
from regmixup.deployment.request import Request
from regmixup.metrics.scores import SCORES
from regmixup.names import percent
from regmixup.report.significance import LEVEL, resampled_difference
from regmixup.storage import write_table
from regmixup.training.run import Run
from regmixup.training.train import train

FOLDS = 5
METRICS = {"accuracy": ("accuracy %", 100, 1), "nll": ("NLL", 1, 3), "augrc": ("AUGRC x 1000", 1000, 1)}
"""The measured quantities: title, factor and digits. Accuracy decides the verdict; the others are better if smaller."""


class Effect(NamedTuple):
    """The mean difference of two methods in a metric, with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float


def shown(metric: str, value: float, sign: str = "") -> str:
    """Return a value or, with the sign "+", a difference, as it is printed.

    >>> shown("accuracy", 0.953), shown("nll", -0.01, "+")
    ('95.3', '-0.010')
    """
    _, factor, digits = METRICS[metric]
    return f"{factor * value:{sign}.{digits}f}"


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
        >>> [round(bound, 3) for bound in effect]
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

    def describe(self) -> str:
        """Return a line for each metric, then one sentence about the accuracy."""
        first, second = self.values
        lines = []
        for metric, (title, _, _) in METRICS.items():
            means = [f"{method} {shown(metric, fmean(folds[metric]))}" for method, folds in self.values.items()]
            mean, low, high = (shown(metric, bound, "+") for bound in self.effect(metric))
            lines.append(f"{title:<13}{', '.join(means)}; difference {mean} [{low}, {high}]")
        effect = self.effect("accuracy")
        verdict = f"We could not show a difference in accuracy between {second} and {first}"
        if effect.low > 0 or effect.high < 0:
            verdict = f"{second} is {'more' if effect.low > 0 else 'less'} accurate than {first} on these images"
        mean, low, high = (shown("accuracy", bound, "+") for bound in effect)
        return "\n".join([*lines, f"{verdict}: {mean} points [{low}, {high}]"])


def compare(
    path: str | Path,
    runs: str | Path = "runs",
    *,
    against: str,
    say: Callable[[str], object] = print,
    watch: Watch = lambda *_: {},
    advance: Advance = lambda *_: None,
    **options: Any,
) -> Comparison:
    """Train `method` and `against` on five folds of a folder of photographs, and compare them.

    path, runs, say, watch, advance: as in `finetune`. options: the fields of `Request`. The epochs are as given,
    or those that fit in `minutes` for all trainings together, but no fewer than `finetune` would train.
    """
    request = Request.of(options)
    _check(request, against)
    job = prepare(path, runs, request, say=say, advance=advance)
    folds = list(_folds(job))
    work = job.work_folder("against", against)
    plan = folds[0].plan(work, 60 * request.minutes / (2 * FOLDS), against=against)
    epochs = plan.epochs or min(plan.wanted, FEWEST_EPOCHS)
    minutes = 2 * FOLDS * epochs * len(folds[0].photos.parts["train"]) * plan.pace / 60
    lasts = f", about {minutes:.0f} min" if plan.pace else ""
    job.say(
        f"compare      {request.method} and {against} on {FOLDS} folds: {2 * FOLDS} trainings of {epochs} epochs"
        f"{lasts}; the same command goes on after Ctrl-C"
    )
    train_here = partial(train, runs=runs, device=job.device, workers=request.workers, tensorboard=request.tensorboard)
    methods = (request.method, against)
    values: dict[str, dict[str, list[float]]] = {method: {metric: [] for metric in METRICS} for method in methods}
    for number, fold in enumerate(folds, 1):
        weights = work / f"probe-{number}.safetensors"
        fold.write_probe(weights)
        for method, by_metric in values.items():
            config = fold.configure(epochs=epochs, init=str(weights), method=method)
            run = train_here(config, **watch(f"fold {number} of {FOLDS}, {method}", config))
            for metric, value in _measure(run, fold).items():
                by_metric[metric].append(value)
        accuracies = ", ".join(f"{method} {percent(by_metric['accuracy'][-1])}" for method, by_metric in values.items())
        job.say(f"fold {number} of {FOLDS}  right: {accuracies}")
    comparison = Comparison(values, images=sum(len(fold.photos.parts["test"]) for fold in folds))
    write_table(work / "comparison.json", asdict(comparison))
    job.say(
        f"means over {FOLDS} folds, {comparison.images} test images, with the temperature; 95 % intervals of paired "
        f"differences; lower is better for NLL and AUGRC\n{comparison.describe()}"
    )
    return comparison


def _check(request: Request, against: str) -> None:
    """Raise unless the request suits a comparison with this method."""
    if request.epochs == 0 or request.freeze:
        raise ValueError(
            "against compares methods that are trained for 1 epoch or more: leave out --freeze and --epochs 0, got "
            f"freeze {request.freeze} and epochs {request.epochs}"
        )
    check_method(replace(request, method=against))
    if against == request.method:
        raise ValueError(f"against must be another method than {request.method}, got {against}")
    if (request.export, request.risk, request.ood, request.acceptance) != (None, None, None, Request.acceptance):
        raise ValueError("export, risk, ood and acceptance must be left out with against, which makes no model")
    if request.score == AUTO:
        raise ValueError(f"score must be named for a comparison, such as {MSP}, got auto")


def _folds(job: Job) -> Iterator[Job]:
    """Yield the job of each fold: 15 % of the images outside of it are for validation. Raise with too few images."""
    name = job.photos.parts["train"].name
    part = find(name).part
    whole = part.of if part is not None else name
    if few := describe_few(load_files(whole), FOLDS, "one for each fold, beside those kept for the test"):
        raise ValueError(f"photos: {few}")
    for number in range(1, FOLDS + 1):
        outside = f"{whole}/without-{number}-of-{FOLDS}"
        names = {
            "train": f"{outside}/train-85",
            "validation": f"{outside}/val-15",
            "test": f"{whole}/fold-{number}-of-{FOLDS}",
        }
        photos = replace(job.photos, parts={role: load_files(name) for role, name in names.items()})
        request = replace(job.request, seed=job.request.seed + number - 1)
        yield replace(job, photos=photos, request=request, print_line=lambda _: None)


def _measure(run: Run, fold: Job) -> dict[str, float]:
    """Return the metrics on the images of the fold, with the temperature that validation images give."""
    names = [fold.photos.parts[role].name for role in ("validation", "test")]
    validation, test = run.predict_all(names, device=fold.device, features=False)
    temperature = fit_temperature(validation)
    logits = test.logits.double() / temperature
    probs = logits.softmax(dim=1)
    score = SCORES[fold.request.score](test.logits)
    return {
        "accuracy": metrics.accuracy(probs, test.labels),
        "nll": float(F.cross_entropy(logits, test.labels)),
        "augrc": metrics.augrc(score, probs.argmax(dim=1) == test.labels),
    }
