"""Studies: many runs from one TOML file (methods x recipes x seeds x grids), trained, evaluated and collected.

    study = rm.study.load("digits")              # a name from `rm.study.available()`, or a TOML file
    [planned.name for planned in study.runs()]   # its plan
    folder = rm.study.run(study, "runs")         # resumes; `rm.report.build(folder)` writes the report

What `regmixup study` and `rm.study.run` do, in order:

    plan       read the file, list its planned runs          plan.py, planned_run.py, grid.py, smoke.py
    find       make each a task; `Task.done` says if it is done   tasks.py, archive.py
    check      data, folders and archives; stop here if not  runner.py, status.py
    dispatch   decide which task starts next, and where      dispatch.py, launchers.py; a time limit: status.py
    complete   train, predict, evaluate, draw                evaluate_run.py, figures.py, called by tasks.attempt
    archive    keep the results without the weights          archive.py
    collect    write one table of rows and the selection     runner.py, select.py

`--dry-run` stops after the second step and prints states and time left (status.py).

A planned run is one line of a table; several lines can share one training. A row is one measured value. A companion is
a second training, without the validation images, that chooses temperature and prior variance for a model trained on
all images; evaluate_run.py begins with where the temperature comes from.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regmixup.study.plan import Study
from regmixup.study.plan import load_study as load
from regmixup.study.plan import studies as available
from regmixup.study.planned_run import Evaluation, PlannedRun

if TYPE_CHECKING:
    from regmixup.study.launchers import InTurn, Processes, RayTasks
    from regmixup.study.runner import run_study as run

__all__ = [
    "Evaluation", "InTurn", "PlannedRun", "Processes", "RayTasks", "Study", "available", "load", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first used: listing studies does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "run":
        return import_module(f"{__name__}.runner").run_study
    return getattr(import_module(f"{__name__}.launchers"), name)
