"""Claims of the paper as predicates over rows: holds, fails or undecided, with the effect and its interval.

A claim names two methods, a metric and the kind of set it is measured on. It is asked wherever both methods were
trained alike. Its verdict needs an interval over seeds: with fewer than two seeds of a method it is undecided, however
large the effect. The intervals that rows carry cover the choice of test images and not that of seeds, and decide
nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

from regmixup.names import counted, signed
from regmixup.paper import paper_value
from regmixup.recipes import RECIPES, Recipe
from regmixup.report.aggregation import SCORES, Aggregation, is_ensemble
from regmixup.report.results import RunRecord, Setting
from regmixup.report.significance import difference
from regmixup.types import MEAN, Quantity, Row, higher_is_better

Verdict = Literal["holds", "fails", "undecided"]
On = Literal["test", "shifted", "OOD"]

PAPERS = ("cifar10-wrn28-10", "cifar10-resnet50", "cifar100-wrn28-10", "cifar100-resnet50", "imagenet-resnet50")
"""The recipes of the paper's own tables."""
NAMES = {
    "resnet18": "ResNet-18", "resnet50": "ResNet-50", "timm/resnet50": "ResNet-50", "wrn28-10": "WRN-28-10",
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C",
    "svhn": "SVHN", "tiny-imagenet": "Tiny-ImageNet", "imagenet": "ImageNet",
}  # fmt: skip
"""Networks and datasets as prose writes them."""
METRICS = {"auroc": "AUROC", "adaptive_ece": "AdaECE", "ece": "ECE"}
"""Metrics as prose writes them."""
_FIELDS = frozenset(field.name for field in fields(Recipe))


def prose(name: str) -> str:
    """
    >>> prose("tiny-imagenet/val"), prose("cifar10-c (rebuilt)"), prose("mine/test")
    ('Tiny-ImageNet', 'CIFAR-10-C (rebuilt)', 'mine')
    """
    plain, note, rest = name.partition(" (")
    short = plain if plain.startswith("timm/") else plain.partition("/")[0]
    return NAMES.get(short, short) + note + rest


def points(value: float) -> str:
    """Return a difference of fractions in points of percent.

    >>> points(-0.0631)
    '−6.31'
    """
    return signed(100 * value)


class Training(NamedTuple):
    """The training that runs must share to be compared: a recipe, what was changed in it, epochs, and the precision."""

    recipe: str
    changes: tuple[str, ...]
    epochs: int
    precision: str

    @property
    def is_papers(self) -> bool:
        """Return whether the paper trained like that; the precision does not count."""
        return self.recipe in PAPERS and not self.changes

    @property
    def is_usual(self) -> bool:
        """Return whether it differs from its recipe at most in length, in bfloat16."""
        return self.precision == "bfloat16" and all(change.startswith("epochs ") for change in self.changes)

    @property
    def train_set(self) -> str:
        return RECIPES[self.recipe].recipe.train_set

    def __str__(self) -> str:
        """
        >>> print(Training("cifar10-resnet18", ("epochs 25 instead of 100", "lr 0.2 instead of 0.1"), 25, "bfloat16"))
        ResNet-18 on CIFAR-10, 25 epochs, lr 0.2 instead of 0.1
        """
        others = [change for change in self.changes if not change.startswith("epochs ")]
        others += [self.precision] if self.precision != "bfloat16" else []
        network = prose(RECIPES[self.recipe].recipe.network)
        return ", ".join([f"{network} on {prose(self.train_set)}", counted(self.epochs, "epoch"), *others])


class PaperEffect(NamedTuple):
    """The paper's difference of two methods with one network. doubtful: one of its numbers is, see `SLIPS`."""

    network: str
    value: float
    doubtful: bool

    def __str__(self) -> str:
        return f"{points(self.value)} with {self.network}{', in doubt' if self.doubtful else ''}"


def gather(found: Iterable[tuple[RunRecord, Sequence[Row]]]) -> dict[Training, Aggregation]:
    """Group the rows of evaluated runs by how the runs were trained, from short to long.

    A label keeps the values that are the method's own: `regmixup(epochs=50, eta=2)` is `regmixup(eta=2)` among the
    runs of 50 epochs. A run that several studies evaluated counts once; one with rows of several trainings, once for
    each. What may be compared is as in a report.
    """
    rows: dict[Training, dict[tuple[str, str, str, Quantity], Row]] = {}
    runs: dict[Training, dict[tuple[str, str], RunRecord]] = {}
    for run, own in found:
        changes = tuple(change for change in run.changes if change.partition(" ")[0] in _FIELDS)
        training = Training(run.recipe, changes, run.config["epochs"], run.config["precision"])
        kept, label = rows.setdefault(training, {}), method_label(run.label)
        runs.setdefault(training, {})[run.key, label] = replace(run, label=label)
        for row in own:
            if (place := (run.key, row.run, label, row.quantity)) not in kept:
                kept[place] = replace(row, method=label)
    ordered = sorted(rows, key=lambda one: (one.recipe, one.epochs, one.precision, one.changes))
    return {one: Setting("", "", [*runs[one].values()], [*rows[one].values()]).aggregation for one in ordered}


