"""The paper's own tables as data, beside which ours are shown: Pinto et al., 2022. Importing this imports no torch.

TABLES holds them by number; `paper_value` looks a number up by the names of this package. The numbers are means over 5
seeds, without standard deviations.

They are read from tables.toml. There, keys are lines of "network train_set metric : dataset dataset[setting] ...",
columns in this order; the network * is the one in the title of the section. A body has one line per line of the table,
"label | numbers", where - and . stand for none; == TITLE begins a section. Numbers are kept as printed, misprints
included; the doubts say which of them cannot all be right.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from regmixup import methods
from regmixup.types import MEAN, Row

__all__ = ["TABLES", "PaperTable", "PaperValue", "paper_value", "paper_value_of"]

_NETWORKS = {"WRN28-10": "wrn28-10", "WRN": "wrn28-10", "R50": "resnet50"}
_METRICS = {"Accuracy": "accuracy", "AdaECE": "adaptive_ece", "ECE": "ece"}
_SPELLINGS = {"aug-mix": "augmix", "dnn-sr": "dnn-srn", "de": "deep-ensemble"}
_SELECTED = {"T": "temperature", "c": "c", "r": "ratio", "α": "alpha", "η = 1, α": "alpha"}
_SELECTED |= {"#samples": "samples", "σ₀": "prior_variance"}


@dataclass(frozen=True)
class PaperCell:
    """A number, and the quantity that it is of by the names of this package.

    line: the label as printed, "DNN; T" in the table of hyper-parameters. train_set: without "/train". setting: what a
    cross-validation varies by column, such as "eta=0.1". text: the number as printed.
    """

    line: str
    network: str
    train_set: str
    metric: str
    dataset: str
    setting: str
    text: str

    @property
    def column(self) -> str:
        """Return the name of the column; unique in its table."""
        return f"{self.network} {self.train_set} {self.dataset}" + (f"[{self.setting}]" if self.setting else "")


@dataclass(frozen=True)
class PaperTable:
    """One tabular of the paper.

    number: the paper's; "10 left" where two stand side by side. caption: ours. posthoc: the posthoc map of the
    predictions. grid: the method whose values a cross-validation varies.
    """

    number: str
    caption: str
    cells: tuple[PaperCell, ...]
    posthoc: str = "none"
    grid: str = ""


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


def _read_tables() -> tuple[dict[str, PaperTable], dict[str, str]]:
    """Read all tables, by number, and the doubts about their numbers, by "table | line | column"."""
    text = (resources.files("regmixup.paper") / "tables.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    tables = {}
    for entry in content["tables"]:
        metric = _METRICS.get(entry["caption"].partition(" ")[0])
        shared = content["shared"].get(entry.pop("like", ""), {})
        keys = entry.pop("keys", "") or shared["keys"].format(metric=metric)
        tables[entry["number"]] = PaperTable(cells=tuple(_cells(keys, entry.pop("body"))), **entry)
    doubts: dict[str, str] = {}
    for entry in content["doubts"]:
        for place in entry["cells"]:
            doubts[place] = f"{doubts.get(place, '')} {entry['sentence']}".strip()
    return tables, doubts


def _cells(keys: str, body: str) -> list[PaperCell]:
    """Return the numbers of a table, line by line."""
    columns = []
    for line in keys.strip().splitlines():
        quantity, _, datasets = line.partition(" : ")
        places = re.findall(r"([^\s\[]+)(?:\[(.*?)\])?", datasets)  # pairs of a dataset and a setting
        columns += [(*quantity.split(), *place) for place in places]
    cells, network = [], ""
    for line in body.strip().splitlines():
        if line.startswith("=="):
            network = _NETWORKS[line.split()[-1]]
            continue
        label, _, numbers = line.partition("|")
        for (named, train_set, metric, dataset, setting), text in zip(columns, numbers.split(), strict=True):
            if text not in ("-", "."):
                place = (network if named == "*" else named, train_set, metric, dataset, setting)
                cells.append(PaperCell(label.strip(), *place, text))
    return cells


TABLES, _DOUBTS = _read_tables()


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

    method: by name, and in a cross-validation as a study labels it: "regmixup(alpha=20, eta=1)". metric: accuracy,
    ece, adaptive_ece or auroc, or, as in Table 9, temperature, prior_variance, alpha, c, ratio or samples. dataset:
    "(200 classes)" and "(rebuilt)" after the name are ignored, like "-90" after that of the train set. score: "" for
    the score that the paper uses for the method; for any other the paper has no number.

    >>> number = paper_value(method="regmixup", network="wrn28-10", train_set="cifar10/train",
    ...                      dataset="cifar10/test", metric="accuracy")
    >>> number.value, number.text, number.table
    (0.9746, '97.46', '1, 2, 18')
    """
    known = methods.METHODS.get(method)
    if metric == "auroc" and score and (known is None or known.score != score):
        return None
    place = (method, network.removesuffix("-sngp"), train_set.partition("/")[0])
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
    index: dict[tuple[str, ...], PaperValue] = {}
    for table in TABLES.values():
        for cell in table.cells:
            number = float(cell.text.replace(",", "."))
            metric, value = cell.metric, round(number / 100, 6)
            if metric == "selected":
                metric, value = _SELECTED[cell.line.partition("; ")[2]], number
            posthoc = "temperature" if metric == "temperature" else table.posthoc
            place = (_method(table, cell), cell.network, cell.train_set, cell.dataset, metric, posthoc)
            slip = _DOUBTS.get(f"{table.number} | {cell.line} | {cell.column}")
            if place in index:
                earlier = index[place]
                index[place] = replace(earlier, table=f"{earlier.table}, {table.number}", slip=earlier.slip or slip)
            else:
                index[place] = PaperValue(value, cell.text, table.number, slip)
    return index


def _method(table: PaperTable, cell: PaperCell) -> str:
    """Return the method of a cell, by our name."""
    if table.grid:
        values = f"alpha={cell.line}, {cell.setting}" if cell.setting else f"alpha={cell.line}"
        return f"{table.grid}({values})"
    plain = re.sub(r" \(.*\)|^vit-", "", cell.line.partition(";")[0].lower())
    return _SPELLINGS.get(plain, plain)
