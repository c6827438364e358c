"""One training run as one hashable value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from regmixup import methods, recipes
from regmixup.config import check_count, fingerprint
from regmixup.data import check_dataset
from regmixup.names import unknown
from regmixup.networks import check_network
from regmixup.objectives import OBJECTIVES, Objective, build
from regmixup.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Recipe):
    """A recipe with its objective and seed: everything that decides the trained weights."""

    objective: Objective
    """What the loss sees."""
    seed: int = 0
    """Decides initialisation, data order, augmentation, mixing and dropout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("seed", self.seed, least=0)
        check_network(self.network)
        check_dataset(self.train_set)
        if not isinstance(self.objective, Objective):
            raise ValueError(f"objective must be an Objective such as RegMixup(), got {self.objective!r}")

    @property
    def name(self) -> str:
        """What the run's folder is called: readable, and unique by the configuration's fingerprint."""
        own = type(self.objective)
        objective = next((name for name, cls in OBJECTIVES.items() if cls is own), own.__name__.lower())
        words = f"{objective}-{self.train_set}-{self.network}".replace("/", "-").replace(":", "-")
        return f"{words}-s{self.seed}-{fingerprint(self)[:12]}"


def configure(recipe: str = "digits", method: str = "regmixup", **changes: Any) -> TrainConfig:
    """A named recipe with a named method, and any field changed: configure("digits", "mixup", seed=1, epochs=5).

    `objective=rm.RegMixup(alpha=10)` overrides the method's objective.
    """
    fields = {f.name for f in dataclasses.fields(TrainConfig)}
    for key in changes:
        if key not in fields:
            raise unknown("field of TrainConfig", key, fields)
    base = {f.name: getattr(found, f.name) for found in [recipes.get(recipe)] for f in dataclasses.fields(found)}
    if "objective" not in changes:
        base["objective"] = objective_of(methods.get(method).spec)
    return TrainConfig(**{**base, **changes})


def objective_of(spec: methods.Spec) -> Objective:
    """The objective a method's plain data describes."""
    fields = {k: objective_of(v) if isinstance(v, methods.Spec) else v for k, v in spec.fields.items()}
    return build(spec.objective, **fields)


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """The given device, or the accelerator torch sees, or the CPU."""
    if device is not None:
        return torch.device(device)
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def resolve(config: TrainConfig, device: torch.device) -> TrainConfig:
    """Replace precision="auto" by what it means on this device, so that it enters the fingerprint."""
    if config.precision != "auto":
        return config
    return dataclasses.replace(config, precision="bfloat16" if device.type == "cuda" else "float32")
