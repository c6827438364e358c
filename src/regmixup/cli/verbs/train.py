"""`regmixup train`: --recipe and --method pick the instances first, then their fields become flags."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from regmixup.cli.parsing import Surroundings, Switch, parse
from regmixup.config import encode
from regmixup.objectives import Objective
from regmixup.progress import LiveProgress, describe
from regmixup.recipes import Recipe
from regmixup.training.config import TrainConfig, choose_device, configure, resolve
from regmixup.training.loop import train


@dataclass(frozen=True)
class TrainVerb(Surroundings):
    """Train one model. --recipe and --method choose the defaults below; any field can then be changed.

    A finished run is never repeated, an interrupted one goes on from its last epoch.
    Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1
    """

    training: Annotated[Recipe, arg(name="")]
    objective: Annotated[Objective, arg(name="")]
    recipe: str
    """Named training configuration, see `regmixup list recipes`."""
    method: str
    """Named objective, see `regmixup list methods`."""
    seed: int = 0
    """Decides initialisation, data order, augmentation, mixing and dropout."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    dry_run: Switch = False
    """Print the resolved configuration as JSON, and do nothing."""


def main(args: Sequence[str]) -> None:
    """Train, or print what would be trained."""
    recipe, method = _value_of("--recipe", args, "digits"), _value_of("--method", args, "regmixup")
    default = configure(recipe, method)
    training = Recipe(**_fields(default))
    verb = parse(TrainVerb, "train", args, default=TrainVerb(training, default.objective, recipe, method))
    config = TrainConfig(**_fields(verb.training), objective=verb.objective, seed=verb.seed)
    config = resolve(config, choose_device(verb.device))
    if verb.dry_run:
        print(json.dumps({"folder": str(verb.runs / config.name), **encode(config)}, indent=2))
        return
    with LiveProgress(Console(), total=1) as progress:
        progress.begin(f"{method} seed {config.seed}", config.epochs)
        run = train(
            config, verb.runs, root=verb.root, device=verb.device, workers=verb.workers, on_epoch=progress.epoch
        )
    print(f"epoch {config.epochs}: {describe(run.history())}\nrun  {run.folder}")


def _value_of(flag: str, args: Sequence[str], default: str) -> str:
    """The word after a flag, or behind its equals sign."""
    for index, word in enumerate(args):
        if word == flag and index + 1 < len(args):
            return args[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return default


def _fields(recipe: Recipe) -> dict[str, Any]:
    return {f.name: getattr(recipe, f.name) for f in dataclasses.fields(Recipe)}
