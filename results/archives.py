"""Read the archived runs beside this file: one record per training and method, with every number of it.

Needs NumPy and the standard library alone, so that the tables can be checked without the package.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean

RESULTS = Path(__file__).parent
STEP_TIMES = RESULTS.parent / "src" / "regmixup" / "study" / "step_times.toml"
STEPS_PER_EPOCH = 391
"""Steps of 128 images in an epoch of CIFAR."""
STEPS = {
    network: times
    for network, times in tomllib.loads(STEP_TIMES.read_text(encoding="utf-8"))["compiled"].items()
    if network != "how"
}
"""Milliseconds of a step by network and method: one H200, nothing beside it."""
FORWARDED = {
    "regmixup": 2.0, "regcutmix": 2.0, "regmixup+regcutmix": 2.0, "regmixup+cutmix": 1.5, "augmix": 3.0,
    "pixmix": 2.0, "rotation": 4.0, "fmfp": 2.0, "sure": 4.0,
}  # fmt: skip
"""Images that a step forwards for a clean one, where that is not one; FMFP and SURE forward all of them twice."""
MEMBERS = {"deep-ensemble": 5}
"""Networks of an ensemble."""
TRAINED_AS = {"deep-ensemble": "dnn", "kfac-llla": "dnn"}
"""Methods whose networks are trained by another one's step."""
_OF_RECIPE = {"epochs", "precision", "bn"}

FAMILIES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""The datasets that networks were trained on, and their titles."""
OTHER_CIFAR = {"cifar10": "cifar100", "cifar100": "cifar10"}
C10, C100 = TRAIN_SETS = tuple(f"{family}/train" for family in FAMILIES)
WHOLE_TESTS = tuple(f"{family}/test" for family in FAMILIES)
SCORES = {"MSP": "max_probability", "DS": "dempster_shafer", "entropy": "entropy"}


@dataclass(frozen=True, order=True)
class Setting:
    """How networks were trained: they differ in their seeds alone.

    method: with the values that differ from its own, as regmixup(alpha=1). statistics: those of batch norm, "trained"
    or how they were estimated again.
    """

    train_set: str
    network: str
    epochs: int
    method: str
    statistics: str = "trained"
    precision: str = "bfloat16"

    @property
    def family(self) -> str:
        """Return the dataset that the networks were trained on: cifar10 or cifar100."""
        return self.train_set.partition("/")[0]

    @property
    def forwarded(self) -> float:
        """Return how many images a step forwards for a clean one."""
        passes = 2.0 if "sharpness=" in self.method else 1.0
        return passes * FORWARDED.get(self.method.partition("(")[0], 1.0)

    @property
    def images(self) -> float:
        """Return the images that training forwards, in millions; CIFAR has 50,000 train images."""
        return 0.05 * self.epochs * self.forwarded * MEMBERS.get(self.method, 1)

    @property
    def step(self) -> float | None:
        """Return the milliseconds of its training step where they were measured on one H200."""
        name = self.method.partition("(")[0]
        return None if self._passes_anew else STEPS.get(self.network, {}).get(TRAINED_AS.get(name, name))

    @property
    def _passes_anew(self) -> bool:
        """Return whether a changed field adds passes to the method's step, whose time then says nothing."""
        return "separate" in self.method or "sharpness=" in self.method

    @property
    def minutes(self) -> float | None:
        """Return the GPU minutes of training alone on one H200, from its step.

        Where its step was not measured, that of plain training or RegMixup stands in, by the images that it forwards;
        None where neither forwards as many.
        """
        step = self.step
        if step is None and not self._passes_anew:
            plain, regmixup = STEPS[self.network]["dnn"], STEPS[self.network]["regmixup"]
            coin = (plain + regmixup) / 2  # at every step between one image and two
            step = {1.0: plain, 1.5: coin, 2.0: regmixup}.get(self.forwarded)
        return None if step is None else step * STEPS_PER_EPOCH * self.epochs * MEMBERS.get(self.method, 1) / 60_000


