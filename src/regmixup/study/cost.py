"""Cost estimates: of a whole study from measured step times, of what is left of it by the pace of similar runs.

Step times are in `step_times.toml`, which says how each was measured. A run costs epochs x images x members x (time of
a step / 128), plus a forward pass and the metrics of every image it is evaluated on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regmixup.data.catalogue import find
from regmixup.methods import REFERENCE
from regmixup.names import counted
from regmixup.run_folder import HISTORY, has_provenance, read_provenance
from regmixup.study.planned import PlannedRun
from regmixup.study.tasks import Task
from regmixup.training.config import TrainConfig, device_name, resolve
from regmixup.training.run import Run

PASSES = {
    **dict.fromkeys(("label-smoothing", "mixup", "cutmix", "mixup+cutmix"), 1.0),
    **dict.fromkeys(("regmixup", "regcutmix", "regmixup+regcutmix", "reg-gaussian-noise"), 2.0),
    "regmixup+cutmix": 1.5,
}
"""Images that a step forwards, relative to plain training, of methods that add nothing else to a compiled step."""
_FACTORS_OF = {"wrn28-10": "wrn28-10", "timm/resnet50": "wrn28-10"}
"""The network whose relative times hold for a network; ResNet-50 for all others."""
_CPU = torch.device("cpu")


@cache
def step_times() -> dict[str, Any]:
    """Read the measured step times: section -> network -> method -> milliseconds."""
    return tomllib.loads((resources.files("regmixup.study") / "step_times.toml").read_text(encoding="utf-8"))


def device_of(network: str) -> str:
    """Return the device that the step times of a network belong to."""
    if network in step_times()["cpu"]:
        return "2 CPU cores"
    return "one H200" if _section(network) else "an unknown device"


def step_milliseconds(network: str, method: str, *, apart: bool = False) -> float | None:
    """Return the time of a training step with 128 images; None where nothing is known.

    Measured (compiled) where there is a measurement. Otherwise a method that forwards p times the images of plain
    training takes dnn + (p - 1) (regmixup - dnn), and any other dnn times its relative time in eager mode.
    apart: the p passes are separate; then each takes as long as a plain step, p dnn together.
    """
    if (section := _section(network)) is None:
        return None
    plain, similar = section["dnn"], _FACTORS_OF.get(network.removesuffix("-sngp"), "resnet50")
    compiled, eager = step_times()["compiled"][similar], step_times()["eager"][similar]
    if apart and method in PASSES:
        return float(plain * PASSES[method])
    if method in section:
        return float(section[method])
    if method in PASSES:
        return float(plain * (1 + (PASSES[method] - 1) * (compiled["regmixup"] / compiled["dnn"] - 1)))
    return float(plain * eager[method] / eager["dnn"] if method in eager else plain)


def _section(network: str) -> dict[str, float] | None:
    """Return the step times of a network; SNGP's head takes no time worth a measurement of its own."""
    tables = (step_times()[name] for name in ("compiled", "cpu", "estimated"))
    return next((own for table in tables if (own := table.get(network.removesuffix("-sngp")))), None)


FLOAT32_FACTOR = 6.8
"""Float32 relative to bfloat16 on an H200: an epoch of ResNet-18 with RegMixup takes 11.2 s, eager."""

MEASURE_MICROSECONDS = 20.0
"""Metrics and intervals, per evaluated image: 16 s for the 800,000 of a CIFAR-10 evaluation."""

START_SECONDS = 60.0
"""Before the first step on an accelerator (start, compilation), where nothing is known about it."""


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


def training_minutes(method: str, config: TrainConfig) -> float | None:
    apart = getattr(config.objective, "passes", "joint") != "joint"
    step, count = step_milliseconds(config.network, method, apart=apart), find(config.train_set).images
    if step is None or count is None:
        return None
    slower = FLOAT32_FACTOR if config.precision == "float32" and "CPU" not in device_of(config.network) else 1.0
    return config.total_epochs * count * slower * step / 128 / 60_000


def evaluation_minutes(planned: PlannedRun) -> float | None:
    """Return the time of an evaluation: forward passes, a third of a step each, and metrics."""
    step = step_milliseconds(planned.config.network, REFERENCE)
    counts = [find(name).images for name in planned.evaluate.datasets()]
    if step is None or None in counts:
        return None
    each = planned.config.members * step / 3 / 128 + MEASURE_MICROSECONDS / 1000
    return sum(count for count in counts if count is not None) * each / 60_000


@dataclass(frozen=True)
class ModelLeft:
    """A model that is left to train. seconds: of an epoch, None if unknown. start: those before the first step."""

    config: TrainConfig
    epochs: float
    seconds: float | None
    start: float
    source: str
    device: str


