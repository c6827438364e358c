"""The training loop: what one step does, and the epochs around it.

A step, in order:

    pick       which images, and how they are augmented             `Loader.picks`, on the CPU, once an epoch
    draw       lambda, partners, boxes and the seed of dropout      `Training.draw_shards`, on the CPU
    forward    augment the images, mix them as drawn, the loss      `ForwardPass.forward`
    backward, guard, clip, optimizer step, running mean             `TrainingStep.__call__`

setup.py builds all of this and wraps it from outside: torch.compile and DistributedDataParallel wrap the
`ForwardPass`, a CUDA graph wraps the `TrainingStep` (compilation.py).

Randomness comes in named streams derived from (seed, purpose, epoch, step): initialisation, order, augmentation,
mixing, dropout. A checkpoint is therefore the weights, their running mean, the optimizer's state and a position;
resuming from it is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages
from regmixup.data.loader import Loader
from regmixup.data.splits import generator_for, reseed, seed_for
from regmixup.mixing import Draw
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast
from regmixup.run_folder import write_history, write_provenance
from regmixup.training import checkpoint
from regmixup.training.batch_norm import Statistics
from regmixup.training.checkpoint import Checkpoint, Position, Totals
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks, agreeing
from regmixup.training.engine import Engine, Execution
from regmixup.training.guard import Guard, diverged, save_snapshot
from regmixup.training.initial_weights import InitialWeights
from regmixup.training.loading import clean_parts, reader
from regmixup.training.optim import Average, Copy, set_frozen, set_lr
from regmixup.training.reporting import (
    Curves,
    EpochRecord,
    Loggers,
    OnEpoch,
    OnStep,
    Tally,
    Throughput,
    combine,
    means,
    precise,
)
from regmixup.training.run import Run, provenance_record
from regmixup.training.selection import Selection
from regmixup.training.stopping import Interrupted, Stop

READ_EVERY = 50
"""Steps between two reads of the device: of the guard, and of the means that callbacks and loggers get."""


@dataclass(frozen=True)
class Shard:
    """One shard of a batch: the input of one forward and backward pass.

    picked: which images, see `Loader.picks`. draw: the objective's randomness. count: number of images; may be 0.
    seed: for dropout; None leaves the generator as it is.
    """

    picked: Any
    draw: Draw
    count: int
    seed: int | None


class ShardLoss(NamedTuple):
    """The mean loss over a shard, and what is reported of it: sums over its images, one for each name."""

    loss: Tensor
    names: tuple[str, ...]
    sums: Tensor


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
        batch = self.loader.load(picked)  # picks the images and augments them
        with autocast(self.config.precision, self.loader.device):
            out = self.config.objective(self.model, batch.x, batch.y, draw=draw)
        count = len(batch.x)
        sums = {"loss": out.loss.detach() * count, **{name: value * count for name, value in out.parts.items()}}
        if out.logits is not None:
            sums["train_accuracy"] = (out.logits.detach().argmax(dim=1) == batch.y).sum()
        dtype = precise(batch.x.device)
        return ShardLoss(out.loss, tuple(sums), torch.stack([value.to(dtype) for value in sums.values()]))


class TrainingStep:
    """One update of the weights, in which nothing is read from the device, so that a CUDA graph can capture it.

    The gradient is that of the mean loss over the whole batch: the sum over shards of (their share of the images) x
    (their mean loss). DDP averages over ranks, so shares are multiplied by the number of ranks.

    average: the running mean of the weights, if there is one.
    wrapped: the forward pass as torch.compile and DDP wrap it; default: as it is.
    """

    def __init__(
        self,
        forward: ForwardPass,
        optimizer: torch.optim.Optimizer,
        guard: Guard,
        tally: Tally,
        *,
        average: Average | None = None,
        wrapped: nn.Module | None = None,
    ) -> None:
        self.model, self.config, self.loader = forward.model, forward.config, forward.loader
        self.forward: nn.Module = forward if wrapped is None else wrapped
        self.optimizer, self.guard, self.tally, self.ranks = optimizer, guard, tally, guard.ranks
        self.average = average
        several = self.config.num_shards > 1
        self.statistics = Statistics(self.model.backbone.buffers() if several else (), self.ranks)

    def __call__(self, shards: Sequence[Shard], *, total: int) -> None:
        """Take one step. shards: this rank's. total: images of the batch, over all ranks."""
        self.guard.save_buffers()
        self.optimizer.zero_grad(set_to_none=True)
        self.statistics.begin()
        losses = []
        for index, shard in enumerate(shards):
            if shard.seed is not None:
                reseed(self.tally.device, shard.seed)
            share = shard.count / total
            picked = shard.picked if shard.count else None
            with self._exchange(last=index == len(shards) - 1), self.statistics.shard(share):
                # Pick and augment the images, mix them as drawn, forward: `ForwardPass.forward` above.
                loss, names, sums = self.forward(picked, shard.draw)
                (loss * (share * self.ranks.world)).backward()
            self.tally.add(names, sums, shard.count)
            losses.append(loss)
        self.statistics.end()
        norm = self.guard.check_step(losses, self.model.parameters())  # a bad step disables the optimizer
        if self.config.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)
        self.optimizer.step()
        if self.model.wants_step():
            self._update_head(shards, total)
        if self.average is not None:
            self.average.update(self.guard.closed)

    def _exchange(self, *, last: bool) -> AbstractContextManager[None]:
        """Let ranks exchange gradients once per step, after the last shard."""
        if isinstance(self.forward, DistributedDataParallel) and not last:
            return self.forward.no_sync()
        return nullcontext()

    def _update_head(self, shards: Sequence[Shard], total: int) -> None:
        """Show the clean images of all ranks to a head that learns from them beside the gradient."""
        batches = [self.loader.load(shard.picked) for shard in shards]
        x, y = torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
        with autocast(self.config.precision, self.loader.device):
            self.model.after_step(self.ranks.rows(x, total=total), self.ranks.rows(y, total=total))

    def tensors(self) -> list[Tensor]:
        """Return all that a step changes, apart from the tally."""
        momenta = [value for own in self.optimizer.state.values() for value in own.values() if torch.is_tensor(value)]
        mean = self.average.tensors() if self.average is not None else []
        return [*self.model.parameters(), *self.model.buffers(), *momenta, *mean, *self.guard.tensors()]


