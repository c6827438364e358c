"""Studies: many runs from one TOML file (methods x recipes x seeds x grids), trained, evaluated and collected.

    study = rm.study.load("digits")              # a name from `rm.study.available()`, or a TOML file
    [planned.name for planned in study.runs()]   # its plan
    folder = rm.study.run(study, "runs")         # resumes; `rm.report.build(folder)` writes the report

What `rm.study.run` does, in order:

    plan       from the file to planned runs, each with its companion   plan.py, planned.py, grid.py, smoke.py
    find       what is done: among the run folders, and in archives     tasks.py, archive.py
    check      data, folders, and the time that there is                check.py, cost.py, status.py
    dispatch   which run starts next, in which process                  tasks.py, launchers.py
    complete   train a run, predict and measure; archive it             measure.py, archive.py
    collect    one table of rows, and the choices on validation sets    runner.py, select.py

A planned run is one line of a table; several lines can share one training. A companion is a second training, without
the validation images, that chooses temperature and prior variance for a model trained on all images.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regmixup.study.cost import estimate
    from regmixup.study.launchers import InTurn, Processes, RayTasks
    from regmixup.study.plan import Study
    from regmixup.study.plan import load_study as load
    from regmixup.study.plan import studies as available
    from regmixup.study.planned import Evaluation, PlannedRun
    from regmixup.study.runner import run_study as run

__all__ = [
    "Evaluation", "InTurn", "PlannedRun", "Processes", "RayTasks", "Study", "available", "estimate", "load", "run",
]  # fmt: skip

_PLACES = {
    "Evaluation": "planned.Evaluation",
    "InTurn": "launchers.InTurn",
    "PlannedRun": "planned.PlannedRun",
    "Processes": "launchers.Processes",
    "RayTasks": "launchers.RayTasks",
    "Study": "plan.Study",
    "available": "plan.studies",
    "estimate": "cost.estimate",
    "load": "plan.load_study",
    "run": "runner.run_study",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: listing studies needs no torch."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(".")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