class Paces:
    """How long epochs take now: one look at the histories of all runs in some places.

    places: the runs folder, then archives, which count where it has no similar run; none: all is from the table.
    device: what was trained on another kind does not count.
    """

    def __init__(self, places: Iterable[Path] = (), device: torch.device = _CPU) -> None:
        self.device = device
        self.alike: dict[Any, list[tuple[Path, list[float]]]] = {}
        for place in dict.fromkeys(places):
            written: dict[Path, int] = {}
            for folder in place.glob("*"):
                with suppress(OSError):  # no run, or not readable now
                    written[folder] = (folder / HISTORY).stat().st_mtime_ns
            for folder in sorted(written, key=written.__getitem__, reverse=True):
                with suppress(OSError, ValueError):  # damaged, not readable now, or a plug-in that is not here
                    kind, trained_on, seconds = _look(folder, written[folder])
                    if len(seconds) > 1 and trained_on in (None, device_name(device)):
                        self.alike.setdefault(kind, []).append((folder, seconds))

    def left(self, one: PlannedRun | Task) -> list[ModelLeft]:
        """Return the models of a planned run or, of a task, those that are not trained in their folders."""
        if isinstance(one, PlannedRun):
            return [self._left(one, config, 1.0) for config in one.models()]
        shares = ((run.config, share_left(run)) for run in one.models())
        return [self._left(one.planned, config, share) for config, share in shares if share > 0]

    def _left(self, planned: PlannedRun, config: TrainConfig, share: float) -> ModelLeft:
        """Judge by the median of the last three epochs of the similar run that wrote its history last; else the table.

        So the pace follows the load of a device up and down. The start is the longest of all similar runs: one that
        followed another in its process had none.
        """
        epochs = share * config.total_epochs
        if alike := self.alike.get(kind_of(config)):
            folder, last = alike[0]
            start = max(0.0, *(seconds[0] - seconds[1] for _, seconds in alike))
            source = f"as measured in {folder}"
            return ModelLeft(config, epochs, median(last[1:][-3:]), start, source, device_name(self.device))
        # As planned, not as resolved for a device: step times are those of the device they name.
        minutes = training_minutes(planned.method, replace(config, precision=planned.config.precision))
        seconds = 60 * minutes / config.total_epochs if minutes is not None else None
        start = 0.0 if self.device.type == "cpu" or seconds is None else START_SECONDS
        return ModelLeft(config, epochs, seconds, start, "by the cost table", device_of(config.network))


@lru_cache(4096)
def _look(folder: Path, written: int) -> tuple[Any, str | None, list[float]]:
    """Read the kind of a run, its device if it is trained, and the seconds of its epochs, anew if `written` changes."""
    trained_on = read_provenance(folder).get("device") if has_provenance(folder) else None
    return kind_of((run := Run.open(folder)).config), trained_on, epochs_of(run)


def kind_of(config: TrainConfig) -> Any:
    """Return the fields that decide the time of an epoch."""
    fields = ("objective", "constraint", "head", "network", "train_set", "batch_size", "precision")
    return tuple(getattr(config, name) for name in fields)


def epochs_of(run: Run) -> list[float]:
    """Return the seconds of a run's epochs, as far as it has a history."""
    return [record["seconds"] for record in run.history() if "seconds" in record]


def estimate(plan: Iterable[PlannedRun | Task], paces: Paces | None = None) -> Estimate:
    """Estimate the cost of planned runs, or of what is left to do of tasks. Shared models count once.

    paces: how long epochs take; default, as the table says.
    """
    minutes: dict[str, float | None] = {}
    evaluations: list[float | None] = []
    devices: dict[str, None] = {}
    paces = paces or Paces()
    for one in plan:
        planned = one.planned if isinstance(one, Task) else one
        if isinstance(one, Task) and one.done:
            continue
        models = paces.left(one)
        minutes |= {m.config.name: m.epochs * m.seconds / 60 if m.seconds is not None else None for m in models}
        evaluations.append(evaluation_minutes(planned))
        devices |= dict.fromkeys([m.device for m in models] or [device_of(planned.config.network)])
    parts = [*minutes.values(), *evaluations]
    known = [part for part in parts if part is not None]
    return Estimate(len(minutes), sum(known) if len(known) == len(parts) else None, ", ".join(devices))


def share_left(run: Run) -> float:
    """Return how much of a model's training is left."""
    if run.finished:
        return 0.0
    done = len(run.history()) if run.checkpoint.is_file() else 0  # an archived run has a history, but no weights
    return 1 - min(1.0, done / run.config.total_epochs)


def spent(folders: Iterable[Path], elsewhere: Iterable[Path] = ()) -> str:
    """Return how long the runs in some folders trained, and where; a folder that several lines share counts once.

    An ensemble counts as those of its members that are neither among the folders nor elsewhere, where they are counted.
    """
    found = {folder.name: read_provenance(folder) for folder in folders}
    known = {*found, *(folder.name for folder in elsewhere)}
    minutes: dict[str, float] = {}
    networks = 0
    for record in found.values():
        members = record.get("members", [])
        own = 1 if not members else sum(member not in known for member in members)
        if own:
            networks += own
            device, share = record.get("device", "an unknown device"), own / max(1, len(members))
            minutes[device] = minutes.get(device, 0.0) + share * record.get("seconds", 0.0) / 60
    times = ((counted(round(own), "minute"), device) for device, own in minutes.items())
    shown = ", ".join(f"{own} of training on {device}" for own, device in times)
    return f"{counted(networks, 'network')}, {shown or 'no time'}"


TIMING_HEADS = ("recipe", "method", "seconds per epoch", f"relative to {REFERENCE}")


def timing_lines(plan: Sequence[PlannedRun], runs: Path, device: torch.device) -> list[tuple[str, ...]]:
    """Return a line per recipe and label, under TIMING_HEADS: over the epochs of all models but for first ones."""
    found: dict[tuple[str, str], list[float]] = {}
    for planned in plan:
        for model in planned.models():
            times = [own * planned.config.members for own in epochs_of(Run.of(resolve(model, device), runs))[1:]]
            found.setdefault((planned.recipe, planned.label), []).extend(times)
    seconds = {place: median(times) for place, times in found.items() if times}
    lines: list[tuple[str, ...]] = []
    for (recipe, label), own in seconds.items():
        reference = seconds.get((recipe, REFERENCE))
        lines.append((recipe, label, f"{own:.3g}", f"{own / reference:.2f}" if reference else "–"))
    return lines
