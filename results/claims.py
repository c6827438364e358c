"""The paper's claims, asked of the archives: a table per kind, with a verdict at each setting.

A claim compares two methods on one or more sets. It is asked at the paper's own setting where the three seeds that were
planned there are archived (one table), and at the longest training of both on another network (a table per kind). It
holds, or fails, on a set where Welch's test says so after Holm's correction over the sets of the claim; else it is
undecided. Detection is compared by one score for both methods, which the table names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from archives import MILLISECONDS, OTHER_CIFAR, Setting, load
from comparisons import Difference, welch, with_holm

from regmixup.names import signed
from regmixup.paper import PaperValue, paper_value
from regmixup.report.writers import markdown_table

OOD = ("other CIFAR AUROC", "SVHN AUROC", "Tiny-ImageNet AUROC")
FISHER = tuple(f"Fisher at severity {severity}" for severity in range(1, 6))
LOWER_IS_BETTER = ("ECE", "NLL", "AUGRC")
NAMES = {
    "dnn": "plain training",
    "regmixup": "RegMixup",
    "mixup": "Mixup",
    "cutmix": "CutMix",
    "regcutmix": "RegCutMix",
}
NAMES |= {"augmix": "AugMix", "mixup+cutmix": "Mixup+CutMix", "deep-ensemble": "an ensemble of five"}


@dataclass(frozen=True)
class Claim:
    """`method` is better (or worse) than `reference` in some quantities. place: where the paper says so.

    by: the score of detection, for both. margin: for a claim that nothing changes, the largest difference in points
    that counts as none.
    """

    method: str
    reference: str
    quantities: tuple[str, ...]
    place: str
    by: str = ""
    worse: bool = False
    margin: float | None = None

    @property
    def text(self) -> str:
        """Return the claim as a sentence."""
        ours, theirs = (NAMES.get(name, f"`{name}`") for name in (self.method, self.reference))
        if self.margin is not None:
            return f"{ours} is within {self.margin:g} points of {theirs} in accuracy"
        kind = self.quantities[0]
        better = {
            "accuracy": "more accurate", "shift accuracy": "more accurate under corruption",
            "AdaECE": "better calibrated", "shift AdaECE": "better calibrated under corruption",
            "AdaECE with T": "better calibrated with T", FISHER[0]: "better separated (Fisher) under corruption",
        }.get(kind, "better at detection")  # fmt: skip
        if self.worse:
            better = better.replace("more accurate", "less accurate").replace("better", "worse")
        return f"{ours} is {better} than {theirs}"

    def at_papers_setting(self, train_set: str) -> list[tuple[Setting, Setting]]:
        """Return the paper's own settings at which three seeds of both methods are archived."""
        return [pair for pair in self._measured(train_set) if is_papers(pair[0]) and _seeds(pair) >= 3]

    def at_longest(self, train_set: str) -> list[tuple[Setting, Setting]]:
        """Return the longest other training of both methods, if there is one; two seeds of both go before one."""
        others = [pair for pair in self._measured(train_set) if not is_papers(pair[0])]
        return [max(others, key=lambda pair: (_seeds(pair) >= 2, pair[0].epochs, pair[0]))] if others else []

    def _measured(self, train_set: str) -> list[tuple[Setting, Setting]]:
        """Return all settings of both methods that archives have."""
        pairs = [
            (setting, Setting(setting.train_set, setting.network, setting.epochs, self.reference))
            for setting in load()
            if setting.train_set == train_set
        ]
        return [pair for pair in pairs if self._is_measured(*pair)]

    def _is_measured(self, setting: Setting, reference: Setting) -> bool:
        """Return whether archives have this setting of the method, its reference and what both are compared in."""
        usual = (setting.method, setting.statistics, setting.precision) == (self.method, "trained", "bfloat16")
        if not usual or reference not in load():
            return False
        return all(self.named(name) in load()[side] for name in self.quantities for side in (setting, reference))

    def named(self, quantity: str) -> str:
        """Return a quantity as archives name it, with the score."""
        return f"{quantity} by {self.by}" if self.by else quantity

    def verdicts(self, ours: Setting, theirs: Setting) -> dict[str, tuple[str, Difference]]:
        """Return the verdict and the difference for each quantity."""
        tested = with_holm({quantity: welch(ours, theirs, self.named(quantity)) for quantity in self.quantities})
        return {
            quantity: (self._verdict(quantity, difference, p), difference)
            for quantity, (difference, p) in tested.items()
        }

    def _verdict(self, quantity: str, difference: Difference, p: float) -> str:
        if difference.low is None or difference.high is None:
            return "undecided"
        if self.margin is not None:
            inside = -self.margin < difference.low and difference.high < self.margin
            outside = max(difference.low, -difference.high) > self.margin
            return "holds" if inside else "fails" if outside else "undecided"
        if p >= 0.05:
            return "undecided"
        lower = any(word in quantity for word in LOWER_IS_BETTER)
        return "holds" if (difference.value > 0) != (lower != self.worse) else "fails"


