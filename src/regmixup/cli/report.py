"""`regmixup report`: write a study's report again, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from regmixup.cli.parsing import Switch, parse
from regmixup.names import printable
from regmixup.report.openood import write_openood
from regmixup.report.output import print_report, write_report
from regmixup.report.results import load_results


@dataclass(frozen=True)
class ReportVerb:
    """Print the tables of stored results, and write them as a page, Markdown, LaTeX and CSV. Nothing is recomputed.

    Example: regmixup report digits
    """

    study: Positional[Annotated[str, arg(metavar="STUDY")]]
    """Study, by its name, TOML file or folder, such as runs/study-digits."""
    runs: Path = Path("runs")
    """Folder with the run folders or archives, for a study given by name or file."""
    out: Path | None = None
    """Folder to write to. Default: the study's own."""
    openood: Switch = False
    """Instead, write openood.csv: for each method and score, a row in the columns of OpenOOD v1.5's leaderboard."""


def main(args: Sequence[str]) -> None:
    verb = parse(ReportVerb, "report", args)
    folder = Path(verb.study)
    if not folder.is_dir():  # a study by name or file
        from regmixup.study.plan import load_study
        from regmixup.study.runner import collect

        folder = collect(load_study(verb.study), verb.runs, verb.out)
    results = load_results(folder, verb.out)
    if verb.openood:
        path, text = write_openood(results)
        print(printable(text, keep="\n") + str(path))
    else:
        print_report(results, write_report(results), Console())
