"""Ctrl-C and SIGTERM: the training loop stops at the end of a step, after saving its work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop by `signal`; if it had begun, it has saved its position."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number


class Stop:
    """The number of the signal that asked training to stop; 0: none."""

    signal: int = 0


@contextmanager
def stopping(*, patient: bool = False) -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM inside the context. A second one ends the program at once, unless `patient`.

    torchrun passes on a signal that its processes may have received already, and kills them if they take too long.
    """
    stop, handlers = Stop(), ExitStack()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        if not patient:
            handlers.close()

    with handlers:
        for number in (signal.SIGINT, signal.SIGTERM):
            handle(number, ask, until=handlers)
        yield stop


def handle(number: int, handler: Callable[[int, FrameType | None], Any], *, until: ExitStack) -> None:
    """Let a function handle a signal until a stack closes, which puts the earlier handler back.

    Signals belong to the main thread; elsewhere nothing is caught. One that is ignored, as SIGINT is in the background
    of a shell, or that another library handles outside Python stays as it is.
    """
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(number)
        if before not in (None, signal.SIG_IGN):
            until.callback(signal.signal, number, before)
            signal.signal(number, handler)