def _seeds(pair: tuple[Setting, Setting]) -> int:
    """Return how many seeds of both methods are archived."""
    return min(len(load()[side]["run"]) for side in pair)


def is_papers(setting: Setting) -> bool:
    """Return whether a setting is one of the paper's: its networks, 350 epochs."""
    return setting.network in NETWORKS and setting.epochs == 350


_OTHERS = "Appendix, Tables 18, 19"
CLAIMS = {
    "accuracy": [
        Claim("regmixup", "dnn", ("accuracy",), "4.1, Table 2"),
        Claim("regmixup", "mixup", ("accuracy",), "4.1, Table 2"),
        Claim("mixup", "dnn", ("accuracy",), "2, Table 1"),
        Claim("regmixup", "cutmix", ("accuracy",), _OTHERS),
        Claim("regmixup", "regcutmix", ("accuracy",), _OTHERS),
        Claim("regmixup", "regmixup(alpha=1)", ("accuracy",), "2, Tables 9, 14"),
        Claim("regmixup(eta=0.5)", "regmixup", ("accuracy",), "2, Table 14", margin=0.5),
        Claim("regmixup(eta=2)", "regmixup", ("accuracy",), "2, Table 14", margin=0.5),
    ],
    "shift": [
        Claim("regmixup", "dnn", ("shift accuracy",), "4.1, Table 3"),
        Claim("regmixup", "mixup", ("shift accuracy",), "4.1, Table 3"),
        Claim("regmixup", "deep-ensemble", ("shift accuracy",), "4.1, Table 3"),
        Claim("augmix", "regmixup", ("shift accuracy",), "4.1, Table 3"),
        Claim("mixup", "dnn", ("shift accuracy",), "2, Table 1"),
        Claim("regmixup", "cutmix", ("shift accuracy",), _OTHERS),
        Claim("regmixup", "regcutmix", ("shift accuracy",), _OTHERS),
        Claim("regcutmix", "cutmix", ("shift accuracy",), _OTHERS, worse=True),
        Claim("mixup+cutmix", "regmixup", ("shift accuracy",), _OTHERS, worse=True),
    ],
    "detection": [
        Claim("regmixup", "dnn", OOD, "4.2, Table 5", by="DS"),
        Claim("regmixup", "dnn", OOD, "4.2, Table 5", by="MSP"),
        Claim("regmixup", "mixup", OOD, "4.2, Table 5", by="entropy"),
        Claim("regmixup", "mixup", OOD, "4.2, Table 5", by="MSP"),
        Claim("mixup", "dnn", OOD, "2, Table 1", by="entropy", worse=True),
        Claim("mixup", "dnn", OOD, "2, Table 1", by="MSP", worse=True),
    ],
    "calibration": [
        Claim("regmixup", "dnn", ("AdaECE",), "A, D, Table 10"),
        Claim("regmixup", "mixup", ("AdaECE",), "A, D, Table 10"),
        Claim("regmixup", "dnn", ("shift AdaECE",), "D, Table 10"),
        Claim("regmixup", "dnn", ("AdaECE with T",), "4.3, Table 6"),
        Claim("regmixup", "mixup", ("AdaECE with T",), "4.3, Table 6"),
    ],
    "fisher": [
        Claim("regmixup", "dnn", FISHER, "3, Figure 4"),
        Claim("regmixup", "mixup", FISHER, "3, Figure 4"),
    ],
}
"""The claims by the table of the page that they stand in."""


PLACES = {"cifar10/train": "CIFAR-10", "cifar100/train": "CIFAR-100"}
NETWORKS = {"resnet50": "ResNet-50", "wrn28-10": "WRN-28-10"}
"""The paper's."""
SHORT = {"resnet50": "R50", "wrn28-10": "WRN"}


