"""Results: the rows and runs of a report, read from disk. No model, no predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regmixup import methods, recipes, run_folder
from regmixup.methods import METHODS, REFERENCE
from regmixup.names import counted
from regmixup.recipes import RECIPES, Recipe
from regmixup.report.aggregation import Aggregation
from regmixup.report.significance import Design
from regmixup.storage import read_json, read_rows, read_table
from regmixup.types import Row

ONE_PRIOR_VARIANCE = (
    f"Not compared with {REFERENCE}: one prior variance, of one companion, serves several seeds, which are then not "
    "independent."
)
INTRODUCED: dict[str, Any] = {"plugins": [], **Recipe.retired} | {
    f.name: [*default] if isinstance(default := f.metadata["introduced"], tuple) else default
    for f in dataclasses.fields(Recipe)
    if "introduced" in f.metadata
}
"""Fields of config.json that not every run has, with the values of those that lack them."""


@dataclass(frozen=True)
class RunRecord:
    """A finished run, as far as a report reads it.

    label: its name in tables; method: its name in METHODS; recipe: the recipe it was configured from, "" if none.
    stem: the stem of the files of its rows and figures. posthoc: its posthoc map, as plain values.
    calibration: where its T and sigma_0 come from, as the study file says; "" for a bare run folder.
    train_images: how many it was trained on; None where no study says so.
    """

    folder: Path
    label: str
    method: str
    recipe: str
    seed: int
    stem: str
    posthoc: dict[str, Any] | None = None
    calibration: str = ""
    train_images: int | None = None

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

    @property
    def key(self) -> str:
        """Return the `run` of its rows."""
        return self.folder.name[-12:]

    @property
    def setting(self) -> str:
        """Return what its rows may be compared within: the recipe, or network and train set where that is unknown."""
        return self.recipe or f"{self.config['network']} on {self.config['train_set']}"

    @cached_property
    def changes(self) -> list[str]:
        """Return how its configuration differs from the recipe: "epochs 20 instead of 350"."""
        known = self.recipe in RECIPES and self.method in METHODS
        return changed_fields(self.config, recipe=self.recipe, method=self.method) if known else []


@dataclass(frozen=True)
class Setting:
    """Runs that may be compared: those of one recipe, with their rows."""

    name: str
    title: str
    runs: Sequence[RunRecord]
    rows: Sequence[Row]

    @cached_property
    def labels(self) -> list[str]:
        """Return the labels that are compared, in the order of the study."""
        return list(dict.fromkeys(run.label for run in self.runs))

    def of(self, label: str) -> list[RunRecord]:
        """Return the runs of one label, one per seed."""
        return [run for run in self.runs if run.label == label]

    @property
    def seeds(self) -> int:
        """Return the largest number of seeds of a label."""
        return max(len(self.of(label)) for label in self.labels)

    @cached_property
    def design(self) -> Design:
        """Return which comparisons with the reference method its runs allow."""
        several = [label for label in self.labels if len(self.of(label)) > 1 and self._one_companion(label)]
        references = {run.folder.name for run in self.of(REFERENCE)}
        untested = {}
        for label in self.labels:
            runs = self.of(label)
            usual = (runs[0].posthoc or {}).get("prior_variance")  # where rows have another, that was chosen
            ensembles = [run for run in runs if run.config.get("members", 1) > 1]
            if any(name in references for run in ensembles for name in run.provenance.get("members", ())):
                untested[label] = f"Not compared with {REFERENCE}: runs of {REFERENCE} are members of this ensemble."
            elif label in several and {*self._values(label, "prior_variance")} - {usual}:
                untested[label] = ONE_PRIOR_VARIANCE
        return Design(one_temperature=frozenset(several), untested=untested)

    @cached_property
    def aggregation(self) -> Aggregation:
        """Return the aggregation that every table, file and figure takes its numbers from."""
        return Aggregation(self.rows, self.design)

    def _one_companion(self, label: str) -> bool:
        """Return whether one companion chose T for all seeds; where no study says, whether they have one T."""
        calibrations = {run.calibration for run in self.of(label)}
        if "" not in calibrations:
            return "companion" in calibrations
        temperatures = self._values(label, "temperature")
        return len(temperatures) > 1 and len(set(temperatures)) == 1

    def _values(self, label: str, metric: str) -> list[float]:
        return [row.value for row in self.rows if (row.method, row.metric) == (label, metric)]


@dataclass(frozen=True)
class Results:
    """folder: where the report goes. selected: what a study chose on validation sets, as in its selected.json."""

    folder: Path
    title: str
    about: str
    runs: Sequence[RunRecord]
    rows: Sequence[Row]
    selected: Sequence[dict[str, Any]] = ()

    @classmethod
    def open(cls, folder: str | Path, out: str | Path | None = None) -> Results:
        """Read a study's folder, for a report there or in the folder `out`."""
        folder = Path(folder)
        for name in ("study.json", "rows.csv"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} holds no results of a study: it has no {name}")
        study = read_table(folder / "study.json")
        runs = []
        for entry in study["runs"]:
            recipe = study["recipes"][entry["recipe"]]
            known = {"calibration": recipe["evaluate"]["calibration"], "train_images": recipe.get("images")}
            runs.append(RunRecord(**entry | known | {"folder": folder.parent / entry["folder"]}))
        rows = _read_rows(folder / "rows.csv", study["rows_digest"])
        chosen = folder / "selected.json"
        selected = read_json(chosen) if chosen.is_file() else ()
        return cls(Path(out) if out is not None else folder, study["title"], study["about"], runs, rows, selected)

    @classmethod
    def of_runs(cls, folders: str | Path | Iterable[str | Path], out: str | Path) -> Results:
        """Read run folders that some study has evaluated; arguments as of `regmixup.report.collect`."""
        folders = [folders] if isinstance(folders, str | Path) else folders
        runs, rows = [], []
        first: dict[tuple[str, str], RunRecord] = {}  # of every setting and label
        for folder in map(Path, folders):
            folder = folder.absolute()  # "." has no name
            if not run_folder.is_run_folder(folder):
                raise ValueError(
                    f"{folder} is neither of a study nor of a run: it has no study.json and no config.json"
                )
            for stem, measured in _evaluations(folder).items():
                run = _bare_record(folder, stem, label=measured[0].method)
                if {row.run for row in measured} != {run.key}:  # their rows would be left out
                    raise ValueError(f"the name of {folder} must end in that of its run, {measured[0].run}")
                alike = first.setdefault((run.setting, run.label), run)
                if differing := ", ".join(_differing_fields(alike.config, run.config)):
                    raise ValueError(
                        f"runs of {run.label} must differ in their seeds alone, got other values of {differing} in "
                        f"{alike.folder} and {folder}"
                    )
                runs.append(run)
                rows += measured
        return cls(Path(out), counted(len(runs), "run"), "", runs, rows)

    def __post_init__(self) -> None:
        """Reject runs whose numbers were computed differently: their difference would not be the methods'."""
        versions: dict[int, Path] = {}
        for run in self.runs:
            if run_folder.has_provenance(run.folder):
                versions.setdefault(run.provenance.get("versions", {}).get("numerics"), run.folder)
        if len(versions) > 1:
            listed = ", ".join(f"{version} ({folder.name})" for version, folder in versions.items())
            raise ValueError(f"a report must be of runs with one numerics version, got {listed}")

    @cached_property
    def settings(self) -> list[Setting]:
        """Return the runs and rows of each recipe, in order of appearance."""
        runs: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            runs.setdefault(run.setting, []).append(run)
        places = {(run.key, run.label): run.setting for run in self.runs}
        rows: dict[str, list[Row]] = {name: [] for name in runs}
        for row in self.rows:
            if (row.run, row.method) in places:
                rows[places[row.run, row.method]].append(row)
        titles = {name: _title(members[0].config) for name, members in runs.items()}
        if len(set(titles.values())) < len(titles):  # recipes may differ in something else
            titles = {name: f"{title}, {name}" for name, title in titles.items()}
        return [Setting(name, titles[name], runs[name], rows[name]) for name in runs]


