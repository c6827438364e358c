"""Reports of a run: sums on the device, throughput, and the loggers and callbacks that get both over the steps.

Loggers are where the numbers of a run go besides its own folder: TensorBoard, W&B, MLflow, a function of one's own.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regmixup.recipes import Recipe
from regmixup.training.checkpoint import Position, Totals

StepRecord = dict[str, Any]
"""Epoch, step, steps, the means since the epoch began, and the throughput where it is known."""
EpochRecord = dict[str, Any]
"""Epoch, the means over its images, and its seconds."""
OnStep = Callable[[StepRecord], None]
OnEpoch = Callable[[EpochRecord], None]

_WINDOW = 20
"""Updates that throughput is averaged over."""
_DUE = 1.0
"""Seconds after which another update of the throughput is worthwhile."""


def counted_on(callback: OnEpoch | None, earlier: int) -> OnEpoch | None:
    """Return a callback that adds `earlier`, the epochs trained before, to the epoch of a record."""
    return callback and (lambda record: callback({**record, "epoch": earlier + record["epoch"]}))


class Tally:
    """Running sums, on the device, of what steps report.

    A part that only some steps have, as under Alternate, is averaged over those.

    >>> tally = Tally(torch.device("cpu"))
    >>> tally.add(("loss", "clean"), torch.tensor([6.0, 2.0]), count=2)
    >>> tally.add(("loss",), torch.tensor([3.0]), count=1)
    >>> means(tally.totals())
    {'loss': 3.0, 'clean': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dtype = precise(device)
        self._sums: dict[tuple[str, ...], Tensor] = {}

    def add(self, names: tuple[str, ...], sums: Tensor, count: int) -> None:
        """Add sums over `count` images, one for each name, without reading from the device."""
        if names:
            so_far = self._of(names)
            so_far[:-1] += sums
            so_far[-1] += count

    def restore(self, totals: Totals) -> None:
        """Set these totals, in place: a captured step adds to the tensors that it was captured with."""
        for so_far in self._sums.values():
            so_far.zero_()
        for names, values in totals.items():
            self._of(names).copy_(torch.tensor(values, dtype=self.dtype))

    def totals(self) -> Totals:
        """Return what has been added so far; waits for the device."""
        totals = {names: so_far.tolist() for names, so_far in self._sums.items()}
        return {names: sums for names, sums in totals.items() if sums[-1]}

    def _of(self, names: tuple[str, ...]) -> Tensor:
        if names not in self._sums:
            self._sums[names] = torch.zeros(len(names) + 1, dtype=self.dtype, device=self.device)
        return self._sums[names]


def precise(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def combine(parts: Sequence[Totals]) -> Totals:
    """Add up several totals, such as those of several processes."""
    lists: dict[tuple[str, ...], list[list[float]]] = {}
    for part in parts:
        for names, sums in part.items():
            lists.setdefault(names, []).append(sums)
    return {names: [sum(column) for column in zip(*rows, strict=True)] for names, rows in lists.items()}


def between(early: Totals, late: Totals) -> Totals:
    """Return what was added between two readings of the same totals.

    >>> between({("loss",): [6.0, 2.0]}, {("loss",): [9.0, 3.0], ("mixed",): [4.0, 1.0]})
    {('loss',): [3.0, 1.0], ('mixed',): [4.0, 1.0]}
    """
    minus = {names: [-value for value in values] for names, values in early.items() if names in late}
    return {names: values for names, values in combine([late, minus]).items() if values[-1]}


def means(totals: Totals) -> dict[str, float]:
    """Return the mean over images for each name."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for names, (*values, count) in sorted(totals.items()):  # whatever came first in this process
        for name, added in zip(names, values, strict=True):
            sums[name] = sums.get(name, 0.0) + added
            counts[name] = counts.get(name, 0.0) + count
    return {name: total / counts[name] for name, total in sums.items()}


class Throughput:
    """Images per second over the last updates, and the seconds that a whole epoch takes at that rate.

    The first update only starts the clock: compilation and warm-up come before it. images: of an epoch.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self._readings: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._last = time.perf_counter()

    def due(self) -> bool:
        """Return whether another update is worthwhile."""
        return time.perf_counter() - self._last >= _DUE

    def update(self, count: int) -> dict[str, float]:
        """Return the throughput; nothing the first time. count: images so far in this run."""
        now = self._last = time.perf_counter()
        self._readings.append((now, count))
        then, before = self._readings[0]
        if now <= then or count <= before:
            return {}
        rate = (count - before) / (now - then)
        return {"images_per_second": rate, "seconds_per_epoch": self.images / rate}


class Logger(Protocol):
    """Anything with a method `log(values, step)`: numbers by name, and how many steps have been trained.

    It may also have
    `start(step, steps)`: called first; training resumes after `step` of all its `steps`. What was logged for later
    steps, by a run that was killed after its last checkpoint, will be logged once more.
    `close()`: called at the end of training, however it ends.
    """

    def log(self, values: Mapping[str, float], step: int) -> None: ...


@dataclass(frozen=True)
class FunctionLogger:
    """A function as a logger; it is called with a dictionary and the keyword `step`.

    >>> FunctionLogger(lambda values, step: print(step, values)).log({"step/loss": 0.5}, 50)
    50 {'step/loss': 0.5}
    """

    function: Callable[..., object]

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.function(dict(values), step=step)


class TensorBoardLogger:
    """Event files for TensorBoard in a folder; `tensorboard --logdir` on it, or on one above, shows the curves.

    Every start begins a new file, and hides what older ones say about later steps. Needs the extra `tensorboard`.
    """

    def __init__(self, folder: str | Path) -> None:
        if find_spec("tensorboard") is None:
            raise ValueError("event files need TensorBoard: pip install 'regmixup[tensorboard]'")
        self.folder = Path(folder)
        self._writer: Any = None

    def start(self, step: int, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._writer = SummaryWriter(str(self.folder), purge_step=step + 1)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, number in values.items():
            self._writer.add_scalar(name, number, step)
        # Else a kill would lose up to two minutes of what a checkpoint already counts as done.
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def check_loggers(loggers: Iterable[Logger]) -> list[Logger]:
    """Return the loggers as a list; an error if one cannot log."""
    checked = list(loggers)
    for logger in checked:
        if not callable(getattr(logger, "log", None)):
            raise ValueError(
                "each of loggers must have a method log(values, step), as rm.FunctionLogger(function) has, "
                f"got {logger!r}"
            )
    return checked


def tell(loggers: list[Logger], method: str, *args: Any) -> None:
    """Call a method of each logger that has it. One that raises is removed with a warning: training is worth more."""
    for logger in list(loggers):
        try:
            getattr(logger, method, lambda *_: None)(*args)
        except Exception as error:
            loggers.remove(logger)
            name = type(logger).__name__
            warnings.warn(f"{name} is left out from now on, its {method} failed: {error!r}", stacklevel=3)


class MemberLogger:
    """A logger for one of several models of the same length, trained in turn: its steps follow those before it.

    It has no `close`: the other models still need what it logs to.
    """

    def __init__(self, loggers: list[Logger], member: int) -> None:
        self._loggers, self._member, self._earlier = loggers, member, 0

    def start(self, step: int, steps: int) -> None:
        self._earlier = self._member * steps
        tell(self._loggers, "start", self._earlier + step, self._earlier + steps)

    def log(self, values: Mapping[str, float], step: int) -> None:
        tell(self._loggers, "log", values, self._earlier + step)


class Reporter:
    """Pass on the numbers of a run: to loggers over its steps, and to callbacks.

    `step/...` now and then: means over the steps since the last time, the learning rate, the throughput. `epoch/...`
    after every epoch: its record. First of all loggers are told the position, as a killed run may have logged more.
    steps, num_images: of an epoch.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        steps: int,
        num_images: int,
        position: Position,
        loggers: list[Logger],
        on_step: OnStep | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        self.recipe, self.steps, self.num_images = recipe, steps, num_images
        self.loggers, self.on_step, self.on_epoch = loggers, on_step, on_epoch
        self.throughput = Throughput(num_images)
        self._logged = position.totals
        tell(loggers, "start", position.epoch * steps + position.step, recipe.total_epochs * steps)

    def report_step(self, epoch: int, step: int, tally: Tally, *, log: bool) -> None:
        """Report the first `step` steps of an epoch, whose sums are in the tally. log: also to the loggers."""
        totals = tally.totals()
        images = epoch * self.num_images + min(step * self.recipe.batch_size, self.num_images)
        speed = self.throughput.update(images)
        if log:
            lr = self.recipe.lr_at(epoch + (step - 1) / self.steps)
            numbers = {**means(between(self._logged, totals)), "lr": lr, **speed}
            self._logged = totals
            named = {f"step/{name}": number for name, number in numbers.items()}
            tell(self.loggers, "log", named, epoch * self.steps + step)
        if self.on_step is not None:
            self.on_step({"epoch": epoch + 1, "step": step, "steps": self.steps, **means(totals), **speed})

    def report_epoch(self, record: EpochRecord) -> None:
        """Pass the record of an epoch to the callback."""
        if self.on_epoch is not None:
            self.on_epoch(record)

    def log_epoch(self, record: EpochRecord) -> None:
        """Pass the record of an epoch to the loggers, before it is saved: what is logged twice is recognised."""
        self._logged = {}
        named = {f"epoch/{name}": number for name, number in record.items() if name != "epoch"}
        tell(self.loggers, "log", {"epoch": record["epoch"], **named}, record["epoch"] * self.steps)
