"""The state and the cost of a study: which runs are done, what they took, what is left, and what fits a time limit.

Times come from two sources. A similar run that was trained on the same kind of device says how long an epoch takes.
Where there is none, `step_times.toml` does, which says how each step was measured: a run costs epochs x images x
members x (time of a step / 128), plus a forward pass and the metrics of every image it is evaluated on.
"""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from regmixup import run_folder
from regmixup.config import check_number
from regmixup.data.catalogue import find
from regmixup.methods import REFERENCE
from regmixup.names import counted
from regmixup.storage import is_held
from regmixup.study.planned_run import PlannedRun
from regmixup.study.tasks import Task
from regmixup.training.config import TrainConfig, device_name, resolve
from regmixup.training.run import Run

# 1. By the table of step times

PASSES = {
    **dict.fromkeys(("label-smoothing", "mixup", "cutmix", "mixup+cutmix"), 1.0),
    **dict.fromkeys(("regmixup", "regcutmix", "regmixup+regcutmix", "reg-gaussian-noise"), 2.0),
    "regmixup+cutmix": 1.5,
}
"""Images that a step forwards, relative to plain training, of methods that add nothing else to a compiled step."""
FLOAT32_FACTOR = 6.8
"""Float32 relative to bfloat16 on an H200: an epoch of ResNet-18 with RegMixup takes 11.2 s, eager."""
MEASURE_MICROSECONDS = 20.0
"""Metrics and intervals, per evaluated image: 16 s for the 800,000 of a CIFAR-10 evaluation."""
START_SECONDS = 60.0
"""Before the first step on an accelerator: start and compilation."""
RESERVE = 1.1
"""Factor on the expected time of a run where there is a time limit."""
_CPU = torch.device("cpu")


@cache
def step_times() -> dict[str, Any]:
    """Read the measured step times: section -> network -> method -> milliseconds."""
    return tomllib.loads((resources.files("regmixup.study") / "step_times.toml").read_text(encoding="utf-8"))


def _times_of(network: str) -> dict[str, float] | None:
    """Return the step times of a network; SNGP's head takes no time worth a measurement of its own."""
    tables = (step_times()[section] for section in ("compiled", "cpu", "estimated"))
    return next((times for table in tables if (times := table.get(network.removesuffix("-sngp")))), None)


def device_of(network: str) -> str:
    """Return the device that the step times of a network belong to."""
    if network in step_times()["cpu"]:
        return "2 CPU cores"
    return "one H200" if _times_of(network) else "an unknown device"


def step_milliseconds(network: str, method: str, *, apart: bool = False) -> float | None:
    """Return the time of a training step with 128 images; None where nothing is known.

    Measured (compiled) where there is a measurement. Otherwise a method that forwards p times the images of plain
    training takes dnn + (p - 1) (regmixup - dnn), and any other dnn times its relative time in eager mode.
    apart: the p passes are separate; then each takes as long as a plain step, p dnn together.
    """
    times = _times_of(network)
    if times is None:
        return None
    plain = times["dnn"]
    # Relative times are those of ResNet-50, but for the two networks that are more like WRN-28-10.
    similar = "wrn28-10" if network in ("wrn28-10", "wrn28-10-sngp", "timm/resnet50") else "resnet50"
    compiled, eager = step_times()["compiled"][similar], step_times()["eager"][similar]
    if apart and method in PASSES:
        return float(plain * PASSES[method])
    if method in times:
        return float(times[method])
    if method in PASSES:
        return float(plain * (1 + (PASSES[method] - 1) * (compiled["regmixup"] / compiled["dnn"] - 1)))
    return float(plain * eager[method] / eager["dnn"] if method in eager else plain)


def training_minutes(method: str, config: TrainConfig) -> float | None:
    """Return the time of training one model by the table; None where nothing is known."""
    apart = getattr(config.objective, "passes", "joint") != "joint"
    step, images = step_milliseconds(config.network, method, apart=apart), find(config.train_set).images
    if step is None or images is None:
        return None
    slower = FLOAT32_FACTOR if config.precision == "float32" and "CPU" not in device_of(config.network) else 1.0
    return config.total_epochs * images * slower * step / 128 / 60_000