def _evaluations(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of a run's evaluations by the stem of their files: of every label, the one with the most rows.

    Studies that evaluate on different sets have a file each. The choice must not depend on the times of files, which
    change when a folder is copied: of equally long ones the last by name counts.
    """
    run_folder.check_archive(folder)
    paths: dict[str, Path] = {}
    for path in sorted(folder.glob("rows-*.csv*")):  # archives have them compressed
        paths.setdefault(path.name.removeprefix("rows-").partition(".csv")[0], path)
    if not paths:
        page = folder / run_folder.PAGE
        written = f"; `regmixup finetune` has written {page}" if page.is_file() else ""
        raise ValueError(f"{folder} has no rows-*.csv: `regmixup study` evaluates runs{written}")
    longest: dict[str, tuple[int, str, list[Row]]] = {}
    for stem, path in paths.items():
        note = folder / f"rows-{stem}.json"
        rows = _read_rows(path, read_table(note)["rows"] if note.is_file() else None)
        label = stem.rpartition("-")[0]
        longest[label] = max(longest.get(label, (0, "", [])), (len(rows), stem, rows), key=lambda entry: entry[:2])
    return {stem: rows for _, stem, rows in longest.values()}


def _read_rows(path: Path, digest: str | None) -> list[Row]:
    try:
        return read_rows(path, expected=digest)
    except ValueError as error:
        raise ValueError(f"{error}. `regmixup study` makes the file again") from error


def _bare_record(folder: Path, stem: str, label: str) -> RunRecord:
    """Return the record of a run folder without its study: its likely recipe, and its method's usual posthoc map."""
    config, method = run_folder.read_config(folder), label.partition("(")[0]
    recipe = _likely_recipe(config, method)
    usual = METHODS[method].at(recipe).posthoc if method in METHODS else None
    posthoc = {"kind": usual.name, **usual.fields} if usual is not None else None
    return RunRecord(folder, label, method, recipe, config["seed"], stem, posthoc)


def _likely_recipe(config: dict[str, Any], method: str) -> str:
    """Return the recipe with a configuration's train set and, unless the method has its own, network; "" if none."""
    for name, recipe in RECIPES.items():
        fields = METHODS[method].at(name).train if method in METHODS else {}
        wanted = (recipe.train_set, fields.get("network", recipe.network))
        if wanted == (config["train_set"], config["network"]):
            return name
    return ""


def _title(config: dict[str, Any]) -> str:
    """
    >>> _title({"network": "timm/resnet50", "train_set": "imagenet/train"})
    'resnet50 on imagenet'
    """
    return f"{config['network'].removeprefix('timm/')} on {config['train_set'].partition('/')[0]}"


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration (as in config.json) with the fields that were added after its run, at its values."""
    return config | {name: default for name, default in INTRODUCED.items() if name not in config}


def _differing_fields(config: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the fields, but the seed, in which two configurations (as in config.json) differ.

    Of initial weights the content counts, of plugins that of their files. A field of an objective or a head that one of
    them lacks is None there, as fields that were added later are by default.

    >>> _differing_fields({"lr": 1, "seed": 0, "init": "", "head": {}}, {"lr": 2, "init": "", "head": {"bias": None}})
    ['lr']
    """

    def compared(fields: dict[str, Any]) -> dict[str, Any]:
        fields = complete(fields)
        fields["init"] = recipes.without_path(fields["init"])
        fields["plugins"] = [plugin["sha256"] for plugin in fields["plugins"]]
        parts = {name: part for name, part in fields.items() if isinstance(part, dict)}
        return fields | {name: {k: v for k, v in part.items() if v is not None} for name, part in parts.items()}

    first, second = compared(config), compared(other)
    names = [name for name in first | second if name != "seed"]
    return [name for name in names if first.get(name) != second.get(name)]


def changed_fields(config: Mapping[str, Any], *, recipe: str, method: str) -> list[str]:
    """Return what a configuration (as in config.json) changes in a recipe with a method's own values.

    >>> changed_fields({"epochs": 30, "lr": 0.1}, recipe="cifar10-wrn28-10", method="dnn")
    ['epochs 30 instead of 350']
    >>> changed_fields({"shards": 1}, recipe="cifar10-wrn28-10", method="dnn")
    []
    >>> changed_fields({"milestones": []}, recipe="cifar10-wrn28-10", method="dnn")
    ['milestones none instead of 150, 250']
    """
    fields = methods.get(method.partition("(")[0]).at(recipe).train
    wanted = {**dataclasses.asdict(recipes.get(recipe)), **fields}
    wanted["shards"] = wanted["shards"] or 1  # the recipes leave it to the number of processes; the paper had one
    del wanted["precision"]  # resolved for the device, and so no change of the recipe
    return [
        f"{name} {_shown(config[name])} instead of {_shown(value)}"
        for name, value in wanted.items()
        if name in config and _shown(config[name]) != _shown(value)
    ]


def _shown(value: Any) -> str:
    """Return a value as text: JSON has lists where a recipe has tuples."""
    return (", ".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)
