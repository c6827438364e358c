"""Which score to trust, in docs/results.md: failure and OOD detection by each. make_results.py calls `section`."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from make_tables import FIELD, fingerprints, standard_columns

from regmixup.report.aggregation import Aggregation, Quantity
from regmixup.report.claims import SCORES as WORDS
from regmixup.report.claims import Training, points
from regmixup.report.significance import mean_interval
from regmixup.report.writers import markdown_table

SCORES = ("dempster_shafer", "max_probability", "entropy")
METHODS = ("dnn", "regmixup")
KINDS = {"failure AUROC": ("failure_auroc", 100), "OOD AUROC": ("auroc", 100), "SCOD AUGRC": ("scod_augrc", 1000)}
"""The columns, each a metric and its factor."""
TEXT = """A deployed model meets both: images of its classes that it gets wrong, and images of none. Failure AUROC is
that of finding the wrong ones in the test set, OOD AUROC the mean of the three OOD sets, and SCOD AUGRC (x 1000, lower
is better, the mean of the three) counts both, OOD images as errors when accepted. All by the same networks;
Dempster-Shafer ranks images as the energy score does.
"""
CHOICE = """`rm.Predictor` takes entropy, or another `score=` if asked. The tables keep
the paper's. The choice was made on rows of this table, so they flatter entropy a little; later runs had no part in it.
"""
LATER = "No run on CIFAR-100 had a part in it. There entropy instead of Dempster-Shafer changes {}.\n"


def section(found: Mapping[Training, Aggregation]) -> str:
    """Return the paragraph and the table, a line for each method and length that was measured; CIFAR-100 in words."""
    (lines, told), (_, later) = (compared(found, recipe) for recipe in FIELD)
    if not told:
        return "**Not asked yet**: no method has two seeds.\n"
    answer = f"Entropy instead of Dempster-Shafer changes {told}, counting 95 % intervals over seeds.\n"
    heads = ["", "epochs", "n", *(f"{kind}, {WORDS[score]}" for kind in KINDS for score in SCORES), "runs"]
    parts = [answer, TEXT, markdown_table(heads, lines), CHOICE]
    return "\n".join(parts + [LATER.format(later)] * bool(later))


def compared(found: Mapping[Training, Aggregation], recipe: str) -> tuple[list[list[str]], str]:
    """Return the lines of the table for a recipe, and what entropy changes in them."""
    own_columns = [column.quantity for column in standard_columns(recipe)]
    test, ood = own_columns[0].dataset, [one.dataset for one in own_columns if one.metric == "auroc"]
    lines: list[list[str]] = []
    gains: dict[str, list[tuple[float, Any]]] = {kind: [] for kind in KINDS}
    for training, rows in sorted(found.items(), key=lambda one: one[0].epochs):
        for label in METHODS if training.recipe == recipe and training.is_usual else ():
            cells, seeds = [], 0
            for kind, (metric, scale) in KINDS.items():
                places, measured = [test] if metric == "failure_auroc" else ood, {}
                for score in SCORES:
                    own = rows.average([Quantity(place, metric, score=score) for place in places], label)
                    measured[score] = {seed: scale * value for seed, value in own.items()}
                seeds = len(measured["entropy"])
                cells += [f"{mean(own.values()):.2f}" if own else "–" for own in measured.values()]
                apart = [measured["entropy"][seed] - value for seed, value in measured["dempster_shafer"].items()]
                if len(apart) > 1:
                    gains[kind].append((mean(apart), mean_interval(apart)))
            if seeds:
                own_runs = fingerprints([rows.rows(Quantity(test, "failure_auroc", score="entropy"), label)])
                lines.append([label, str(training.epochs), str(seeds), *cells, own_runs])
    return lines, "; ".join(_told(kind, own) for kind, own in gains.items() if own)


def _told(kind: str, gains: Sequence[tuple[float, Any]]) -> str:
    """Return the range of the differences, and in how many lines the whole interval lies above or below 0."""
    low, high = (points(side(one for one, _ in gains) / 100) for side in (min, max))
    up = sum(1 for _, bounds in gains if bounds[0] > 0)
    down = sum(1 for _, bounds in gains if bounds[1] < 0)
    return f"{kind} by {low} to {high} (up in {up} and down in {down} of {len(gains)} lines)"
