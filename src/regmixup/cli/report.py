"""`regmixup report`: write a study's report again, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.parsing import parse
from regmixup.report.output import terminal_tables, write_report
from regmixup.report.results import Results


@dataclass(frozen=True)
class ReportVerb:
    """Print the tables of stored results, and write them as a page, Markdown, LaTeX and CSV. Nothing is recomputed.

    Example: regmixup report digits
    """

    what: Positional[tuple[str, ...]]
    """A study by its name or TOML file, or its folder; or any number of run folders that a study has evaluated."""
    runs: Path = Path("runs")
    """Folder with the run folders, for a study by name or file."""
    scale: Literal["full", "smoke"] = "full"
    """smoke: of a study that was run with --scale smoke; its runs lie in the folder smoke under --runs."""
    out: Path | None = None
    """Folder to write to; default: the study's own, or `report` beside the run folders."""


def main(args: Sequence[str]) -> None:
    verb = parse(ReportVerb, "report", args)
    results = _results(verb)
    console = Console()
    for table in terminal_tables(results):
        console.print(table)
    for path in write_report(results):
        print(path)


def _results(verb: ReportVerb) -> Results:
    if not verb.what:
        raise ValueError("report needs a study or run folders, got nothing")
    first = Path(verb.what[0])
    studies = [one for one in verb.what if (Path(one) / "study.json").is_file()]
    if not studies and (first / "config.json").is_file():
        return Results.of_runs(verb.what, verb.out or first.parent / "report")
    if len(verb.what) > 1:
        given = f"{', '.join(studies)} among {len(verb.what)} folders" if studies else ", ".join(verb.what)
        raise ValueError(f"report takes one study, or any number of run folders, got {given}")
    return Results.open(first if first.is_dir() else _study_folder(verb), verb.out)


def _study_folder(verb: ReportVerb) -> Path:
    """Return the folder of a study by name or file, with the rows of all its runs that are archived or measured."""
    from regmixup.study.plan import load_study, studies
    from regmixup.study.runner import collect, study_folder

    runs = verb.runs
    own = runs / f"study-{verb.what[0]}"
    if verb.what[0] not in studies() and (own / "study.json").is_file():  # by the name that its file has given it
        return own
    study = load_study(verb.what[0], verb.scale)
    if verb.scale == "smoke" and (runs / "smoke").is_dir():  # else a folder of archives, which has no such folder
        runs /= "smoke"
    if folder := collect(study, runs, verb.out):
        return folder
    folder = study_folder(study, runs)
    if verb.scale == "full" and not folder.is_dir() and (runs / "smoke" / f"{folder.name}-smoke").is_dir():
        raise ValueError(f"{folder} must hold the results of the study, run at smoke scale: add --scale smoke")
    raise ValueError(f"runs must hold results of the study {verb.what[0]}, got {runs}: no run of it is done there")
