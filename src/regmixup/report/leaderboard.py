"""The leaderboard: every method of a setting by what matters, with intervals, beside what its training cost.

Detection is by one score for all methods, the maximum probability (MSP): two scores are never compared with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from regmixup.methods import images_per_clean_image
from regmixup.report.results import RunRecord, Setting
from regmixup.report.significance import mean_interval
from regmixup.report.tables import arrow, ood_sets, shifted_sets, tested_set
from regmixup.report.units import unit_of, units_of
from regmixup.types import MEAN, Quantity, higher_is_better

NEAR = {"cifar10": ("cifar100", "tiny-imagenet"), "cifar100": ("cifar10", "tiny-imagenet")}
"""Families of OOD sets that are near to a train set's family, as OpenOOD groups them; all others are far."""
FAR = ("mnist", "svhn/test", "textures", "places365")
"""OpenOOD's far sets, for both train sets; one without a slash is any dataset, or folder, of that name."""


class ShownValue(NamedTuple):
    """A value as it is shown, with its interval. better: of a difference, whether the first model is better."""

    value: float
    text: str
    bounds: str
    better: bool | None = None


class _Column(NamedTuple):
    """The mean over some quantities. rank: the rank that it counts for in `mean_ranks`, "" for none.

    group: sets or families that a mean of detection should be over; none where it is over any sets.
    """

    title: str
    quantities: Sequence[Quantity]
    rank: str = ""
    group: Sequence[str] = ()

    @property
    def metric(self) -> str:
        return self.quantities[0].metric

    @property
    def sets(self) -> str:
        """Name the sets that the mean is over, and the families of its group that it lacks."""
        names = [quantity.dataset for quantity in self.quantities]
        missing = [family for family in map(family_of, self.group) if family not in map(family_of, names)]
        without = f", without {', '.join(missing)}" if missing else ""
        return f"{self.title} over {', '.join(names)}{without}"


def family_of(dataset: str) -> str:
    """Return the family of a dataset: of a folder its own name, else what stands before the slash."""
    return Path(dataset).name if dataset.startswith("folder:") else dataset.partition("/")[0]


@dataclass(frozen=True)
class Leaderboard:
    """A line per method: its name and a cell per column, None where nothing was measured."""

    caption: str
    heads: Sequence[str]
    lines: Mapping[str, Sequence[ShownValue | None]]


def leaderboard(setting: Setting) -> Leaderboard:
    """Return the leaderboard of a setting, methods in the order of the study."""
    columns = _columns(setting)
    lines: dict[str, list[ShownValue | None]] = {}
    for label in setting.labels:
        runs = setting.runs_of(label)
        minutes = sum(run.provenance["seconds"] for run in runs) / len(runs) / 60
        measured = [_measured(setting, column, label) for column in columns]
        lines[label] = [*measured, _images_forwarded(runs[0]), ShownValue(minutes, f"{minutes:.1f}", "")]
    devices = ", ".join(sorted({str(run.provenance["device"]) for run in setting.runs}))
    units = units_of({column.title: column.metric for column in columns})
    caption = (
        f"{setting.title}: mean over seeds ({_listed_seeds(setting)}), below it the 95 % interval of the mean, "
        f"{units}. Minutes of training as recorded, on {devices}"
    )
    if sets := [column.sets for column in columns if column.metric == "auroc"]:
        caption += f". {'; '.join(sets)}"
    titles = [column.title + arrow(column.metric) for column in columns]
    heads = ["method", *titles, "images forwarded", "minutes"]
    if setting.ranked:
        caption += f". {rank_caption(setting)}"
        heads.append("mean rank ↓")
        ranks = mean_ranks(setting)
        for label, cells in lines.items():
            cells.append(ShownValue(ranks[label], f"{ranks[label]:.2f}", "") if label in ranks else None)
    return Leaderboard(caption, heads, lines)


def mean_ranks(setting: Setting) -> dict[str, float]:
    """Return the mean of each label's ranks, the best first: how a study with `rank` orders its candidates.

    Labels are ranked by each of `_ranked_quantities`, 1 for the best; equal ones share their mean rank. A rank compares
    means over the seeds that all labels have, as other seeds are other luck; where there is none, no label has a rank.
    Of equal mean ranks the training that forwards fewer images comes first: the minutes of runs that share a device say
    little.
    """
    from scipy.stats import rankdata  # whose import takes a second

    seeds = _shared_seeds(setting)
    if not seeds:
        return {}
    ranks: dict[str, list[float]] = {label: [] for label in setting.labels}
    for title, quantities in _ranked_quantities(setting).items():
        values = {label: setting.aggregation.average(quantities, label) for label in setting.labels}
        if missing := [label for label, by_seed in values.items() if not by_seed.keys() >= {*seeds}]:
            raise ValueError(f"{title} must be measured for every candidate, got none for {', '.join(missing)}")
        sign = -1 if higher_is_better(quantities[0].metric) else 1
        means = [sign * fmean(by_seed[seed] for seed in seeds) for by_seed in values.values()]
        for label, rank in zip(values, rankdata(means), strict=True):
            ranks[label].append(float(rank))
    mean_rank = {label: fmean(of_label) for label, of_label in ranks.items()}
    order = sorted(mean_rank, key=lambda label: (mean_rank[label], _images_per_train_image(setting.runs_of(label)[0])))
    return {label: mean_rank[label] for label in order}


