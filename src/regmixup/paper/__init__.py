"""The paper's own tables as data, beside which ours are shown: Pinto et al., 2022. Importing this imports no torch.

TABLES holds them by number, as tables.toml has them; `paper_value` looks a number up by the names of this package. The
numbers are means over 5 seeds, without standard deviations. DOUBTS say which of them cannot all be right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from regmixup import methods
from regmixup.paper.reader import At, Key, PaperLine, PaperTable, read_tables
from regmixup.types import MEAN, Row

__all__ = ["COSTS", "DOUBTS", "TABLES", "At", "PaperTable", "PaperValue", "paper_value", "paper_value_of"]

TABLES, DOUBTS = read_tables()
COSTS = {"mixup": 1.2, "regmixup": 1.5, "augmix": 4.0, "deep-ensemble": 5.0}
"""Training time over that of plain cross-entropy, by method (Section 4); the paper has no table of it."""

_SPELLINGS = {"aug-mix": "augmix", "dnn-sr": "dnn-srn", "de": "deep-ensemble"}
_SELECTED = {"T": "temperature", "c": "c", "r": "ratio", "α": "alpha", "η = 1, α": "alpha"}
_SELECTED |= {"#samples": "samples", "σ₀": "prior_variance"}


@dataclass(frozen=True)
class PaperValue:
    """A number of the paper.

    value: a fraction, or a hyper-parameter as it is. text: as printed. table: the number of the table, or of all that
    have it. slip: why the number is in doubt, if it is.
    """

    value: float
    text: str
    table: str
    slip: str | None = None


def paper_value(
    *,
    method: str,
    network: str,
    train_set: str,
    dataset: str,
    metric: str,
    score: str = "",
    posthoc: str = "none",
) -> PaperValue | None:
    """Return the paper's number, or None where it has none.

    method: by name, and in a cross-validation with its values: "regmixup(alpha=20, eta=1)". metric: accuracy, ece,
    adaptive_ece or auroc, or, as in Table 9, temperature, prior_variance, alpha, c, ratio or samples. dataset: "(200
    classes)" and "(rebuilt)" after the name are ignored, like "-90" after that of the train set. score: "" for the
    score that the paper uses for the method; for any other the paper has no number.

    >>> number = paper_value(method="regmixup", network="wrn28-10", train_set="cifar10/train",
    ...                      dataset="cifar10/test", metric="accuracy")
    >>> number.value, number.text, number.table
    (0.9746, '97.46', '1, 2, 18')
    """
    known = methods.METHODS.get(method)
    if metric == "auroc" and score and (known is None or known.score != score):
        return None
    place = (_canonical(method), network.removesuffix("-sngp"), train_set.partition("/")[0])
    return _index().get((*place, dataset.partition(" (")[0], metric, posthoc))


def paper_value_of(row: Row) -> PaperValue | None:
    """Return the paper's number for what a row measures; of corruptions, only for their mean."""
    if row.severity is not None or row.corruption not in ("", MEAN, row.dataset.partition(" (")[0]):
        return None
    names = ("method", "network", "train_set", "dataset", "metric", "score", "posthoc")
    return paper_value(**{name: getattr(row, name) for name in names})


@cache
def _index() -> dict[tuple[str, ...], PaperValue]:
    """Index every number by method, network, train set, dataset, metric and posthoc."""
    doubts: dict[At, list[str]] = {}
    for doubt in DOUBTS:
        for at in doubt.cells:
            doubts.setdefault(at, []).append(doubt.sentence)
    index: dict[tuple[str, ...], PaperValue] = {}
    for table in TABLES.values():
        for line, key, cell in table.cells():
            if cell.number is None:
                continue
            metric = _SELECTED[line.labels[1]] if key.metric == "selected" else key.metric
            posthoc = "temperature" if metric == "temperature" else table.posthoc
            number = cell.number if key.metric == "selected" else round(cell.number / 100, 6)
            place = (method_of(table, line, key), key.network, key.train_set, key.dataset, metric, posthoc)
            slip = " ".join(doubts.get(At(table.number, line.name, key.name), ())) or None
            if place in index:
                earlier = index[place]
                index[place] = replace(earlier, table=f"{earlier.table}, {table.number}", slip=earlier.slip or slip)
            else:
                index[place] = PaperValue(number, cell.text, table.number, slip)
    return index


def method_of(table: PaperTable, line: PaperLine, key: Key) -> str:
    """Return the method of a cell, by our name."""
    if table.grid:
        settings = [f"alpha={line.name}", *([key.setting] if key.setting else [])]
        return _canonical(f"{table.grid}({', '.join(settings)})")
    plain = re.sub(r" \(.*\)|^vit-", "", line.labels[0].lower())
    return _SPELLINGS.get(plain, plain)


def _canonical(method: str) -> str:
    """Return a name with its values in their shortest form.

    >>> _canonical("regmixup(alpha=10.0,eta=0.1)"), _canonical("dnn")
    ('regmixup(alpha=10, eta=0.1)', 'dnn')
    """
    spaced = re.sub(r", *", ", ", method)
    return re.sub(r"=(\d*\.?\d+)(?=[,)])", lambda number: f"={float(number[1]):g}", spaced)
