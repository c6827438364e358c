"""Tables that end a study in the terminal: what was selected on what, and what an epoch of each method costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text

from regmixup.storage import read_json
from regmixup.study.cost import models
from regmixup.study.grid import shown
from regmixup.study.plan import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.run import Run

REFERENCE = "dnn"


def selected_table(folder: Path) -> Table | None:
    """What `selected.json` in a study's folder says; None where nothing was selected."""
    if not (folder / "selected.json").is_file():
        return None
    lines = []
    for choice in read_json(folder / "selected.json"):
        values = ", ".join(f"{name} = {shown(value)}" for name, value in choice["values"].items()) or "–"
        by = f"{choice['by']} of {choice['candidates']}" if choice["candidates"] > 1 else choice["by"] or "–"
        score = f"{100 * choice['score']:.2f}" if choice["score"] is not None else "–"
        temperature = f"{choice['temperature']:.3f}" if choice["temperature"] is not None else "–"
        on = choice["on"] + (", companion" if choice["calibration"] == "companion" else "")
        seeds = len(choice["seeds"])
        lines.append([choice["recipe"], choice["method"], values, by, score, temperature, on, str(seeds)])
    heads = ("recipe", "method", "selected", "by", "score, %", "T (by ECE)", "on", "seeds")
    return _table("Selected on validation sets, mean over seeds", heads, lines)


def epoch_seconds(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> dict[tuple[str, str], float]:
    """For each recipe and label the median time of an epoch of all models together, the first epoch left out."""
    found: dict[tuple[str, str], list[float]] = {}
    for planned in plan:
        for config in (resolve(config, device) for config in models(planned)):
            records: list[dict[str, Any]] = Run(runs / config.name, config).history()[1:]
            times = [record["seconds"] * planned.config.members for record in records if "seconds" in record]
            found.setdefault((planned.recipe, planned.label), []).extend(times)
    return {place: median(times) for place, times in found.items() if times}


def timing_table(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> Table | None:
    """Seconds per epoch, and relative to plain training under the same recipe; None where no history says."""
    seconds = epoch_seconds(plan, runs, device)
    lines = []
    for (recipe, label), own in seconds.items():
        reference = seconds.get((recipe, REFERENCE))
        relative = f"{own / reference:.2f}" if reference else "–"
        lines.append([recipe, label, f"{own:.3g}", relative])
    heads = ("recipe", "method", "seconds per epoch", f"relative to {REFERENCE}")
    return _table("Training cost, median over epochs", heads, lines) if lines else None


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(title=Text(title, "bold"), box=box.SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(heads):
        table.add_column(head, overflow="fold" if index else "ellipsis")
    for line in lines:
        table.add_row(*map(Text, line))
    return table
