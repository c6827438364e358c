"""Results: the rows and runs of a report, read from disk. No model, no predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
INTRODUCED: dict[str, Any] = {"plugins": []} | {
    f.name: [*own] if isinstance(own := f.metadata["introduced"], tuple) else own
    for f in dataclasses.fields(Recipe)
    if "introduced" in f.metadata
}
"""Fields of config.json that were added later, with the values that runs before them have."""


@dataclass(frozen=True)
class RunRecord:
    """A finished run, as far as a report reads it.

    label: its name in tables; method: its name in METHODS; recipe: the recipe it was configured from, "" if none.
    stem: the stem of the files of its rows and figures. posthoc: its posthoc map, as plain values.
    calibration: where its T and sigma_0 come from, as the study file says; "" for a bare run folder.
    """

    folder: Path
    label: str
    method: str
    recipe: str
    seed: int
    stem: str
    posthoc: dict[str, Any] | None = None
    calibration: str = ""

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
            given = (runs[0].posthoc or {}).get("prior_variance")  # where rows have another, that was chosen
            ensembles = [run for run in runs if run.config.get("members", 1) > 1]
            if any(name in references for run in ensembles for name in run.provenance.get("members", ())):
                untested[label] = f"Not compared with {REFERENCE}: runs of {REFERENCE} are members of this ensemble."
            elif label in several and {*self._values(label, "prior_variance")} - {given}:
                untested[label] = ONE_PRIOR_VARIANCE
        return Design(one_temperature=frozenset(several), untested=untested)

    @cached_property
    def aggregation(self) -> Aggregation:
        """Return the aggregation that every table, file and figure takes its numbers from."""
        return Aggregation(self.rows, self.design)

    def _one_companion(self, label: str) -> bool:
        """Return whether one companion chose T for all seeds; where no study says, whether they have one T."""
        said = {run.calibration for run in self.of(label)}
        if "" not in said:
            return "companion" in said
        found = self._values(label, "temperature")
        return len(found) > 1 and len(set(found)) == 1

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
        wanted = {"title", "about", "recipe", "runs"}
        if not wanted <= study.keys():
            raise ValueError(f"{folder / 'study.json'} is damaged: it lacks {', '.join(sorted(wanted - study.keys()))}")
        evaluated = {name: one.get("evaluate", {}) for name, one in study.get("recipes", {}).items()}
        runs = [
            RunRecord(
                folder=folder.parent / entry["folder"],
                label=entry.get("label", entry["method"]),
                method=entry["method"],
                recipe=entry.get("recipe", study["recipe"]),
                seed=entry["seed"],
                stem=entry["stem"],
                posthoc=entry.get("posthoc"),
                calibration=evaluated.get(entry.get("recipe", study["recipe"]), {}).get("calibration", ""),
            )
            for entry in study["runs"]
        ]
        rows = _rows(folder / "rows.csv", study.get("rows_digest"))
        chosen = folder / "selected.json"
        selected = read_json(chosen) if chosen.is_file() else ()
        out = Path(out) if out is not None else folder
        return cls(out, study["title"], study["about"], runs, rows, selected)

    @classmethod
    def of_runs(cls, folders: str | Path | Iterable[str | Path], out: str | Path, *, evaluation: str = "") -> Results:
        """Read run folders that some study has evaluated; arguments as of `regmixup.report.collect`."""
        if isinstance(folders, str | Path):
            folders = [folders]
        runs, rows = [], []
        first: dict[tuple[str, str], RunRecord] = {}  # of every setting and label
        for folder in (path if path.name else path.absolute() for path in map(Path, folders)):  # "." has no name
            if not run_folder.is_run_folder(folder):
                raise ValueError(
                    f"{folder} is neither of a study nor of a run: it has no study.json and no config.json"
                )
            for stem, own in _evaluations(folder, evaluation).items():
                label = next((row.method for row in own), stem.rpartition("-")[0])  # "/" is "-" in names of files
                method = label.partition("(")[0]
                config = run_folder.read_config(folder)
                recipe = _likely_recipe(config, method)
                run = RunRecord(folder, label, method, recipe, config["seed"], stem, _usual_posthoc(method, recipe))
                alike = first.setdefault((run.setting, label), run)
                if found := ", ".join(_differences(_compared(alike.config), _compared(config))):
                    raise ValueError(
                        f"runs of {label} must differ in their seeds alone, got {found}, of {alike.folder} and {folder}"
                    )
                if other := {row.run for row in own} - {run.key}:  # their rows would be left out
                    raise ValueError(f"the name of {folder} must end in that of its run, {', '.join(sorted(other))}")
                runs.append(run)
                rows += own
        return cls(Path(out), counted(len(runs), "run"), "", runs, rows)

    def __post_init__(self) -> None:
        """Reject runs whose numbers were computed differently: their difference would not be the methods'."""
        versions: dict[int, Path] = {}
        for run in self.runs:
            if run_folder.has_provenance(run.folder):
                versions.setdefault(run.provenance.get("versions", {}).get("numerics"), run.folder)
        if len(versions) > 1:
            found = ", ".join(f"{version} ({folder.name})" for version, folder in versions.items())
            raise ValueError(f"a report must be of runs with one numerics version, got {found}")

    @cached_property
    def settings(self) -> list[Setting]:
        """Return the runs and rows of each recipe, in order of appearance."""
        runs: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            runs.setdefault(run.setting, []).append(run)
        places = {(run.key, run.label): name for name, own in runs.items() for run in own}
        rows: dict[str, list[Row]] = {name: [] for name in runs}
        for row in self.rows:
            if (row.run, row.method) in places:
                rows[places[row.run, row.method]].append(row)
        titles = {name: _title(own[0].config) for name, own in runs.items()}
        if len(set(titles.values())) < len(titles):  # recipes may differ in something else
            titles = {name: f"{title}, {name}" for name, title in titles.items()}
        return [Setting(name, titles[name], own, rows[name]) for name, own in runs.items()]


