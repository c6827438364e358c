"""The state of a study: which of its runs are done, how long the others take, and which data is missing.

How long an epoch takes, a run of the same kind in the runs folder says. Where there is none, `step_times.toml` does,
which says how each step was measured: a run costs epochs x images x members x (time of a step / 128), plus a forward
pass and the metrics of every image it is evaluated on.
"""

from __future__ import annotations

import glob
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

from regmixup import run_folder
from regmixup.config import check_number, encode
from regmixup.data.catalogue import find
from regmixup.data.files import data_root, missing_files
from regmixup.data.folders import find_folder
from regmixup.methods import images_per_clean_image
from regmixup.names import counted, shortened
from regmixup.storage import is_held
from regmixup.study.planned_run import PlannedRun
from regmixup.study.tasks import Task
from regmixup.training.config import TrainConfig
from regmixup.training.run import Run

FLOAT32_FACTOR = 6.8
"""Float32 relative to bfloat16 on an H200: an epoch of ResNet-18 with RegMixup takes 11.2 s, eager."""
MEASURE_MICROSECONDS = 20.0
"""Metrics and intervals, per evaluated image: 16 s for the 800,000 of a CIFAR-10 evaluation."""
RESERVE = 1.1
"""Factor on the expected time of a run where there is a time limit; covers the start, too."""


@cache
def step_times() -> dict[str, Any]:
    """Read the measured step times: section -> network -> method -> milliseconds."""
    return tomllib.loads((resources.files("regmixup.study") / "step_times.toml").read_text(encoding="utf-8"))


def device_of(network: str) -> str:
    """Return the device that the step times of a network belong to."""
    return "2 CPU cores" if network in step_times()["cpu"] else "one H200"


def plain_milliseconds(network: str) -> float | None:
    """Return the time of a step of plain training with 128 images; None where nothing is known."""
    name = network.removesuffix("-sngp")  # whose head takes no time worth a measurement of its own
    tables = (step_times()[section] for section in ("compiled", "cpu", "estimated"))
    return next((table[name]["dnn"] for table in tables if name in table), None)


def relative_time(method: str, config: TrainConfig) -> float:
    """Return the time of a step of a method, relative to plain training.

    A step that forwards p images for a clean one takes 1 + (p - 1) (regmixup - dnn) / dnn, as measured in compiled
    steps. A constraint, a GP or an RBF head adds more than images: there the ratio of eager steps counts. SAM doubles
    both.
    """
    passes = 1 if config.sharpness == "none" else 2
    # Without a measurement of its own, a network has the ratios of ResNet-50, or of WRN-28-10 where it is more like it.
    network = config.network.removesuffix("-sngp")
    similar = "wrn28-10" if network in ("wrn28-10", "timm/resnet50") else "resnet50"
    if config.constraint is None and config.head_name not in ("gp", "rbf"):
        compiled = step_times()["compiled"].get(network) or step_times()["compiled"][similar]
        images = images_per_clean_image(encode(config.objective))
        return passes * (1 + (images - 1) * (compiled["regmixup"] / compiled["dnn"] - 1))
    eager = step_times()["eager"][similar]
    return passes * eager.get(method, eager["dnn"]) / eager["dnn"]


def training_minutes(method: str, config: TrainConfig) -> float | None:
    """Return the time of training one model by the table; None where nothing is known."""
    plain, images = plain_milliseconds(config.network), find(config.train_set).images
    if plain is None or images is None:
        return None
    slower = FLOAT32_FACTOR if config.precision == "float32" and "CPU" not in device_of(config.network) else 1.0
    return config.total_epochs * images * slower * plain * relative_time(method, config) / 128 / 60_000


def evaluation_minutes(planned: PlannedRun) -> float | None:
    """Return the time of an evaluation: forward passes, a third of a step each, and metrics."""
    step = plain_milliseconds(planned.config.network)
    counts = [find(name).images for name in planned.evaluate.datasets()]
    if step is None or None in counts:
        return None
    milliseconds = planned.config.members * step / 3 / 128 + MEASURE_MICROSECONDS / 1000
    return sum(count or 0 for count in counts) * milliseconds / 60_000


