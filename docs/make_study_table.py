"""Writes what is computed into the study files and docs/studies.md: every study's cost, and the table of studies.

    python docs/make_study_table.py

To be run after a change of src/regmixup/study/cost.py or of a study file; a test compares.
"""

import re
import tomllib
from pathlib import Path

from regmixup.study.cost import cost_line
from regmixup.study.plan import header, load_study, studies

PAGE = Path(__file__).parent / "studies.md"
HEAD = "| study | what | runs | cost | remakes |\n|---|---|---|---|---|\n"


def table() -> str:
    """A line per study."""
    lines = []
    for name, path in studies().items():
        title = tomllib.loads(path.read_text(encoding="utf-8"))["title"]
        own, runs = header(path), sum(1 for _ in load_study(name).runs())
        lines.append(f"| `{name}` | {title} | {runs} | {own['cost']} | {own.get('paper', '–')} |")
    return HEAD + "\n".join(lines) + "\n"


def with_cost(name: str) -> str:
    """A study file with its cost in its header."""
    text = studies()[name].read_text(encoding="utf-8")
    return re.sub(r"(?m)^#   cost      .*$", f"#   cost      {cost_line(load_study(name))}", text, count=1)


def with_table() -> str:
    """The page with the table in the place of the one it has."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _: table(), text)


if __name__ == "__main__":
    for name, path in studies().items():
        path.write_text(with_cost(name), encoding="utf-8")
    PAGE.write_text(with_table(), encoding="utf-8")
