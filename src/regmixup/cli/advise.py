"""`regmixup advise`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup.advice import Advice, Record, carry_out, make_plan
from regmixup.advice.trainings import Experiment
from regmixup.advice.verdict import Goal
from regmixup.cli.parsing import parse
from regmixup.names import printable
from regmixup.progress import LiveProgress


@dataclass(frozen=True)
class AdviseVerb:
    """Find out on your own images whether RegMixup, label smoothing or EMA are worth it, at equal compute.

    The images, but for those that `finetune` tests on, are cut into folds, and each candidate is trained for each fold.
    The verdict has intervals; before at least 5 folds are done by all candidates it is "undecided". The same command
    goes on where it stopped. Only --goal decides; the rule is printed first.

    Example: regmixup advise ~/photos --minutes 30

    Example: regmixup advise ~/photos --init timm --minutes 240
    """

    photos: Positional[Path]
    """A folder of class folders, or one with train/."""
    minutes: float = 30.0
    """Start no training that would not end within so many minutes, judged by the pace."""
    goal: Goal = "accuracy"
    """The metric that decides: accuracy, nll, ece, shift (accuracy under corruptions), ood (AUROC of classes that were
    left out)."""
    backbone: str = ""
    """Network, see `regmixup list networks`; default: small, or with --init the one that `finetune` takes."""
    init: str = ""
    """Weights to start from: timm, or the path of a file; default: random ones."""
    size: int | None = None
    """Side of the images; default: at most 64, with --init 128."""
    folds: int | None = None
    """Folds, at least 5 for a verdict; default: as many as fit, 5 to 10."""
    epochs: int | None = None
    """Epochs of plain training, and half as many of RegMixup; default: by the number of images and the time."""
    seed: int = 0
    """Decides initialisation, data order, augmentation and mixing; every fold has its own, shared by the candidates."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the folder with the verdict."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    workers: int | None = None
    """Processes that decode image files; default: none on a CPU."""


def main(args: Sequence[str]) -> None:
    """Print the plan and what fits, train, and print the verdict."""
    verb = parse(AdviseVerb, "advise", args)
    end = time.monotonic() + 60 * verb.minutes
    plan = make_plan(
        verb.photos, verb.minutes, runs=verb.runs, goal=verb.goal, backbone=verb.backbone, init=verb.init,
        size=verb.size, folds=verb.folds, epochs=verb.epochs, seed=verb.seed, device=verb.device,
    )  # fmt: skip
    print(f"{plan.describe()}\n{plan.scope(verb.runs, end - time.monotonic())}")
    left = plan.trainings - Record.read(verb.runs / plan.folder).done
    with LiveProgress(Console(), total=left) as progress:
        measure = Experiment(plan, verb.runs, verb.device, verb.workers, progress)
        advice = carry_out(plan, measure, verb.runs, end=end, progress=progress)
    _show(advice)


def _show(advice: Advice) -> None:
    print(f"\n{printable(str(advice), keep=chr(10))}\npage  {advice.page}")
