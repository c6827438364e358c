"""Which score to trust, in docs/results.md: failure and OOD detection by each. make_results.py calls `section`."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from make_tables import fingerprints

from regmixup.report.aggregation import Aggregation, Quantity
from regmixup.report.claims import SCORES as WORDS
from regmixup.report.claims import Training, points
from regmixup.report.significance import mean_interval
from regmixup.report.writers import markdown_table

SCORES = ("dempster_shafer", "max_probability", "entropy")
METHODS = ("dnn", "regmixup")
TEXT = """A deployed model meets both: images of its classes that it gets wrong, and images of none. Failure AUROC is
that of finding the wrong ones in the test set, OOD AUROC the mean of the three OOD sets, and SCOD AUGRC (x 1000, lower
is better, the mean of the three) counts both, OOD images as errors when accepted. All by the same networks;
Dempster-Shafer ranks images as the energy score does.
"""
CHOICE = """`rm.Predictor` and `rm.advise` therefore take entropy; a predictor takes another `score=` if asked. The
tables keep the paper's. The choice was made on these rows, so they flatter entropy a little; runs that are still
missing have no part in it.
"""


def section(found: Mapping[Training, Aggregation], recipe: str, test: str, ood: Sequence[str]) -> str:
    """Return the paragraph and the table, a line for each method and length that was measured."""
    kinds = {
        "failure AUROC": ([(test, "failure_auroc")], 100),
        "OOD AUROC": ([(name, "auroc") for name in ood], 100),
        "SCOD AUGRC": ([(name, "scod_augrc") for name in ood], 1000),
    }
    lines: list[list[str]] = []
    gains: dict[str, list[tuple[float, Any]]] = {kind: [] for kind in kinds}
    for training, rows in sorted(found.items(), key=lambda one: one[0].epochs):
        for label in METHODS if training.recipe == recipe and training.is_usual else ():
            cells, seeds = [], 0
            for kind, (places, scale) in kinds.items():
                measured = {}
                for score in SCORES:
                    own = rows.average([Quantity(*place, score=score) for place in places], label)
                    measured[score] = {seed: scale * value for seed, value in own.items()}
                seeds = len(measured["entropy"])
                cells += [f"{mean(own.values()):.2f}" if own else "–" for own in measured.values()]
                apart = [measured["entropy"][seed] - value for seed, value in measured["dempster_shafer"].items()]
                if len(apart) > 1:
                    gains[kind].append((mean(apart), mean_interval(apart)))
            if seeds:
                own_runs = fingerprints([rows.rows(Quantity(test, "failure_auroc", score="entropy"), label)])
                lines.append([label, str(training.epochs), str(seeds), *cells, own_runs])
    heads = ["", "epochs", "n", *(f"{kind}, {WORDS[score]}" for kind in kinds for score in SCORES), "runs"]
    told = [_told(kind, own) for kind, own in gains.items() if own]
    if not told:
        return "**Not asked yet**: no method has two seeds.\n"
    answer = f"Entropy instead of Dempster-Shafer changes {'; '.join(told)}, counting 95 % intervals over seeds."
    return "\n".join([f"{answer}\n", TEXT, markdown_table(heads, lines), CHOICE])


def _told(kind: str, gains: Sequence[tuple[float, Any]]) -> str:
    """Return the range of the differences, and in how many lines the whole interval lies above or below 0."""
    low, high = (points(side(one for one, _ in gains) / 100) for side in (min, max))
    up = sum(1 for _, bounds in gains if bounds[0] > 0)
    down = sum(1 for _, bounds in gains if bounds[1] < 0)
    return f"{kind} by {low} to {high} (up in {up} and down in {down} of {len(gains)} lines)"
