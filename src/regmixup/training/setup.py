"""Set a run up: its model, loaders and validation set, then the step that training repeats.

`set_up` builds these without writing a file, and `Training` optimizer and execution from them. `resume` then restores
the last checkpoint, if there is one, and wraps the step: torch.compile, DistributedDataParallel, a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from regmixup import data, run_folder
from regmixup.data.catalogue import find
from regmixup.data.images import LabelledImages
from regmixup.data.splits import seed_for
from regmixup.networks.precision import memory_format
from regmixup.training import checkpoint
from regmixup.training.batch_norm import drop_counters
from regmixup.training.checkpoint import Position
from regmixup.training.compilation import CapturedStep, CompiledForward
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine
from regmixup.training.initial_weights import load_initial_weights
from regmixup.training.loading import input_shape, make_loaders
from regmixup.training.loop import ForwardPass, Training
from regmixup.training.optim import set_frozen
from regmixup.training.run import Run
from regmixup.training.selection import Validation
from regmixup.training.shards import Shard
from regmixup.training.step import TrainingStep, distribute


def set_up(
    run: Run,
    dataset: LabelledImages,
    device: torch.device,
    ranks: Ranks,
    engine: Engine,
    workers: int | None,
    *,
    validation: LabelledImages | None = None,
) -> Training:
    """Build what a run trains with, at its beginning, and raise what would stop it. Nothing is written.

    validation: the images that are predicted after every epoch, where the configuration names some.
    """
    config = run.config
    shape = input_shape(dataset, config)
    torch.manual_seed(seed_for(config.seed, "init"))
    model = run.build(num_classes=len(dataset.classes), input_shape=shape).to(device)
    drop_counters(model)
    model = model.to(memory_format=memory_format(config.precision, device))
    initial = load_initial_weights(model, config, input_shape=shape) if config.init else None
    set_frozen(model, frozen=config.frozen_at(0))
    mine = range(ranks.rank, config.num_shards, ranks.world)
    loaders = make_loaders(dataset, config, device, workers=workers, mine=mine)
    watched = Validation(config, validation, device, train_set=dataset) if validation is not None else None
    return Training(
        run=run,
        dataset=dataset,
        device=device,
        ranks=ranks,
        engine=engine,
        shape=shape,
        model=model,
        initial=initial,
        loaders=loaders,
        workers=workers,
        validation=watched,
        build_step=build_step,
    )


def build_step(training: Training) -> Callable[[Sequence[Shard]], None]:
    """Build the training step and wrap it as the execution says."""
    config, execution = training.config, training.execution
    batch = min(config.batch_size, training.num_images)
    full = {len(range(loader.rank, batch, config.num_shards)) for loader in training.loaders}
    forward = ForwardPass(training.model, config, training.loaders[0])
    wrapped: nn.Module = CompiledForward(forward, full) if execution.compile else forward
    if training.ranks.world > 1:
        wrapped = distribute(wrapped)
    step = TrainingStep(
        forward,
        training.optimizer,
        training.guard,
        training.tally,
        ema=training.ema,
        sharpness=training.sharpness,
        wrapped=wrapped,
    )
    return CapturedStep(step, full=max(full)) if execution.graphs else step


def resume(training: Training) -> Training:
    """Go to where the run was left, or stay at its beginning, and build its step; return the same training."""
    run, ranks = training.run, training.ranks
    stored = None
    if ranks.first and run.checkpoint.exists():
        stored = checkpoint.read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)
    live = training.state()
    if stored is not None:
        check_same_data(run, stored.data, training.data_fingerprint)
        stored.copy_to(live)
    training.position = ranks.from_first(stored.position if stored is not None else Position())
    ranks.copy_from_first(live.values())
    # The history is written before the checkpoint, so it may be ahead of it, never behind.
    training.history = [record for record in run.history() if record["epoch"] <= training.position.epoch]
    set_frozen(training.model, frozen=training.config.frozen_at(training.position.epoch))
    training.take_step = build_step(training)
    return training


def delete_stale_results(training: Training) -> None:
    """Delete what an earlier training has left, whose checkpoint was deleted: it would call this one finished."""
    folder = training.run.folder
    if training.ranks.first:
        (folder / run_folder.PROVENANCE).unlink(missing_ok=True)
        if training.position == Position():
            run_folder.delete_predictions(folder)


def check_folder_unchanged(run: Run, root: str | Path | None) -> None:
    """Raise if a finished run was trained on images that have changed since: a folder is named by its path."""
    for name in filter(None, (run.config.train_set, run.config.validation)):
        if find(name).may_change:
            check_same_data(run, run.provenance()["data"][name], data.load(name, root=root).fingerprint)


def check_same_data(run: Run, recorded: str, current: str) -> None:
    """Raise if a run would go on with other data than it began with. recorded, current: fingerprints."""
    if recorded != current:
        names = " or ".join(filter(None, (run.config.train_set, run.config.validation)))
        raise ValueError(
            f"{names} has changed since {run.folder} was trained on it (fingerprint {recorded[:12]}, "
            f"now {current[:12]}): delete the run folder to train again"
        )
