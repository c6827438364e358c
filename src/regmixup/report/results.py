"""Results: the rows and runs of a study, read from disk. No model, no predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regmixup import run_folder
from regmixup.methods import REFERENCE
from regmixup.names import shortened
from regmixup.report.aggregation import Aggregation, Design
from regmixup.storage import read_json, read_rows, read_table
from regmixup.types import Row

ONE_PRIOR_VARIANCE = (
    f"Not compared with {REFERENCE}: one prior variance, of one companion, serves several seeds, which are then not "
    "independent."
)
OWN_MEMBERS = f"Not compared with {REFERENCE}: runs of {REFERENCE} are members of this ensemble."


@dataclass(frozen=True)
class RunRecord:
    """A finished run, as far as a report reads it.

    label: its name in tables; method: its name in METHODS; recipe: the recipe it was configured from.
    stem: the stem of the files of its rows and figures. calibration: where its T and sigma_0 come from.
    posthoc: its posthoc map, as plain values. train_images: how many it was trained on; None where that is not known.
    changed: what it has instead of its recipe's values and its method's own parts, in words. score: the OOD score of
    its method; "" in files of before it was recorded.
    """

    folder: Path
    label: str
    method: str
    recipe: str
    seed: int
    stem: str
    calibration: str
    posthoc: dict[str, Any] | None = None
    train_images: int | None = None
    changed: Sequence[str] = ()
    score: str = ""

    @cached_property
    def config(self) -> dict[str, Any]:
        return run_folder.read_config(self.folder)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return run_folder.read_provenance(self.folder)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """Return one record per epoch; none if the file is missing, which no number of the report needs."""
        return run_folder.read_history(self.folder)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Return what `regmixup.study.figures.figure_data` made; empty if it stored nothing."""
        return run_folder.read_figures(self.folder, self.stem)


@dataclass(frozen=True)
class Setting:
    """Runs that may be compared: those of one recipe, with their rows. ranked: by the mean of ranks, too."""

    name: str
    title: str
    runs: Sequence[RunRecord]
    rows: Sequence[Row]
    ranked: bool = False

    @cached_property
    def labels(self) -> list[str]:
        """Return the labels that are compared, in the order of the study."""
        return list(dict.fromkeys(run.label for run in self.runs))

    def runs_of(self, label: str) -> list[RunRecord]:
        """Return the runs of one label, one per seed."""
        return [run for run in self.runs if run.label == label]

    @cached_property
    def design(self) -> Design:
        """Return which comparisons with the reference method its runs allow."""
        references = {run.folder.name for run in self.runs_of(REFERENCE)}
        one_temperature, untested, ensembles = set(), {}, set()
        for label in self.labels:
            runs = self.runs_of(label)
            if len(runs) > 1 and runs[0].calibration == "companion":
                one_temperature.add(label)
                if (runs[0].posthoc or {}).get("prior_variance", "none") is None:  # the companion's, then
                    untested[label] = ONE_PRIOR_VARIANCE
            members = [name for run in runs for name in run.provenance.get("members", ())]
            if members:
                ensembles.add(label)
            if references.intersection(members):
                untested[label] = OWN_MEMBERS
        scores = {run.label: run.score for run in self.runs}
        return Design(frozenset(one_temperature), untested, frozenset(ensembles), scores)

    @cached_property
    def aggregation(self) -> Aggregation:
        """Return the aggregation that every table, file and figure takes its numbers from."""
        return Aggregation(self.rows, self.design)


@dataclass(frozen=True)
class Results:
    """folder: where the report goes. selected: what a study chose on validation sets, as in its selected.json.

    ranked: whether the study compares its candidates by the mean of ranks.
    """

    folder: Path
    title: str
    about: str
    runs: Sequence[RunRecord]
    rows: Sequence[Row]
    selected: Sequence[dict[str, Any]] = ()
    ranked: bool = False

    @cached_property
    def settings(self) -> list[Setting]:
        """Return the runs and rows of each recipe, in order of appearance."""
        runs: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            runs.setdefault(run.recipe, []).append(run)
        # A row names its run by the end of the folder's name.
        places = {(run.folder.name[-12:], run.label): run.recipe for run in self.runs}
        rows: dict[str, list[Row]] = {name: [] for name in runs}
        for row in self.rows:
            if (row.run, row.method) in places:
                rows[places[row.run, row.method]].append(row)
        titles = {}
        for name, members in runs.items():  # a grid may vary the network and the train set, too
            distinct = dict.fromkeys(_title(run.config) for run in members)
            titles[name] = shortened([*distinct], 3)
        if len(set(titles.values())) < len(titles):  # recipes may differ in something else
            titles = {name: f"{title}, {name}" for name, title in titles.items()}
        return [Setting(name, titles[name], runs[name], rows[name], ranked=self.ranked) for name in runs]


def load_results(folder: str | Path, out: str | Path | None = None) -> Results:
    """Read the folder of a study, for a report there or in the folder `out`."""
    folder = Path(folder)
    for name in ("study.json", "rows.csv"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no results of a study: it has no {name}")
    study = read_table(folder / "study.json")
    chosen = folder / "selected.json"
    selected = read_json(chosen) if chosen.is_file() else ()
    try:
        return Results(
            folder=Path(out) if out is not None else folder,
            title=study["title"],
            about=study["about"],
            runs=[RunRecord(**entry | {"folder": folder.parent / entry["folder"]}) for entry in study["runs"]],
            rows=read_rows(folder / "rows.csv", expected=study["rows_digest"]),
            selected=selected,
            ranked=study["rank"],
        )
    except ValueError as error:
        raise ValueError(f"{error}. `regmixup study` makes the file again") from error
    except (KeyError, TypeError) as error:
        path = folder / "study.json"
        raise ValueError(f"{path} is of another version ({error!r}). `regmixup study` makes the file again") from error


def _title(config: dict[str, Any]) -> str:
    """
    >>> _title({"network": "timm/resnet50", "train_set": "imagenet/train"})
    'resnet50 on imagenet'
    """
    return f"{config['network'].removeprefix('timm/')} on {config['train_set'].partition('/')[0]}"