@dataclass(eq=False)
class Training:
    """A run in progress. `setup.prepare` builds one without writing anything.

    `setup.resume` then restores `position` and `history` and sets the fields from `build_step` on.
    mine: the numbers of the shards that this process computes. shape: channels, height and width of the images.
    position: where training is; within an epoch, where it was last saved. history: records of the finished epochs.
    """

    run: Run
    dataset: LabelledImages
    device: torch.device
    ranks: Ranks
    engine: Engine
    shape: tuple[int, int, int]
    transform: EvalTransform | None
    model: Classifier
    optimizer: torch.optim.Optimizer
    average: Average | None
    selection: Selection | None
    initial: InitialWeights | None
    mine: range
    loaders: list[Loader]
    execution: Execution
    loggers: Loggers | None = None
    position: Position = field(default_factory=Position)
    history: list[EpochRecord] = field(default_factory=list)
    build_step: Callable[[], Callable[..., None]] = field(init=False)
    take_step: Callable[..., None] = field(init=False)  # a `TrainingStep`, or the CUDA graph around one
    guard: Guard = field(init=False)
    tally: Tally = field(init=False)
    schedule: checkpoint.Schedule = field(init=False)
    throughput: Throughput = field(init=False)
    curves: Curves | None = field(init=False)

    def __post_init__(self) -> None:
        self.config = self.run.config
        self.steps, self.num_images = len(self.loaders[0]), self.loaders[0].num_images
        self.copies: list[Copy] = [copy for copy in (self.average, self.selection) if copy is not None]

    def run_epochs(
        self, stop: Stop, on_step: OnStep | None = None, on_epoch: OnEpoch | None = None, *, until: int | None = None
    ) -> None:
        """Train from the current position to the end of the last epoch. until: the number of epochs, default all."""
        config, end = self.config, until if until is not None else self.config.total_epochs
        try:
            while (epoch := self.position.epoch) < end:
                first, begun = self.start_epoch(), time.perf_counter() - self.position.seconds
                picks = zip(*(loader.picks(epoch, start=first) for loader in self.loaders), strict=True)
                for step, picked in enumerate(picks, start=first):
                    set_lr(self.optimizer, config.lr_at(epoch + step / self.steps))
                    total = min(config.batch_size, self.num_images - step * config.batch_size)
                    shards = self.draw_shards(step, picked, total)
                    self.take_step(shards, total=total)
                    self.after_step(step, begun, stop, on_step)
                self.end_epoch(begun, stop, on_epoch)
        finally:
            for loader in self.loaders:
                loader.close()

    def start_epoch(self) -> int:
        """Put model, tally and guard where the epoch was left; return the number of steps already taken."""
        first = self.position.step
        frozen = self.config.frozen_at(self.position.epoch)
        if set_frozen(self.model, frozen=frozen):
            self.take_step = self.build_step()  # a graph, and DDP, know which weights have a gradient
        self.model.train()
        self.model.backbone.train(not frozen)
        if first == 0:
            self.model.start_epoch()
        self.tally.restore(self.position.totals if self.ranks.first else {})
        self.guard.step.fill_(first)
        return first

    def draw_shards(self, step: int, picked: Sequence[Any], total: int) -> list[Shard]:
        """Draw the randomness of this process's shards of a batch. picked: the images of each."""
        config, shards, found = self.config, self.config.num_shards, []
        for shard, images in zip(self.mine, picked, strict=True):
            count = len(range(shard, total, shards))
            draw = self.draw(step, shard, max(count, 1))
            if config.objective.per_batch and count < -(-total // shards):
                draw = agreeing(draw, self.draw(step, shard, -(-total // shards)))
            seed = seed_for(config.seed, "dropout", self.position.epoch, step, shard)
            found.append(Shard(images, draw.to(self.device), count, seed))
        # Alone, a process leaves out a shard that a small last batch leaves empty; ranks must all take part.
        return [shard for shard in found if shard.count or self.ranks.world > 1]

    def draw(self, step: int, shard: int, count: int) -> Draw:
        """Draw the objective's randomness for `count` images of a shard."""
        config, epoch = self.config, self.position.epoch
        shared, own = (generator_for(config.seed, "draw", epoch, *where) for where in ((step,), (step, shard)))
        if config.objective.per_batch and shard == 0:
            own = shared  # so that a batch of one shard draws as `objective.draw` does, from one generator
        return config.objective.draw_part(count, self.shape, shared=shared, own=own)

    def after_step(self, step: int, begun: float, stop: Stop, on_step: OnStep | None) -> None:
        """Read the guard and report now and then; save and stop where that is due. begun: when the epoch began."""
        epoch, last = self.position.epoch, step + 1 == self.steps
        read = last or (step + 1) % READ_EVERY == 0
        if read:
            self.check_guard()
        # Reading is free on a CPU, where fifty steps of a large network can take minutes.
        if read or (self.device.type == "cpu" and self.throughput.due()):
            self.report(step + 1, on_step, self.curves if read else None)
        if not last and self.ranks.meets_at(epoch * self.steps + step):
            signal, save = self.stop_or_save(stop)
            if signal or save:
                self.check_guard()
                self.position = Position(epoch, step + 1, self.totals(), time.perf_counter() - begun)
                self.save()
            if signal:
                raise Interrupted(signal)

    def end_epoch(self, begun: float, stop: Stop, on_epoch: OnEpoch | None) -> None:
        """Record an epoch; save and stop where that is due."""
        self.position = Position(self.position.epoch + 1)
        measured = {}
        if self.selection is not None:
            measured = self.selection.end_epoch(self.position.epoch, self.model, self.average, self.ranks)
        seconds = time.perf_counter() - begun
        record = {"epoch": self.position.epoch, **means(self.totals()), **measured, "seconds": seconds}
        self.history.append(record)
        if self.ranks.first:  # before the checkpoint, so that the history may be ahead of it, never behind
            write_history(self.run.folder, self.history)
        if self.curves is not None:
            self.curves.log_epoch(record)
        signal, due = self.stop_or_save(stop, ended=self.position.epoch)
        if save := bool(signal or due or self.position.epoch == self.config.total_epochs):
            self.save()
        try:
            if on_epoch is not None:
                on_epoch(record)
        except Exception:  # which ends training, but loses no epoch
            if not save and self.ranks.world == 1:  # other ranks would not know of it
                self.save()
            raise
        if signal and self.position.epoch < self.config.total_epochs:
            raise Interrupted(signal)

    def finish(self, stop: Stop) -> None:
        """Let the head see the train images once more, if it wants to, and record that the run has finished."""
        finalized = self.finalize()
        for copy in self.copies if finalized else ():
            with copy.in_place():
                self.finalize()
        if finalized or self.config.total_epochs == 0:
            self.save()
        if self.ranks.first:
            record = provenance_record(self)
            checkpoint.forget_previous(self.run.folder)
            write_provenance(self.run.folder, record)
        if signal := self.stop_or_save(stop)[0]:
            raise Interrupted(signal)

    def finalize(self) -> bool:
        """Let the head see the clean train images, if it wants to; return whether it did."""
        parts = clean_parts(self.dataset, reader(self.transform, self.shape[1:]))
        return self.model.finalize(x.to(self.device) for part in parts for x in part.images.split(1000))

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

    def report(self, steps: int, on_step: OnStep | None, curves: Curves | None) -> None:
        """Pass on what this process's share of an epoch's first steps has reported, and the throughput."""
        if on_step is None and curves is None:
            return
        seen = self.position.epoch * self.num_images + min(steps * self.config.batch_size, self.num_images)
        totals, speed = self.tally.totals(), self.throughput.update(seen)
        if curves is not None:
            curves.log_step(self.position.epoch, steps, totals, speed)
        if on_step is not None:
            on_step({"epoch": self.position.epoch + 1, "step": steps, "steps": self.steps, **means(totals), **speed})

    def save(self) -> None:
        begun = time.monotonic()
        if self.ranks.first:
            now = self.checkpoint_at(self.position)
            checkpoint.save_checkpoint(self.run.folder, now, fingerprint=self.run.fingerprint)
        self.ranks.wait()  # nobody ends the program while the first rank writes
        self.schedule.saved(begun)  # after the wait, so that the others know what saving costs, too

    def checkpoint_at(self, position: Position) -> Checkpoint:
        """Return all that training resumes from."""
        state = checkpoint.state(self.model, self.optimizer, self.copies)
        return Checkpoint(state, position, self.data_fingerprint)

    @property
    def data_fingerprint(self) -> str:
        """Return the fingerprint of the train set, and of the validation set if one selects the epoch."""
        return self.dataset.fingerprint + (f"+{self.selection.dataset.fingerprint}" if self.selection else "")

    def check_guard(self) -> None:
        """Stop if a step was bad, leaving a snapshot from before it; waits for the device."""
        if (step := self.guard.first_bad_step()) is None:
            return
        config, epoch = self.config, self.position.epoch
        index = self.loaders[0].batches(epoch)[step].tolist()
        lr, saved = config.lr_at(epoch + step / self.steps), ""
        if self.ranks.first:
            self.guard.restore_buffers()
            saved = save_snapshot(self.run, self.checkpoint_at(Position(epoch, step)), lr=lr, images=index)
        self.ranks.wait()
        raise diverged(config, epoch=epoch, step=step, lr=lr, images=index, saved=saved)
