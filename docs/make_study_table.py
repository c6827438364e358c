"""Write what is computed into the study files and docs/studies.md: costs, the table of studies, the step times.

    python docs/make_study_table.py

Run it after a change of src/regmixup/study/step_times.toml, status.py or a study file; a test compares.
"""

import re
from pathlib import Path

from regmixup.study.plan import load_study, read_header, studies
from regmixup.study.status import estimate, step_times

PAGE = Path(__file__).parent / "studies.md"
STUDIES_HEAD = "| study | what | runs | cost | remakes |\n|---|---|---|---|---|\n"
TIMES_HEAD = "| measured | network | ms per step |\n|---|---|---|\n"


def studies_table() -> str:
    """Return a line per study."""
    lines = []
    for name, path in studies().items():
        header, runs = read_header(path), sum(1 for _ in load_study(name).runs())
        remakes = ", ".join(header.paper) or "–"
        lines.append(f"| `{name}` | {header.title} | {runs} | {header.cost} | {remakes} |")
    return STUDIES_HEAD + "\n".join(lines) + "\n"


def times_table() -> str:
    """Return a line per network of each section of the step times."""
    lines = []
    for section, networks in step_times().items():
        for network, times in ((name, own) for name, own in networks.items() if name != "how"):
            shown = ", ".join(f"{method} {ms:g}" for method, ms in times.items())
            lines.append(f"| {section} | {network} | {shown} |")
    return TIMES_HEAD + "\n".join(lines) + "\n"


def with_cost(name: str) -> str:
    """Return the text of a study file with its cost."""
    text = studies()[name].read_text(encoding="utf-8")
    return re.sub(r"(?m)^cost = .*$", f'cost = "{estimate(load_study(name).runs())}"', text, count=1)


def with_tables() -> str:
    """Return the page with its two tables replaced."""
    text = PAGE.read_text(encoding="utf-8")
    for head, table in ((STUDIES_HEAD, studies_table), (TIMES_HEAD, times_table)):
        text = re.sub(rf"{re.escape(head)}(\|.*\n)*", lambda _, make=table: make(), text)
    return text


if __name__ == "__main__":
    for name, path in studies().items():
        path.write_text(with_cost(name), encoding="utf-8")
    PAGE.write_text(with_tables(), encoding="utf-8")
