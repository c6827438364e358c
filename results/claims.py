"""The paper's claims, asked of the archives: a table per kind, with a verdict at each setting.

A claim compares two methods on one or more sets. It is asked at the paper's own setting where the three seeds that were
planned there are archived (one table), and at the longest training of both on another network (a table per kind). It
holds, or fails, on a set where Welch's test says so after Holm's correction over the sets of the claim; else it is
undecided. Detection is compared by one score for both methods, which the table names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from archives import FAMILIES, OTHER_CIFAR, SCORES, Setting, load, num_seeds, quantities, settings_of
from comparisons import Estimate, Pair, welch, with_holm

from regmixup.names import signed
from regmixup.paper import paper_value
from regmixup.report.openood import NETWORKS
from regmixup.report.writers import markdown_table

OOD = {
    score: tuple(f"{name} AUROC by {score}" for name in ("other CIFAR", "SVHN", "Tiny-ImageNet")) for score in SCORES
}
FISHER = tuple(f"Fisher at severity {severity}" for severity in range(1, 6))
LOWER_IS_BETTER = ("ECE", "NLL", "AUGRC")
PAPERS_NETWORKS = {"resnet50": "R50", "wrn28-10": "WRN"}
NAMES = {
    "dnn": "plain training",
    "regmixup": "RegMixup",
    "mixup": "Mixup",
    "cutmix": "CutMix",
    "regcutmix": "RegCutMix",
    "augmix": "AugMix",
    "mixup+cutmix": "Mixup+CutMix",
    "deep-ensemble": "an ensemble of five",
}


@dataclass(frozen=True)
class Claim:
    """`method` is better (or worse) than `reference` in some quantities. place: where the paper says so.

    margin: for a claim that nothing changes, the largest difference in points that counts as none.
    """

    method: str
    reference: str
    quantities: tuple[str, ...]
    place: str
    worse: bool = False
    margin: float | None = None

    @property
    def by(self) -> str:
        """Return the score of detection, for both methods; "" for other claims."""
        return self.quantities[0].partition(" by ")[2]

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
            "AdaECE with T": "better calibrated with T",
            "shift AdaECE with T": "better calibrated with T under corruption",
            FISHER[0]: "better separated (Fisher) under corruption",
        }.get(kind, "better at detection")  # fmt: skip
        if self.worse:
            better = better.replace("more accurate", "less accurate").replace("better", "worse")
        return f"{ours} is {better} than {theirs}"

    def at_papers_settings(self) -> list[Pair]:
        """Return the paper's own settings at which three seeds of both methods are archived."""
        return [pair for pair in self._measured() if is_papers(pair[0]) and min(map(num_seeds, pair)) >= 3]

    def at_longest(self, family: str) -> Pair | None:
        """Return the longest other training of both methods on a dataset, if there is one."""
        others = [pair for pair in self._measured() if pair[0].family == family and not is_papers(pair[0])]
        return max(others, key=lambda pair: pair[0].epochs, default=None)

    def _measured(self) -> list[Pair]:
        """Return all settings of both methods at which archives have what they are compared in."""
        pairs = [(setting, replace(setting, method=self.reference)) for setting in settings_of(self.method)]
        return [pair for pair in pairs if all(set(self.quantities) <= load("*").get(side, {}).keys() for side in pair)]

    def verdict(self, quantity: str, difference: Estimate) -> str:
        """Return whether the claim holds for a quantity, by its difference after Holm's correction."""
        if self.margin is not None and difference.low is not None and difference.high is not None:
            inside = -self.margin < difference.low and difference.high < self.margin
            outside = max(difference.low, -difference.high) > self.margin
            return "holds" if inside else "fails" if outside else "undecided"
        if not difference.stands:
            return "undecided"
        lower = any(word in quantity for word in LOWER_IS_BETTER)
        return "holds" if (difference.value > 0) != (lower != self.worse) else "fails"


def is_papers(setting: Setting) -> bool:
    """Return whether a setting is one of the paper's: its networks, 350 epochs."""
    return setting.network in PAPERS_NETWORKS and setting.epochs == 350


