"""Write what the archived runs under results/ say.

    python docs/make_results.py

That is results/README.md, docs/results.md with its figure, docs/claims.md, and the table of README.md.

To be run after runs were added; a test compares. Every folder of results/ is named after a study.
"""

import runpy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import torch

from regmixup.methods import METHODS
from regmixup.recipes import RECIPES
from regmixup.report.aggregation import Aggregation, Quantity, mean_cell
from regmixup.report.claims import Training, gather, prose
from regmixup.report.paper import paper_value
from regmixup.report.results import Results, RunRecord
from regmixup.report.significance import mean_interval
from regmixup.report.writers import markdown_table
from regmixup.study.archive import archive_places, archived_rows
from regmixup.study.cost import estimate, spent
from regmixup.study.plan import load_study, studies
from regmixup.study.planned import PlannedRun
from regmixup.study.tasks import Task, find_tasks
from regmixup.types import MEAN, Row

ROOT = Path(__file__).parent.parent
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
FIGURE, CAUSES_FIGURE, STANDARD_FIGURE = (DOCS / "images" / f"{name}.svg" for name in ("length", "causes", "standard"))
LENGTH, CAUSES, SCORES, REPLACED, CLAIMS, STANDARD = (
    runpy.run_path(str(DOCS / f"make_{name}.py"))
    for name in ("length", "causes", "scores", "replaced", "claims", "standard")
)
FIELD = ("cifar10-resnet18", "cifar100-resnet18")
"""The recipes of the headline tables."""
README = """# Results

What was measured with this package, in percent: the mean over seeds, ± the standard deviation where there are several.
n counts seeds, and `dnn` is plain training. AUROC is by each method's own score, as in the paper: Dempster-Shafer;
entropy for Mixup, CutMix, Mixup+CutMix and KFAC-LLLA. AUGRC (x 1000, lower is better) is by the maximum probability, as
others report it. CIFAR-10-C was rebuilt with `regmixup data corrupt`. Every folder beside this file is a study, and
every folder in it an archived run ([what it holds](../docs/studies.md#archives-and-time-limits)), named by its
configuration's fingerprint; `replaced.csv` has the main rows of trainings that others took the place of. Runs that
shared a GPU took longer than they would have alone. What the numbers mean is in [results](../docs/results.md), and what
they say about the paper in [claims](../docs/claims.md). All three are written by `python docs/make_results.py`.
"""
PAGE = """# Results

What was measured with this package so far, beside the paper's numbers and others'. Written by
`python docs/make_results.py` from the archived runs in [results](../results/README.md); what the rows say about the
paper's claims is in [claims](claims.md).

Numbers are in percent, AUGRC and AURC times 1000, means over n seeds; ECE, AUGRC and AURC are better when lower, all
others when higher. `[low, high]` is a 95 % interval of the mean over seeds (Student's, cut off at 0 and 100; with two
or three seeds it is wide, or narrow by luck). `(low, high)` stands where there is one seed: it is a bootstrap over test
images, covers nothing of the choice of seeds, and decides nothing. AUROC is that of detecting OOD images, by each
method's own score as in the paper where no other is named: Dempster-Shafer; entropy for Mixup, CutMix, Mixup+CutMix and
KFAC-LLLA. AUGRC and ECE are of the test set, AUGRC by MSP, the maximum probability, as others report it. CIFAR-10-C was
rebuilt here. `dnn` is plain training, and `bn=refreshed` the same weights with batch-norm statistics estimated again.
The last epoch is the model, and nothing in the tables was selected on test, shifted or OOD sets. Some runs were
trained a second time, as further lines needed their weights, and replaced with all of their lines: the [log](log.md)
names them, and [claims](claims.md#with-the-trainings-that-were-replaced) says which verdicts are others with the
earlier trainings. The last column names the runs by fingerprint; they are listed at the end.
"""


class Column(NamedTuple):
    """A column of a table: its title, what it shows, its factor, and the score, "" for the metric's usual one."""

    title: str
    quantity: Quantity
    scale: int = 100
    score: str = ""

    def rows(self, aggregation: Aggregation, label: str) -> list[Row]:
        """Return a method's rows, one per seed."""
        return aggregation.rows(self.quantity._replace(score=self.score), label)


