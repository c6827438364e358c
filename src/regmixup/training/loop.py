"""The training loop: one step, then the epochs around it.

Before a step, on the CPU, the loader picks images and how they are augmented (`Loader.picks`), and the objective draws
lambda, partners and boxes (`shards.draw_shards`). What surrounds a step is elsewhere: guard, clipping, shards, ranks
and the running mean in step.py, torch.compile and CUDA graphs in compilation.py. setup.py builds all of it.

Randomness comes in named streams derived from (seed, purpose, epoch, step): initialisation, order, augmentation,
mixing, dropout. A checkpoint is therefore the weights, their running mean, the optimizer's state and a position;
resuming from it is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regmixup.data.loader import Loader
from regmixup.mixing import Draw
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast
from regmixup.run_folder import write_history
from regmixup.training import checkpoint
from regmixup.training.checkpoint import Checkpoint, Position, Schedule, Totals
from regmixup.training.config import TrainConfig
from regmixup.training.engine import Execution
from regmixup.training.guard import Guard, diverged, save_snapshot
from regmixup.training.optim import set_frozen, set_lr
from regmixup.training.parts import Parts
from regmixup.training.reporting import EpochRecord, Reporter, Tally, combine, means, precise
from regmixup.training.shards import Shard, draw_shards
from regmixup.training.stopping import Interrupted, Stop

READ_EVERY = 50
"""Steps between two reads of the device: of the guard, and of the means that callbacks and loggers get."""


class ShardLoss(NamedTuple):
    """The mean loss over a shard, and what is reported of it: sums over its images, one for each name."""

    loss: Tensor
    names: tuple[str, ...]
    sums: Tensor


def train_step(
    forward: Callable[[Any, Draw], ShardLoss],
    optimizer: torch.optim.Optimizer,
    shards: Iterable[Shard],
    *,
    before_update: Callable[[list[ShardLoss]], None] | None = None,
) -> None:
    """Take one step: forward the objective on a batch with its draw, backward, update the weights.

    A batch comes as one shard, or as several whose gradients add up to that of the mean loss over the batch: the sum
    of (share of the images) x (gradient of the mean loss over the shard).

    forward: from the picked images and the draw to the loss, see `ForwardPass`.
    before_update: called with the losses of all shards when the gradient is complete.
    """
    optimizer.zero_grad(set_to_none=True)
    outputs = []
    for shard in shards:
        output = forward(shard.picked, shard.draw)
        (output.loss * shard.weight).backward()
        outputs.append(output)
    if before_update is not None:
        before_update(outputs)
    optimizer.step()


class ForwardPass(nn.Module):
    """From the picked images and the draw to the loss: a pure tensor function, but for dropout."""

    def __init__(self, model: Classifier, config: TrainConfig, loader: Loader) -> None:
        super().__init__()
        self.model, self.config, self.loader = model, config, loader

    def forward(self, picked: Any, draw: Draw) -> ShardLoss:
        """Return the loss of a shard; of one without images (picked: None) a 0, for the exchange of gradients alone."""
        if picked is None:
            nothing = torch.stack([(0 * parameter).sum() for parameter in self.model.parameters()]).sum()
            return ShardLoss(nothing, (), nothing.detach())
        batch = self.loader.load(picked)  # takes the images and augments them
        with autocast(self.config.precision, self.loader.device):
            output = self.config.objective(self.model, batch.x, batch.y, draw=draw)
        count = len(batch.x)
        sums = {"loss": output.loss.detach() * count, **{name: part * count for name, part in output.parts.items()}}
        if output.logits is not None:
            sums["train_accuracy"] = (output.logits.detach().argmax(dim=1) == batch.y).sum()
        dtype = precise(batch.x.device)
        return ShardLoss(output.loss, tuple(sums), torch.stack([total.to(dtype) for total in sums.values()]))


@dataclass(eq=False)
class Training:
    """A run in progress: its parts, its step, where it is and what it has reported. `setup.resume` builds one.

    build_step: returns the step for the weights that learn now; called again when the backbone thaws.
    position: where training is; within an epoch, where it was last saved. history: records of the finished epochs.
    """

    parts: Parts
    build_step: Callable[[], Callable[[Sequence[Shard]], None]]
    execution: Execution
    guard: Guard
    tally: Tally
    reporter: Reporter
    schedule: Schedule
    position: Position
    history: list[EpochRecord]

    def __post_init__(self) -> None:
        self.config, self.ranks, self.model = self.parts.config, self.parts.ranks, self.parts.model
        self.take_step = self.build_step()
        self.epoch_began = time.perf_counter()

    def run_epochs(self, stop: Stop, *, until: int | None = None) -> None:
        """Train from the current position to the end of the last epoch. until: the number of epochs, default all."""
        config, parts = self.config, self.parts
        end = until if until is not None else config.total_epochs
        try:
            while (epoch := self.position.epoch) < end:
                first = self.start_epoch()
                picks = zip(*(loader.picks(epoch, start=first) for loader in parts.loaders), strict=True)
                for step, picked in enumerate(picks, start=first):
                    set_lr(parts.optimizer, config.lr_at(epoch + step / parts.steps))
                    total = min(config.batch_size, parts.num_images - step * config.batch_size)
                    self.take_step(self.draw_shards(step, picked, total))
                    self.after_step(step, stop)
                self.end_epoch(stop)
        finally:
            for loader in parts.loaders:
                loader.close()

    def start_epoch(self) -> int:
        """Put model, tally and guard where the epoch was left; return the number of steps already taken."""
        first = self.position.step
        frozen = self.config.frozen_at(self.position.epoch)
        if set_frozen(self.model, frozen=frozen):
            self.take_step = self.build_step()  # a graph, and DDP, know which weights have a gradient
        self.model.train()
        self.model.backbone.train(not frozen)
        self.tally.restore(self.position.totals if self.ranks.first else {})
        self.guard.step.fill_(first)
        self.epoch_began = time.perf_counter() - self.position.seconds
        return first

    def draw_shards(self, step: int, picked: Sequence[Any], total: int) -> list[Shard]:
        """Draw the randomness of this process's shards of a batch of `total` images. picked: the images of each."""
        return draw_shards(self.parts, picked, epoch=self.position.epoch, step=step, total=total)

    def after_step(self, step: int, stop: Stop) -> None:
        """Read the guard and report now and then; save and stop where that is due."""
        epoch, last = self.position.epoch, step + 1 == self.parts.steps
        read = last or (step + 1) % READ_EVERY == 0
        if read:
            self.check_guard()
        # Reading is free on a CPU, where fifty steps of a large network can take minutes.
        if read or (self.parts.device.type == "cpu" and self.reporter.throughput.due()):
            self.reporter.report_step(epoch, step + 1, self.tally, log=read)
        if not last and self.ranks.meets_at(epoch * self.parts.steps + step):
            signal, save = self.stop_or_save(stop)
            if signal or save:
                self.check_guard()
                seconds = time.perf_counter() - self.epoch_began
                self.position = Position(epoch, step + 1, self.totals(), seconds)
                self.save()
            if signal:
                raise Interrupted(signal)

    def end_epoch(self, stop: Stop) -> None:
        """Record an epoch; save and stop where that is due."""
        self.position = Position(self.position.epoch + 1)
        epoch, selection, measured = self.position.epoch, self.parts.selection, {}
        if selection is not None:
            measured = selection.end_epoch(epoch, self.model, self.parts.average, self.ranks)
        seconds = time.perf_counter() - self.epoch_began
        record = {"epoch": epoch, **means(self.totals()), **measured, "seconds": seconds}
        self.history.append(record)
        if self.ranks.first:  # before the checkpoint, so that the history may be ahead of it, never behind
            write_history(self.parts.run.folder, self.history)
        self.reporter.log_epoch(record)
        signal, due = self.stop_or_save(stop, ended=epoch)
        if signal or due or epoch == self.config.total_epochs:
            self.save()
        self.reporter.report_epoch(record)
        if signal and epoch < self.config.total_epochs:
            raise Interrupted(signal)

    def stop_or_save(self, stop: Stop, *, ended: int | None = None) -> tuple[int, bool]:
        """Return the signal that asked any rank to stop, 0 for none, and whether to save now. All ranks agree.

        ended: the number of epochs, if one has just ended.
        """
        due = self.schedule.after_step() or (ended is not None and self.schedule.after_epoch(ended))
        signal, save = self.ranks.largest_of(stop.signal or 0, int(due))
        return signal, bool(save)

    def totals(self) -> Totals:
        """Return what this epoch's steps have reported so far, on all ranks."""
        return combine(self.ranks.gather(self.tally.totals()))

    def save(self) -> None:
        """Write a checkpoint of the current position."""
        begun, run = time.monotonic(), self.parts.run
        if self.ranks.first:
            checkpoint.save_checkpoint(run.folder, self.checkpoint_at(self.position), fingerprint=run.fingerprint)
        self.ranks.wait()  # nobody ends the program while the first rank writes
        self.schedule.saved(begun)  # after the wait, so that the others know what saving costs, too

    def checkpoint_at(self, position: Position) -> Checkpoint:
        """Return all that training resumes from."""
        state = checkpoint.state(self.model, self.parts.optimizer, self.parts.copies)
        return Checkpoint(state, position, self.parts.data_fingerprint)

    def check_guard(self) -> None:
        """Stop if a step was bad, leaving a snapshot from before it; waits for the device."""
        if (step := self.guard.first_bad_step()) is None:
            return
        epoch, run, saved = self.position.epoch, self.parts.run, ""
        images = self.parts.loaders[0].batches(epoch)[step].tolist()
        lr = self.config.lr_at(epoch + step / self.parts.steps)
        if self.ranks.first:
            self.guard.restore_buffers()
            snapshot = self.checkpoint_at(Position(epoch, step))
            saved = save_snapshot(run.folder, snapshot, fingerprint=run.fingerprint, lr=lr, images=images)
        self.ranks.wait()
        raise diverged(self.config, epoch=epoch, step=step, lr=lr, images=images, saved=saved)
