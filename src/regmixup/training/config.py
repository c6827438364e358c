"""`TrainConfig`: a training run as one hashable value. `configure` makes it by names, `resolve` fits it to a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regmixup import augmentations, methods, networks, objectives, plugins, recipes
from regmixup.config import Count, CountOrZero, check_number, encode, fingerprint, introduced, values_of
from regmixup.data import catalogue
from regmixup.data.folders import SPLITS
from regmixup.data.roles import check_validation, validation_of
from regmixup.losses import LOSSES
from regmixup.metrics.scores import REGISTRY
from regmixup.names import check_name
from regmixup.networks import check_network, constraint_of, head_of
from regmixup.networks.constraints import Constraint
from regmixup.networks.contract import Head, LinearHead
from regmixup.networks.precision import check_precision
from regmixup.objectives import Objective, build
from regmixup.objectives.rotation import Rotation
from regmixup.plugins import Origin, origins
from regmixup.recipes import Recipe
from regmixup.training.initial_weights import identify

networks.import_components()  # so that a stored configuration can name any of them


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Recipe):
    """A recipe with its objective, constraint, head and seed: everything that decides the trained weights."""

    objective: Objective
    """The objective, which computes the loss."""
    constraint: Constraint | None = None
    """A bound on the weights of the backbone's convolutions."""
    head: Head = field(default_factory=LinearHead)
    """The head, which turns features into logits."""
    members: Count = 1
    """Number of models that are trained with different seeds and averaged; more than 1 is a deep ensemble."""
    seed: CountOrZero = 0
    """Seed of initialisation, data order, augmentation, mixing and dropout."""
    plugins: tuple[Origin, ...] = introduced(())
    """Where the dataset, network and objective come from that a plugin registered; `resolve` fills it in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self.network)
        catalogue.find(self.train_set)
        if self.validation:
            check_validation(self.validation, self.train_set)
        if not isinstance(self.objective, Objective):
            raise ValueError(f"objective must be an Objective such as RegMixup(), got {self.objective!r}")
        encode(self.objective)  # a loss that cannot be recorded is refused here, not after the first epoch
        needed = self.objective.head
        if needed and needed != self.head_name:
            raise ValueError(f"head must be {needed!r} for {self.objective}, got {self.head_name!r}")

    @property
    def head_name(self) -> str:
        return networks.name_of(self.head)

    @cached_property
    def name(self) -> str:
        """Return the name of the run's folder: readable, and unique by the configuration's fingerprint.

        Of a folder of images with an absolute path, as `finetune` has, it has the last part, or the one before if that
        is train; then timm's networks are named as timm names them, and plain training is dnn, as for --method.
        """
        objective, network, train_set = objectives.name_of(self.objective), self.network, self.train_set
        folder = Path(catalogue.find(train_set).whole.removeprefix("folder:"))
        if folder.is_absolute():
            objective, network = "dnn" if objective == "erm" else objective, network.removeprefix("timm/")
            is_split = folder.name.lower() in SPLITS and folder.parent.name
            train_set = folder.parent.name if is_split else folder.name
        parts = [objective, networks.name_of(self.constraint), self.head_name]
        parts += [train_set.replace("/", "-").replace(":", "-"), network.replace("/", "-")]
        if self.members > 1:
            parts.append(f"x{self.members}")
        named = "-".join(part for part in parts if part not in ("none", "linear"))
        return f"{named}-s{self.seed}-{fingerprint(self)[:12]}"


def configure(recipe: str = "digits", method: str = "regmixup", **changes: Any) -> TrainConfig:
    """Return a named recipe with a named method, and any field changed: configure("digits", "mixup", seed=1, epochs=5).

    `objective=rm.RegMixup(alpha=10)` overrides the method's objective, `head="gp"` or `head=GPHead(ridge=2)` its head,
    `constraint=` its constraint. A method brings the values that the paper selected for this recipe, and keeps them
    where its own head or constraint is named once more. `rotation=0.5` wraps the objective in `Rotation`.
    """
    rotation = changes.pop("rotation", 0)
    fields = {f.name for f in dataclasses.fields(TrainConfig)}
    named, chosen = recipes.get(recipe), methods.get(method).at(recipe)
    for key in changes:
        if key not in fields:
            check_no_field_of_objective(key, changes[key], chosen.objective)
        check_name("field of TrainConfig", key, fields)
    for key in chosen.train:
        check_name(f"field of TrainConfig in `train` of method {method}", key, fields)
    plugins.load_if_unknown(chosen.score, REGISTRY)
    check_name(f"score of method {method}", chosen.score, REGISTRY)
    head = _with_fields_of(chosen.head, changes.pop("head", chosen.head), head_of)
    constraint = _with_fields_of(chosen.constraint, changes.pop("constraint", chosen.constraint), constraint_of)
    objective = changes.pop("objective") if "objective" in changes else objective_of(chosen.objective)
    usual = {**values_of(named), **chosen.train}
    values = {**usual, **changes, "constraint": constraint}
    config = TrainConfig(**values, **with_rotation(objective, head, rotation))
    config.check_settings(usual)
    return config


def check_no_field_of_objective(key: str, value: object, spec: methods.Spec) -> None:
    """Raise, and show what to write instead, if a change of a configuration is one of its method's objective."""
    objective = objective_of(spec)
    if key not in values_of(objective):
        return
    kept = {name: getattr(objective, name) for name in spec.fields} | {key: value}
    shown = [f"{name}={entry if isinstance(entry, int | float) else '...'}" for name, entry in kept.items()]
    home = "rm." if type(objective).__module__.startswith("regmixup.") else ""
    call = f"{home}{type(objective).__name__}({', '.join(shown)})"
    raise ValueError(f"{key} is a field of the objective, not of TrainConfig: give objective={call}")


