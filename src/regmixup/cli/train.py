"""`regmixup train`: --recipe, --method, --head, --loss and the like pick instances, whose fields become flags."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import AvoidSubcommands, FlagCreatePairsOff, arg

from regmixup import data
from regmixup.augmentations import AUGMENTATIONS, build
from regmixup.cli.help import recipe_and_method, value_of
from regmixup.cli.parsing import Resources, Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.config import encode, values_of
from regmixup.losses import LOSSES, CrossEntropy, Loss, balanced_weight
from regmixup.names import check_name
from regmixup.networks import name_of
from regmixup.networks.constraints import Constraint
from regmixup.networks.contract import Head
from regmixup.objectives import Objective, has_loss
from regmixup.objectives.vicinal import Vicinal
from regmixup.recipes import Recipe
from regmixup.run_folder import describe_last
from regmixup.training.config import TrainConfig, configure, with_rotation
from regmixup.training.engine import Engine
from regmixup.training.train import train


@dataclass(frozen=True)
class NoFlags:
    """Stands for no constraint, or no loss but cross-entropy: it has no flags."""


@dataclass(frozen=True)
class TrainVerb(Resources):
    """Train one model. --recipe and --method choose the defaults below; you can then change any field.

    --head and --constraint replace those of the method, so you can combine anything in one command.

    A finished run is not repeated; an interrupted one is resumed.

    Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1

    Example: regmixup train --method regmixup --head gp --constraint spectral_norm --constraint.c 6

    Example: regmixup train --method regmixup --loss focal --loss.gamma 3

    Example: regmixup train --train-set folder:photos/train --class-weights balanced

    Example: regmixup train --train-set folder:photos/train-90 --rand-augment 2 --select val-nll
    """

    training: Annotated[Recipe, arg(name="")]
    objective: Annotated[AvoidSubcommands[Objective], arg(name="")]  # its `loss` is no flag: --loss chooses it by name
    head_fields: Annotated[Head, arg(name="head")]
    """Hyper-parameters of the head that --head chooses."""
    constraint_fields: Annotated[object, arg(name="constraint")]
    """Hyper-parameters of the constraint that --constraint chooses."""
    loss_fields: Annotated[object, arg(name="loss")]
    """Hyper-parameters of the loss that --loss chooses."""
    recipe: str
    """Named training configuration; see `regmixup list recipes`. Default: digits, or imagenet-resnet50 if the train set
    is a folder."""
    method: str
    """Named combination of objective, constraint and head; see `regmixup list methods`."""
    head: str
    """Head, which turns features into logits; see `regmixup list heads`."""
    constraint: str
    """Bound on the weights of the convolutions; see `regmixup list constraints`."""
    loss: str = "none"
    """Loss in the objective: cross_entropy (with class weights and smoothing), focal, logitnorm, or
    binary_cross_entropy (one yes-or-no question per class). none: plain cross-entropy."""
    transform: str = "none"
    """Augmentation for a second loss term that keeps the labels: gaussian_noise, cutout, augmix_chains or pixmix."""
    rotation: float = 0.0
    """Weight of an added loss for predicting rotations, with a second head; 0 for none."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: cross-entropy with the weight N / (K n_c) for a class with n_c of the N train images, for K classes.
    The configuration records these weights, as if you had set --loss.weight."""
    members: int = 1
    """Number of models that are trained with different seeds and averaged; more than 1 is a deep ensemble."""
    seed: int = 0
    """Seed of initialisation, data order, augmentation, mixing and dropout."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    engine: Annotated[FlagCreatePairsOff[Engine], arg(name="")] = field(default_factory=Engine)
    tensorboard: Switch = False
    """Also write event files for TensorBoard into the run folder (pip install 'regmixup[tensorboard]')."""
    dry_run: Switch = False
    """Check everything that would stop the run, print its resolved configuration as JSON, and write nothing."""


