"""`regmixup advise`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup.advice import Record, Request, carry_out, make_plan
from regmixup.advice.trainings import Experiment
from regmixup.cli.parsing import parse
from regmixup.names import printable
from regmixup.progress import LiveProgress


@dataclass(frozen=True)
class AdviseVerb(Request):
    """Find out on your own images whether RegMixup, label smoothing or EMA are worth it, at equal compute.

    The images, but for those that `finetune` tests on, are cut into folds, and each candidate is trained for each fold.
    The verdict has intervals; before at least 5 folds are done by all candidates it is "undecided". The same command
    goes on where it stopped. Only --goal decides; the rule is printed first.

    Example: regmixup advise ~/photos --minutes 30

    Example: regmixup advise ~/photos --init timm --minutes 240
    """

    photos: Positional[Path]
    """A folder of class folders, or one with train/."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the folder with the verdict."""


def main(args: Sequence[str]) -> None:
    """Print the plan and what fits, train, and print the verdict and the command to run next."""
    verb = parse(AdviseVerb, "advise", args)
    end = time.monotonic() + 60 * verb.minutes
    plan = make_plan(verb)
    print(f"{plan.describe()}\n{plan.scope(verb.runs, end - time.monotonic())}", flush=True)
    left = plan.trainings - Record.read(verb.runs / plan.folder).done
    with LiveProgress(Console(), total=left) as progress:
        measure = Experiment(plan, verb.runs, verb.device, verb.workers, progress)
        advice = carry_out(plan, measure, verb.runs, end=end, progress=progress)
    words = printable(str(advice).removesuffix(advice.command).rstrip(), keep="\n")
    print(f"\n{words}\npage  {advice.page}")
    same = shlex.join(["regmixup", "advise", *args]) if advice.done < plan.trainings else ""
    if following := advice.command or same:
        print(f"next  {printable(following)}")