def papers_table() -> str:
    """Return a line per claim that is tested at the paper's own setting."""
    lines = []
    for claim in (claim for kind in CLAIMS.values() for claim in kind):
        for train_set, place in PLACES.items():
            for pair in claim.at_papers_setting(train_set):
                cell = _cell(claim, pair, at=f"{NETWORKS[pair[0].network]}, {place}, ")
                theirs = _papers(claim, pair[0].family, [pair[0].network])
                lines.append([claim.text, claim.by or "–", cell, theirs or "–", claim.place])
    return markdown_table(["claim", "by", "verdict", "the paper's difference", "where"], lines)


def table(kind: str) -> str:
    """Return a line per claim: the verdict with the difference on each dataset, then the paper's own difference."""
    lines = []
    for claim in CLAIMS[kind]:
        asked = {place: claim.at_longest(train_set) for train_set, place in PLACES.items()}
        cells = [_cell(claim, pairs[0]) if pairs else "–" for pairs in asked.values()]
        theirs = {place: _papers(claim, pairs[0][0].family, NETWORKS) for place, pairs in asked.items() if pairs}
        told = "<br>".join(f"{place}: {text}" for place, text in theirs.items() if text)
        lines.append([claim.text, *([claim.by] if claim.by else []), *cells, told or "–", claim.place])
    head = ["claim", *(["by"] if CLAIMS[kind][0].by else [])]
    return markdown_table([*head, *PLACES.values(), "the paper's difference", "where"], lines)


def _cell(claim: Claim, pair: tuple[Setting, Setting], at: str = "") -> str:
    """Return the verdicts at a setting with the differences, its epochs and its seeds. at: the rest of the setting."""
    ours, theirs = pair
    verdicts = claim.verdicts(ours, theirs)
    told = []
    for quantity, (verdict, difference) in verdicts.items():
        name = f"{_short_name(quantity, ours)}: " if len(verdicts) > 1 else ""
        told.append(f"{name}**{verdict}** {difference.text()}")
    counts = next(iter(verdicts.values()))[1].n
    return "<br>".join([*told, f"{at}{ours.epochs} epochs, n {counts[0]} and {counts[1]}"])


def _short_name(quantity: str, setting: Setting) -> str:
    other = OTHER_CIFAR[setting.family].partition("/")[0].upper().replace("CIFAR", "CIFAR-")
    short = quantity.removesuffix(" AUROC").replace("other CIFAR", other)
    return short.removeprefix("Fisher at ")


def printed(method: str, network: str, family: str, quantity: str) -> PaperValue | None:
    """Return the paper's number, by the paper's score of the method; None where it has none."""
    places = {
        "accuracy": (f"{family}/test", "accuracy"), "shift accuracy": (f"{family}-c", "accuracy"),
        "AdaECE": (f"{family}/test", "adaptive_ece"), "shift AdaECE": (f"{family}-c", "adaptive_ece"),
        "other CIFAR AUROC": (OTHER_CIFAR[family], "auroc"), "SVHN AUROC": ("svhn/test", "auroc"),
        "Tiny-ImageNet AUROC": ("tiny-imagenet/val", "auroc"),
    }  # fmt: skip
    if quantity not in places:
        return None
    dataset, metric = places[quantity]
    return paper_value(method=method, network=network, train_set=f"{family}/train", dataset=dataset, metric=metric)


def _papers(claim: Claim, family: str, networks: Collection[str]) -> str:
    """Return the paper's own differences, for the quantities and networks of which it has both numbers; "" for none.

    Each method by its own score, so none stands beside a comparison by MSP.
    """
    told = []
    for network in networks:
        values = []
        for quantity in claim.quantities if claim.by != "MSP" else ():
            ours, theirs = (printed(method, network, family, quantity) for method in (claim.method, claim.reference))
            if ours is not None and theirs is not None:
                values.append(signed(100 * (ours.value - theirs.value), 1))
        if values:
            told.append(", ".join(values) + (f" ({SHORT[network]})" if len(networks) > 1 else ""))
    return "; ".join(told)


def cost() -> str:
    """Return the time of RegMixup's step over that of plain training, by network: compiled, on one H200."""
    lines = []
    for network, times in MILLISECONDS.items():
        ratio = times[2.0] / times[1.0]
        lines.append([network, f"{times[1.0]:.2f}", f"{times[2.0]:.2f}", f"{ratio:.2f}"])
    return markdown_table(["network", "plain, ms a step", "RegMixup, ms a step", "ratio"], lines)
