"""Ctrl-C and SIGTERM: the training loop stops at the end of a step, after saving its work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType


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
    Signals belong to the main thread; elsewhere nothing is caught. One that is ignored, as SIGINT is in the background
    of a shell, or that another library handles outside Python stays as it is.
    """
    stop, is_main_thread = Stop(), threading.current_thread() is threading.main_thread()
    with ExitStack() as handlers:  # that are put back at its end

        def ask(number: int, frame: FrameType | None) -> None:
            stop.signal = number
            if not patient:
                handlers.close()

        for number in (signal.SIGINT, signal.SIGTERM) if is_main_thread else ():
            if (before := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                handlers.callback(signal.signal, number, before)
                signal.signal(number, ask)
        yield stop
