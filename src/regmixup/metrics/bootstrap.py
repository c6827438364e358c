"""Bootstrap confidence intervals: how much a value would move had the test images been drawn again (Efron, 1979).

A resample of N samples is how often each of them is drawn, N draws in all. These counts are drawn once per set of
images and shared by everything measured on it: by all metrics, by models that are compared, and by the shifted versions
of the same images, so that what moves together is resampled together. They are the weights that every metric takes:

    bootstrap, outcomes = Bootstrap(), Outcomes.of(probs, labels)
    counts = bootstrap.counts(len(labels), stream="cifar10/test")
    values = resampled({"accuracy": accuracy, "ece": ece}, outcomes.weighted, counts)  # {"accuracy": (R,), "ece": (R,)}
    bootstrap.interval(values["accuracy"])
    bootstrap.interval(values["ece"], about=ece(outcomes))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from regmixup.config import Checked, Count, InnerShare, check_count

_PIECE = 2**21
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Interval:
    """The ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Bootstrap(Checked):
    """resamples: R; seed: of the draws; level: the share of resampled values inside an interval."""

    resamples: Count = 1000
    seed: int = 0
    level: InnerShare = 0.95

    def counts(self, total: int, *, stream: str = "") -> Tensor:
        """Draw resamples of `total` samples: (R, N) uint8, how often each sample is drawn; every row sums to N.

        Equal arguments give equal counts; take another stream for other images. (A count of 256 would need the same
        sample drawn 256 times at probability 1 / N each: less than 1 in 256!.)

        >>> Bootstrap(resamples=3).counts(4).sum(dim=1)
        tensor([4, 4, 4])
        """
        check_count("total", total)
        digest = hashlib.sha256(f"{self.seed}/bootstrap/{stream}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        counts = torch.empty(self.resamples, total, dtype=torch.uint8)
        for part in counts.split(max(1, _PIECE // total)):
            drawn = torch.randint(total, part.shape, generator=generator)
            drawn += total * torch.arange(len(part))[:, None]  # rows apart, so that one count serves them all
            part.copy_(torch.bincount(drawn.flatten(), minlength=part.numel()).view_as(part))
        return counts

    def interval(self, values: Tensor, *, about: float | None = None, least: float = 0.0) -> Interval:
        """Return the (1 - level) / 2 and (1 + level) / 2 quantiles of resampled values (R,), each one of the values.

        about: the measured value, for a metric that resampling makes larger on average, as a calibration error, which
        grows with the noise within bins. The resampled values are then moved until that is their mean, but not below
        `least`. Such an interval covers what the estimate is on average for as many images, not the population's
        calibration error, which is smaller: the estimate is biased, by more than its spread where the model is nearly
        calibrated.

        >>> Bootstrap(level=0.5).interval(torch.arange(101.0))
        Interval(low=25.0, high=75.0)
        >>> Bootstrap(level=0.5).interval(torch.arange(101.0), about=20)
        Interval(low=0.0, high=45.0)
        """
        if about is not None:
            values = (values + (about - values.mean())).clamp(min=least)
        ordered, last = values.sort().values, len(values) - 1
        # Outwards, and never between two values, which would make NaN of infinite ones.
        low = int((1 - self.level) / 2 * last + 1e-9)
        return Interval(float(ordered[low]), float(ordered[last - low]))


def resampled(
    metrics: Mapping[str, Callable[[Sample], Tensor]], weighted: Callable[..., Sample], *counts: Tensor
) -> dict[str, Tensor]:
    """Return each metric on every resample: (R,) by name.

    weighted: makes the sample that the metrics take from the counts of some resamples; it has as many arguments as
    there are counts (R, N): two for a pair of sets. A few resamples are computed at a time, as memory allows.
    """
    rows = max(1, _PIECE // max(part.shape[1] for part in counts))
    values: dict[str, list[Tensor]] = {name: [] for name in metrics}
    for chunk in zip(*(part.split(rows) for part in counts), strict=True):
        sample = weighted(*chunk)
        for name, metric in metrics.items():
            values[name].append(metric(sample))
    return {name: torch.cat(parts) for name, parts in values.items()}
