"""THE loop, readable from top to bottom.

Randomness comes in named streams derived from (seed, purpose, epoch, step): initialisation, order, augmentation,
mixing, dropout. A checkpoint is therefore the weights, the momentum and a position; resuming from it is exact.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch

from regmixup import data
from regmixup.config import check_count
from regmixup.data.catalogue import find
from regmixup.data.images import LabelledImages
from regmixup.data.loader import epoch_batches
from regmixup.data.seeds import generator_for, seed_for
from regmixup.mixing import Draw
from regmixup.precision import memory_format
from regmixup.storage import check_writable, write_json, write_table
from regmixup.training import checkpoint
from regmixup.training.batch_norm import (
    check_every_process_has_images,
    check_smallest_part,
    drop_counters,
    synchronised,
)
from regmixup.training.checkpoint import Checkpoint, Position
from regmixup.training.config import TrainConfig, check_present, choose_device, resolve
from regmixup.training.curves import Curves
from regmixup.training.distributed import Ranks, joined
from regmixup.training.engine import Engine, Execution, choose_execution, settings
from regmixup.training.graphs import CapturedUpdate
from regmixup.training.guard import DivergedError, Guard
from regmixup.training.loading import clean_parts, evaluation_transform, input_shape, make_loaders, reader
from regmixup.training.loggers import Logger, Loggers, TensorBoardLogger
from regmixup.training.members import EpochRecord, StepRecord, train_members
from regmixup.training.optim import make_optimizer, set_lr
from regmixup.training.pace import Pace
from regmixup.training.provenance import provenance
from regmixup.training.run import Run
from regmixup.training.step import Part, Step
from regmixup.training.stopping import Interrupted, Stop, stopping
from regmixup.training.tally import Tally, Totals, combine, means
from regmixup.training.update import Update, Updating

LOOK_EVERY = 50
"""Steps between two looks at what is on the device: at the guard, for progress displays and loggers."""


class Hooks(TypedDict, total=False):
    """What `train` calls on the way."""

    on_start: Callable[[Execution], None]
    on_step: Callable[[StepRecord], None]
    on_epoch: Callable[[EpochRecord], None]


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
    on_step: Callable[[StepRecord], None] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Run:
    """Train, or go on from the last checkpoint, or return at once if the run is finished.

    Nothing is written before the data, the network and the device are known to be there.

    runs: the folder of run folders; the run's own is named by its configuration's fingerprint.
    root: where datasets read from disk lie. device: default, the accelerator if there is one.
    workers: processes that decode image files, default one per core and at most 4; they do not change the result.
    engine: how it is carried out: compilation, CUDA graphs, checkpoints.
    loggers: told the run's numbers over its steps. tensorboard: also write event files into the run's folder.
    dry_run: raise what would stop the run before its first step, and do nothing else.
    on_start: called with what the engine chose; on_step: now and then with the means since the epoch began and the
    speed; on_epoch: after every epoch with its record. Under torchrun the first process alone logs and calls them.
    """
    if not isinstance(config, TrainConfig):
        raise ValueError(f"config must be a TrainConfig, as rm.configure(...) returns, got {config!r}")
    device, engine = choose_device(device), engine or Engine()
    if workers is not None:
        check_count("workers", workers, least=0)
    with joined(device) as ranks, closing(Loggers(loggers if ranks.first and not dry_run else ())) as told:
        config = resolve(config, device, world=ranks.world)
        run = Run(Path(runs) / config.name, config)
        if tensorboard:
            events = TensorBoardLogger(run.folder)  # before anything is written, as it may not be installed
            if ranks.first and config.members == 1 and not dry_run:
                told.add(events)
        if ranks.from_first(ranks.first and not run.lacks(whole=True)):
            if ranks.first:
                _check_folder(run, root)
        elif config.members > 1:
            one = partial(
                train, runs=runs, root=root, device=device, workers=workers, engine=engine, tensorboard=tensorboard,
                on_start=on_start,
            )  # fmt: skip
            for member in ranks.from_first([m.config for m in run.members() if not m.finished][:1]):
                one(member, dry_run=True)  # so that nothing is written before the members can be trained
            if not dry_run:
                with run.owned(ranks):
                    train_members(run, one, told, on_step, on_epoch, writes=ranks.first)
        else:
            workers = workers if workers is not None else min(4, os.cpu_count() or 1)
            check_present(device)
            with settings(device, engine, config.precision), stopping(patient=ranks.world > 1) as stop:
                training = Training(run, data.load(config.train_set, root=root), device, ranks, engine, workers, told)
                hooks = (on_start, on_step, on_epoch) if ranks.first else (None, None, None)
                if dry_run:
                    check_writable(run.folder / "config.json")
                else:
                    with run.owned(ranks):
                        training.resume()
                        training.to_the_end(stop, *hooks)
        ranks.wait()
    return run


class Training:
    """A run on its way: the model, where it is, and all that an update needs.

    What it is made of is found and made without writing anything; `resume` then goes to where the run was left.
    """

    def __init__(
        self,
        run: Run,
        dataset: LabelledImages,
        device: torch.device,
        ranks: Ranks,
        engine: Engine,
        workers: int,
        loggers: Loggers | None = None,
    ) -> None:
        self.run, self.config, self.dataset, self.device, self.ranks = run, run.config, dataset, device, ranks
        self.engine = engine
        config, self.shards = run.config, run.config.num_shards
        self.shape = input_shape(dataset, config)
        self.transform = evaluation_transform(config, files=dataset.shape is None)
        torch.manual_seed(seed_for(config.seed, "init"))
        model = run.build(num_classes=len(dataset.classes), input_shape=self.shape).to(device)
        drop_counters(model)
        if config.batch_norm == "synchronised":
            model = synchronised(model)
        self.model = model.to(memory_format=memory_format(config.precision, device))
        self.optimizer = make_optimizer(model, config)
        self.mine = range(ranks.rank, self.shards, ranks.world)
        self.loaders = make_loaders(dataset, config, device, workers=workers, mine=self.mine)
        self.steps = len(self.loaders[0])
        self.images = self.loaders[0].num_images
        if config.batch_norm == "synchronised":
            check_every_process_has_images(self.images, config)
        else:
            check_smallest_part(self.model, config, self.images, self.shape)
        self.loggers = loggers
        self.execution = self.choose(config.total_epochs)

    def choose(self, epochs: int) -> Execution:
        """How so many epochs are carried out."""
        return choose_execution(self.engine, self.config, self.device, steps=epochs * self.steps, passes=self.shards)

    def resume(self) -> None:
        """Go to where the run was left, or to its beginning, and make what its updates need."""
        run, config, engine, model, ranks = self.run, self.config, self.engine, self.model, self.ranks
        found = checkpoint.newest_checkpoint(run.folder, fingerprint=run.fingerprint) if ranks.first else None
        if found is not None:
            _check_same(run, found.data, self.dataset.fingerprint)
            found.restore(model, self.optimizer)
        self.at = ranks.from_first(found.position if found is not None else Position())
        ranks.copy_from_first(checkpoint.live_state(model, self.optimizer).values())

        self.execution = self.choose(config.total_epochs - self.at.epoch)
        full = {len(range(shard, min(config.batch_size, self.images), self.shards)) for shard in self.mine}
        step = Step(self.model, config, self.loaders[0], compiled=full if self.execution.compile else ())
        self.guard = Guard(self.optimizer, self.device, ranks, buffers=model.buffers())
        self.tally = Tally(self.device)
        update = Update(step, self.optimizer, self.guard, self.tally)
        self.update: Updating = CapturedUpdate(update, full=max(full)) if self.execution.graphs else update
        self.schedule = checkpoint.Schedule(minutes=engine.checkpoint_minutes, epochs=engine.checkpoint_epochs)
        self.pace = Pace(self.images)
        self.curves = Curves(self.loggers, config, steps=self.steps, at=self.at) if self.loggers else None

    def to_the_end(
        self,
        stop: Stop,
        on_start: Callable[[Execution], None] | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
        on_epoch: Callable[[EpochRecord], None] | None = None,
    ) -> None:
        """Epoch after epoch, and what comes after the last one."""
        config, run = self.config, self.run
        if on_start is not None:
            on_start(self.execution)
        if self.ranks.first:  # that of an earlier training, whose checkpoint was deleted, would call this one finished
            (run.folder / "provenance.json").unlink(missing_ok=True)
            if self.at == Position():
                run.forget_predictions()
        # The history is written before the checkpoint, so it may be ahead of it, never behind.
        history = [record for record in run.history() if record["epoch"] <= self.at.epoch]
        while self.at.epoch < config.total_epochs:
            self.epoch(stop, on_step)
            record = {"epoch": self.at.epoch + 1, **means(self.at.totals), "seconds": self.at.seconds}
            history.append(record)
            self.at = Position(self.at.epoch + 1)
            if self.ranks.first:
                run.write_history(history)
            if self.curves is not None:
                self.curves.epoch(record)
            asked, due = self.wishes(stop, ended=self.at.epoch)
            end = self.at.epoch == config.total_epochs
            if asked or due or end:
                self.save()
            if on_epoch is not None:
                on_epoch(record)
            if asked and not end:
                raise Interrupted(asked)
        parts = clean_parts(self.dataset, reader(self.transform, self.shape[1:]))
        if self.model.finalize(x.to(self.device) for part in parts for x in part.images.split(1000)):
            self.save()
        if self.ranks.first:
            seconds = sum(record["seconds"] for record in history)
            record = provenance(
                config, self.dataset, self.shape, self.transform, self.engine, self.execution, self.ranks.world, seconds
            )
            checkpoint.forget_previous(run.folder)
            write_table(run.folder / "provenance.json", record)
        asked, _ = self.wishes(stop)
        if asked:
            raise Interrupted(asked)

    def epoch(self, stop: Stop, on_step: Callable[[StepRecord], None] | None) -> None:
        """From where this epoch was left to its end; the position then has its totals."""
        epoch, first = self.at.epoch, self.at.step
        begun = time.perf_counter() - self.at.seconds
        self.model.train()
        if first == 0:
            self.model.start_epoch()
        self.tally.restore(self.at.totals if self.ranks.first else {})
        self.guard.step.fill_(first)
        picks = zip(*(loader.picks(epoch, start=first) for loader in self.loaders), strict=True)
        for step, picked in enumerate(picks, start=first):
            set_lr(self.optimizer, self.config.lr_at(epoch + step / self.steps))
            total = min(self.config.batch_size, self.images - step * self.config.batch_size)
            self.update(self.parts(step, picked, total), total=total)
            last = step + 1 == self.steps
            look = last or step % LOOK_EVERY == LOOK_EVERY - 1
            if look:
                self.check()
            # Reading is free on a CPU, where fifty steps of a large network can take minutes.
            if look or (self.device.type == "cpu" and self.pace.due()):
                self.tell(step + 1, on_step, self.curves if look else None)
            if not last and self.ranks.meets_at(epoch * self.steps + step):
                asked, due = self.wishes(stop)
                if asked or due:
                    self.check()
                    self.at = Position(epoch, step + 1, self.totals(), time.perf_counter() - begun)
                    self.save()
                if asked:
                    raise Interrupted(asked)
        self.at = Position(epoch, self.steps, self.totals(), time.perf_counter() - begun)

    def wishes(self, stop: Stop, *, ended: int | None = None) -> tuple[int, bool]:
        """The signal that asked any rank to stop, 0 for none, and whether a checkpoint is due. All ranks agree.

        ended: the number of epochs, if one has just ended.
        """
        due = self.schedule.after_step() or (ended is not None and self.schedule.after_epoch(ended))
        asked, agreed = self.ranks.largest_of(stop.signal or 0, int(due))
        return asked, bool(agreed)

    def parts(self, step: int, picked: Sequence[Any], total: int) -> list[Part]:
        """The parts of a batch that are this process's, each with its randomness."""
        config, parts = self.config, []
        for shard, images in zip(self.mine, picked, strict=True):
            count = len(range(shard, total, self.shards))
            draw = self.draw(step, shard, max(count, 1))
            if config.objective.per_batch and count < -(-total // self.shards):
                draw = _agreeing(draw, self.draw(step, shard, -(-total // self.shards)))
            seed = seed_for(config.seed, "dropout", self.at.epoch, step, shard)
            parts.append(Part(images, draw.to(self.device), count, seed))
        # Alone, a shard that a small last batch leaves empty is left out; ranks must all take part.
        return [part for part in parts if part.count or self.ranks.world > 1]

    def draw(self, step: int, shard: int, count: int) -> Draw:
        """Draw the objective's randomness for so many images of a shard."""
        config = self.config
        shared, own = (generator_for(config.seed, "draw", self.at.epoch, *where) for where in ((step,), (step, shard)))
        if config.objective.per_batch and shard == 0:
            own = shared  # one shard draws like a batch
        return config.objective.draw_part(count, self.shape, shared=shared, own=own)

    def totals(self) -> Totals:
        """What this epoch's steps have reported so far, on all ranks."""
        return combine(self.ranks.gather(self.tally.totals()))

    def tell(self, steps: int, on_step: Callable[[StepRecord], None] | None, curves: Curves | None) -> None:
        """Say what this process's part of an epoch's first steps has reported, and how fast they go."""
        if on_step is None and curves is None:
            return
        seen = self.at.epoch * self.images + min(steps * self.config.batch_size, self.images)
        totals, pace = self.tally.totals(), self.pace.look(seen)
        if curves is not None:
            curves.look(self.at.epoch, steps, totals, pace)
        if on_step is not None:
            on_step({"epoch": self.at.epoch + 1, "step": steps, "steps": self.steps, **means(totals), **pace})

    def save(self) -> None:
        """A checkpoint of this position."""
        begun = time.monotonic()
        if self.ranks.first:
            checkpoint.save_checkpoint(self.run.folder, self.content(self.at), fingerprint=self.run.fingerprint)
        self.ranks.wait()  # nobody ends the program while the first rank writes
        self.schedule.saved(begun)  # after the wait, so that the others know what saving costs, too

    def content(self, at: Position) -> Checkpoint:
        """All that training goes on from."""
        return Checkpoint(checkpoint.state(self.model, self.optimizer), at, self.dataset.fingerprint)

    def check(self) -> None:
        """Stop if a step was bad, leaving a snapshot from before it; waits for the device."""
        step = self.guard.found()
        if step is None:
            return
        config, folder = self.config, self.run.folder
        index = epoch_batches(self.images, config.batch_size, config.seed, self.at.epoch)[step].tolist()
        lr = config.lr_at(self.at.epoch + step / self.steps)
        snapshot, kept = folder / "diverged.safetensors", ""
        if self.ranks.first:
            self.guard.rewind()
            content = self.content(Position(self.at.epoch, step))
            record = {"epoch": self.at.epoch + 1, "step": step + 1, "lr": lr, "images": index}
            try:
                checkpoint.write_checkpoint(snapshot, content, fingerprint=self.run.fingerprint)
                write_json(folder / "diverged.json", record)
                kept = f"{snapshot} has them as they were before that step, and "
            except OSError as error:
                kept = f"they could not be saved ({error}), but "
        self.ranks.wait()
        raise DivergedError(
            f"the loss, its gradient or a buffer became infinite or NaN in epoch {self.at.epoch + 1}, step {step + 1} "
            f"(images {', '.join(map(str, index[:8]))}{', ...' if len(index) > 8 else ''} of {config.train_set}). It "
            f"did not reach the weights: {kept}the last checkpoint is kept. A smaller lr (now {lr:g}) or some warm-up "
            "usually helps"
        )


def _agreeing(draw: Draw, largest: Draw) -> Draw:
    """A draw with the lambda and box of the largest part's, where they are the batch's and not the images' own.

    A stream that has also drawn partners for fewer images has other numbers after them.
    """
    pairs = {name: (getattr(draw, name), getattr(largest, name)) for name in ("lam", "box")}
    shared = {name: theirs for name, (own, theirs) in pairs.items() if own is not None and own.shape == theirs.shape}
    return dataclasses.replace(draw, **shared)


def _check_folder(run: Run, root: str | Path | None) -> None:
    """A folder is named by its path, so its files may have changed since a run was trained on them."""
    name = run.config.train_set
    if find(name).is_folder:
        _check_same(run, run.provenance()["data"][name], data.load(name, root=root).fingerprint)


def _check_same(run: Run, recorded: str, found: str) -> None:
    """Refuse to go on with other data than a run began with."""
    if recorded != found:
        raise ValueError(
            f"{run.config.train_set} has changed since {run.folder} was trained on it (fingerprint {recorded[:12]}, "
            f"now {found[:12]}): delete the run folder to train again"
        )
