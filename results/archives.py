"""Read the archived runs beside this file: one record per training and method, with every number of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import regmixup as rm
from regmixup.config import encode
from regmixup.methods import images_per_clean_image
from regmixup.report.units import unit_of
from regmixup.storage import read_rows
from regmixup.study.status import step_times
from regmixup.types import Quantity, Row

RESULTS = Path(__file__).parent
STEPS_PER_EPOCH = 391
"""Steps of 128 images in an epoch of CIFAR."""
TRAINED_AS = {"deep-ensemble": "dnn", "kfac-llla": "dnn"}
"""Methods whose networks are trained by another one's step."""
FAMILIES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""The datasets that networks were trained on, and their titles."""
OTHER_CIFAR = {"cifar10": "cifar100", "cifar100": "cifar10"}
C10, C100 = "cifar10/train", "cifar100/train"
WHOLE_TESTS = tuple(f"{family}/test" for family in FAMILIES)
OPENOOD_TESTS = tuple(f"{family}/openood-test" for family in FAMILIES)
SCORES = {"MSP": "max_probability", "DS": "dempster_shafer", "entropy": "entropy"}
ALL_SCORES = SCORES | {
    "max-logit": "max_logit", "energy": "energy", "GEN": "gen", "kNN": "knn", "Mahalanobis": "mahalanobis",
    "RMD": "relative_mahalanobis", "ViM": "vim", "ReAct": "react", "ASH": "ash", "MaxLogit-pNorm": "max_logit_pnorm",
    "SCALE": "scale", "fDBD": "fdbd", "NNGuide": "nnguide",
}  # fmt: skip
"""Those that the study `scores` compares."""


def steps(how: str) -> dict[str, dict[str, float]]:
    """Return the measured milliseconds of a step by network and method. how: as "compiled" or another section."""
    return {network: times for network, times in step_times()[how].items() if network != "how"}


STEPS = steps("compiled")
"""Those of tables: on one H200, with nothing beside it."""
COIN = "regmixup+regcutmix"
NAMED = {f"{COIN}(average=swa, average_lr=0.05)": "reliable"}
"""Methods that had no name when they were archived."""


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
    def _config(self) -> rm.TrainConfig:
        """Return the configuration of its method, without the values that differ."""
        return rm.configure("cifar10-resnet18", self.method.partition("(")[0])

    @property
    def forwarded(self) -> float:
        """Return how many images a step forwards for a clean one."""
        is_sharpness_aware = self._config.sharpness != "none" or "sharpness=" in self.method
        return (2 if is_sharpness_aware else 1) * images_per_clean_image(encode(self._config.objective))

    @property
    def images(self) -> float:
        """Return the images that training forwards, in millions; CIFAR has 50,000 train images."""
        return 0.05 * self.epochs * self.forwarded * self._config.members

    @property
    def step(self) -> float | None:
        """Return the milliseconds of its training step where they were measured on one H200."""
        return STEPS[self.network].get(TRAINED_AS.get(self.method, self.method))

    @property
    def minutes(self) -> float | None:
        """Return the GPU minutes of training alone on one H200, from its step.

        Where the step of a named method was not measured, that of plain training or RegMixup stands in, by the images
        that it forwards; None where neither forwards as many.
        """
        step = self.step
        if step is None and "(" not in self.method:
            plain, regmixup = STEPS[self.network]["dnn"], STEPS[self.network]["regmixup"]
            coin = (plain + regmixup) / 2  # at every step between one image and two
            step = {1.0: plain, 1.5: coin, 2.0: regmixup}.get(self.forwarded)
        return None if step is None else step * STEPS_PER_EPOCH * self.epochs * self._config.members / 60_000


def trained(method: str, epochs: int, train_set: str = C10, *, network: str = "resnet18") -> Setting:
    """Return a setting with the statistics of training, in bfloat16."""
    return Setting(train_set, network, epochs, method)


def quantities(family: str, scores: dict[str, str] = SCORES) -> dict[str, Quantity]:
    """Return the quantities of the tables for a train set, by the names that results.csv has.

    A list is OpenOOD's, without the images that a validation list has used. scores: those of detection.
    """
    test, shifted = f"{family}/test", f"{family}-c (rebuilt)"
    named = {
        "accuracy": Quantity(test, "accuracy"),
        "shift accuracy": Quantity(shifted, "accuracy", corruption="mean"),
        "NLL": Quantity(test, "nll"),
        "Brier": Quantity(test, "brier"),
        "ECE": Quantity(test, "ece"),
        "AdaECE": Quantity(test, "adaptive_ece"),
        "shift ECE": Quantity(shifted, "ece", corruption="mean"),
        "shift AdaECE": Quantity(shifted, "adaptive_ece", corruption="mean"),
        "T": Quantity(test, "temperature", posthoc="temperature"),
        "ECE with T": Quantity(test, "ece", posthoc="temperature"),
        "AdaECE with T": Quantity(test, "adaptive_ece", posthoc="temperature"),
        "shift AdaECE with T": Quantity(shifted, "adaptive_ece", corruption="mean", posthoc="temperature"),
        "AUGRC": Quantity(test, "augrc", score="max_probability"),
        "AURC": Quantity(test, "aurc", score="max_probability"),
        "failure AUROC": Quantity(test, "failure_auroc", score="max_probability"),
        "Fisher": Quantity(test, "fisher_criterion"),
    }
    sets = {
        "other CIFAR": f"{OTHER_CIFAR[family]}/test",
        "SVHN": "svhn/test",
        "Tiny-ImageNet": "tiny-imagenet/val",
        "other CIFAR list": {"cifar10": "cifar100/openood-cifar10", "cifar100": "cifar10/openood-test"}[family],
        "Tiny-ImageNet list": f"tiny-imagenet/openood-{family}",
    }
    for name, dataset in sets.items():
        for short, score in scores.items():
            named[f"{name} AUROC by {short}"] = Quantity(dataset, "auroc", score=score)
    return named


def method_of(label: str) -> tuple[str, str]:
    """Return the method of a label without what the recipe has, and the batch-norm statistics.

    >>> method_of("dnn(epochs=25, bn=refreshed)"), method_of("regmixup(alpha=1)")
    (('dnn', 'refreshed'), ('regmixup(alpha=1)', 'trained'))
    """
    name, _, values = label.removesuffix(")").partition("(")
    # A comma inside a value is not followed by a name and an equals sign.
    fields = dict(text.split("=", 1) for text in re.split(r", (?=[\w.]+=)", values) if text)
    kept = ", ".join(f"{key}={value}" for key, value in fields.items() if key not in ("epochs", "precision", "bn"))
    method = f"{name}({kept})" if kept else name
    return NAMED.get(method, method), fields.get("bn", "trained")


Values = dict[str, dict[int, float]]
"""Values of a setting by quantity and seed, in the unit that tables show."""


@cache
def load(study: str) -> dict[Setting, Values]:
    """Return every number of the tables, by setting, quantity and seed, and the runs behind it under "run".

    study: read the archives of this one alone, by every score; "*", those of all studies, whose seeds are put together
    where they trained alike. Then only evaluations on all test images count: the same networks measured against
    OpenOOD's test list, as `scores` does, have other values under the same names.
    """
    tests, scores = (WHOLE_TESTS, SCORES) if study == "*" else ((*WHOLE_TESTS, *OPENOOD_TESTS), ALL_SCORES)
    settings: dict[Setting, Values] = defaultdict(lambda: defaultdict(dict))
    for note in sorted(RESULTS.glob(f"{study}/*/archive.json")):
        config = json.loads((note.parent / "config.json").read_text())
        training = config["train_set"], config["network"], config["epochs"]
        for rows in map(read_rows, sorted(note.parent.glob("rows-*.csv.gz"))):
            if rows[0].dataset not in tests:
                continue
            setting = Setting(*training, *method_of(rows[0].method), config["precision"])
            for name, value in _numbers(rows, quantities(setting.family, scores)).items():
                settings[setting][name][config["seed"]] = value
            settings[setting]["run"][config["seed"]] = rows[0].run  # type: ignore[assignment]
    for values in settings.values():
        _add_near_ood(values)
    return {setting: dict(settings[setting]) for setting in sorted(settings)}


def _numbers(rows: list[Row], named: dict[str, Quantity]) -> dict[str, float]:
    """Return the numbers of an evaluation by quantity; of the Fisher criterion also its means over corruptions."""
    values = {row.quantity: row.value for row in rows}
    numbers = {name: unit_of(asked.metric).factor * values[asked] for name, asked in named.items() if asked in values}
    fisher = [row for row in rows if row.metric == "fisher_criterion" and row.severity]
    for severity in sorted({row.severity for row in fisher}):
        numbers[f"Fisher at severity {severity}"] = fmean(row.value for row in fisher if row.severity == severity)
    return numbers


def _add_near_ood(values: Values) -> None:
    """Add near-OOD: the mean of the other CIFAR and Tiny-ImageNet, of whole sets or of OpenOOD's lists."""
    for measured in (f"{kind}AUROC by {score}" for score in ALL_SCORES for kind in ("", "list ")):
        other, tiny = values.get(f"other CIFAR {measured}", {}), values.get(f"Tiny-ImageNet {measured}", {})
        if seeds := other.keys() & tiny.keys():
            values[f"near-OOD {measured}"] = {seed: (other[seed] + tiny[seed]) / 2 for seed in sorted(seeds)}


def settings_of(method: str) -> list[Setting]:
    """Return the settings of a method that archives have with the statistics of training, in bfloat16."""
    usual = method, "trained", "bfloat16"
    return [setting for setting in load("*") if (setting.method, setting.statistics, setting.precision) == usual]


def num_seeds(setting: Setting, study: str = "*") -> int:
    """Return how many seeds of a setting are archived. study: see `load`."""
    return len(load(study)[setting]["run"])
