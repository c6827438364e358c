"""The training loop: a `Training` is all that a run trains with; its epochs repeat the step of step.py.

Randomness comes in named streams derived from (seed, purpose, epoch, step): initialisation, order, augmentation,
the objective's draws, dropout. A checkpoint is therefore the weights, their running mean, the optimizer's state and a
position; resuming from it is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from regmixup.data.images import LabelledImages
from regmixup.data.splits import seed_for
from regmixup.names import shortened
from regmixup.networks.precision import memory_format
from regmixup.run_folder import write_history
from regmixup.training import checkpoint
from regmixup.training.batch_norm import drop_counters
from regmixup.training.checkpoint import Checkpoint, Position, SaveSchedule, Totals
from regmixup.training.compilation import CapturedStep, CompiledForward
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine, choose_execution
from regmixup.training.guard import DivergedError, Guard
from regmixup.training.initial_weights import load_initial_weights
from regmixup.training.loading import check_for_files, evaluation_transform, input_shape, make_loaders
from regmixup.training.optim import make_optimizer, set_frozen, set_lr
from regmixup.training.reporting import Hooks, Record, Tally, combine, means
from regmixup.training.run import Run
from regmixup.training.selection import Selection, Validation
from regmixup.training.shards import Shard, draw_shard
from regmixup.training.sharpness import SAM, has_dropout
from regmixup.training.step import ForwardPass, TrainingStep, distribute
from regmixup.training.stopping import Interrupted, Stop
from regmixup.training.weight_copies import WeightCopy, epoch_mean, running_mean

READ_EVERY = 50
"""Steps between two reads of the device: of the guard, and of the means that callbacks get."""
REPORT_SECONDS = 1.0
"""Time after which a CPU reports between two reads, as fifty steps of a large network can take it minutes."""


class Training:
    """A run in training: all that it trains with, and where it is, at first its beginning. Making one writes no file.

    validation_set: the images that are predicted after every epoch, where the configuration names some.
    """

    def __init__(
        self,
        run: Run,
        dataset: LabelledImages,
        device: torch.device,
        ranks: Ranks,
        engine: Engine,
        workers: int | None,
        validation_set: LabelledImages | None = None,
    ) -> None:
        self.run, self.dataset, self.device, self.ranks = run, dataset, device, ranks
        self.engine, self.workers = engine, workers
        self.config = config = run.config
        check_for_files(dataset, config)
        # The network, with the weights that it starts from, if they are not random.
        self.shape = input_shape(dataset, config)  # channels, height and width of what it sees
        torch.manual_seed(seed_for(config.seed, "init"))
        model = run.build(num_classes=len(dataset.classes), input_shape=self.shape).to(device)
        drop_counters(model)
        self.model = model.to(memory_format=memory_format(config.precision, device))
        self.initial = load_initial_weights(self.model, config, input_shape=self.shape) if config.init else None
        set_frozen(self.model, frozen=config.frozen_at(0))
        # The images: a loader for each shard that this process computes, and the validation set.
        mine = range(ranks.rank, config.num_shards, ranks.world)
        self.loaders = make_loaders(dataset, config, device, workers=workers, mine=mine)
        self.steps_per_epoch, self.num_images = len(self.loaders[0]), self.loaders[0].num_images
        self.transform = evaluation_transform(config, files=dataset.shape is None)
        self.validation, self.datasets = None, [dataset]
        if validation_set is not None:
            self.validation = Validation(config, validation_set, device, train_set=dataset)
            self.datasets.append(validation_set)
        self.data_fingerprint = "+".join(images.fingerprint for images in self.datasets)
        # How a step is executed, and what it changes.
        total_steps, dropout = config.total_epochs * self.steps_per_epoch, has_dropout(self.model)
        self.execution = choose_execution(engine, config, device, steps=total_steps, dropout=dropout)
        self.optimizer = make_optimizer(self.model, config)
        self.sharpness = None
        if config.sharpness != "none":
            friendly = config.sharpness == "friendly"
            self.sharpness = SAM(self.optimizer, config.rho, friendly=friendly, model=self.model)
        self.ema = running_mean(self.model, config.ema) if config.ema > 0 else None
        self.swa = epoch_mean(self.model) if config.average == "swa" else None
        self.selection = Selection(self.model, config.select) if config.select != "last" else None
        self.copies: list[WeightCopy] = [copy for copy in (self.ema, self.swa, self.selection) if copy is not None]
        self.guard, self.tally = Guard(device, ranks, buffers=self.model.buffers()), Tally(device)
        # Where it is, within an epoch where it was last saved, and who is told; see also `start_epoch`.
        self.position, self.history = Position(), list[Record]()
        self.save_schedule = SaveSchedule(minutes=engine.checkpoint_minutes)
        self.hooks = list[Hooks]()

    def resume(self) -> Training:
        """Go to where the run was left, or stay at its beginning, and build its step; return this training."""
        run, ranks, state = self.run, self.ranks, self.state()
        if ranks.is_first and run.checkpoint.exists():
            stored = checkpoint.read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)
            run.check_same_data(stored.data, self.data_fingerprint)
            stored.copy_to(state)
            self.position = stored.position
        self.position = ranks.from_first(self.position)
        ranks.copy_from_first(state.values())
        # The history is written before the checkpoint, so it may be ahead of it, never behind.
        self.history = [record for record in run.history() if record["epoch"] <= self.position.epoch]
        set_frozen(self.model, frozen=self.config.frozen_at(self.position.epoch))
        self.take_step = self.build_step()
        return self

    def build_step(self) -> Callable[[Sequence[Shard]], None]:
        """Return the step for the weights that learn now, wrapped as the execution says."""
        batch = min(self.config.batch_size, self.num_images)
        full = {loader.shard_size(batch) for loader in self.loaders}
        forward = ForwardPass(self.model, self.config, self.loaders[0])
        step = TrainingStep(forward, self.optimizer, self.guard, self.tally, ema=self.ema, sharpness=self.sharpness)
        if self.execution.compile:
            step.forward = CompiledForward(step.forward, full)
        if self.ranks.world > 1:
            step.forward = distribute(step.forward)
        return CapturedStep(step, full=max(full)) if self.execution.graphs else step

    def run_epochs(self, stop: Stop, *, until: int | None = None) -> None:
        """Train from the current position to the end of the last epoch. until: the number of epochs, default all."""
        end = until if until is not None else self.config.total_epochs
        try:
            while (epoch := self.position.epoch) < end:
                first = self.start_epoch()
                picks = zip(*(loader.picks(epoch, start=first) for loader in self.loaders), strict=True)
                for step, picked in enumerate(picks, start=first):
                    set_lr(self.optimizer, self.lr_at(step))
                    batch_images = min(self.config.batch_size, self.num_images - step * self.config.batch_size)
                    self.take_step(self.draw_shards(step, picked, batch_images))
                    self.after_step(step, stop)
                self.end_epoch(stop)
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
        self.tally.restore(self.position.totals if self.ranks.is_first else {})
        self.guard.step.fill_(first)
        self.epoch_began = time.perf_counter() - self.position.seconds
        self.reported_at, self.reported_images = time.perf_counter(), first * self.config.batch_size
        return first

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step of the current epoch."""
        return self.config.lr_at(self.position.epoch + step / self.steps_per_epoch)

    def draw_shards(self, step: int, picked: Sequence[Any], batch_images: int) -> list[Shard]:
        """Draw the randomness of this process's shards of a batch. picked: the images of each."""
        config, epoch, shards = self.config, self.position.epoch, []
        largest = -(-batch_images // config.num_shards)
        for loader, images in zip(self.loaders, picked, strict=True):
            number, count = loader.shard_number, loader.shard_size(batch_images)
            draw = draw_shard(config, number, count, largest=largest, shape=self.shape, epoch=epoch, step=step)
            seed = seed_for(config.seed, "dropout", epoch, step, number)
            shards.append(Shard(images, draw.to(self.device), count, batch_images, seed))
        # Alone, a process leaves out a shard that a small last batch leaves empty; ranks must all take part.
        return [shard for shard in shards if shard.count or self.ranks.world > 1]

    def after_step(self, step: int, stop: Stop) -> None:
        """Read the guard and report now and then; save and stop where that is due."""
        epoch, last = self.position.epoch, step + 1 == self.steps_per_epoch
        read = last or (step + 1) % READ_EVERY == 0
        if read:
            self.check_guard()
        late = time.perf_counter() - self.reported_at >= REPORT_SECONDS
        if read or (self.device.type == "cpu" and late):  # where reading is free
            self.report_step(step)
        if not last and (epoch * self.steps_per_epoch + step + 1) % self.ranks.steps_per_exchange == 0:
            signal, save = self.ranks.largest_of(stop.signal, int(self.save_schedule.due_after_step()))
            if signal or save:
                self.check_guard()
                seconds = time.perf_counter() - self.epoch_began
                self.position = Position(epoch, step + 1, self.totals(), seconds)
                self.save()
            if signal:
                raise Interrupted(signal)

    def report_step(self, step: int) -> None:
        """Give callbacks the means over the epoch's steps up to this one, its learning rate and the throughput."""
        epoch, now = self.position.epoch, time.perf_counter()
        images = min((step + 1) * self.config.batch_size, self.num_images)
        rate = (images - self.reported_images) / (now - self.reported_at)
        self.reported_at, self.reported_images = now, images
        record = {
            "epoch": epoch + 1,
            "step": step + 1,
            "steps": self.steps_per_epoch,
            **means(self.tally.totals()),
            "lr": self.lr_at(step),
            "images_per_second": rate,
            "seconds_per_epoch": self.num_images / rate,
        }
        for hooks in self.hooks:
            hooks.on_step(record)

    def end_epoch(self, stop: Stop) -> None:
        """Record an epoch; save and stop where that is due."""
        self.position = Position(self.position.epoch + 1)
        epoch, measured = self.position.epoch, {}
        if self.swa is not None and epoch / self.config.total_epochs > self.config.average_from:
            self.swa.update()
        if self.validation is not None:
            # Never of SWA's mean: it may not have begun, and has no batch-norm statistics of its own before the end.
            with self.ema.in_place() if self.ema is not None else nullcontext():
                measured = self.validation.measure(self.model, self.ranks)
                if self.selection is not None:
                    self.selection.keep_best(epoch, measured)
        seconds = time.perf_counter() - self.epoch_began
        record = {"epoch": epoch, **means(self.totals()), **measured, "seconds": seconds}
        self.history.append(record)
        if self.ranks.is_first:  # before the checkpoint, so that the history may be ahead of it, never behind
            write_history(self.run.folder, self.history)
        signal, save = self.ranks.largest_of(stop.signal, int(self.save_schedule.due_after_epoch()))
        if signal or save or epoch == self.config.total_epochs:
            self.save()
        for hooks in self.hooks:
            hooks.on_epoch(record)
        if signal and epoch < self.config.total_epochs:
            raise Interrupted(signal)

    def totals(self) -> Totals:
        """Return what this epoch's steps have reported so far on all ranks; nothing but on the first."""
        return combine(self.ranks.to_first(self.tally.totals()))

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that training resumes from, on their device, by their names in a checkpoint."""
        parts = {"model.": self.model.state_dict()}
        parts |= {part.prefix: part.state() for part in (*self.copies, self.sharpness) if part is not None}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            moments = self.optimizer.state[parameter].items()
            parts[f"optimizer.{index}."] = {name: moment for name, moment in moments if torch.is_tensor(moment)}
        return {prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.items()}

    def save(self) -> None:
        """Write a checkpoint of the current position."""
        begun = time.monotonic()
        if self.ranks.is_first:
            state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state().items()}
            content = Checkpoint(state, self.position, self.data_fingerprint)
            checkpoint.save_checkpoint(self.run.folder, content, fingerprint=self.run.fingerprint)
        self.ranks.wait()  # nobody ends the program while the first rank writes
        self.save_schedule.saved(begun)  # after the wait, so that the others know what saving costs, too

    def check_guard(self) -> None:
        """Stop if a step was bad, and say which; waits for the device."""
        if (step := self.guard.first_bad_step()) is None:
            return
        epoch = self.position.epoch
        images = [str(index) for index in self.loaders[0].batches(epoch)[step].tolist()]
        raise DivergedError(
            f"the loss, its gradient or a buffer became infinite or NaN in epoch {epoch + 1}, step {step + 1} (images "
            f"{shortened(images, 8)} of {self.config.train_set}). The last checkpoint is from before that. A smaller "
            f"lr (now {self.lr_at(step):g}) or some warm-up usually helps"
        )
