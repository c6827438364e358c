"""Set a run up: the model and all else that it trains with, then the step that training repeats.

`set_up` builds a `Training` without writing a file. `resume` then restores the last checkpoint, if there is one, and
wraps the step: torch.compile, DistributedDataParallel, a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from torch import nn

from regmixup import data, run_folder
from regmixup.data.catalogue import find
from regmixup.training import checkpoint
from regmixup.training.checkpoint import Position
from regmixup.training.compilation import CapturedStep, CompiledForward
from regmixup.training.loop import ForwardPass, Training
from regmixup.training.optim import set_frozen
from regmixup.training.run import Run
from regmixup.training.shards import Shard
from regmixup.training.step import TrainingStep, distribute


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


set_up = partial(Training, build_step=build_step)
"""Return a training at its beginning; raise what would stop it. Nothing is written."""


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
