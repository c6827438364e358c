"""`regmixup study`: run a study, or show its plan (--dry-run) or the state of its runs (--status)."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import FlagCreatePairsOff, Positional, arg

from regmixup.cli.parsing import Resources, Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.data.reading import describe_classes
from regmixup.names import counted, printable
from regmixup.study.archive import archive_places
from regmixup.study.check import explain_missing, is_current, missing_data
from regmixup.study.dispatch import Launcher
from regmixup.study.launchers import InTurn, Processes, RayTasks, all_devices
from regmixup.study.plan import Scale, Study, load_study, read_header, studies
from regmixup.study.runner import missing_choices, run_study
from regmixup.study.select import take_selected
from regmixup.study.status import (
    TIMING_HEADS,
    Paces,
    RunStatus,
    estimate,
    run_status,
    show_status,
    spent,
    timing_lines,
)
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

    study: Positional[str]
    """A study's name (regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    scale: Scale = "full"
    """smoke: the same file in seconds on a CPU, on tiny embedded data; it shows that the file works and nothing else.
    Its runs lie in the folder smoke under --runs."""
    selected: Path | None = None
    """selected.json of a study that selects: use the values chosen there for its methods and recipes. The study is then
    called NAME-selected."""
    launcher: Literal["local", "ray"] = "local"
    """local: on this machine; ray: as tasks of a Ray cluster (pip install 'regmixup[ray]')."""
    devices: tuple[str, ...] = ()
    """local: one process per device, such as cuda:0 cuda:1, or all; a device named twice gets two processes.
    Default: one run after the other on --device."""
    ray_address: str | None = None
    """ray: a running cluster, such as auto; default: RAY_ADDRESS, else a cluster of this machine alone."""
    gpus_per_run: float | None = None
    """ray: GPUs per run, default 1; 0.5 puts two runs on each, 0 trains on CPUs."""
    cpus_per_run: float | None = None
    """ray: CPU cores per run, default 1."""
    engine: Annotated[FlagCreatePairsOff[Engine], arg(name="")] = field(default_factory=Engine)
    archive: Path | None = None
    """Also keep every finished run here without its weights and predictions: about 250 kilobytes. A
    run archived here is done, wherever it was trained."""
    logits: Switch = False
    """Also archive the logits of test and OOD sets, in float16."""
    minutes: float | None = None
    """Start no run that would not end within so many minutes, judged by the last epochs of similar runs; print what is
    left."""
    dry_run: Switch = False
    """Print what the study is about and expected to show, its runs, whether they are done, the time that they took and
    that is left, and what data is missing."""
    status: Switch = False
    """Show the state of every run, read from the run folders, and do nothing."""


def main(args: Sequence[str]) -> None:
    verb = parse(StudyVerb, "study", args)
    study = load_study(verb.study, verb.scale)
    if verb.selected is not None:
        study = take_selected(study, verb.selected)
    runs = verb.runs
    if verb.scale == "smoke":
        runs = runs / "smoke"
        if verb.launcher == "local" and not (verb.device or verb.devices):
            verb = replace(verb, device="cpu")
    launcher = choose_launcher(verb)
    plan = list(study.runs())
    archives = archive_places(study, verb.archive, runs)
    places = [runs, *archives]
    console = Console()

    def look() -> list[RunStatus]:
        tasks, paces = find_tasks(plan, runs, launcher.device, archives), Paces(places, launcher.device)
        return [run_status(task, paces) for task in tasks]

    if verb.status:
        show_status(look, study.title, console)
    elif verb.dry_run:
        _print_plan(study, look(), verb, Paces(places, launcher.device), console.width)
    else:
        for name in dict.fromkeys(planned.config.train_set for planned in plan):
            if classes := describe_classes(name, verb.root):
                print(classes)
        with LiveProgress(console, total=len(plan)) as progress, warnings.catch_warnings():
            if verb.scale == "smoke":  # two epochs on digits: nothing that a reader should or could change
                warnings.filterwarnings("ignore", "the best temperature")
            folder = run_study(
                study, runs, root=verb.root, workers=verb.workers, engine=verb.engine, progress=progress,
                launcher=launcher, archive=verb.archive, logits=verb.logits, minutes=verb.minutes,
            )  # fmt: skip
        if verb.minutes is None or is_current(study, folder):
            timing = timing_lines(plan, runs, launcher.device) if study.timing else []
            _print_results(folder, console, timing)
        if verb.minutes is not None:
            print(f"left   {estimate(_waiting(look()), Paces(places, launcher.device))}")


