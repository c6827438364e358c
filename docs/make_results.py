"""Writes results/README.md from the archived runs under results/, one folder per study.

    python docs/make_results.py

To be run after runs were added; a test compares.
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

import torch

from regmixup.methods import METHODS
from regmixup.storage import read_table
from regmixup.study.archive import archived_rows, find_archive
from regmixup.study.plan import PlannedRun, load_study
from regmixup.training.config import resolve
from regmixup.types import Row

RESULTS = Path(__file__).parent.parent / "results"
HEAD = """# Results

What was measured with this package, in percent: the mean over seeds, ± the standard deviation where there are several.
AUROC and AUGRC (x 1000, lower is better) are by each method's own score: Dempster-Shafer, entropy for Mixup.
CIFAR-10-C was rebuilt with `regmixup data corrupt`. Every folder beside this file is an archived run
([what it holds](../docs/studies.md#archives-and-time-limits)), named by its configuration's fingerprint. Runs that
shared a GPU took longer than they would have alone. This page is written by `python docs/make_results.py`.
"""


def archives(study: str) -> list[tuple[PlannedRun, Path]]:
    """Return the planned runs of a study that are archived, with their folders."""
    place, device = RESULTS / study, torch.device("cuda")
    plan = [(p, find_archive([place], resolve(p.config, device).name, p.stem)) for p in load_study(study).runs()]
    return [(planned, folder) for planned, folder in plan if folder is not None]


def section(study: str) -> str:
    """Return a study's table, what it cost, and how it is continued."""
    found = archives(study)
    rows: dict[str, list[list[Row]]] = {}
    for planned, folder in found:
        rows.setdefault(planned.label, []).append(archived_rows(folder, planned.stem))
    test, shift, ood = _sets(found[0][0])
    heads = [
        "",
        "n",
        "accuracy",
        *(f"{name} accuracy" for name in shift),
        *(f"{n.partition('/')[0]} AUROC" for n in ood),
    ]
    lines = [" | ".join([*heads, "ECE", "AUGRC"]), "|".join(["---"] * (len(heads) + 2))]
    for label, runs in rows.items():
        score = METHODS[label.partition("(")[0]].score
        cells = [label, str(len(runs)), _cell(runs, test, "accuracy")]
        cells += [_cell(runs, f"{name} (rebuilt)", "accuracy", corruption="mean") for name in shift]
        cells += [_cell(runs, name, "auroc", score=score) for name in ood]
        cells += [_cell(runs, test, "ece"), _cell(runs, test, "augrc", score=score, scale=1000)]
        lines.append(" | ".join(cells))
    records = {folder: read_table(folder / "provenance.json") for _, folder in found}
    minutes = sum(record["seconds"] for record in records.values()) / 60
    devices = ", ".join(sorted({record["device"] for record in records.values()}))
    left = len(list(load_study(study).runs())) - len(found)
    text = f"{len(records)} networks, {minutes:.0f} minutes of training on {devices}; {left} lines are missing."
    command = f"    regmixup study {study} --archive results/{study} --device cuda --dry-run"
    table = "\n".join(f"| {line} |" for line in lines)
    return f"## {load_study(study).title}\n\n{table}\n\n{text} What they are, and what they cost:\n\n{command}\n"


def _sets(planned: PlannedRun) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return planned.evaluate.test, planned.evaluate.shift, planned.evaluate.ood


def _cell(
    runs: Iterable[list[Row]], dataset: str, metric: str, *, score: str = "", corruption: str = "", scale: int = 100
) -> str:
    place = (dataset, metric, score, corruption, "none")
    values = [
        scale * row.value
        for rows in runs
        for row in rows
        if (row.dataset, row.metric, row.score, row.corruption, row.posthoc) == place
    ]
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def page() -> str:
    """Return the whole page."""
    studies = sorted(path.name for path in RESULTS.iterdir() if path.is_dir())
    return "\n".join([HEAD, *map(section, studies)])


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