def evaluation_minutes(planned: PlannedRun) -> float | None:
    """Return the time of an evaluation: forward passes, a third of a step each, and metrics."""
    step = step_milliseconds(planned.config.network, REFERENCE)
    counts = [find(name).images for name in planned.evaluate.datasets()]
    if step is None or None in counts:
        return None
    milliseconds = planned.config.members * step / 3 / 128 + MEASURE_MICROSECONDS / 1000
    return sum(count for count in counts if count is not None) * milliseconds / 60_000


# 2. By the pace of similar runs


class Paces:
    """How long an epoch takes now: the median of the last three of the similar run that ended an epoch last.

    So the pace follows the load of a device up and down. places: the runs folder, then archives, which count where it
    has no similar run; none: all is from the table. device: what was trained on another kind does not count.
    """

    def __init__(self, places: Iterable[Path] = (), device: torch.device = _CPU) -> None:
        self.device = device_name(device)
        self.measured: dict[Any, float] = {}
        for place in dict.fromkeys(places):
            histories = [(path.stat().st_mtime_ns, path.parent) for path in place.glob(f"*/{run_folder.HISTORY}")]
            for written, folder in sorted(histories, reverse=True):
                with suppress(OSError, ValueError):  # damaged, not readable now, or a plug-in that is not here
                    kind, trained_on, seconds = _read_epochs(folder, written)
                    if len(seconds) > 1 and trained_on in (None, self.device):
                        self.measured.setdefault(kind, median(seconds[1:][-3:]))

    def epoch_seconds(self, planned: PlannedRun, config: TrainConfig) -> tuple[float | None, str]:
        """Return the seconds of an epoch of one of a planned run's models, None if unknown, and on which device."""
        if (measured := self.measured.get(_kind(config))) is not None:
            return measured, self.device
        # As planned, not as resolved for a device: step times are those of the device they name.
        minutes = training_minutes(planned.method, replace(config, precision=planned.config.precision))
        return 60 * minutes / config.total_epochs if minutes is not None else None, device_of(config.network)


@lru_cache(4096)
def _read_epochs(folder: Path, written: int) -> tuple[Any, str | None, list[float]]:
    """Read the kind of a run, its device if it is trained, and the seconds of its epochs, anew if `written` changes."""
    trained_on = run_folder.read_provenance(folder).get("device") if run_folder.has_provenance(folder) else None
    run = Run.open(folder)
    return _kind(run.config), trained_on, _epoch_times(run)


def _kind(config: TrainConfig) -> Any:
    """Return the fields that decide the time of an epoch."""
    fields = ("objective", "constraint", "head", "network", "train_set", "batch_size", "precision")
    return tuple(getattr(config, name) for name in fields)


def _epoch_times(run: Run) -> list[float]:
    """Return the seconds of a run's epochs, as far as it has a history."""
    return [record["seconds"] for record in run.history() if "seconds" in record]


# 3. What runs cost


@dataclass(frozen=True)
class Estimate:
    """The cost of runs. networks: to train. minutes: of training and evaluation on `device`, None if unknown."""

    networks: int
    minutes: float | None
    device: str

    def __str__(self) -> str:
        """
        >>> print(Estimate(15, 1234.0, "one H200"), Estimate(0, 0.0, "one H200"), sep="; ")
        15 networks to train, about 1,200 GPU minutes (21 hours) on one H200; 0 networks to train, no time
        """
        count = f"{counted(self.networks, 'network')} to train"
        if self.minutes is None:
            return f"{count}, time unknown"
        if self.minutes == 0:
            return f"{count}, no time"
        shown = float(f"{self.minutes:.2g}")
        unit = ("GPU minute" if "CPU" not in self.device.upper() else "minute") + "s" * (shown > 1)
        hours = f" ({self.minutes / 60:.2g} hours)" if 120 <= self.minutes < 4800 else ""
        days = f" ({self.minutes / 1440:.2g} days)" if self.minutes >= 4800 else ""
        return f"{count}, about {max(shown, 1.0):,.0f} {unit}{hours}{days} on {self.device}"