def measured_epoch(config: TrainConfig, runs: Path) -> float | None:
    """Return the seconds of an epoch of a run like this one, or of this one itself; None if there is none.

    The run is the one that ended an epoch last, so that the pace follows the load of the device. The median of its
    last three epochs counts; the first is not among them, as it includes compilation.
    """
    name = config.name.rpartition("-s")[0]  # without seed and fingerprint
    histories = runs.glob(f"{glob.escape(name)}-s*/{run_folder.HISTORY}")
    for path in sorted(histories, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with suppress(OSError, ValueError):  # a folder that is damaged, or cannot be read now
            run = Run.open(path.parent)
            seconds = [record["seconds"] for record in run.history()[1:] if "seconds" in record]
            if seconds and _kind(run.config) == _kind(config):
                return median(seconds[-3:])
    return None


def _kind(config: TrainConfig) -> list[Any]:
    """Return the fields that decide the time of an epoch."""
    model = ("objective", "constraint", "head", "network", "freeze", "sharpness", "precision")
    images = ("train_set", "batch_size", "image_size", "rand_augment", "cutout")
    return [getattr(config, name) for name in (*model, *images)]


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
        minutes = round(max(float(f"{self.minutes:.2g}"), 1.0))
        time_needed = counted(minutes, "GPU minute" if "H200" in self.device else "minute")
        if self.minutes >= 4800:
            time_needed += f" ({self.minutes / 1440:.2g} days)"
        elif self.minutes >= 120:
            time_needed += f" ({self.minutes / 60:.2g} hours)"
        return f"{count}, about {time_needed} on {self.device}"


def estimate(tasks: Iterable[Task]) -> Estimate:
    """Estimate the cost of what is left to do. A model that several tasks share counts once."""
    training: dict[str, float | None] = {}
    evaluations: list[float | None] = []
    devices: dict[str, None] = {}
    for task in tasks:
        if task.done:
            continue
        for run in task.models():
            if run.finished:
                continue
            config, seconds = run.config, measured_epoch(run.config, run.folder.parent)
            if seconds is None:
                # As planned, not as resolved for a device: step times are those of the device they name.
                as_planned = replace(config, precision=task.planned.config.precision)
                device, minutes = device_of(config.network), training_minutes(task.planned.method, as_planned)
            else:
                device, minutes = "this machine", config.total_epochs * seconds / 60
            devices[device] = None
            # An archived run has a history, but no weights.
            epochs = len(run.history()) if run.checkpoint.is_file() else 0
            left = 1 - min(1.0, epochs / max(1, config.total_epochs))  # of none where the initial weights stay
            training[config.name] = left * minutes if minutes is not None else None
        evaluations.append(evaluation_minutes(task.planned))
    parts = [*training.values(), *evaluations]
    known = [part for part in parts if part is not None]
    total = sum(known) if len(known) == len(parts) else None
    return Estimate(len(training), total, ", ".join(devices) or "this machine")


class Budget:
    """A time limit for a study: start no run that would not end within so many minutes from now.

    A run whose pace is unknown is started all the same.
    """

    def __init__(self, minutes: float) -> None:
        check_number("minutes", minutes, least=0)
        self.minutes = minutes
        self.end = time.monotonic() + 60 * minutes

    def seconds(self, task: Task) -> float:
        """Return the seconds that a task still takes by the pace that similar runs have now, with a reserve."""
        return RESERVE * 60 * (estimate([task]).minutes or 0.0)

    def fits(self, task: Task) -> bool:
        """Return whether a task would end in time if it started now; one that is done always does."""
        return task.done or self.seconds(task) < self.end - time.monotonic()


def state_of(task: Task) -> str:
    """Return the state of a task: done, running while a live process holds the folder, failed, or to do."""
    if task.done:
        return "done"
    if is_held(task.run.folder):
        return "running"
    return "failed" if (task.run.folder / run_folder.FAILURE).is_file() else "to do"


def status_lines(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield a line per run, in the order of the plan, and one that counts the states."""
    longest = max(len(task.title) for task in tasks)
    states = [state_of(task) for task in tasks]
    for task, state in zip(tasks, states, strict=True):
        parts = [f"{state:7} {task.title:{longest}}"]
        if state != "done":
            history, minutes = task.history(), estimate([task]).minutes
            loss = f", loss {history[-1]['loss']:.3f}" if history and "loss" in history[-1] else ""
            left = f", {minutes:.1f} min left" if minutes is not None else ""
            parts.append(f"epoch {len(history)}/{task.epochs()}{loss}{left}")
        if state == "failed":
            with suppress(FileNotFoundError):  # another process has begun it again meanwhile
                failure = (task.run.folder / run_folder.FAILURE).read_text(encoding="utf-8")
                parts.append(failure.strip().rpartition("\n")[2])
        yield "  ".join([*parts, str(task.source)])
    yield f"runs    {', '.join(f'{count} {state}' for state, count in Counter(states).items())}"


def missing_data(tasks: Iterable[Task], root: str | Path | None = None) -> str:
    """Name the data of tasks that is not under the root, a line per family; "" if all is there. Reads no image."""
    where = data_root(root)
    names: dict[str, None] = {}
    for task in tasks:
        for run in task.models():
            names |= dict.fromkeys(filter(None, (run.config.train_set, run.config.validation)))
        names |= dict.fromkeys(task.planned.evaluate.datasets())
    files: dict[str, dict[str, None]] = {}
    for name in names:
        dataset = find(name)
        is_absent = dataset.is_folder and find_folder(dataset.whole, where) is None
        absent = [dataset.whole] if is_absent else missing_files(dataset, where)
        files.setdefault(dataset.family, {}).update(dict.fromkeys(absent))
    lines = [f"  {family}: {shortened([*absent], 1)}" for family, absent in files.items() if absent]
    return "\n".join(["the study needs data that is missing:", *lines]) if lines else ""
