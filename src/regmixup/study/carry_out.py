"""One planned run, from its first epoch to its rows: complete in itself, so that any process anywhere can do it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch

from regmixup.study.measure import measure
from regmixup.study.plan import PlannedRun, Study
from regmixup.training.config import choose_device, resolve
from regmixup.training.engine import Engine
from regmixup.training.run import Run
from regmixup.training.train import Hooks, train
from regmixup.types import Row


def carry_out(
    study: Study,
    planned: PlannedRun,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    **hooks: Unpack[Hooks],
) -> list[Row]:
    """Train, predict and evaluate one run of a study; what is done already is not done again. Arguments as of `train`.

    The run folder is held from beginning to end: another process that asks for it meanwhile gets an InUseError.
    """
    device = choose_device(device)
    config = resolve(planned.config, device)
    with Run(Path(runs) / config.name, config).owned():
        run = train(config, runs, root=root, device=device, workers=workers, engine=engine, **hooks)
        rows = measure(planned, run, root=root, device=device, workers=workers)
    return [replace(row, study=study.name) for row in rows]
