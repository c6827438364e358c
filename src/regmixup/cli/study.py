"""`regmixup study`: run a study, or show its plan and the state of its runs (--dry-run)."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from regmixup.cli.parsing import Resources, Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.study.archive import archive_places
from regmixup.study.launchers import InTurn, Launcher, Processes, RayTasks, all_devices
from regmixup.study.plan import Scale, Study, load_study
from regmixup.study.runner import lost_weights, missing_choices, run_study
from regmixup.study.select import take_selected
from regmixup.study.status import estimate, missing_data, status_lines
from regmixup.study.tasks import Task, find_tasks
from regmixup.training.engine import Engine


@dataclass(frozen=True)
class StudyVerb(Resources):
    """Train and evaluate every run of a study, then print its tables and write its report.

    Finished work is skipped, so the same command resumes an interrupted study.

    Example: regmixup study digits

    Example: regmixup study accuracy --dry-run

    Example: regmixup study accuracy --devices cuda:0 cuda:1

    Example: regmixup study length --archive results/length --minutes 55
    """

    study: Positional[Annotated[str, arg(metavar="STUDY")]]
    """Name of a study (see regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    scale: Scale = "full"
    """smoke: run the study in seconds on a CPU, on tiny embedded data. This shows only that the file works. The runs
    are in the folder smoke under --runs."""
    selected: Path | None = None
    """selected.json of a study that selects. Its values replace those of the methods and recipes. The study is then
    called NAME-selected."""
    launcher: Literal["local", "ray"] = "local"
    """local: run on this machine. ray: run as tasks of a Ray cluster (pip install 'regmixup[ray]')."""
    devices: tuple[str, ...] = ()
    """With local: one process per device, such as cuda:0 cuda:1, or all. A device named twice gets two processes.
    Default: one run after the other on --device."""
    ray_address: str | None = None
    """With ray: address of a running cluster, such as auto. Default: RAY_ADDRESS, else a cluster on this machine
    only."""
    gpus_per_run: float | None = None
    """With ray: GPUs per run, default 1. 0.5 puts two runs on each GPU; 0 trains on CPUs."""
    cpus_per_run: float | None = None
    """With ray: CPU cores per run, default 1."""
    engine: Annotated[FlagCreatePairsOff[Engine], arg(name="")] = field(default_factory=Engine)
    archive: Path | None = None
    """Also archive every finished run in this folder, without weights and predictions (about 250 kilobytes). An
    archived run counts as done, wherever it was trained."""
    minutes: float | None = None
    """Start only runs that should end within this many minutes, estimated from the last epochs of similar runs; then
    print what is left."""
    dry_run: Switch = False
    """Print what the study is about and what to expect, the state of its runs, the time left, and missing data."""


def main(args: Sequence[str]) -> None:
    verb = parse(StudyVerb, "study", args)
    study = load_study(verb.study, verb.scale)
    if verb.selected is not None:
        study = take_selected(study, verb.selected)
    if verb.scale == "smoke":
        verb = replace(verb, runs=verb.runs / "smoke")
        if verb.launcher == "local" and not (verb.device or verb.devices):
            verb = replace(verb, device="cpu")
    launcher = choose_launcher(verb)
    plan = list(study.runs())

    def look() -> list[Task]:
        return find_tasks(plan, verb.runs, launcher.device, archive_places(study, verb.archive, verb.runs))

    if verb.dry_run:
        _print_plan(study, look(), verb)
        return
    console = Console()
    with LiveProgress(console, total=len(plan)) as progress, warnings.catch_warnings():
        if verb.scale == "smoke":  # two epochs on digits: nothing that a reader should or could change
            warnings.filterwarnings("ignore", "the best temperature")
        folder = run_study(
            study,
            verb.runs,
            root=verb.root,
            workers=verb.workers,
            engine=verb.engine,
            progress=progress,
            launcher=launcher,
            archive=verb.archive,
            minutes=verb.minutes,
        )
    if (folder / "rows.csv").is_file():
        from regmixup.report.output import print_report, write_report
        from regmixup.report.results import load_results

        results = load_results(folder)
        print_report(results, write_report(results), console)
    if verb.minutes is not None:
        print(f"left   {estimate(look())}")


def choose_launcher(verb: StudyVerb) -> Launcher:
    """Return the launcher that the flags describe; a flag that belongs to the other one is an error."""
    names = ("ray_address", "gpus_per_run", "cpus_per_run")
    for_ray = {name: getattr(verb, name) for name in names if getattr(verb, name) is not None}
    if verb.launcher == "ray":
        if verb.devices or verb.device:
            raise ValueError("--device and --devices must not be given with --launcher ray, which assigns them")
        return RayTasks(**{name.removeprefix("ray_"): value for name, value in for_ray.items()})
    if for_ray:
        raise ValueError(f"--{next(iter(for_ray)).replace('_', '-')} must be given with --launcher ray")
    if verb.devices and verb.device:
        raise ValueError(f"give --device or --devices, got {verb.device} and {' '.join(verb.devices)}")
    devices = all_devices() if verb.devices == ("all",) else verb.devices
    if len(devices) > 1:
        return Processes(devices)
    return InTurn(devices[0] if devices else verb.device)


def _print_plan(study: Study, tasks: Sequence[Task], verb: StudyVerb) -> None:
    """Print what a study is about and expected to show, its runs, the time left, and what data is missing."""
    # At smoke scale the expected result does not come out.
    expected = study.expected if study.scale == "full" else ""
    for label, text in (("study", study.title), ("expect", expected), ("about", study.about)):
        if text:
            width = Console().width
            print(textwrap.fill(text.strip(), width, initial_indent=f"{label:7}", subsequent_indent=" " * 7))
    print("\n".join(status_lines(tasks)))
    print(f"left   {estimate(tasks)}")
    if choices := missing_choices(study, verb.runs):
        print(f"needs  {choices}; the plan above has the methods' usual values, and is refused")
    undone = [task for task in tasks if not task.done]
    if lost := lost_weights(undone, archive_places(study, verb.archive, verb.runs)):
        print(f"again  {lost}")
    if missing := missing_data(undone, verb.root):
        print(missing)