@dataclass(frozen=True)
class Archived:
    """An evaluated run of a study: its planned line and its folder."""

    study: str
    planned: PlannedRun
    folder: Path

    @property
    def record(self) -> RunRecord:
        own = self.planned
        return RunRecord(self.folder, own.label, own.method, own.recipe, own.config.seed, own.stem)


@cache
def tasks(study: str, results: Path = RESULTS) -> list[Task]:
    """Return the lines of a study, with their archives and those of their companions."""
    own, device = load_study(study), torch.device("cuda")
    return find_tasks(list(own.runs()), results / study, device, archive_places(own, results / study))


def archives(study: str, results: Path = RESULTS) -> list[tuple[PlannedRun, Path]]:
    """Return the planned runs of a study that are archived, with their folders."""
    return [(task.planned, task.archive) for task in tasks(study, results) if task.archive is not None]


def cost(study: str, results: Path = RESULTS) -> str:
    """Return what a study's archives cost, companions included; what it reuses is counted where it was trained."""
    found = [folder for task in tasks(study, results) for folder in task.trained()]
    return spent((folder for folder in found if folder.parent.name == study), found)


def folders(results: Path) -> list[str]:
    """Return the studies that have a folder."""
    return sorted(path.name for path in results.iterdir() if path.is_dir())


@cache
def rows_of(folder: Path, stem: str) -> tuple[Row, ...]:
    """Read the rows of an evaluation, once."""
    return tuple(archived_rows(folder, stem))


@cache
def everything(results: Path = RESULTS) -> list[Archived]:
    """Return every archived evaluation, study by study; runs of several numerics versions are an error."""
    begun = dict.fromkeys([*folders(results), *(name for name in studies() if load_study(name).reuses)])
    found = [Archived(study, *one) for study in begun for one in archives(study, results)]
    Results(results, "", "", [one.record for one in found], [])  # refuses to mix numerics versions
    return found


def settings(found: Sequence[Archived], replaced: Sequence[Row] = ()) -> dict[Training, Aggregation]:
    """Return the rows of all studies by how the networks were trained.

    replaced: rows of trainings that were replaced, which count as further seeds.
    """
    rows = [(one.record, rows_of(one.folder, one.planned.stem)) for one in found]
    others = [(one.record, REPLACED["kept"](replaced, one.record.key, one.planned.label)) for one in found]
    return gather([*rows, *others])


def columns(test: str, shift: Sequence[str], ood: Sequence[str]) -> list[Column]:
    """Return the columns of a table of results."""
    shifted = [Column(f"{name} accuracy", Quantity(f"{name} (rebuilt)", "accuracy", corruption=MEAN)) for name in shift]
    detected = [Column(f"{name.partition('/')[0]} AUROC", Quantity(name, "auroc")) for name in ood]
    ends = [Column("ECE", Quantity(test, "ece")), Column("AUGRC by MSP", Quantity(test, "augrc"), 1000)]
    return [Column("accuracy", Quantity(test, "accuracy")), *shifted, *detected, *ends]


def headings(own: Iterable[Column]) -> list[str]:
    """Return the titles of columns as prose writes them."""
    return [f"{prose(first)} {rest}".strip() for first, _, rest in (column.title.partition(" ") for column in own)]


def command(study: str) -> str:
    """Return the command that continues a study, as a block of code."""
    chosen = f" --selected runs/study-{name}/selected.json" if (name := load_study(study).confirms) else ""
    return f"    regmixup study {study} --archive results/{study} --device cuda{chosen}"


def fingerprints(rows: Iterable[Iterable[Row]]) -> str:
    """Return the runs behind some rows."""
    return " ".join(dict.fromkeys(f"`{row.run}`" for own in rows for row in own))


# ---- results/README.md: what is there, study by study


