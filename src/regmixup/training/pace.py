"""How fast training goes."""

from __future__ import annotations

import time
from collections import deque

_WINDOW = 30.0
"""Seconds that a rate is averaged over, at least if there are looks that far back."""
_DUE = 1.0
"""Seconds after which another look is worth while."""


class Pace:
    """Images per second over the last half minute, and the time that a whole epoch takes at that rate.

    The first look only starts the clock: compilation and warm-up come before it. images: of an epoch.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self._looks: deque[tuple[float, int]] = deque()
        self._last = time.perf_counter()

    def due(self) -> bool:
        """Whether the last look is a second ago."""
        return time.perf_counter() - self._last >= _DUE

    def look(self, seen: int) -> dict[str, float]:
        """seen: images so far in this run. Nothing is known at the first look."""
        now = self._last = time.perf_counter()
        self._looks.append((now, seen))
        while len(self._looks) > 2 and now - self._looks[1][0] >= _WINDOW:
            self._looks.popleft()
        then, before = self._looks[0]
        if now <= then or seen <= before:
            return {}
        rate = (seen - before) / (now - then)
        return {"images_per_second": rate, "seconds_per_epoch": self.images / rate}
