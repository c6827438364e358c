"""`regmixup advise`: find out whether RegMixup is worth it on a folder of images."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from regmixup import plugins
from regmixup.advice import Record, Request, carry_out, make_plan
from regmixup.advice.trainings import MARGIN, Experiment
from regmixup.cli import split_flag
from regmixup.cli.parsing import parse
from regmixup.cli.progress import LiveProgress
from regmixup.names import printable


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
    start = time.monotonic()
    end = start + 60 * verb.minutes
    plan = make_plan(verb)
    print(f"{plan.describe()}\n{plan.scope(verb.runs, end - time.monotonic())}", flush=True)
    begun = Record.read(verb.runs / plan.folder)
    left, least = plan.trainings - begun.done, minutes_for(begun.expected(plan), time.monotonic() - start)
    with LiveProgress(Console(), total=left) as progress:
        measure = Experiment(plan, verb.runs, verb.device, verb.workers, progress)
        advice = carry_out(plan, measure, verb.runs, end=end, progress=progress)
    words = printable(str(advice).removesuffix(advice.command).rstrip(), keep="\n")
    print(f"\n{words}\npage  {advice.page}")
    again = tuple(args)
    if advice.done == begun.done and left:
        print(f"note  no training fits into {verb.minutes:g} minutes: give --minutes {least} or more")
        again = (*split_flag("--minutes", args)[1], "--minutes", str(least))
    same = shlex.join(["regmixup", "advise", *again, *plugins.flags()]) if advice.done < plan.trainings else ""
    if following := advice.command or same:
        print(f"next  {printable(following)}")


def minutes_for(training: float, before: float) -> int:
    """Return the whole minutes that one training needs, of so many seconds after what comes before the first.

    >>> minutes_for(52, 10), minutes_for(1, 1)
    (2, 1)
    """
    return math.ceil((MARGIN * training + before) / 60)