def section(study: str, found: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return a study's table, what it cost, and how it is continued."""
    title, count, own_cost = load_study(study).title, len(tasks(study, results)), cost(study, results)
    missing = f"{count - len(found)} of {count} lines are missing. What they are, and what they cost"
    state = missing if len(found) < count else f"all {count} lines are there. What they are"
    end = f"{own_cost[0].upper() + own_cost[1:]}; {state}:\n\n{command(study)} --dry-run\n"
    if not found:
        return f"## {title}\n\n{end}"
    aggregation = Aggregation(row for one in found for row in rows_of(one.folder, one.planned.stem))
    sets = found[0].planned.evaluate
    own = columns(sets.test, sets.shift, sets.ood)
    lines = []
    for label in dict.fromkeys(one.planned.label for one in found):
        rows = [column.rows(aggregation, label) for column in own]
        cells = [_spread(column, r) for column, r in zip(own, rows, strict=True)]
        lines.append([label, str(len(rows[0])), *cells, fingerprints(rows)])
    numbers = markdown_table(["", "n", *headings(own), "runs"], lines)
    return f"## {title}\n\n{numbers}\n{end}"


def _spread(column: Column, rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    cell = mean_cell([column.scale * row.value for row in rows], percent=False)
    return f"{cell.mean:.2f}" + (f" ± {cell.std:.2f}" if cell.n > 1 else "")


def readme(results: Path = RESULTS) -> str:
    """Return results/README.md."""
    found = everything(results)
    parts = [section(study, [one for one in found if one.study == study], results) for study in folders(results)]
    return "\n".join([README, *parts])


def front_page(found: Mapping[Training, Aggregation]) -> str:
    """Return the README of the project with its table: plain training and RegMixup at every length."""
    own, lines = standard_columns(LENGTH["RECIPE"])[:-1], []
    for training, aggregation in LENGTH["at_lengths"](found, planned_lengths()).items():
        for label, name in (("dnn", "plain"), ("regmixup", "RegMixup")):
            rows = [column.rows(aggregation, label) for column in own]
            cells = [_spread(column, r) for column, r in zip(own, rows, strict=True)]
            lines.append([f"{name}, {training.epochs} epochs", str(len(rows[0])), *cells])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, after = text.split("<!-- table -->\n")[0], text.split("<!-- end of table -->\n")[1]
    return f"{before}<!-- table -->\n{markdown_table(['', 'n', *headings(own)], lines)}<!-- end of table -->\n{after}"


# ---- docs/results.md


def cell(column: Column, rows: Sequence[Row], count: int | None = None) -> str:
    """Return a mean with its interval: over seeds, or over test images for a single seed.

    count: the seeds of its line; a cell with another number of them says so.
    """
    if not rows:
        return "–"
    if column.quantity.metric == "temperature":  # chosen, not estimated
        return f"{mean(row.value for row in rows):.3f}"
    low, high, _ = interval(column, rows)
    bounds = f"[{low:.2f}, {high:.2f}]" if len(rows) > 1 else f"({low:.2f}, {high:.2f})"
    seeds = f", n {len(rows)}" if count not in (None, len(rows)) else ""
    return f"{column.scale * mean(row.value for row in rows):.2f} {bounds}{seeds}"


def interval(column: Column, rows: Sequence[Row]) -> tuple[float, float, int]:
    """Return the interval of a mean and its number of seeds; of a single seed the row's own, over test images.

    Student's interval may leave the range of the metric; what lies outside is cut off, which costs no coverage.
    """
    values = [column.scale * row.value for row in rows]
    bounds = mean_interval(values) or tuple(
        column.scale * (bound if bound is not None else rows[0].value) for bound in (rows[0].low, rows[0].high)
    )
    return max(bounds[0], 0.0), min(bounds[1], float(column.scale)), len(rows)


def measured(
    own: Sequence[Column], training: Training, aggregation: Aggregation, labels: Iterable[str]
) -> list[list[str]]:
    """Return a line for each method: seeds, a cell per column, the runs."""
    lines = []
    for label in labels:
        rows = [column.rows(aggregation, label) for column in own]
        cells = [cell(column, r, len(rows[0])) for column, r in zip(own, rows, strict=True)]
        lines.append([label, str(training.epochs), str(len(rows[0])), *cells, fingerprints(rows) or "missing"])
    return lines


def standard_columns(recipe: str) -> list[Column]:
    """Return the columns for a recipe on CIFAR."""
    family = RECIPES[recipe].recipe.train_set.partition("/")[0]
    other = {"cifar10": "cifar100", "cifar100": "cifar10"}[family]
    return columns(f"{family}/test", [f"{family}-c"], [f"{other}/test", "svhn/test", "tiny-imagenet/val"])


def calibration_columns(recipe: str) -> list[Column]:
    """Return the columns about calibration, those with T last."""
    test = f"{RECIPES[recipe].recipe.train_set.partition('/')[0]}/test"
    scaled = {"posthoc": "temperature"}
    return [
        Column("ECE", Quantity(test, "ece")),
        Column("AdaECE", Quantity(test, "adaptive_ece")),
        Column("T", Quantity(test, "temperature", **scaled), 1),
        Column("ECE with T", Quantity(test, "ece", **scaled)),
        Column("AdaECE with T", Quantity(test, "adaptive_ece", **scaled)),
    ]


def own_length(recipe: str) -> Training:
    """Return the training of a recipe as it stands."""
    return Training(recipe, (), RECIPES[recipe].recipe.epochs, "bfloat16")


def headline(found: Mapping[Training, Aggregation], recipe: str) -> str:
    """Return the tables of a recipe at its own length: ours, and the paper's with its networks."""
    training = own_length(recipe)
    tables = [beside_paper(found, training, own(recipe)) for own in (standard_columns, calibration_columns)]
    return "\n".join([f"### {training}\n", *tables])


def beside_paper(found: Mapping[Training, Aggregation], training: Training, own: Sequence[Column]) -> str:
    """Return a table of ours, and the paper's with its networks; without columns of T where nothing has one."""
    aggregation = found.get(training, Aggregation([]))
    kept = ["dnn", "mixup", "regmixup"]
    labels = [*kept, *(name for name in METHODS if name in aggregation.labels and name not in kept)]
    own = [column for column in own if column.quantity.posthoc == "none" or column.quantity in aggregation.quantities]
    lines = measured(own, training, aggregation, labels)
    for network in ("resnet50", "wrn28-10"):
        for method in labels:
            place = {"method": method, "network": network, "train_set": RECIPES[training.recipe].recipe.train_set}
            asked = [{name: getattr(one.quantity, name) for name in ("dataset", "metric", "posthoc")} for one in own]
            values = [paper_value(**place, **what) for what in asked]
            if any(values):
                cells = [f"{c.scale * v.value:.2f}" if v else "–" for c, v in zip(own, values, strict=True)]
                lines.append([f"{method}, the paper's {prose(network)}", "350", "5", *cells, ""])
    return markdown_table(["", "epochs", "n", *headings(own), "runs"], lines)


def others(found: Mapping[Training, Aggregation]) -> str:
    """Return others' numbers, each beside ours at the same recipe and length."""
    known = tomllib.loads((DOCS / "others.toml").read_text(encoding="utf-8"))
    lines = []
    for entry in known["entry"]:
        training = next(
            (t for t in found if t.is_usual and (t.recipe, t.epochs) == (entry["recipe"], entry["epochs"])), None
        )
        aggregation = found[training] if training is not None else Aggregation([])
        test = RECIPES[entry["recipe"]].recipe.train_set.partition("/")[0] + "/test"
        near = ["cifar10/test" if test.startswith("cifar100/") else "cifar100/test", "tiny-imagenet/val"]
        cells = [_beside(entry, "accuracy", [Column("", Quantity(test, "accuracy"))], aggregation)]
        by_msp = {"scale": 100, "score": "max_probability"}
        cells.append(_beside(entry, "near", [Column("", Quantity(n, "auroc"), **by_msp) for n in near], aggregation))
        for name, scale in (("aurc", 1000), ("failure_auroc", 100)):
            cells.append(_beside(entry, name, [Column("", Quantity(test, name), scale)], aggregation))
        rows = Column("", Quantity(test, "accuracy")).rows(aggregation, entry["method"])
        counts = f"{entry['runs']} / {len(rows)}"
        first = [entry["who"], entry["method"], f"{prose(test)}, {entry['epochs']} epochs", counts]
        lines.append([*first, *cells, fingerprints([rows]) or "missing"])
    heads = ["", "method", "ResNet-18", "n", "accuracy", "near-OOD AUROC", "AURC", "failure AUROC", "runs"]
    sources = [f"- {who}: {' '.join(text.split())}" for who, text in known["sources"].items()]
    return f"{markdown_table(heads, lines)}\n" + "\n".join(sources) + "\n"


def _beside(entry: Mapping[str, str], name: str, own: Sequence[Column], aggregation: Aggregation) -> str:
    """Return their number / ours; ours is the mean over the columns, with its deviation where theirs has one."""
    if name not in entry:
        return ""
    found = aggregation.average([column.quantity._replace(score=column.score) for column in own], entry["method"])
    values = [own[0].scale * value for value in found.values()]
    spread = f" ± {stdev(values):.2f}" if "±" in entry[name] and len(values) > 1 else ""
    return f"{entry[name]} / {mean(values):.2f}{spread}" if values else f"{entry[name]} / –"


def planned_lengths() -> list[int]:
    """Return the lengths that the study `length` asks for."""
    return sorted({planned.config.epochs for planned in load_study("length").runs()})


def length_table(found: Mapping[Training, Aggregation]) -> str:
    """Return all numbers of the figure."""
    own = standard_columns(LENGTH["RECIPE"])
    lines = [
        line
        for training, aggregation in LENGTH["at_lengths"](found, planned_lengths()).items()
        for line in measured(
            own, training, aggregation, [name for name in LENGTH["LABELS"] if name in aggregation.labels]
        )
    ]
    return markdown_table(["", "epochs", "n", *headings(own), "runs"], lines)


def runs_table(found: Sequence[Archived]) -> str:
    """Return every run behind the page: fingerprint, method, seed, minutes, hardware."""
    lines: dict[str, list[str]] = {}  # of a run with several lines, the first
    for one in found:
        run, config = one.record, one.record.config
        record = run.provenance
        numbers = [str(config["seed"]), str(config["epochs"]), f"{record['seconds'] / 60:.1f}"]
        how = record["execution"].partition(": ")[2] + (f", {n} members" if (n := config["members"]) > 1 else "")
        version = f"{(record.get('commit') or '–')[:8]}, {record['versions']['numerics']}"
        place = [one.folder.parent.name, one.planned.method]
        lines.setdefault(run.key, [f"`{run.key}`", *place, *numbers, record["device"], how, version])
    heads = ["run", "study", "method", "seed", "epochs", "minutes", "hardware", "executed in", "commit, numerics"]
    return markdown_table(heads, lines.values())


def precision_runs(found: Sequence[Archived]) -> str:
    """Return the runs behind the table of precisions."""
    runs: dict[str, list[str]] = {}
    for one in found:
        if one.study == "precision":
            runs.setdefault(one.record.config["precision"], []).append(f"`{one.record.key}`")
    return "Runs: " + ("; ".join(f"{name} {' '.join(own)}" for name, own in runs.items()) or "none") + ".\n"


def costs(found: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return what each study cost and what is left of it: those with archives and those of the headline's recipes."""
    begun, lines = {one.study for one in found}, []
    for name in studies():
        study = load_study(name)
        if name in begun or {part.recipe for part in study.parts} <= set(FIELD):
            plan = tasks(name, results)
            measured = f"{sum(task.done for task in plan)} of {len(plan)}"
            lines.append([name, measured, cost(name, results), str(estimate(plan)), f"`{command(name).strip()}`"])
    return markdown_table(["study", "lines measured", "cost so far", "left", "the command that continues it"], lines)


def page(found: Mapping[Training, Aggregation], every: Mapping[Training, Aggregation], results: Path = RESULTS) -> str:
    """Return docs/results.md. found: the rows of everything that is archived; every: with replaced trainings, too."""
    archived = everything(results)
    precision = runpy.run_path(str(ROOT / "benchmarks" / "equivalence.py"))["table"](results / "precision")
    own = standard_columns(LENGTH["RECIPE"])
    parts = [
        PAGE,
        "## Does RegMixup's deficit in OOD detection close with longer training?\n",
        f"{LENGTH['answer'](found, planned_lengths(), every)}\n",
        "Where the deficit of short trainings may come from: [whose batch-norm "
        "statistics](#whose-batch-norm-statistics).\n",
        f"![Metrics against training length](images/{FIGURE.name})\n",
        length_table(found),
        f"{command('length')}\n{command('length-mixup')}\n",
        "## Which of RegMixup's choices matter?\n",
        f"![Differences from plain training, choice by choice](images/{CAUSES_FIGURE.name})\n",
        CAUSES["section"](found, own, headings(own)),
        f"{command('causes')}\n",
        "## Whose batch-norm statistics?\n",
        CAUSES["statistics_section"](found, own, headings(own)),
        f"{command('batch-norm')}\n{command('clean-statistics')}\n",
        "## Which score?\n",
        SCORES["section"](found, LENGTH["RECIPE"], "cifar10/test", ("cifar100/test", "svhn/test", "tiny-imagenet/val")),
        "## The headline\n",
        "The field's ResNet-18 (OpenOOD's training) at its own length; below ours the paper's means over 5 seeds with "
        "larger networks and 350 epochs. Calibration is in a table of its own. T is chosen by ECE on train images that "
        "a companion was trained without, once for all seeds of a method; intervals do not cover that choice.\n",
        STANDARD["answer"](
            found.get(own_length(LENGTH["RECIPE"]), Aggregation([])), own, headings(own), CAUSES["compared"]
        ),
        f"![Differences from plain training, method by method](images/{STANDARD_FIGURE.name})\n",
        *(headline(found, recipe) for recipe in FIELD),
        "\n".join(map(command, ("standard", "constrained", "cifar100"))) + "\n",
        "## Beside others' numbers\n",
        "Theirs / ours, with the same network and length; what else differs is listed below the table. ± is the "
        "standard deviation over runs, where they give one. Detection is by MSP, as they do; near-OOD is the mean of "
        "the other CIFAR and Tiny-ImageNet.\n",
        others(found),
        "## bfloat16 against float32\n",
        "RegMixup, ResNet-18 on CIFAR-10, 30 epochs: mean ± standard deviation over seeds, AUROC by Dempster-Shafer. "
        "Two one-sided tests with margins that were written down before the first run; the intervals are Welch's. "
        "Equivalent: the whole interval lies within the margin.\n",
        f"{precision}\n",
        precision_runs(archived),
        f"{command('precision')}\n    python benchmarks/equivalence.py results/precision\n",
        "## What it cost, and what is missing\n",
        "Training alone, companions included, each network in the study that trained it; a line is a method at one "
        "seed, and a network may have several lines. The command with `--dry-run` says what is left line by line.\n",
        costs(archived, results),
        "## The runs\n",
        "Minutes are of training alone; runs that shared a GPU took longer than they would have alone.\n",
        runs_table(archived),
    ]
    return "\n".join(parts)


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """Return every generated file with its text."""
    found, own = settings(everything(results)), standard_columns(LENGTH["RECIPE"])
    standard, title = found.get(own_length(LENGTH["RECIPE"]), Aggregation([])), "Differences from plain training"
    drawn, replaced = (own, headings(own)), REPLACED["read"](results / REPLACED["PLACE"].name)
    every = settings(everything(results), replaced)
    return {
        ROOT / "README.md": front_page(found),
        results / "README.md": readme(results),
        DOCS / "results.md": page(found, every, results),
        DOCS / "claims.md": CLAIMS["ledger"](found, every),
        FIGURE: LENGTH["measured_figure"](found, planned_lengths(), own, interval),
        CAUSES_FIGURE: CAUSES["figure"](
            CAUSES["setting"](found)[1], *drawn, CAUSES["DRAWN"], f"{title}, choice by choice"
        ),
        STANDARD_FIGURE: CAUSES["figure"](
            standard, *drawn, {name: name for name in METHODS}, f"{title}, method by method"
        ),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
