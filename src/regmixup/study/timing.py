"""What an epoch of each method costs, from the histories of a study's runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from regmixup.methods import REFERENCE
from regmixup.study.cost import models
from regmixup.study.plan import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.run import Run

HEADS = ("recipe", "method", "seconds per epoch", f"relative to {REFERENCE}")


def epoch_seconds(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> dict[tuple[str, str], float]:
    """For each recipe and label the median time of an epoch of all its models, the first epoch left out."""
    found: dict[tuple[str, str], list[float]] = {}
    for planned in plan:
        for config in (resolve(config, device) for config in models(planned)):
            records = Run(runs / config.name, config).history()[1:]
            times = [record["seconds"] * planned.config.members for record in records if "seconds" in record]
            found.setdefault((planned.recipe, planned.label), []).extend(times)
    return {place: median(times) for place, times in found.items() if times}


def timing_lines(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> list[tuple[str, ...]]:
    """A line per recipe and label, under HEADS: absolute, and relative to plain training under the same recipe."""
    seconds = epoch_seconds(plan, runs, device)
    lines: list[tuple[str, ...]] = []
    for (recipe, label), own in seconds.items():
        reference = seconds.get((recipe, REFERENCE))
        lines.append((recipe, label, f"{own:.3g}", f"{own / reference:.2f}" if reference else "–"))
    return lines