def estimate(lines: Iterable[PlannedRun | Task], paces: Paces | None = None) -> Estimate:
    """Estimate the cost of planned runs, or of what is left to do of tasks. Shared models count once.

    paces: how long epochs take; default, as the table says.
    """
    paces = paces or Paces()
    training: dict[str, float | None] = {}
    evaluations: list[float | None] = []
    devices: dict[str, None] = {}
    for line in lines:
        planned = line.planned if isinstance(line, Task) else line
        if isinstance(line, Task):
            if line.done:
                continue
            models = [(run.config, share) for run in line.models() if (share := _share_left(run)) > 0]
        else:
            models = [(config, 1.0) for config in planned.models()]
        for config, share in models:
            seconds, device = paces.epoch_seconds(planned, config)
            training[config.name] = share * config.total_epochs * seconds / 60 if seconds is not None else None
            devices[device] = None
        evaluations.append(evaluation_minutes(planned))
        if not models:
            devices[device_of(planned.config.network)] = None
    parts = [*training.values(), *evaluations]
    known = [part for part in parts if part is not None]
    return Estimate(len(training), sum(known) if len(known) == len(parts) else None, ", ".join(devices))


def _share_left(run: Run) -> float:
    """Return how much of a model's training is left."""
    if run.finished:
        return 0.0
    epochs = len(run.history()) if run.checkpoint.is_file() else 0  # an archived run has a history, but no weights
    return 1 - min(1.0, epochs / run.config.total_epochs)


def spent(folders: Iterable[Path], elsewhere: Iterable[Path] = ()) -> str:
    """Return how long the runs in some folders trained, and where; a folder that several lines share counts once.

    An ensemble counts as those of its members that are neither among the folders nor elsewhere, where they are counted.
    """
    records = {folder.name: run_folder.read_provenance(folder) for folder in folders}
    known = {*records, *(folder.name for folder in elsewhere)}
    minutes: dict[str, float] = {}
    networks = 0
    for record in records.values():
        members = record.get("members", [])
        count = 1 if not members else sum(member not in known for member in members)
        if count:
            networks += count
            device, share = record.get("device", "an unknown device"), count / max(1, len(members))
            minutes[device] = minutes.get(device, 0.0) + share * record.get("seconds", 0.0) / 60
    times = [f"{counted(round(total), 'minute')} of training on {device}" for device, total in minutes.items()]
    return f"{counted(networks, 'network')}, {', '.join(times) or 'no time'}"


TIMING_HEADS = ("recipe", "method", "seconds per epoch", f"relative to {REFERENCE}")