def main(args: Sequence[str]) -> None:
    words = ["--help" if word == "--help-all" else word for word in args]
    usual = _defaults(args)
    verb = parse(TrainVerb, "train", words, default=usual)
    verb.training.check_settings(values_of(usual.training))
    objective = verb.objective
    loss = verb.loss_fields if isinstance(verb.loss_fields, Loss) else None
    if verb.class_weights == "balanced":
        loss = _balanced(loss, verb)
    if loss is not None:
        objective = dataclasses.replace(objective, loss=loss)  # type: ignore[call-arg]
    config = TrainConfig(
        **values_of(verb.training),
        **with_rotation(objective, verb.head_fields, verb.rotation),
        constraint=verb.constraint_fields if isinstance(verb.constraint_fields, Constraint) else None,
        members=verb.members,
        seed=verb.seed,
    )
    start = partial(
        train, config, verb.runs, root=verb.root, device=verb.device, workers=verb.workers, engine=verb.engine,
        tensorboard=verb.tensorboard,
    )  # fmt: skip
    if verb.dry_run:
        run = start(dry_run=True)
        print(json.dumps({"folder": str(run.folder), **encode(run.config)}, indent=2))
        return
    with LiveProgress(Console(), total=1) as progress:
        run = start(**progress.hooks(f"{verb.method} seed {config.seed}", config.total_epochs * config.members))
    print(f"epoch {config.total_epochs}: {describe_last(run.history())}")
    if selected := run.provenance().get("selected"):
        print(f"the model is epoch {selected['epoch']}: {selected['by']} {selected['value']:.4f} on {selected['on']}")
    print(f"run  {run.folder}")


def _defaults(args: Sequence[str]) -> TrainVerb:
    """Return the defaults of all flags. Words such as --head gp choose parts by name, whose fields are flags, too."""
    recipe, method = recipe_and_method(args)
    parts = {flag: value for flag in ("head", "constraint") if (value := value_of(f"--{flag}", args)) is not None}
    config = configure(recipe, method, **{key: None if value == "none" else value for key, value in parts.items()})
    objective = _with_transform(config.objective, value_of("--transform", args))
    loss = _loss(value_of("--loss", args), objective)
    # The CLI library cannot parse a loss: --loss chooses it by name.
    parsable = dataclasses.replace(objective, loss=None) if has_loss(objective) else objective  # type: ignore[call-arg]
    return TrainVerb(
        training=Recipe(**values_of(config, Recipe)),
        objective=parsable,
        head_fields=config.head,
        constraint_fields=config.constraint or NoFlags(),
        loss_fields=loss or NoFlags(),
        recipe=recipe,
        method=method,
        head=name_of(config.head),
        constraint=name_of(config.constraint),
        loss=_name_in(LOSSES, loss),
        transform=_name_in(AUGMENTATIONS, getattr(objective, "transform", None)),
        members=config.members,
    )


def _loss(name: str | None, objective: Objective) -> Loss | None:
    """Return the loss that --loss names, with its default fields; without that flag, the method's."""
    if name is None:
        return getattr(objective, "loss", None)
    if name == "none":
        return None
    _check_has_loss("--loss", name, objective)
    return LOSSES[check_name("loss", name, LOSSES)]()


def _with_transform(objective: Objective, name: str | None) -> Objective:
    """Return an objective with the augmentation that --transform names; as it is without that flag."""
    if name is None or name == _name_in(AUGMENTATIONS, getattr(objective, "transform", None)):
        return objective
    if not isinstance(objective, Vicinal):
        raise ValueError(f"--transform must be none for {type(objective).__name__}, which has no such term, got {name}")
    return dataclasses.replace(objective, transform=build(name))


def _name_in(classes: Mapping[str, type], part: object) -> str:
    return next((name for name, cls in classes.items() if type(part) is cls), "none")


def _check_has_loss(flag: str, word: str, objective: Objective) -> None:
    if not has_loss(objective):
        objective_name = type(objective).__name__
        raise ValueError(f"{flag} must be none for {objective_name}, which has a loss of its own, got {word}")


def _balanced(loss: Loss | None, verb: TrainVerb) -> CrossEntropy:
    """Return cross-entropy with weights from the class counts of the train set, which is read for it."""
    _check_has_loss("--class-weights", "balanced", verb.objective)
    loss = loss or CrossEntropy()
    if not isinstance(loss, CrossEntropy) or loss.weight is not None:
        raise ValueError(
            "--class-weights must be none unless the loss is cross-entropy without weights: only one of them may "
            "correct for class counts, got balanced"
        )
    images = data.load(verb.training.train_set, root=verb.root)
    return dataclasses.replace(loss, weight=balanced_weight(images.labels, len(images.classes)))