def _print_results(folder: Path, console: Console, timing: Sequence[Sequence[str]]) -> None:
    from regmixup.report.output import terminal_tables, write_report
    from regmixup.report.results import Results
    from regmixup.report.tables import SELECTION_CAPTION, SelectionTable

    results = Results.open(folder)
    for table in terminal_tables(results):
        console.print(table)
    if chosen := [one for one in results.selected if one["values"] or one["temperature"] is not None]:
        choices = SelectionTable(chosen)
        console.print(_table(SELECTION_CAPTION, choices.heads, choices.lines))
    if timing:
        console.print(_table("Training cost, median over epochs", TIMING_HEADS, timing))
    print(f"rows    {results.folder / 'rows.csv'}\nreport  {write_report(results)[0]}")


def choose_launcher(verb: StudyVerb) -> Launcher:
    """Return the launcher that the flags describe; a flag that belongs to the other one is an error."""
    for_ray = ("ray_address", "gpus_per_run", "cpus_per_run")
    given = {name: value for name in for_ray if (value := getattr(verb, name)) is not None}
    if verb.launcher == "ray":
        if verb.devices or verb.device:
            raise ValueError("--device and --devices must not be given with --launcher ray, which assigns them")
        return RayTasks(**{name.removeprefix("ray_"): value for name, value in given.items()})
    if given:
        raise ValueError(f"--{next(iter(given)).replace('_', '-')} must be given with --launcher ray")
    if verb.devices and verb.device:
        raise ValueError(f"give --device or --devices, got {verb.device} and {' '.join(verb.devices)}")
    devices = all_devices() if verb.devices == ("all",) else verb.devices or (verb.device,)
    return InTurn(devices[0]) if len(devices) == 1 else Processes(devices)


def _waiting(found: Iterable[RunStatus]) -> list[Task]:
    return [status.task for status in found if status.state != "done"]


def _print_plan(study: Study, found: Sequence[RunStatus], verb: StudyVerb, paces: Paces, width: int) -> None:
    """Print what a study is about and expected to show, its runs, the time spent and left, and what data is missing."""
    # At smoke scale the expected result does not come out.
    expected = read_header(studies().get(study.source, Path(study.source))).expected if study.scale == "full" else ""
    for label, text in (("study", study.title), ("expect", expected), ("about", study.about)):
        if text:
            print(textwrap.fill(text.strip(), width, initial_indent=f"{label:7}", subsequent_indent=" " * 7))
    words = {"running": "in use", "failed": "to do", "waiting": "to do"}
    states = [words.get(status.state, status.state) for status in found]
    wide, longest = max(6, *map(len, states)), max(len(status.task.planned.name) for status in found)
    for state, status in zip(states, found, strict=True):
        where = status.note if state == "damaged" else status.task.source
        print(f"{state:{wide}} {status.task.planned.name:{longest}}  {where}")
    # As after a kill or on a full disk.
    lacking = [one.task.planned.name for one in found if one.state == "done" and one.task.archive is None]
    if lacking and verb.archive is not None:
        print(f"not yet archived in {verb.archive}, which the command without --dry-run does: {', '.join(lacking)}")
    if trained := [folder for one in found if one.state != "damaged" for folder in one.task.trained_folders()]:
        print(f"spent  {spent(trained)}")
    damaged = {one.task.archive or one.task.chosen for one in found if one.state == "damaged"}
    broken = f"; {counted(len(damaged), 'archive')} damaged" if damaged else ""
    print(f"left   {estimate(_waiting(found), paces)}{broken}")
    if choices := missing_choices(study, verb.runs):
        print(f"needs  {choices}; the plan above has the methods' usual values, and is refused")
    if missing := missing_data([task.planned for task in _waiting(found) if task.archive is None], verb.root):
        print(explain_missing(missing))


def _table(title: str, heads: Iterable[str], lines: Iterable[Sequence[str]]) -> Table:
    """Return a terminal table of plain text; long cells are folded, and square brackets are no markup."""
    table = Table(title=Text(printable(title), "bold"), box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for line in lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    return table