def timing_lines(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> list[tuple[str, ...]]:
    """Return a line per recipe and label, under TIMING_HEADS: over the epochs of all models but for first ones."""
    times: dict[tuple[str, str], list[float]] = {}
    for planned in plan:
        for model in planned.models():
            epochs = _epoch_times(Run.of(resolve(model, device), runs))[1:]
            seconds = [epoch * planned.config.members for epoch in epochs]
            times.setdefault((planned.recipe, planned.label), []).extend(seconds)
    medians = {line: median(seconds) for line, seconds in times.items() if seconds}
    lines: list[tuple[str, ...]] = []
    for (recipe, label), middle in medians.items():
        reference = medians.get((recipe, REFERENCE))
        lines.append((recipe, label, f"{middle:.3g}", f"{middle / reference:.2f}" if reference else "–"))
    return lines


# 4. The state of every run

State = Literal["done", "running", "waiting", "failed", "damaged"]
ORDER: tuple[State, ...] = ("running", "damaged", "failed", "waiting", "done")
_REFRESH_SECONDS = 2.0


@dataclass(frozen=True)
class RunStatus:
    """How far a task is. epoch: finished epochs of all its models, out of `epochs`. seconds_left: None if unknown."""

    task: Task
    state: State
    epoch: int = 0
    epochs: int = 0
    loss: float | None = None
    seconds_left: float | None = None
    note: str = ""


def run_status(task: Task, paces: Paces) -> RunStatus:
    """Return the state of a task: done, running while a live process holds the folder, failed, or waiting.

    damaged: a file of an archive that the study would read is missing, has changed, or cannot be read.
    """
    epochs = task.epochs()
    try:
        for archive in (task.archive, task.chosen):
            if archive is not None:
                run_folder.check_archive(archive)
    except (OSError, ValueError) as error:
        return RunStatus(task, "damaged", epochs=epochs, note=str(error))
    if task.archive is not None:
        return RunStatus(task, "done", epochs, epochs)
    state: State = "waiting"
    note, history = "", task.history()
    if task.done:
        state = "done"
    elif is_held(task.run.folder):
        state = "running"
    elif (failure := task.run.folder / run_folder.FAILURE).is_file():
        state, note = "failed", failure.read_text(encoding="utf-8").strip().rpartition("\n")[2]
    minutes = estimate([task], paces).minutes
    seconds_left = 60 * minutes if minutes is not None and state != "done" else None
    return RunStatus(task, state, len(history), epochs, history[-1]["loss"] if history else None, seconds_left, note)


def status_table(statuses: Sequence[RunStatus], title: str) -> Group:
    """Lay out the states: running first, done last, then a line of totals."""
    table = Table(title=Text(title), box=None, pad_edge=False, title_justify="left")
    for name in ("state", "run"):
        table.add_column(name, no_wrap=True)
    for name in ("epoch", "loss", "left"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("", overflow="fold")
    for status in sorted(statuses, key=lambda status: ORDER.index(status.state)):
        loss = "" if status.loss is None else f"{status.loss:.3f}"
        left = "" if status.seconds_left is None else f"{status.seconds_left / 60:.1f} min"
        cells = (status.state, status.task.label, f"{status.epoch}/{status.epochs}", loss, left, status.note)
        table.add_row(*map(Text, cells))
    counts = Counter(status.state for status in statuses)
    sums = ", ".join(f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state])
    return Group(table, Text(f"{sums} of {len(statuses)} runs"))


def show_status(look: Callable[[], list[RunStatus]], title: str, console: Console) -> None:
    """Print the table: live in a terminal until all is done or it is interrupted, once elsewhere.

    look: returns the state of every run as it is now.
    """
    statuses = look()
    if not console.is_terminal:
        console.print(status_table(statuses, title), soft_wrap=True)
        return
    with Live(status_table(statuses, title), console=console, auto_refresh=False) as live:
        while any(status.state != "done" for status in statuses):
            time.sleep(_REFRESH_SECONDS)
            statuses = look()
            live.update(status_table(statuses, title), refresh=True)


# 5. A time limit


class Budget:
    """A time limit for a study: start no run that would not end within so many minutes from now.

    places: the folders whose runs say how long an epoch takes, that of the runs first, then archives.
    A run whose pace is unknown is started all the same.
    """

    def __init__(self, minutes: float, places: Sequence[Path], device: torch.device) -> None:
        check_number("minutes", minutes, least=0)
        self.minutes, self.places, self.device = minutes, places, device
        self.end = time.monotonic() + 60 * minutes

    def seconds(self, task: Task) -> float:
        """Return the seconds that a task still takes by the pace that similar runs have now, with start and reserve."""
        left = estimate([task], Paces(self.places, self.device))
        start = START_SECONDS if left.networks and self.device.type != "cpu" else 0.0
        return RESERVE * (start + 60 * (left.minutes or 0.0))

    def fits(self, task: Task) -> bool:
        """Return whether a task would end in time if it started now; one that is done always does."""
        return task.done or self.seconds(task) < self.end - time.monotonic()
