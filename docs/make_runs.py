"""The last sections of docs/results.md, about runs: precision, cost, and a list. make_results.py calls one for each."""

import runpy
from collections.abc import Sequence
from pathlib import Path

from make_archives import RESULTS, Archived, command, cost, tasks
from make_tables import FIELD

from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study, studies
from regmixup.study.status import estimate

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "equivalence.py"
PRECISION = (
    "RegMixup, ResNet-18 on CIFAR-10, 30 epochs: mean ± standard deviation over seeds, AUROC by Dempster-Shafer. "
    "Two one-sided tests with margins that were written down before the first run; the intervals are Welch's. "
    "Equivalent: the whole interval lies within the margin.\n"
)
COSTS = (
    "Training alone, companions included, each network in the study that trained it; a line is a method at one "
    "seed, and a network may have several lines. The command with `--dry-run` says what is left line by line.\n"
)
RUNS = "Minutes are of training alone; runs that shared a GPU took longer than they would have alone.\n"


def precision(found: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return the table of precisions and the runs behind it."""
    table = runpy.run_path(str(BENCHMARK))["table"](results / "precision")
    runs: dict[str, list[str]] = {}
    for one in found:
        if one.study == "precision":
            runs.setdefault(one.record.config["precision"], []).append(f"`{one.record.key}`")
    told = "; ".join(f"{name} {' '.join(own)}" for name, own in runs.items()) or "none"
    return f"{PRECISION}\n{table}\n\nRuns: {told}.\n"


def costs(found: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return what each study cost and what is left of it: those with archives and those of the headline's recipes."""
    begun, lines = {one.study for one in found}, []
    for name in studies():
        study = load_study(name)
        if name in begun or {part.recipe for part in study.parts} <= set(FIELD):
            plan = tasks(name, results)
            measured = f"{sum(task.done for task in plan)} of {len(plan)}"
            lines.append([name, measured, cost(name, results), str(estimate(plan)), f"`{command(name).strip()}`"])
    heads = ["study", "lines measured", "cost so far", "left", "the command that continues it"]
    return f"{COSTS}\n{markdown_table(heads, lines)}"


def table(found: Sequence[Archived]) -> str:
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
    return f"{RUNS}\n{markdown_table(heads, lines.values())}"
