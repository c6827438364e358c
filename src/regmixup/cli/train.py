"""`regmixup train`: --recipe and --method pick the instances first, then their fields become flags."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from regmixup.cli.engine_flags import EngineFlags
from regmixup.cli.flags import with_help, without_help
from regmixup.cli.parsing import Surroundings, Switch, parse
from regmixup.config import encode
from regmixup.data.folders import describe_classes
from regmixup.networks import name_of
from regmixup.progress import LiveProgress, describe
from regmixup.recipes import Recipe
from regmixup.training.config import TrainConfig, choose_device, configure, resolve
from regmixup.training.distributed import world_size
from regmixup.training.engine import Engine
from regmixup.training.loop import train


@dataclass(frozen=True)
class Unconstrained:
    """No constraint: no flags of its own."""


@dataclass(frozen=True)
class TrainVerb(Surroundings):
    """Train one model. --recipe and --method choose the defaults below; any field can then be changed.

    --head and --constraint replace the method's own, so that any combination is one line.
    A finished run is never repeated, an interrupted one goes on from where it was.

    Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1

    Example: regmixup train --method regmixup --head gp --constraint spectral_norm --constraint.c 6
    """

    training: Annotated[Recipe, arg(name="")]
    objective: Annotated[object, arg(name="")]
    head_fields: Annotated[object, arg(name="head")]
    constraint_fields: Annotated[object, arg(name="constraint")]
    recipe: str
    """Named training configuration, see `regmixup list recipes`; without one, digits, or imagenet-resnet50 where the
    train set is a folder."""
    method: str
    """Named combination of objective, constraint and head, see `regmixup list methods`."""
    head: str
    """What turns features into logits, see `regmixup list heads`."""
    constraint: str
    """Bound on the convolutions' weights, see `regmixup list constraints`; none for none."""
    members: int = 1
    """Models trained alike from different seeds and averaged; more than 1 is a deep ensemble."""
    seed: int = 0
    """Decides initialisation, data order, augmentation, mixing and dropout."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    engine: EngineFlags = field(default_factory=Engine)
    tensorboard: Switch = False
    """Also write event files for TensorBoard into the run folder (pip install 'regmixup[tensorboard]')."""
    dry_run: Switch = False
    """Print the resolved configuration as JSON, look for what would stop the run, and write nothing."""


def main(args: Sequence[str]) -> None:
    """Train, or print what would be trained."""
    of_files = (_value_of("--train-set", args) or "").startswith("folder:")
    recipe = _value_of("--recipe", args) or ("imagenet-resnet50" if of_files else "digits")
    method = _value_of("--method", args) or "regmixup"
    parts = {flag: value for flag in ("head", "constraint") if (value := _value_of(f"--{flag}", args)) is not None}
    default = configure(recipe, method, **{key: None if value == "none" else value for key, value in parts.items()})
    verb = parse(
        TrainVerb,
        "train",
        args,
        default=TrainVerb(
            training=Recipe(**_fields(default)),
            objective=with_help(default.objective),
            head_fields=with_help(default.head),
            constraint_fields=with_help(default.constraint) if default.constraint is not None else Unconstrained(),
            recipe=recipe,
            method=method,
            head=name_of(default.head),
            constraint=name_of(default.constraint),
            members=default.members,
        ),
    )
    constraint = default.constraint
    config = TrainConfig(
        **_fields(verb.training),
        objective=without_help(verb.objective, type(default.objective)),
        head=without_help(verb.head_fields, type(default.head)),
        constraint=None if constraint is None else without_help(verb.constraint_fields, type(constraint)),
        members=verb.members,
        seed=verb.seed,
    )
    config = resolve(config, choose_device(verb.device), world=world_size())
    how = partial(
        train, config, verb.runs, root=verb.root, device=verb.device, workers=verb.workers, engine=verb.engine,
        tensorboard=verb.tensorboard,
    )  # fmt: skip
    if verb.dry_run:
        print(json.dumps({"folder": str(verb.runs / config.name), **encode(config)}, indent=2))
        how(dry_run=True)
        return
    if classes := describe_classes(config.train_set, verb.root):
        print(classes)
    label = f"{method} seed {config.seed}"
    with LiveProgress(Console(), total=1) as progress:
        progress.begin(label, config.total_epochs * config.members)
        told = partial(how, on_step=partial(progress.step, label), on_epoch=partial(progress.epoch, label))
        run = told(on_start=progress.start)
    print(f"epoch {config.total_epochs}: {describe(run.history())}\nrun  {run.folder}")


def _value_of(flag: str, args: Sequence[str]) -> str | None:
    """The word after a flag, or behind its equals sign; where it is given twice, the last, as for all flags."""
    found = None
    for word, following in zip(args, (*args[1:], None), strict=True):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found


def _fields(recipe: Recipe) -> dict[str, Any]:
    return {f.name: getattr(recipe, f.name) for f in dataclasses.fields(Recipe)}
