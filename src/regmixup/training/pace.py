"""How fast training goes, and how long it will take."""

from __future__ import annotations

import time


class Pace:
    """Images per second since the last look, and the time left at that rate.

    The first look only starts the clock: compilation and warm-up come before it.
    """

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def look(self, images: int, total: int) -> dict[str, float]:
        """images: seen so far in this run, of `total`. Nothing is known at the first look."""
        now = time.perf_counter()
        last, self._last = self._last, (now, images)
        if last is None or now <= last[0] or images <= last[1]:
            return {}
        rate = (images - last[1]) / (now - last[0])
        return {"images_per_second": rate, "seconds_left": (total - images) / rate}
