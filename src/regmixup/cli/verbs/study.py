"""`regmixup study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.parsing import Surroundings, Switch, parse
from regmixup.progress import LiveProgress
from regmixup.report.build import report
from regmixup.study.check import explain_missing, missing_data
from regmixup.study.cost import estimate
from regmixup.study.plan import Scale, load_study
from regmixup.study.runner import run_study
from regmixup.study.status import run_status, show_status
from regmixup.study.summaries import selected_table, timing_table
from regmixup.training.config import choose_device, resolve


@dataclass(frozen=True)
class StudyVerb(Surroundings):
    """Train and evaluate every run of a study, then print its tables and write its report.

    Work that is done already is not done again, so the same command resumes an interrupted study.
    Example: regmixup study digits
    Example: regmixup study accuracy --dry-run
    """

    study: Positional[str]
    """A study's name (regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    scale: Scale = "full"
    """smoke: the same file in seconds on a CPU, on tiny embedded data; it shows that the file works and nothing else.
    Its runs lie in the folder smoke under --runs."""
    dry_run: Switch = False
    """Print the runs, whether they are done, the time that is left and what data is missing, and do nothing."""
    status: Switch = False
    """Show where every run stands, read from the run folders, and do nothing."""


def main(args: Sequence[str]) -> None:
    """Run a study, or say what it would do or has done."""
    verb = parse(StudyVerb, "study", args)
    study = load_study(verb.study, verb.scale)
    smoke = verb.scale == "smoke"
    runs = verb.runs / "smoke" if smoke else verb.runs
    device = choose_device(verb.device or ("cpu" if smoke else None))
    plan = list(study.runs())
    console = Console()
    if verb.status:
        show_status(plan, runs, device, study.title, console)
        return
    if verb.dry_run:
        for planned in plan:
            status = run_status(planned, runs, device)
            folder = runs / resolve(planned.config, device).name
            print(f"{'done' if status.state == 'done' else 'to do':6} {planned.label:12} {folder}")
        print(f"left   {estimate(plan, runs, device)}")
        if missing := missing_data(plan, verb.root):
            print(explain_missing(missing))
        return
    with LiveProgress(console, total=len(plan)) as progress:
        folder = run_study(study, runs, root=verb.root, device=device, workers=verb.workers, progress=progress)
    table, page = report(folder)
    console.print(table)
    for more in (selected_table(folder), timing_table(plan, runs, device) if study.timing else None):
        if more is not None:
            console.print(more)
    print(f"rows    {folder / 'rows.csv'}\nreport  {page}")
