"""`regmixup train`: --recipe, --method, --head and --constraint pick instances; their fields become flags."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import FlagCreatePairsOff, arg

from regmixup.cli.parsing import Resources, Switch, parse
from regmixup.config import encode
from regmixup.data.folders import describe_classes
from regmixup.networks import name_of
from regmixup.networks.contract import Constraint, Head
from regmixup.objectives import Objective
from regmixup.progress import LiveProgress, describe
from regmixup.recipes import Recipe
from regmixup.training.config import TrainConfig, choose_device, configure, resolve
from regmixup.training.distributed import world_size
from regmixup.training.engine import Engine
from regmixup.training.loop import train


@dataclass(frozen=True)
class Unconstrained:
    """Stands for no constraint: it has no flags."""


@dataclass(frozen=True)
class TrainVerb(Resources):
    """Train one model. --recipe and --method choose the defaults below; any field can then be changed.

    --head and --constraint replace the method's own, so that any combination is one line. A finished run is never
    repeated; an interrupted one is resumed.

    Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1

    Example: regmixup train --method regmixup --head gp --constraint spectral_norm --constraint.c 6
    """

    training: Annotated[Recipe, arg(name="")]
    objective: Annotated[Objective, arg(name="")]
    head_fields: Annotated[Head, arg(name="head")]
    """Hyper-parameters of the head that --head chooses."""
    constraint_fields: Annotated[object, arg(name="constraint")]
    """Hyper-parameters of the constraint that --constraint chooses."""
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
    engine: Annotated[FlagCreatePairsOff[Engine], arg(name="")] = field(default_factory=Engine)
    tensorboard: Switch = False
    """Also write event files for TensorBoard into the run folder (pip install 'regmixup[tensorboard]')."""
    dry_run: Switch = False
    """Print the resolved configuration as JSON, check everything that would stop the run, and write nothing."""


def main(args: Sequence[str]) -> None:
    """Train, or print what would be trained."""
    verb = parse(TrainVerb, "train", args, default=_defaults(args))
    config = TrainConfig(
        **_fields(verb.training),
        objective=verb.objective,
        head=verb.head_fields,
        constraint=verb.constraint_fields if isinstance(verb.constraint_fields, Constraint) else None,
        members=verb.members,
        seed=verb.seed,
    )
    config = resolve(config, choose_device(verb.device), world=world_size())
    start = partial(
        train, config, verb.runs, root=verb.root, device=verb.device, workers=verb.workers, engine=verb.engine,
        tensorboard=verb.tensorboard,
    )  # fmt: skip
    if verb.dry_run:
        print(json.dumps({"folder": str(verb.runs / config.name), **encode(config)}, indent=2))
        start(dry_run=True)
        return
    if classes := describe_classes(config.train_set, verb.root):
        print(classes)
    label = f"{verb.method} seed {config.seed}"
    with LiveProgress(Console(), total=1) as progress:
        progress.begin(label, config.total_epochs * config.members)
        on_step, on_epoch = partial(progress.step, label), partial(progress.epoch, label)
        run = start(on_start=progress.start, on_step=on_step, on_epoch=on_epoch)
    print(f"epoch {config.total_epochs}: {describe(run.history())}\nrun  {run.folder}")


def _defaults(args: Sequence[str]) -> TrainVerb:
    """Return the verb with the instances that the words choose by name, whose fields are the other flags."""
    from_files = (_value_of("--train-set", args) or "").startswith("folder:")
    recipe = _value_of("--recipe", args) or ("imagenet-resnet50" if from_files else "digits")
    method = _value_of("--method", args) or "regmixup"
    chosen = {flag: value for flag in ("head", "constraint") if (value := _value_of(f"--{flag}", args)) is not None}
    config = configure(recipe, method, **{key: None if value == "none" else value for key, value in chosen.items()})
    return TrainVerb(
        training=Recipe(**_fields(config)),
        objective=config.objective,
        head_fields=config.head,
        constraint_fields=config.constraint or Unconstrained(),
        recipe=recipe,
        method=method,
        head=name_of(config.head),
        constraint=name_of(config.constraint),
        members=config.members,
    )


def _value_of(flag: str, args: Sequence[str]) -> str | None:
    """Return the word after a flag or behind its equals sign; of several, the last, as for all flags."""
    found = None
    for word, following in zip(args, (*args[1:], None), strict=True):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found


def _fields(recipe: Recipe) -> dict[str, Any]:
    return {f.name: getattr(recipe, f.name) for f in dataclasses.fields(Recipe)}