def trained(method: str, epochs: int, train_set: str = C10, *, network: str = "resnet18") -> Setting:
    """Return a setting with the statistics of training, in bfloat16."""
    return Setting(train_set, network, epochs, method)


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: on which set, by which metric and score. scale: to the unit that tables show."""

    dataset: str
    metric: str
    score: str = ""
    posthoc: str = "none"
    corruption: str = ""
    scale: float = 100.0


def quantities(family: str) -> dict[str, Quantity]:
    """Return the quantities of the tables for a train set, by the names that results.csv has.

    A list is OpenOOD's, without the images that a validation list has used; in-distribution are all test images.
    """
    test, shifted = f"{family}/test", f"{family}-c (rebuilt)"
    named = {
        "accuracy": Quantity(test, "accuracy"),
        "shift accuracy": Quantity(shifted, "accuracy", corruption="mean"),
        "NLL": Quantity(test, "nll", scale=1.0),
        "Brier": Quantity(test, "brier", scale=1.0),
        "ECE": Quantity(test, "ece"),
        "AdaECE": Quantity(test, "adaptive_ece"),
        "shift ECE": Quantity(shifted, "ece", corruption="mean"),
        "shift AdaECE": Quantity(shifted, "adaptive_ece", corruption="mean"),
        "T": Quantity(test, "temperature", posthoc="temperature", scale=1.0),
        "ECE with T": Quantity(test, "ece", posthoc="temperature"),
        "AdaECE with T": Quantity(test, "adaptive_ece", posthoc="temperature"),
        "AUGRC": Quantity(test, "augrc", "max_probability", scale=1000.0),
        "AURC": Quantity(test, "aurc", "max_probability", scale=1000.0),
        "failure AUROC": Quantity(test, "failure_auroc", "max_probability"),
        "Fisher": Quantity(test, "fisher_criterion", scale=1.0),
    }
    sets = {
        "other CIFAR": f"{OTHER_CIFAR[family]}/test",
        "SVHN": "svhn/test",
        "Tiny-ImageNet": "tiny-imagenet/val",
        "other CIFAR list": {"cifar10": "cifar100/openood-cifar10", "cifar100": "cifar10/openood-test"}[family],
        "Tiny-ImageNet list": f"tiny-imagenet/openood-{family}",
    }
    for name, dataset in sets.items():
        for short, score in SCORES.items():
            named[f"{name} AUROC by {short}"] = Quantity(dataset, "auroc", score)
    return named


Values = dict[str, dict[int, float]]
"""Values of a setting by quantity and seed, in the unit that tables show."""


def method_of(label: str) -> tuple[str, str]:
    """Return the method of a label without what the recipe has, and the batch-norm statistics.

    >>> method_of("dnn(epochs=25, bn=refreshed)"), method_of("regmixup(alpha=1)")
    (('dnn', 'refreshed'), ('regmixup(alpha=1)', 'trained'))
    >>> method_of("pixmix(pictures=('gratings', 'perlin'), epochs=97)")[0]
    "pixmix(pictures=('gratings', 'perlin'))"
    """
    name, opened, values = label.partition("(")
    # A comma inside a value is not followed by a name and an equals sign.
    texts = re.split(r", (?=[\w.]+=)", values.removesuffix(")")) if opened else []
    fields = dict(text.split("=", 1) for text in texts)
    kept = ", ".join(f"{key}={value}" for key, value in fields.items() if key not in _OF_RECIPE)
    return (f"{name}({kept})" if kept else name), fields.get("bn", "trained")


def _evaluations(folder: Path) -> Iterator[list[dict[str, str]]]:
    """Yield the rows of every evaluation of an archived run on all test images."""
    for path in sorted(folder.glob("rows-*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if rows[0]["dataset"] in WHOLE_TESTS:
            yield rows


@cache
def load(study: str = "*") -> dict[Setting, Values]:
    """Return every number of the tables, by setting, quantity and seed, and the runs behind it under "run".

    study: read the archives of this one alone; default, those of all studies, whose seeds are put together where they
    trained alike. Only evaluations on all test images count: the same networks measured against a part of them, as
    `scores` does, have other values under the same names.
    """
    settings: dict[Setting, Values] = defaultdict(lambda: defaultdict(dict))
    for note in sorted(RESULTS.glob(f"{study}/*/archive.json")):
        config = json.loads((note.parent / "config.json").read_text())
        training = config["train_set"], config["network"], config["epochs"]
        for rows in _evaluations(note.parent):
            setting = Setting(*training, *method_of(rows[0]["method"]), config["precision"])
            seed, values = config["seed"], settings[setting]
            values["run"][seed] = rows[0]["run"]  # type: ignore[assignment]
            table = {_place(row): float(row["value"]) for row in rows if not row["severity"]}
            for name, quantity in quantities(setting.family).items():
                if (value := table.get(_place(vars(quantity)))) is not None:
                    values[name][seed] = quantity.scale * value
            for severity, mean in _fisher_by_severity(rows).items():
                values[f"Fisher at severity {severity}"][seed] = mean
    for values in settings.values():
        _add_means(values)
    return {setting: dict(settings[setting]) for setting in sorted(settings)}


def usual_settings() -> list[Setting]:
    """Return the settings that archives have with the statistics of training, in bfloat16."""
    return [setting for setting in load() if (setting.statistics, setting.precision) == ("trained", "bfloat16")]


def num_seeds(setting: Setting) -> int:
    """Return how many seeds of a setting are archived."""
    return len(load()[setting]["run"])


def _place(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("dataset", "metric", "score", "posthoc", "corruption"))


def _fisher_by_severity(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return the mean over corruptions of the Fisher criterion at each severity."""
    by_severity: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["metric"] == "fisher_criterion" and row["severity"]:
            by_severity[row["severity"]].append(float(row["value"]))
    return {severity: fmean(values) for severity, values in by_severity.items()}


def _add_means(values: Values) -> None:
    """Add near-OOD: the mean of the other CIFAR and Tiny-ImageNet, of whole sets and of OpenOOD's lists."""
    for short, kind in product(SCORES, ("", " list")):
        near = [values.get(f"{name}{kind} AUROC by {short}", {}) for name in ("other CIFAR", "Tiny-ImageNet")]
        seeds = near[0].keys() & near[1].keys()
        if seeds:
            means = {seed: (near[0][seed] + near[1][seed]) / 2 for seed in sorted(seeds)}
            values[f"near-OOD{kind} AUROC by {short}"] = means
