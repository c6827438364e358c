"""Where the numbers of a run go besides its own folder: TensorBoard, W&B, MLflow, a function of one's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol


class Logger(Protocol):
    """Anything with a method `log(values, step)`: numbers by name, and how many steps have been trained.

    It may also have
    `start(step, steps)`: called first, says that training goes on after `step` of all its `steps`. What was logged for
    later steps, by a run that was killed after its last checkpoint, will be logged once more.
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
        if self._writer is None:
            self.start(0, 0)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        # Else a kill would lose up to two minutes of what a checkpoint already counts as done.
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


class Loggers:
    """Several loggers as one. One that raises is warned about and left out from then on: training is worth more."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)
        for logger in self._loggers:
            if not callable(getattr(logger, "log", None)):
                raise ValueError(
                    "each of loggers must have a method log(values, step), as rm.FunctionLogger(function) has, "
                    f"got {logger!r}"
                )

    def add(self, logger: Logger) -> None:
        self._loggers.append(logger)

    def start(self, step: int, steps: int) -> None:
        self._tell("start", step, steps)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._tell("log", values, step=step)

    def close(self) -> None:
        self._tell("close")

    def __bool__(self) -> bool:
        return bool(self._loggers)

    def _tell(self, what: str, *args: Any, **kwargs: Any) -> None:
        for logger in list(self._loggers):
            method = getattr(logger, what, None)
            if method is None:  # only `log` must be there
                continue
            try:
                method(*args, **kwargs)
            except Exception as error:
                self._loggers.remove(logger)
                name = type(logger).__name__
                warnings.warn(f"{name} is left out from now on, its {what} failed: {error!r}", stacklevel=3)


class MemberLogger:
    """A logger for one of several models of the same length, trained in turn: its steps follow those before it.

    It has no `close`: the others still need what it logs to.
    """

    def __init__(self, loggers: Loggers, member: int) -> None:
        self._loggers, self._member = loggers, member
        self._earlier = 0

    def start(self, step: int, steps: int) -> None:
        self._earlier = self._member * steps
        self._loggers.start(self._earlier + step, self._earlier + steps)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._loggers.log(values, self._earlier + step)
