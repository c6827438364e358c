"""The paper's claims, asked of the archives: a table per kind, with a verdict at each setting.

A claim compares two methods on one or more sets. It is asked at the paper's own setting where the three seeds that were
planned there are archived (one table), and at the longest training of both on another network (a table per kind). It
holds, or fails, on a set where Welch's test says so after Holm's correction over the sets of the claim; else it is
undecided. Detection is compared by one score for both methods, which the table names.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    "dnn": "plain training", "regmixup": "RegMixup", "mixup": "Mixup", "cutmix": "CutMix", "regcutmix": "RegCutMix",
    "augmix": "AugMix", "mixup+cutmix": "Mixup+CutMix", "deep-ensemble": "an ensemble of five",
}  # fmt: skip


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
        better = {
            "accuracy": "more accurate", "shift accuracy": "more accurate under corruption",
            "AdaECE": "better calibrated", "shift AdaECE": "better calibrated under corruption",
            "AdaECE with T": "better calibrated with T",
            "shift AdaECE with T": "better calibrated with T under corruption",
            FISHER[0]: "better separated (Fisher) under corruption",
        }.get(self.quantities[0], "better at detection")  # fmt: skip
        if self.worse:
            better = better.replace("more accurate", "less accurate").replace("better", "worse")
        return f"{ours} is {better} than {theirs}"

    def pairs(self, *, at_papers: bool) -> dict[str, Pair]:
        """Return the settings that the claim is asked at, by the heads of their columns.

        at_papers: the paper's own with three seeds of both methods; else the longest other one on each dataset.
        """
        asked: dict[str, Pair] = {}
        for ours in sorted(settings_of(self.method), key=lambda setting: -setting.epochs):
            pair = ours, replace(ours, method=self.reference)
            is_measured = all(set(self.quantities) <= load("*").get(side, {}).keys() for side in pair)
            is_papers = ours.network in PAPERS_NETWORKS and ours.epochs == 350
            if is_measured and is_papers == at_papers and (not at_papers or min(map(num_seeds, pair)) >= 3):
                network = f"{NETWORKS[ours.network]}, " if at_papers else ""
                asked.setdefault(f"{network}{FAMILIES[ours.family]}", pair)
        return asked

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


_OTHERS = "Tables 18, 19"
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


def table(claims: Iterable[Claim], *, at_papers: bool = False) -> str:
    """Return the verdicts, a line per claim and a column per setting; at the paper's, of what is asked there alone."""
    asked = {claim: claim.pairs(at_papers=at_papers) for claim in claims}
    heads = [*dict.fromkeys(head for pairs in asked.values() for head in pairs)]
    lines = []
    for claim, pairs in asked.items():
        if at_papers and not pairs:
            continue
        text = f"{claim.text}, by {claim.by}" if claim.by else claim.text
        cells = (_cell(claim, pairs[head]) if head in pairs else "–" for head in heads)
        lines.append([f"{text}<br>{claim.place}", *cells])
    return markdown_table(["claim", *heads], lines)


def _cell(claim: Claim, pair: Pair) -> str:
    """Return the verdicts at a setting with the differences, its epochs and seeds, and the paper's own differences."""
    tested = with_holm({quantity: welch(*pair, quantity) for quantity in claim.quantities})
    other, verdicts = FAMILIES[OTHER_CIFAR[pair[0].family]], []
    for quantity, difference in tested.items():
        name = quantity.partition(" AUROC")[0].replace("other CIFAR", other).removeprefix("Fisher at ")
        verdict = f"**{claim.verdict(quantity, difference)}** {difference.text()}"
        verdicts.append(f"{name}: {verdict}" if len(tested) > 1 else verdict)
    counts = "+".join(map(str, difference.n))
    return "<br>".join([*verdicts, f"{pair[0].epochs} epochs, n {counts}", *_papers(claim, pair)])


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


def _papers(claim: Claim, pair: Pair) -> list[str]:
    """Return a line with the paper's own differences by network, for the quantities of which it has both numbers.

    Each method by its own score, so none stands beside a comparison by MSP. A network of the paper has its own alone.
    """
    if claim.by == "MSP":
        return []
    texts = []
    for network in [pair[0].network] if pair[0].network in PAPERS_NETWORKS else PAPERS_NETWORKS:
        sides = [replace(side, network=network) for side in pair]
        differences = [papers_difference(*sides, quantity) for quantity in claim.quantities]
        numbers = ", ".join(signed(difference, 1) for difference in differences if difference is not None)
        if numbers:
            texts.append(f"{numbers} ({PAPERS_NETWORKS[network]})")
    return [f"paper {'; '.join(texts)}"] if texts else []
