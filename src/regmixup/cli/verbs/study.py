"""`regmixup study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.launching import Launching
from regmixup.cli.parsing import Switch, parse
from regmixup.progress import LiveProgress
from regmixup.report.build import report, terminal_tables
from regmixup.report.results import Results
from regmixup.study.plan import load_study
from regmixup.study.runner import run_study
from regmixup.training.config import resolve
from regmixup.training.run import Run


@dataclass(frozen=True)
class StudyVerb(Launching):
    """Train and evaluate every method and seed of a study, then print its table and write its report.

    Work that is done already is not done again, so the same command resumes an interrupted study.
    Example: regmixup study digits
    Example: regmixup study digits --devices cuda:0 cuda:1
    """

    study: Positional[str]
    """A study's name (regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    dry_run: Switch = False
    """Print the runs and whether they are done, and do nothing."""


def main(args: Sequence[str]) -> None:
    """Run a study, or say what it would do."""
    verb = parse(StudyVerb, "study", args)
    study = load_study(verb.study)
    plan = list(study.runs())
    launcher = verb.launch_with()
    if verb.dry_run:
        for planned in plan:
            config = resolve(planned.config, launcher.device)
            run = Run(verb.runs / config.name, config)
            print(f"{'done' if run.finished else 'to do':6} {planned.method:12} {run.folder}")
        return
    console = Console()
    with LiveProgress(console, total=len(plan)) as progress:
        folder = run_study(study, verb.runs, root=verb.root, workers=verb.workers, progress=progress, launcher=launcher)
    results = Results.open(folder)
    for table in terminal_tables(results):
        console.print(table)
    print(f"rows    {folder / 'rows.csv'}\nreport  {report(results)[0]}")