def _evaluations(folder: Path, wanted: str) -> dict[str, list[Row]]:
    """Return the evaluations of a run to report, one for each of its labels: their rows by the stem of their files.

    Studies that evaluate on different sets have a file each. The choice must not depend on the times of files, which
    change when a folder is copied.
    """
    names = (file.name for file in folder.glob("rows-*.csv*"))
    stems = sorted({name.removeprefix("rows-").removesuffix(".gz").removesuffix(".csv") for name in names})
    if not stems:
        page = folder / run_folder.PAGE
        written = f"; `regmixup finetune` has written {page}" if page.is_file() else ""
        raise ValueError(f"{folder} has no rows-*.csv: `regmixup study` evaluates runs{written}")
    kept = [stem for stem in stems if not wanted or stem.endswith(f"-{wanted}")]
    if not kept:
        raise ValueError(f"evaluation must be the digits that end one of {', '.join(stems)} of {folder}, got {wanted}")
    run_folder.check_archive(folder)
    named = run_folder.read_archived(folder).get("evaluations", [])
    by_label: dict[str, dict[str, list[Row]]] = {}
    for stem in kept:
        path, note = run_folder.rows_path(folder, stem), folder / f"rows-{stem}.json"
        packed = path.with_name(f"{path.name}.gz")
        if packed.is_file() and not note.is_file():  # archived, and then the file with a checksum counts
            path = packed
            if stem not in named:
                raise ValueError(
                    f"{packed} must be named in {run_folder.ARCHIVED}, which "
                    f"{'does not' if named else 'is missing'}: take the folder {folder} from where it was copied from "
                    "again"
                )
        own = _rows(path, read_table(note).get("rows") if note.is_file() else None)
        by_label.setdefault(stem.rpartition("-")[0], {})[stem] = own
    found: dict[str, list[Row]] = {}
    for label, evaluations in sorted(by_label.items()):
        most = max(map(len, evaluations.values()))
        largest = {stem: own for stem, own in evaluations.items() if len(own) == most}
        if len(largest) > 1:
            raise ValueError(
                f"{folder} has several evaluations of {label} with {most:,} rows: {', '.join(largest)}. Choose one by "
                f"the digits at its end, such as --evaluation {min(largest).rpartition('-')[2]}"
            )
        found |= largest
    return found


