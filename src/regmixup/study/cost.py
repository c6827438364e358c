"""What a study costs, from measured step times: before it starts, and what is left of it.

Every number is in the tables below. A run costs epochs x images x members x (time of a step / 128), plus a forward pass
and the metrics of every image it is evaluated on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from regmixup.data.catalogue import find
from regmixup.study.plan import PlannedRun, Study

if TYPE_CHECKING:
    import torch

    from regmixup.training.config import TrainConfig
    from regmixup.training.run import Run


@dataclass(frozen=True)
class Speed:
    """ms: of a training step of plain cross-entropy with 128 images. factors: other methods relative to it."""

    ms: float
    factors: Mapping[str, float] = field(default_factory=dict)
    device: str = "one H200"


# Relative to plain training. Two passes cost what RegMixup does, a coin between one and two the mean of both; the rest
# are the ratios of docs/methods.md.
_WIDE = {
    **dict.fromkeys(("regmixup", "regcutmix", "regmixup+regcutmix", "reg-gaussian-noise"), 1.87),
    "regmixup+cutmix": 1.43, "dnn-sn": 2.70, "dnn-srn": 3.61, "sngp": 2.81, "regmixup+sngp": 3.65, "duq": 8.43,
    "augmix": 2.40, "half-regmixup": 1.07, "bimodal": 1.08, "gaussian-noise": 1.13, "regcutmix+srn": 4.45,
}  # fmt: skip
_RESNET = {
    **dict.fromkeys(("regmixup", "regcutmix", "regmixup+regcutmix", "reg-gaussian-noise"), 1.68),
    "regmixup+cutmix": 1.34, "dnn-sn": 2.85, "dnn-srn": 4.35, "sngp": 2.84, "regmixup+sngp": 3.48, "duq": 6.37,
    "augmix": 1.87, "half-regmixup": 1.22, "bimodal": 1.10, "gaussian-noise": 1.23, "regcutmix+srn": 4.99,
}  # fmt: skip
SPEEDS = {
    # Measured: one H200, bfloat16, channels-last, compiled, the step in one CUDA graph.
    "wrn28-10": Speed(10.9, _WIDE),
    "wrn28-10-sngp": Speed(10.9, _WIDE),
    "resnet50": Speed(6.7, _RESNET),
    "resnet18": Speed(2.5, _RESNET),
    # Estimated from multiply-adds at ResNet-50's share of the peak; not measured.
    "densenet121": Speed(5.0, _RESNET),
    "pyramidnet200": Speed(25.0, _RESNET),
    "timm/resnet50": Speed(23.0, _WIDE),
    # Measured on 2 CPU cores.
    "small": Speed(40.0, _RESNET, "2 CPU cores"),
}
"""By network."""

FLOAT32_FACTOR = 6.8
"""Float32 relative to bfloat16 on an H200: an epoch of ResNet-18 with RegMixup takes 11.2 s, uncompiled."""

MEASURE_MICROSECONDS = 20.0
"""Metrics and intervals, per evaluated image: 16 s for the 800,000 of a CIFAR-10 evaluation."""


@dataclass(frozen=True)
class Estimate:
    """networks: to train. minutes: of training and evaluation on `device`; None where a speed or size is not known."""

    networks: int
    minutes: float | None
    device: str

    def __str__(self) -> str:
        """
        >>> print(Estimate(15, 1234.0, "one H200"), Estimate(0, 0.0, "one H200"), sep="; ")
        15 networks to train, about 1,200 GPU minutes (21 hours) on one H200; 0 networks to train, no time
        """
        count = f"{self.networks} network{'' if self.networks == 1 else 's'} to train"
        if self.minutes is None:
            return f"{count}, time unknown"
        if self.minutes == 0:
            return f"{count}, no time"
        shown = float(f"{self.minutes:.2g}")
        unit = ("GPU minute" if "CPU" not in self.device else "minute") + "s" * (shown > 1)
        hours = f" ({self.minutes / 60:.2g} hours)" if 120 <= self.minutes < 4800 else ""
        days = f" ({self.minutes / 1440:.2g} days)" if self.minutes >= 4800 else ""
        return f"{count}, about {max(shown, 1.0):,.0f} {unit}{hours}{days} on {self.device}"


def images(dataset: str) -> int | None:
    """How many images a set has, if that is known."""
    return find(dataset).images


def training_minutes(method: str, config: TrainConfig) -> float | None:
    """Of one model."""
    speed, count = SPEEDS.get(config.network), images(config.train_set)
    if speed is None or count is None:
        return None
    slower = FLOAT32_FACTOR if config.precision == "float32" and "CPU" not in speed.device else 1.0
    return config.total_epochs * count * slower * speed.ms * speed.factors.get(method, 1.0) / 128 / 60_000


def evaluation_minutes(planned: PlannedRun) -> float | None:
    """Forward passes, a third of a step, and metrics."""
    speed = SPEEDS.get(planned.config.network)
    counts = [images(name) for name in planned.evaluate.datasets()]
    if speed is None or None in counts:
        return None
    each = planned.config.members * speed.ms / 3 / 128 + MEASURE_MICROSECONDS / 1000
    return sum(count for count in counts if count is not None) * each / 60_000


def models(planned: PlannedRun) -> list[TrainConfig]:
    """Every model that a planned run trains: itself or its members, and its companion's."""
    configs = [planned.config, *([planned.companion] if planned.companion is not None else [])]
    return [
        model
        for config in configs
        for model in ([config] if config.members == 1 else map(config.member, range(config.members)))
    ]


def estimate(plan: Iterable[PlannedRun], runs: Path | None = None, device: torch.device | None = None) -> Estimate:
    """What a plan costs; with `runs`, what is left of it there. A model that several runs share is counted once.

    device: on which it runs, as that decides what the run folders are called; default, the accelerator if there is one.
    """
    minutes: dict[str, float | None] = {}
    evaluations: list[float | None] = []
    devices: dict[str, None] = {}
    for planned in plan:
        speed = SPEEDS.get(planned.config.network)
        devices[speed.device if speed is not None else "an unknown device"] = None
        if runs is None or not (_run(planned.config, runs, device).folder / f"rows-{planned.stem}.csv").is_file():
            evaluations.append(evaluation_minutes(planned))
        for config in models(planned):
            left = 1.0 if runs is None else _share_left(_run(config, runs, device))
            own = training_minutes(planned.method, config)
            if left > 0:
                minutes[config.name] = own * left if own is not None else None
    parts = [*minutes.values(), *evaluations]
    known = [part for part in parts if part is not None]
    return Estimate(len(minutes), sum(known) if len(known) == len(parts) else None, ", ".join(devices))


def _run(config: TrainConfig, runs: Path, device: torch.device | None) -> Run:
    from regmixup.training.config import choose_device, resolve
    from regmixup.training.run import Run

    config = resolve(config, choose_device(device))
    return Run(runs / config.name, config)


def _share_left(run: Run) -> float:
    if run.finished:
        return 0.0
    done = len(run.history()) if run.checkpoint.is_file() else 0  # an archived run has a history, and no weights
    return 1 - min(1.0, done / run.config.total_epochs)


def cost_line(study: Study) -> str:
    """What a study file says about its cost."""
    return str(estimate(study.runs()))
