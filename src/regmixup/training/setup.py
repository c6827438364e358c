"""Set a run up: model, optimizer, loaders and execution, then the step that training repeats.

`prepare` finds and builds everything without writing a file; `resume` then restores the last checkpoint, if there is
one, and wraps the step for this execution: torch.compile, DistributedDataParallel, a CUDA graph.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from regmixup import data, run_folder
from regmixup.data.catalogue import find
from regmixup.data.images import LabelledImages
from regmixup.data.splits import seed_for
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import memory_format
from regmixup.training import checkpoint
from regmixup.training.batch_norm import (
    check_every_process_has_images,
    check_smallest_shard,
    drop_counters,
    synchronised,
)
from regmixup.training.checkpoint import Position
from regmixup.training.compilation import CapturedStep, CompiledForward
from regmixup.training.distributed import Ranks, distribute
from regmixup.training.engine import Engine, choose_execution
from regmixup.training.guard import Guard
from regmixup.training.initial_weights import load_initial_weights
from regmixup.training.loading import evaluation_transform, input_shape, make_loaders, warn_of_empty_classes
from regmixup.training.loop import ForwardPass, Training, TrainingStep
from regmixup.training.optim import Average, make_optimizer, set_frozen
from regmixup.training.reporting import Curves, Loggers, Tally, Throughput
from regmixup.training.run import Run
from regmixup.training.selection import Selection


def prepare(
    run: Run,
    dataset: LabelledImages,
    device: torch.device,
    ranks: Ranks,
    engine: Engine,
    workers: int,
    loggers: Loggers | None = None,
    *,
    validation: LabelledImages | None = None,
) -> Training:
    """Build what a run trains with, at its beginning, and raise what would stop it. Nothing is written.

    validation: the images that select the epoch, where the configuration asks for that.
    """
    config = run.config
    shape = input_shape(dataset, config)
    warn_of_empty_classes(dataset)
    torch.manual_seed(seed_for(config.seed, "init"))
    model = build_model(run, num_classes=len(dataset.classes), shape=shape, device=device)
    initial = load_initial_weights(model, config, input_shape=shape) if config.init else None
    if config.freeze != "always" and 0 < config.total_epochs <= config.freeze:
        random = "" if config.init else ": random ones, unless the network brings its own, as init is empty"
        warnings.warn(
            f"freeze must be less than the epochs, {config.total_epochs}, for the backbone to learn, got "
            f"{config.freeze}: the head alone learns, and the backbone keeps its initial weights{random}",
            stacklevel=2,
        )
    set_frozen(model, frozen=config.frozen_at(0))
    optimizer = make_optimizer(model, config)
    mine = range(ranks.rank, config.num_shards, ranks.world)
    loaders = make_loaders(dataset, config, device, workers=workers, mine=mine)
    all_steps, num_images = config.total_epochs * len(loaders[0]), loaders[0].num_images
    if config.batch_norm == "synchronised":
        check_every_process_has_images(num_images, config)
    else:
        check_smallest_shard(model, config, num_images, shape)
    transform = evaluation_transform(config, files=dataset.shape is None)
    selection = None
    if config.select != "last":
        assert validation is not None
        selection = Selection(
            model, config.select, validation, classes=dataset.classes, shape=shape, transform=transform
        )
    return Training(
        run=run,
        dataset=dataset,
        device=device,
        ranks=ranks,
        engine=engine,
        shape=shape,
        transform=transform,
        model=model,
        optimizer=optimizer,
        average=Average(model, config.ema) if config.ema > 0 else None,
        selection=selection,
        initial=initial,
        mine=mine,
        loaders=loaders,
        execution=choose_execution(engine, config, device, steps=all_steps),
        loggers=loggers,
    )


def resume(training: Training) -> None:
    """Go to where the run was left, or to its beginning, and build what its steps need."""
    run, config, engine, ranks = training.run, training.config, training.engine, training.ranks
    found = checkpoint.newest_checkpoint(run.folder, fingerprint=run.fingerprint) if ranks.first else None
    if found is not None:
        check_same_data(run, found.data, training.data_fingerprint)
        found.restore(training.model, training.optimizer, training.copies)
    position = training.position = ranks.from_first(found.position if found is not None else Position())
    ranks.copy_from_first(checkpoint.live_state(training.model, training.optimizer, training.copies).values())

    steps_left = (config.total_epochs - position.epoch) * training.steps
    # Chosen again, as the steps that are left may not repay compiling.
    chosen = choose_execution(engine, config, training.device, steps=steps_left)
    training.execution = replace(chosen, starts_from=str(training.initial or ""))
    training.guard = Guard(training.optimizer, training.device, ranks, buffers=training.model.buffers())
    training.tally = Tally(training.device)
    set_frozen(training.model, frozen=config.frozen_at(position.epoch))
    training.build_step = partial(build_step, training)
    training.take_step = training.build_step()
    training.schedule = checkpoint.Schedule(minutes=engine.checkpoint_minutes, epochs=engine.checkpoint_epochs)
    training.throughput = Throughput(training.num_images)
    training.curves = None
    if training.loggers:
        training.curves = Curves(training.loggers, config, steps=training.steps, position=position)
    # The history is written before the checkpoint, so it may be ahead of it, never behind.
    training.history = [record for record in run.history() if record["epoch"] <= position.epoch]


def delete_stale_results(training: Training) -> None:
    """Delete what an earlier training has left, whose checkpoint was deleted: it would call this one finished."""
    if training.ranks.first:
        (training.run.folder / run_folder.PROVENANCE).unlink(missing_ok=True)
        if training.position == Position():
            run_folder.delete_predictions(training.run.folder)


def build_step(training: Training) -> TrainingStep | CapturedStep:
    """Build the training step and wrap it as the execution says."""
    config, execution, shards = training.config, training.execution, training.config.num_shards
    full = {len(range(shard, min(config.batch_size, training.num_images), shards)) for shard in training.mine}
    forward = ForwardPass(training.model, config, training.loaders[0])
    wrapped: nn.Module = CompiledForward(forward, full) if execution.compile else forward
    if training.ranks.world > 1:
        wrapped = distribute(wrapped)
    step = TrainingStep(
        forward, training.optimizer, training.guard, training.tally, average=training.average, wrapped=wrapped
    )
    return CapturedStep(step, full=max(full)) if execution.graphs else step


def build_model(run: Run, *, num_classes: int, shape: tuple[int, int, int], device: torch.device) -> Classifier:
    """Build the run's network for training, from torch's global generator."""
    model = run.build(num_classes=num_classes, input_shape=shape).to(device)
    drop_counters(model)
    if run.config.batch_norm == "synchronised":
        model = synchronised(model)
    return model.to(memory_format=memory_format(run.config.precision, device))


def check_folder_unchanged(run: Run, root: str | Path | None) -> None:
    """Raise if a finished run was trained on images that have changed since: a folder is named by its path."""
    for name in filter(None, (run.config.train_set, run.config.validation)):
        if find(name).may_change:
            check_same_data(run, run.provenance()["data"][name], data.load(name, root=root).fingerprint)


def check_same_data(run: Run, recorded: str, found: str) -> None:
    """Raise if a run would go on with other data than it began with. recorded, found: fingerprints."""
    if recorded != found:
        names = " or ".join(filter(None, (run.config.train_set, run.config.validation)))
        raise ValueError(
            f"{names} has changed since {run.folder} was trained on it (fingerprint {recorded[:12]}, "
            f"now {found[:12]}): delete the run folder to train again"
        )