def _rows(path: Path, expected: str | None) -> list[Row]:
    try:
        with run_folder.reading(path):
            return read_rows(path, expected=expected)
    except ValueError as error:
        raise ValueError(f"{error}. `regmixup study` makes the file again") from error


def _title(config: dict[str, Any]) -> str:
    """
    >>> _title({"network": "timm/resnet50", "train_set": "imagenet/train"})
    'resnet50 on imagenet'
    """
    return f"{config['network'].removeprefix('timm/')} on {config['train_set'].partition('/')[0]}"


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration (as in config.json) with the fields that were added after its run, at its values."""
    return config | {name: value for name, value in INTRODUCED.items() if name not in config}


def _compared(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration (as in config.json) without its seed; of weights and plugins, what identifies them.

    >>> found = _compared({"init": "me.pth@sha256:e3b0", "seed": 0, "head": {"seed": 3, "init": 0.1}})
    >>> found["init"], found["head"], found["ema"], found["plugins"], "seed" in found
    ('sha256:e3b0', {'seed': 3, 'init': 0.1}, 0.0, {}, False)
    """
    known = {name: own for name, own in complete(config).items() if name != "seed"}
    plugins = {f"{one['what']} {one['name']}": one["sha256"] for one in known.pop("plugins")}
    return known | {"init": recipes.without_path(known["init"]), "plugins": plugins}


def _differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Yield what two tables differ in. A field that one lacks is None there, as a part's later fields are by default.

    >>> list(_differences({"lr": 1, "head": {"size": 8}}, {"lr": 1, "head": {"size": 4, "loss": None}, "warmup": 5}))
    ['size 8 and 4', 'warmup None and 5']
    """
    for name in one | other:
        first, second = one.get(name), other.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from _differences(first, second)
        elif first != second:
            yield f"{name} {_shown(first)} and {_shown(second)}"


def _likely_recipe(config: dict[str, Any], method: str) -> str:
    """Return the recipe with a configuration's train set and, unless the method has its own, network; "" if none."""
    for name, named in RECIPES.items():
        own = METHODS[method].at(name).train if method in METHODS else {}
        wanted = (named.recipe.train_set, own.get("network", named.recipe.network))
        if wanted == (config["train_set"], config["network"]):
            return name
    return ""


def _usual_posthoc(method: str, recipe: str) -> dict[str, Any] | None:
    """Return a method's usual posthoc map; a bare run folder does not say whether a study chose another."""
    spec = METHODS[method].at(recipe).posthoc if method in METHODS else None
    return {"kind": spec.name, **spec.fields} if spec is not None else None


def changed_fields(config: Mapping[str, Any], *, recipe: str, method: str) -> list[str]:
    """Return what a configuration (as in config.json) changes in a recipe with a method's own values.

    >>> changed_fields({"epochs": 30, "lr": 0.1}, recipe="cifar10-wrn28-10", method="dnn")
    ['epochs 30 instead of 350']
    >>> changed_fields({"shards": 1}, recipe="cifar10-wrn28-10", method="dnn")
    []
    >>> changed_fields({"milestones": []}, recipe="cifar10-wrn28-10", method="dnn")
    ['milestones none instead of 150, 250']
    """
    own = methods.get(method.partition("(")[0]).at(recipe).train
    wanted = {**dataclasses.asdict(recipes.get(recipe)), **own}
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
