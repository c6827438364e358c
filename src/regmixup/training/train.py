"""`rm.train`: from a configuration to a finished run, or to the runs of an ensemble's members."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypedDict

import torch

from regmixup import data, run_folder
from regmixup.config import check_count
from regmixup.storage import check_writable
from regmixup.training.config import TrainConfig, check_present, choose_device, resolve
from regmixup.training.distributed import Ranks, joined
from regmixup.training.engine import Engine, Execution, settings
from regmixup.training.finish import finish
from regmixup.training.reporting import (
    EpochRecord,
    Logger,
    MemberLogger,
    OnEpoch,
    OnStep,
    TensorBoardLogger,
    check_loggers,
    counted_on,
    tell,
)
from regmixup.training.run import Run
from regmixup.training.setup import check_folder_unchanged, delete_stale_results, prepare, resume
from regmixup.training.stopping import Interrupted, stopping


class Hooks(TypedDict, total=False):
    """The callbacks of `train`."""

    on_start: Callable[[Execution], None]
    on_step: OnStep
    on_epoch: OnEpoch


def train(
    config: TrainConfig,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    loggers: Sequence[Logger] = (),
    tensorboard: bool = False,
    dry_run: bool = False,
    on_start: Callable[[Execution], None] | None = None,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train, or resume from the last checkpoint, or return at once if the run is finished.

    Nothing is written before the data, the network and the device are known to be there.

    runs: the folder of run folders; the run's own is named by its configuration's fingerprint.
    root: where datasets read from disk lie. device: default, the accelerator if there is one.
    workers: processes that decode image files, default one per core and at most 4; they do not change the result.
    engine: how it is executed: compilation, CUDA graphs, checkpoints.
    loggers: get the run's numbers over its steps. tensorboard: also write event files into the run's folder.
    dry_run: raise what would stop the run before its first step, and do nothing else.
    on_start: called with what the engine chose; on_step: now and then with the means since the epoch began and the
    throughput; on_epoch: after every epoch with its record. Under torchrun the first process alone logs and calls them.
    """
    if not isinstance(config, TrainConfig):
        raise ValueError(f"config must be a TrainConfig, as rm.configure(...) returns, got {config!r}")
    device, engine = choose_device(device), Engine() if engine is None else engine
    workers = min(4, os.cpu_count() or 1) if workers is None else workers
    check_count("workers", workers, least=0)
    with joined(device) as ranks, ExitStack() as stack:
        sinks = check_loggers(loggers if ranks.first and not dry_run else ())
        stack.callback(tell, sinks, "close")
        if not ranks.first:
            on_start = on_step = on_epoch = None
        config = resolve(config, device, world=ranks.world)
        run = Run.of(config, runs)
        if tensorboard:
            events = TensorBoardLogger(run.folder)  # before anything is written, as it may not be installed
            if ranks.first and config.members == 1 and not dry_run:
                sinks.append(events)
        if ranks.from_first(ranks.first and not run.lacks(whole=True)):
            if ranks.first:
                check_folder_unchanged(run, root)
        elif config.members > 1:
            train_one = partial(
                train, runs=runs, root=root, device=device, workers=workers, engine=engine, tensorboard=tensorboard,
                on_start=on_start,
            )  # fmt: skip
            for member in ranks.from_first([member.config for member in run.members() if not member.finished][:1]):
                train_one(member, dry_run=True)  # so that nothing is written before the members can be trained
            if not dry_run:
                with run.owned(ranks):
                    train_members(run, train_one, sinks, on_step, on_epoch, ranks=ranks)
        else:
            check_present(device)
            with settings(device, engine, config.precision), stopping(patient=ranks.world > 1) as stop:
                images = data.load(config.train_set, root=root)
                validation = data.load(config.validation, root=root) if config.validation else None
                parts = prepare(run, images, device, ranks, engine, workers, validation=validation)
                if signal := ranks.largest_of(stop.signal or 0)[0]:
                    raise Interrupted(signal)
                if dry_run:
                    if ranks.first:  # each would remove the folder that another one tries
                        check_writable(run.folder / run_folder.CONFIG)
                else:
                    with run.owned(ranks):
                        training = resume(parts, loggers=sinks, on_step=on_step, on_epoch=on_epoch)
                        delete_stale_results(training)
                        if on_start is not None:
                            on_start(training.execution)
                        training.run_epochs(stop)
                        finish(training, stop)
        ranks.wait()
    return run


def train_members(
    run: Run,
    train_one: Callable[..., Run],
    loggers: list[Logger],
    on_step: OnStep | None,
    on_epoch: OnEpoch | None,
    *,
    ranks: Ranks,
) -> None:
    """Train every member of a deep ensemble, then record the ensemble.

    train_one: `train` with everything given but the configuration, the loggers and the callbacks. Members are runs
    like any other, beside the ensemble's own folder, and may serve other studies. Loggers and callbacks see them as
    one long training.
    """
    epochs = run.config.total_epochs
    members = [
        train_one(
            member.config,
            loggers=[MemberLogger(loggers, index)],
            on_step=counted_on(on_step, index * epochs),
            on_epoch=counted_on(on_epoch, index * epochs),
        )
        for index, member in enumerate(run.members())
    ]
    if not ranks.first:
        return
    run_folder.delete_predictions(run.folder)
    records = [record for member in members for record in member.history()]  # some may have been lost
    epochs_known = sorted({record["epoch"] for record in records})
    means = [_mean_record([record for record in records if record["epoch"] == epoch]) for epoch in epochs_known]
    run_folder.write_history(run.folder, means)
    shared = {key: entry for key, entry in members[0].provenance().items() if key != "selected"}  # each its own
    seconds = round(sum(record["seconds"] for record in records), 3)
    names = [member.folder.name for member in members]
    record = {"fingerprint": run.fingerprint, "seed": run.config.seed, "seconds": seconds, "members": names}
    run_folder.write_provenance(run.folder, {**shared, **record})


def _mean_record(records: Sequence[EpochRecord]) -> EpochRecord:
    """Return the mean record of one epoch: of each number over the members that have it."""
    names = dict.fromkeys(name for record in records for name in record if name != "epoch")
    means = {name: fmean(record[name] for record in records if name in record) for name in names}
    return {"epoch": records[0]["epoch"], **means}