def rank_caption(setting: Setting) -> str:
    """Say what the mean ranks of a setting are the mean of, and over which seeds."""
    over = f"over {', '.join(_ranked_quantities(setting))}"
    if not (seeds := _shared_seeds(setting)):
        return f"Mean rank {over}: none, as the candidates share no seed ({_listed_seeds(setting)})"
    which = f"by means over {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    if any(len(setting.runs_of(label)) > len(seeds) for label in setting.labels):
        which += f", which all candidates have ({_listed_seeds(setting)})"
    return f"Mean rank: {over}; {which}; of equal ones the training that forwards fewer images comes first"


def _shared_seeds(setting: Setting) -> list[int]:
    """Return the seeds that every label has been trained with."""
    return sorted(set.intersection(*({run.seed for run in setting.runs_of(label)} for label in setting.labels)))


def _listed_seeds(setting: Setting) -> str:
    """Return the seeds of most labels, then those of each label that has others: "0, 1, 2; mixup: 0, 1"."""
    seeds = {}
    for label in setting.labels:
        seeds[label] = ", ".join(map(str, sorted(run.seed for run in setting.runs_of(label))))
    usual, _ = Counter(seeds.values()).most_common(1)[0]
    return "; ".join([usual, *(f"{label}: {text}" for label, text in seeds.items() if text != usual)])


def _ranked_quantities(setting: Setting) -> dict[str, list[Quantity]]:
    """Return the ranks that count for mean ranks, each with the quantities that it is by the mean of."""
    ranked: dict[str, list[Quantity]] = {}
    for column in _columns(setting):
        if column.rank:
            ranked.setdefault(column.rank, []).extend(column.quantities)
    return ranked


def _columns(setting: Setting) -> list[_Column]:
    """Return the columns that some method has values for."""
    aggregation = setting.aggregation
    test = tested_set(aggregation)
    columns = [_Column("accuracy", [Quantity(test, "accuracy")])]
    for name in shifted_sets(aggregation):
        shifted = Quantity(name, "accuracy", corruption=MEAN)
        columns.append(_Column(f"accuracy {name}", [shifted], rank="accuracy under shift"))
    ood = [Quantity(name, "auroc", score="max_probability") for name in ood_sets(aggregation)]
    near_families = NEAR.get(test.partition("/")[0], ())
    near = [quantity for quantity in ood if quantity.dataset.partition("/")[0] in near_families]
    if near:
        far = [quantity for quantity in ood if quantity not in near]
        columns.append(_Column("near-OOD AUROC by MSP", near, "near-OOD AUROC by MSP", near_families))
        columns.append(_Column("far-OOD AUROC by MSP", far, group=FAR))
    else:
        columns.append(_Column("AUROC by MSP", ood, rank="AUROC by MSP"))
    columns.append(_Column("ECE", [Quantity(test, "ece")]))
    columns.append(_Column("AUGRC", [Quantity(test, "augrc", score="max_probability")], rank="AUGRC"))
    columns.append(_Column("NLL", [Quantity(test, "nll")], rank="NLL"))
    return [c for c in columns if any(aggregation.average(c.quantities, label) for label in setting.labels)]


def _measured(setting: Setting, column: _Column, label: str) -> ShownValue | None:
    values = [*setting.aggregation.average(column.quantities, label).values()]
    if not values:
        return None
    unit, mean, bounds = unit_of(column.metric), fmean(values), mean_interval(values)
    interval = " to ".join(map(unit.write, bounds)) if bounds is not None else "one seed"
    return ShownValue(unit.factor * mean, unit.write(mean), interval)


def _images_forwarded(run: RunRecord) -> ShownValue | None:
    """Return how many images training forwarded; None where neither the study nor the run says how many it trained on.

    The catalogue of the study does not know the size of a folder or of a registered dataset.
    """
    images = run.train_images or run.provenance.get("train_images")
    if images is None:
        return None
    count = images * _images_per_train_image(run)
    return ShownValue(count, f"{count / 1e6:.3g} M", "")


def _images_per_train_image(run: RunRecord) -> float:
    """Return how many images training forwarded for each train image."""
    config = run.config
    epochs = config["epochs"] + config["cooldown_epochs"]
    passes = 2 if config.get("sharpness", "none") != "none" else 1
    return epochs * config.get("members", 1) * images_per_clean_image(config["objective"]) * passes
