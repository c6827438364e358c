"""`regmixup study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.engine_flags import EngineFlags
from regmixup.cli.launching import Launching
from regmixup.cli.parsing import Switch, parse
from regmixup.cli.plain_table import plain_table
from regmixup.data.folders import describe_classes
from regmixup.progress import LiveProgress
from regmixup.report.build import report, terminal_tables
from regmixup.report.results import Results
from regmixup.report.selected import CAPTION, Selected
from regmixup.study.check import explain_missing, missing_data
from regmixup.study.cost import estimate
from regmixup.study.plan import PlannedRun, Scale, load_study
from regmixup.study.runner import run_study
from regmixup.study.select import take_selected
from regmixup.study.status import run_status, show_status
from regmixup.study.timing import HEADS, timing_lines
from regmixup.training.config import resolve
from regmixup.training.engine import Engine


@dataclass(frozen=True)
class StudyVerb(Launching):
    """Train and evaluate every run of a study, then print its tables and write its report.

    Work that is done already is not done again, so the same command resumes an interrupted study.

    Example: regmixup study digits

    Example: regmixup study accuracy --dry-run

    Example: regmixup study accuracy --devices cuda:0 cuda:1

    Example: regmixup study length --archive results/length --minutes 55
    """

    study: Positional[str]
    """A study's name (regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    scale: Scale = "full"
    """smoke: the same file in seconds on a CPU, on tiny embedded data; it shows that the file works and nothing else.
    Its runs lie in the folder smoke under --runs."""
    selected: Path | None = None
    """selected.json of a study that selects: its methods and recipes have the values chosen there. The study is then
    called NAME-selected."""
    engine: EngineFlags = field(default_factory=Engine)
    archive: Path | None = None
    """Also keep every finished run here without its weights and predictions: a few hundred kilobytes. A run archived
    here is done, wherever it was trained."""
    logits: Switch = False
    """Archive the logits of test and OOD sets, too, in float16."""
    minutes: float | None = None
    """Begin no run that would not end within so many minutes, judged by the pace of earlier ones; say what is left."""
    dry_run: Switch = False
    """Print the runs, whether they are done, the time that is left and what data is missing, and do nothing."""
    status: Switch = False
    """Show where every run stands, read from the run folders, and do nothing."""


def main(args: Sequence[str]) -> None:
    """Run a study, or say what it would do or has done."""
    verb = parse(StudyVerb, "study", args)
    study = load_study(verb.study, verb.scale)
    if verb.selected is not None:
        study = take_selected(study, verb.selected)
    runs = verb.runs
    if verb.scale == "smoke":
        runs = runs / "smoke"
        if verb.launcher == "local" and not (verb.device or verb.devices):
            verb = replace(verb, device="cpu")
    launcher = verb.launch_with()
    plan = list(study.runs())
    archives = [verb.archive] if verb.archive is not None else []
    console = Console()
    if verb.status:
        show_status(plan, runs, launcher.device, study.title, console, archives)
    elif verb.dry_run:
        _list_runs(plan, runs, launcher.device, archives)
        _say_what_is_left(plan, runs, launcher.device, archives)
        if missing := missing_data(plan, verb.root):
            print(explain_missing(missing))
    else:
        for name in dict.fromkeys(planned.config.train_set for planned in plan):
            if classes := describe_classes(name, verb.root):
                print(classes)
        with LiveProgress(console, total=len(plan)) as progress:
            folder = run_study(
                study, runs, root=verb.root, workers=verb.workers, engine=verb.engine, progress=progress,
                launcher=launcher, archive=verb.archive, logits=verb.logits, minutes=verb.minutes,
            )  # fmt: skip
        if verb.minutes is not None:
            _say_what_is_left(plan, runs, launcher.device, archives)
            if not (folder / "rows.csv").is_file():
                return
        results = Results.open(folder)
        for table in terminal_tables(results):
            console.print(table)
        if results.selected:
            choices = Selected(results.selected)
            console.print(plain_table(CAPTION, choices.heads(), choices.lines()))
        if study.timing:
            lines = timing_lines(plan, runs, launcher.device)
            console.print(plain_table("Training cost, median over epochs", HEADS, lines))
        print(f"rows    {folder / 'rows.csv'}\nreport  {report(results)[0]}")


def _list_runs(plan: Sequence[PlannedRun], runs: Path, device: torch.device, archives: Sequence[Path]) -> None:
    """Print every run with its folder, and whether it is done."""
    width = max(len(planned.name) for planned in plan)
    for planned in plan:
        state = "done" if run_status(planned, runs, device, archives).state == "done" else "to do"
        print(f"{state:6} {planned.name:{width}}  {runs / resolve(planned.config, device).name}")


def _say_what_is_left(plan: Sequence[PlannedRun], runs: Path, device: torch.device, archives: Sequence[Path]) -> None:
    """Print how many networks are still to be trained, and how long that takes."""
    waiting = [planned for planned in plan if run_status(planned, runs, device, archives).state != "done"]
    print(f"left   {estimate(waiting or plan[:0], runs, device)}")
