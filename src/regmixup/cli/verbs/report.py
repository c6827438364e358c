"""`regmixup report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.parsing import parse
from regmixup.report.build import report


@dataclass(frozen=True)
class ReportVerb:
    """Print a finished study's table again and rewrite its report.html from the stored results.

    Example: regmixup report runs/study-digits
    """

    folder: Positional[Path]
    """A study's folder, with rows.csv and study.json."""


def main(args: Sequence[str]) -> None:
    """Remake the report."""
    table, page = report(parse(ReportVerb, "report", args).folder)
    Console().print(table)
    print(f"report  {page}")