def _with_fields_of(spec: methods.Spec | None, part: Any, find: Callable[..., Any]) -> Any:
    """Return a head or constraint: `part`, or the method's with its fields where `part` is or names that one."""
    if spec is not None and part in (spec, spec.name):
        return find(spec.name, **spec.fields)
    return find(part)


def objective_of(spec: methods.Spec) -> Objective:
    """Return the objective that a method's plain data describes."""
    parts = {field: part_of(field, part) for field, part in spec.fields.items() if isinstance(part, methods.Spec)}
    return build(spec.name, **{**spec.fields, **parts})


def part_of(field: str, spec: methods.Spec) -> Any:
    """Return the part of an objective that stands in a field: a loss, an augmentation, or another objective."""
    if field == "loss":
        return LOSSES[check_name("loss", spec.name, LOSSES)](**spec.fields)
    return augmentations.build(spec.name, **spec.fields) if field == "transform" else objective_of(spec)


def with_rotation(objective: Objective, head: Head, weight: float) -> dict[str, Any]:
    """Return the fields objective and head of a training that also predicts rotations; of weight 0, the same two."""
    check_number("rotation", weight, least=0)
    if weight == 0:
        return {"objective": objective, "head": head}
    if not isinstance(head, LinearHead):
        raise ValueError(f"rotation must be 0 unless the head is linear, got {weight:g} with {head}")
    return {"objective": Rotation(objective, weight=weight), "head": head_of("rotation")}


def resolve(config: TrainConfig, device: torch.device, *, world: int = 1) -> TrainConfig:
    """Replace what depends on the device and on the number of processes by its value: it enters the fingerprint."""
    precision = config.precision
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    check_precision(precision, device)
    shards = config.shards if config.shards is not None else world
    if shards % world:
        raise ValueError(f"shards must be a multiple of the number of processes, {world}, got {shards}")
    if shards > config.batch_size:
        raise ValueError(f"shards must be at most batch_size, {config.batch_size}, got {shards}")
    if config.select != "last" and not config.validation:
        config = dataclasses.replace(config, validation=validation_of(config.train_set))
    init, plugins = identify(config.init, config.network), plugins_of(config)
    return dataclasses.replace(config, precision=precision, shards=shards, init=init, plugins=plugins)


def plugins_of(config: TrainConfig) -> tuple[Origin, ...]:
    """Return where what a configuration uses of others' code comes from; nothing for what is built in."""
    sets = [name for name in (config.train_set, config.validation) if name]
    used = [("dataset", catalogue.find(name).whole) for name in sets]
    used.append(("network", check_network(config.network)))  # a worker that was sent it loads its plugin here
    unnamed = []
    for name, part in _parts(config):
        if not isinstance(part, Objective):
            unnamed.append((name, part))
            continue
        if type(part) not in objectives.OBJECTIVES.values():
            cls = type(part).__name__
            raise ValueError(f"objective must be registered, got {cls}: call rm.objectives.register({cls}) before")
        used.append(("objective", objectives.name_of(part)))
    return origins(used, unnamed)


def _parts(config: object) -> Iterator[tuple[str, object]]:
    """Yield the dataclasses that the fields of a dataclass hold, and those in theirs, each with its field."""
    for name, part in values_of(config).items():
        if dataclasses.is_dataclass(part):
            yield name, part
            yield from _parts(part)