def method_label(label: str) -> str:
    """Return a label without the values that a recipe has, too.

    >>> method_label("dnn(epochs=25, bn=refreshed)"), method_label("regmixup(precision=float32)")
    ('dnn(bn=refreshed)', 'regmixup')
    """
    name, opened, values = label.partition("(")
    own = [value for value in re.split(r", ?", values.removesuffix(")")) if value.partition("=")[0] not in _FIELDS]
    return f"{name}({', '.join(own)})" if opened and own else name


@dataclass(frozen=True)
class Claim:
    """`method` is better (or worse) than `reference` in a metric, on the sets of one kind.

    title: in a few words. text: what the paper says. place: where. margin: for a claim that nothing changes, the
    largest difference, a fraction, that still counts as none; None for a claim of a direction. scores: those of the
    method and of the reference, for a metric of a score; "" stands for the method's own.
    """

    title: str
    text: str
    place: str
    method: str
    reference: str
    metric: str
    on: On
    worse: bool = False
    margin: float | None = None
    scores: tuple[str, str] = ("", "")

    @property
    def above(self) -> bool:
        """Return whether the claim is of a larger value, not of a smaller one."""
        return bool(higher_is_better(self.metric)) != self.worse

    @property
    def rule(self) -> str:
        """Return the predicate in words."""
        sides = [
            label + (f" by {SCORES.get(score, score)}" if score else "")
            for label, score in zip((self.method, self.reference), self.scores, strict=True)
        ]
        sign = f"within ±{100 * self.margin:g}" if self.margin is not None else "above 0" if self.above else "below 0"
        metric = METRICS.get(self.metric, self.metric)
        return f"Holds if the {metric} of {sides[0]} minus that of {sides[1]}, on {self.on} sets, is {sign}."

    def ask(self, training: Training, rows: Aggregation, *, paired: bool = True) -> list[Finding]:
        """Return a finding for every set of the kind on which both methods were measured.

        paired: pair the seeds where both methods have the same ones; else always Welch's test.
        """
        found = []
        for quantity in self._quantities(training, rows):
            scored = [quantity._replace(score=score) for score in self.scores]
            sides = [*zip(scored, (self.method, self.reference), strict=True)]
            own, other = (rows.values(*side) for side in sides)
            if not own or not other:
                continue
            alike = paired and not is_ensemble(self.method) and not is_ensemble(self.reference)
            measured = difference(own, other, paired=alike)
            effect = measured.mean if measured else sum(own.values()) / len(own) - sum(other.values()) / len(other)
            runs = [row.run for side in sides for row in rows.rows(*side)]
            found.append(
                Finding(
                    claim=self, training=training, dataset=quantity.dataset, effect=effect, n=(len(own), len(other)),
                    interval=measured.interval() if measured else None, test=measured.test if measured else None,
                    p=measured.p if measured else None, runs=tuple(dict.fromkeys(runs)),
                )
            )  # fmt: skip
        return found

    def ask_all(self, settings: Mapping[Training, Aggregation]) -> list[Finding]:
        return [finding for training, rows in settings.items() for finding in self.ask(training, rows)]

    def _quantities(self, training: Training, rows: Aggregation) -> list[Quantity]:
        family = training.train_set.partition("/")[0]
        found: dict[Quantity, None] = {}
        for one in rows.quantities:
            plain = (one.metric, one.posthoc, one.severity) == (self.metric, "none", None)
            shifted = one.dataset.partition(" (")[0] == f"{family}-c" and one.corruption == MEAN
            tested = one.dataset == f"{family}/test" and not one.corruption
            if plain and {"test": tested, "shifted": shifted, "OOD": not (tested or one.corruption)}[self.on]:
                found[one._replace(score="")] = None
        return list(found)

    def papers(self, train_set: str, dataset: str) -> list[PaperEffect]:
        """Return the paper's own difference for each of its networks that has both numbers, by each method's score."""
        found: list[PaperEffect] = []
        if any(self.scores):
            return found
        for network in ("wrn28-10", "resnet50", "timm/resnet50"):
            place = {"network": network, "train_set": train_set, "dataset": dataset, "metric": self.metric}
            one, other = (paper_value(method=method, **place) for method in (self.method, self.reference))
            if one is not None and other is not None:
                found.append(PaperEffect(prose(network), one.value - other.value, bool(one.slip or other.slip)))
        return found


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim asked in one setting on one set.

    effect: the mean of the method minus that of the reference, a fraction. interval: at 95 %, over seeds;
    None with fewer than two seeds of either. n: their numbers of seeds. test, p: the t-test that the interval belongs
    to, two-sided. runs: the fingerprints behind it.
    """

    claim: Claim
    training: Training
    dataset: str
    effect: float
    interval: tuple[float, float] | None
    test: Literal["paired", "welch"] | None
    p: float | None
    n: tuple[int, int]
    runs: tuple[str, ...]

    @property
    def asked(self) -> tuple[Claim, Training, str]:
        """Return what was asked: the claim, in which setting, on which set."""
        return self.claim, self.training, self.dataset

    @property
    def verdict(self) -> Verdict:
        """Return holds or fails where the whole interval says so."""
        if self.interval is None:
            return "undecided"
        low, high = self.interval
        if self.claim.margin is not None:
            margin = self.claim.margin
            return "holds" if -margin < low and high < margin else "fails" if max(low, -high) > margin else "undecided"
        if not self.claim.above:
            low, high = -high, -low
        return "holds" if low > 0 else "fails" if high < 0 else "undecided"


def nearest(findings: Sequence[Finding]) -> list[Finding]:
    """Return, for each train set, the findings nearest to the paper's setting: its own, else the longest training.

    Settings with too few seeds for an interval come last, as they can decide nothing.
    """
    best: dict[str, Finding] = {}
    for one in findings:
        other = best.setdefault(one.training.train_set, one)
        best[one.training.train_set] = max(
            other, one, key=lambda own: (own.interval is not None, own.training.is_papers, own.training.epochs)
        )
    return [one for one in findings if one.training == best[one.training.train_set].training]


_MOSTLY = "In most cases RegMixup outperforms CutMix and RegCutMix; asked here where both networks of the paper agree."
_VICINAL = "Appendix on other vicinal distributions, Tables 18 and 19"
CLAIMS = (
    Claim(
        "RegMixup is more accurate than plain training",
        "RegMixup has the best accuracy of all single models on the test sets of CIFAR-10 and CIFAR-100; plain "
        "training, against which it is asked here, is 1.67 points behind with WRN-28-10 on CIFAR-100.",
        "Section 4.1, Table 2", "regmixup", "dnn", "accuracy", "test",
    ),
    Claim(
        "RegMixup is more accurate than Mixup",
        "RegMixup outperforms Mixup in all these experiments.",
        "Section 4.1, Table 2", "regmixup", "mixup", "accuracy", "test",
    ),
    Claim(
        "RegMixup is more accurate under corruption than plain training",
        "On CIFAR-10-C the average accuracy rises by 6.53 points over plain training (WRN-28-10).",
        "Section 4.1, Table 3", "regmixup", "dnn", "accuracy", "shifted",
    ),
    Claim(
        "RegMixup is more accurate under corruption than Mixup",
        "On CIFAR-10-C the average accuracy rises by 1.45 points over Mixup (WRN-28-10).",
        "Section 4.1, Table 3", "regmixup", "mixup", "accuracy", "shifted",
    ),
    Claim(
        "RegMixup is more accurate under corruption than an ensemble",
        "On CIFAR-10-C the average accuracy rises by 4.81 points over a deep ensemble of five (WRN-28-10).",
        "Section 4.1, Table 3", "regmixup", "deep-ensemble", "accuracy", "shifted",
    ),
    Claim(
        "AugMix is more accurate under corruption than RegMixup",
        "AugMix alone does better on the synthetic corruptions of CIFAR-10-C and CIFAR-100-C.",
        "Section 4.1, Table 3", "augmix", "regmixup", "accuracy", "shifted",
    ),
    Claim(
        "RegMixup detects OOD images better than plain training",
        "RegMixup outperforms all single models in OOD detection, SNGP in one case excepted; plain training, against "
        "which it is asked here, in all.",
        "Section 4.2, Table 5", "regmixup", "dnn", "auroc", "OOD",
    ),
    Claim(
        "RegMixup detects OOD images better than Mixup",
        "RegMixup detects significantly better than Mixup in all experiments, by more than 9 points on SVHN.",
        "Section 4.2, Table 5", "regmixup", "mixup", "auroc", "OOD",
    ),
    Claim(
        "Mixup is more accurate than plain training",
        "Mixup provides improved accuracy on in-distribution images.",
        "Section 2, Table 1", "mixup", "dnn", "accuracy", "test",
    ),
    Claim(
        "Mixup is more accurate under corruption than plain training",
        "Mixup improves accuracy under covariate shift by nearly 5 points.",
        "Section 2, Table 1", "mixup", "dnn", "accuracy", "shifted",
    ),
    Claim(
        "Mixup detects OOD images worse than plain training",
        "High entropy everywhere makes Mixup much worse at OOD detection, by 8.47 points of AUROC on SVHN.",
        "Section 2, Table 1", "mixup", "dnn", "auroc", "OOD", worse=True,
    ),
    Claim(
        "RegMixup is better calibrated than plain training",
        "RegMixup improves AdaECE on the test sets, also without temperature scaling, which is what is asked here.",
        "Appendix A and D, Table 10", "regmixup", "dnn", "adaptive_ece", "test",
    ),
    Claim(
        "RegMixup is better calibrated than Mixup",
        "RegMixup improves AdaECE on the test sets of CIFAR-10 and CIFAR-100, here without temperature scaling.",
        "Appendix A and D, Table 10", "regmixup", "mixup", "adaptive_ece", "test",
    ),
    Claim(
        "RegMixup is better calibrated under corruption than plain training",
        "RegMixup has the lower AdaECE on CIFAR-10-C and CIFAR-100-C, here without temperature scaling.",
        "Appendix D, Table 10", "regmixup", "dnn", "adaptive_ece", "shifted",
    ),
    Claim(
        "RegMixup prefers strong mixing",
        "Cross-validation chooses an alpha of 10 or 20 for RegMixup, from values between 0.1 and 30. Asked here of 20 "
        "against 1 (in the paper, on validation images of CIFAR-10: 97.32 against 97.00 % with WRN-28-10, 96.50 "
        "against 95.98 % with ResNet-50).",
        "Section 2, Tables 9 and 14", "regmixup", "regmixup(alpha=1)", "accuracy", "test",
    ),
    *(
        Claim(
            title=f"A weight of {eta:g} instead of 1 matters little",
            text="The performance does not vary much with eta. Half a point of accuracy is what we count as not much; "
            f"{of_table}.",
            place="Section 2, Table 14", method=f"regmixup(eta={eta:g})", reference="regmixup", metric="accuracy",
            on="test", margin=0.005,
        )
        for eta, of_table in (
            (0.5, "the paper tried 0.1, which cost 0.60 and 1.04 on validation images of CIFAR-10"),
            (2, "the paper's eta 2 cost 0.16 and 0.12 on validation images of CIFAR-10, 1.91 and 1.49 of CIFAR-100"),
        )
    ),
    Claim("RegMixup is more accurate than CutMix", _MOSTLY, _VICINAL, "regmixup", "cutmix", "accuracy", "test"),
    Claim("RegMixup is more accurate under corruption than CutMix", _MOSTLY, _VICINAL,
          "regmixup", "cutmix", "accuracy", "shifted"),
    Claim("RegMixup is more accurate than RegCutMix", _MOSTLY, _VICINAL, "regmixup", "regcutmix", "accuracy", "test"),
    Claim("RegMixup is more accurate under corruption than RegCutMix", _MOSTLY, _VICINAL,
          "regmixup", "regcutmix", "accuracy", "shifted"),
    Claim(
        "RegCutMix is less accurate under corruption than CutMix",
        "In most cases RegCutMix underperforms CutMix.",
        _VICINAL, "regcutmix", "cutmix", "accuracy", "shifted", worse=True,
    ),
    Claim(
        "Mixup+CutMix is less accurate under corruption than RegMixup",
        "Mixup+CutMix is extremely competitive in accuracy, and not as competitive under distribution shift.",
        _VICINAL, "mixup+cutmix", "regmixup", "accuracy", "shifted", worse=True,
    ),
    *(
        Claim(
            title=f"In networks of {name}, Dempster-Shafer detects OOD images better than entropy",
            text="The Dempster-Shafer score is similar to entropy, and slightly better in most cases; the paper's OOD "
            "tables use it for all methods that it does not harm.",
            place="Appendix C", method=method, reference=method, metric="auroc", on="OOD",
            scores=("dempster_shafer", "entropy"),
        )
        for method, name in (("dnn", "plain training"), ("regmixup", "RegMixup"))
    ),
)  # fmt: skip