_OTHERS = "Appendix, Tables 18, 19"
CLAIMS = {
    "accuracy": [
        Claim("regmixup", "dnn", ("accuracy",), "4.1, Table 2"),
        Claim("regmixup", "mixup", ("accuracy",), "4.1, Table 2"),
        Claim("regmixup", "augmix", ("accuracy",), "4.1, Table 2"),
        Claim("regmixup", "deep-ensemble", ("accuracy",), "1; 4.1, Table 2"),
        Claim("mixup", "dnn", ("accuracy",), "2, Table 1"),
        Claim("regmixup", "cutmix", ("accuracy",), _OTHERS),
        Claim("regmixup", "regcutmix", ("accuracy",), _OTHERS),
        Claim("regcutmix", "cutmix", ("accuracy",), _OTHERS, worse=True),
        Claim("regmixup+cutmix", "mixup+cutmix", ("accuracy",), _OTHERS, worse=True),
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
        Claim("regmixup+cutmix", "mixup+cutmix", ("shift accuracy",), _OTHERS, worse=True),
    ],
    "detection": [
        *(Claim("regmixup", "dnn", OOD[score], "4.2, Table 5") for score in ("DS", "MSP")),
        *(Claim("regmixup", "mixup", OOD[score], "4.2, Table 5") for score in ("entropy", "MSP")),
        *(Claim("regmixup", "augmix", OOD[score], "4.2, Table 5") for score in ("DS", "MSP")),
        *(Claim("mixup", "dnn", OOD[score], "2, Table 1", worse=True) for score in ("entropy", "MSP")),
        *(Claim("regmixup", "cutmix", OOD[score], _OTHERS) for score in ("entropy", "MSP")),
        *(Claim("regmixup", "regcutmix", OOD[score], _OTHERS) for score in ("DS", "MSP")),
        *(Claim("mixup+cutmix", "regmixup", OOD[score], _OTHERS, worse=True) for score in ("entropy", "MSP")),
        Claim("regmixup+cutmix", "mixup+cutmix", OOD["MSP"], _OTHERS, worse=True),
        Claim("regcutmix", "cutmix", OOD["MSP"], _OTHERS, worse=True),
    ],
    "calibration": [
        Claim("regmixup", "dnn", ("AdaECE",), "A, D, Table 10"),
        Claim("regmixup", "mixup", ("AdaECE",), "A, D, Table 10"),
        Claim("regmixup", "dnn", ("shift AdaECE",), "D, Table 10"),
        Claim("regmixup", "dnn", ("AdaECE with T",), "4.3, Table 6"),
        Claim("regmixup", "mixup", ("AdaECE with T",), "4.3, Table 6"),
        Claim("regmixup", "augmix", ("AdaECE with T",), "D, Table 6"),
        Claim("regmixup", "mixup", ("shift AdaECE with T",), "D, Table 8, on C10-C", worse=True),
        Claim("augmix", "regmixup", ("shift AdaECE with T",), "D, Table 8"),
    ],
    "fisher": [
        Claim("regmixup", "dnn", FISHER, "3, Figure 4"),
        Claim("regmixup", "mixup", FISHER, "3, Figure 4"),
    ],
}
"""The claims by the table of the page that they stand in."""


def papers_table() -> str:
    """Return a line per claim that is tested at the paper's own setting."""
    lines = []
    for claim in (claim for claims in CLAIMS.values() for claim in claims):
        for pair in claim.at_papers_settings():
            network, family = pair[0].network, pair[0].family
            cell = _cell(claim, pair, at=f"{NETWORKS[network]}, {FAMILIES[family]}, ")
            lines.append([claim.text, claim.by or "–", cell, _papers(claim, pair, [network]) or "–", claim.place])
    return markdown_table(["claim", "by", "verdict", "the paper's difference", "where"], lines)


def table(kind: str) -> str:
    """Return a line per claim: the verdict with the difference on each dataset, then the paper's own difference."""
    lines = []
    for claim in CLAIMS[kind]:
        pairs = {title: claim.at_longest(family) for family, title in FAMILIES.items()}
        cells = [_cell(claim, pair) if pair else "–" for pair in pairs.values()]
        papers = {title: _papers(claim, pair, PAPERS_NETWORKS) for title, pair in pairs.items() if pair}
        differences = "<br>".join(f"{title}: {text}" for title, text in papers.items() if text)
        lines.append([claim.text, *([claim.by] if claim.by else []), *cells, differences or "–", claim.place])
    head = ["claim", *(["by"] if CLAIMS[kind][0].by else [])]
    return markdown_table([*head, *FAMILIES.values(), "the paper's difference", "where"], lines)


def _cell(claim: Claim, pair: Pair, at: str = "") -> str:
    """Return the verdicts at a setting with the differences, its epochs and its seeds. at: the rest of the setting."""
    tested = with_holm({quantity: welch(*pair, quantity) for quantity in claim.quantities})
    other, verdicts = FAMILIES[OTHER_CIFAR[pair[0].family]], []
    for quantity, difference in tested.items():
        name = quantity.partition(" AUROC")[0].replace("other CIFAR", other).removeprefix("Fisher at ")
        verdict = f"**{claim.verdict(quantity, difference)}** {difference.text()}"
        verdicts.append(f"{name}: {verdict}" if len(tested) > 1 else verdict)
    counts = " and ".join(map(str, difference.n))
    return "<br>".join([*verdicts, f"{at}{pair[0].epochs} epochs, n {counts}"])


def printed(setting: Setting, quantity: str) -> float | None:
    """Return the paper's number in percent, by the paper's score of the method; None where it has none."""
    measured = quantities(setting.family).get(quantity)
    if measured is None:
        return None
    names = {name: getattr(setting, name) for name in ("method", "network", "train_set")}
    value = paper_value(**names, dataset=measured.dataset, metric=measured.metric, posthoc=measured.posthoc)
    return 100 * value.value if value else None


def papers_difference(ours: Setting, theirs: Setting, quantity: str) -> float | None:
    """Return the difference of the paper's numbers in points; None where it lacks one of them."""
    numbers = printed(ours, quantity), printed(theirs, quantity)
    return None if None in numbers else numbers[0] - numbers[1]


def _papers(claim: Claim, pair: Pair, networks: Collection[str]) -> str:
    """Return the paper's own differences, for the quantities and networks of which it has both numbers; "" for none.

    Each method by its own score, so none stands beside a comparison by MSP.
    """
    if claim.by == "MSP":
        return ""
    texts = []
    for network in networks:
        sides = [replace(side, network=network) for side in pair]
        differences = [papers_difference(*sides, quantity) for quantity in claim.quantities]
        text = ", ".join(signed(difference, 1) for difference in differences if difference is not None)
        if text:
            texts.append(f"{text} ({PAPERS_NETWORKS[network]})" if len(networks) > 1 else text)
    return "; ".join(texts)
