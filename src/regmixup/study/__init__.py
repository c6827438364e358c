"""Studies: many runs from one TOML file (methods x recipes x seeds x grids), trained, evaluated and collected.

study = rm.study.load("digits")                # a name from `rm.study.available()`, or a TOML file
[planned.name for planned in study.runs()]     # its plan
folder = rm.study.run(study, "runs")           # resumes; `rm.report.build(folder)` writes the report
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
