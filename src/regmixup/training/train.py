"""`rm.train`: from a configuration to a finished run, or to the runs of an ensemble's members, and their records."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import regmixup
from regmixup import data, run_folder
from regmixup.config import NUMERICS_VERSION, check_count, encode
from regmixup.data.catalogue import find
from regmixup.networks.constraints import settle_vectors
from regmixup.networks.layers import batch_norms
from regmixup.networks.precision import autocast
from regmixup.storage import check_writable
from regmixup.training.batch_norm import explaining_lone_images, forward_mixture, refreshing
from regmixup.training.checkpoint import Position
from regmixup.training.config import TrainConfig, resolve
from regmixup.training.distributed import Ranks, joined
from regmixup.training.engine import Engine, check_present, choose_device, device_name, settings
from regmixup.training.loading import make_decoder, one_more_epoch
from regmixup.training.loop import Training
from regmixup.training.reporting import Hooks, Record
from regmixup.training.run import Run
from regmixup.training.stopping import Interrupted, Stop, stopping
from regmixup.training.weight_copies import WeightMean


def train(
    config: TrainConfig,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    tensorboard: bool = False,
    dry_run: bool = False,
    on_start: Callable[[str], None] | None = None,
    on_step: Callable[[Record], None] | None = None,
    on_epoch: Callable[[Record], None] | None = None,
) -> Run:
    """Train, or resume from the last checkpoint, or return at once if the run is finished.

    The members of an ensemble are runs like any other, and may serve other studies; callbacks see one long training.
    Nothing is written before the data, the network and the device are known to be there.

    runs: the folder of run folders; the run's own is named by its configuration's fingerprint.
    root: where datasets read from disk lie. device: default, the accelerator if there is one.
    workers: processes that decode image files, default one per core and at most 4; they do not change the result.
    engine: how it is executed: compilation, CUDA graphs, checkpoints.
    tensorboard: also write event files into the run's folder.
    dry_run: raise what would stop the run before its first step, and do nothing else.
    on_start: called with how it is executed, in words; on_step: now and then with the means since the epoch began and
    the throughput; on_epoch: after every epoch with its record. Under torchrun the first process alone calls them.
    """
    device, engine = choose_device(device), Engine() if engine is None else engine
    check_arguments(config, device, workers=workers, tensorboard=tensorboard)
    with joined(device) as ranks:
        config = resolve(config, device, world=ranks.world)
        run = Run.of(config, runs)
        hooks = Hooks.given(on_start, on_step, on_epoch) if ranks.is_first else Hooks()
        unfinished = must_train(run, ranks, root)
        for index, member in enumerate(run.members() if unfinished else ()):
            if member is not run and not must_train(member, ranks, root):
                continue
            check_present(device)
            with settings(device, engine, config.precision), stopping(patient=ranks.world > 1) as stop:
                images = data.load(config.train_set, root=root)
                validation = data.load(config.validation, root=root) if config.validation else None
                training = Training(member, images, device, ranks, engine, workers, validation_set=validation)
                stop_if_asked(stop, ranks)
                if dry_run:
                    check_resumable(training)
                    break
                with resumed(training, hooks.after(index * config.total_epochs), tensorboard=tensorboard):
                    training.run_epochs(stop)
                    conclude(training)
                    stop_if_asked(stop, ranks)
            del training  # so that the next member finds its memory free
        if unfinished and config.members > 1 and ranks.is_first and not dry_run:
            record_ensemble(run)
        ranks.wait()
    return run


def check_arguments(config: object, device: torch.device, *, workers: int | None, tensorboard: bool) -> None:
    """Raise where arguments of `train` cannot be meant, or lack what they need."""
    if not isinstance(config, TrainConfig):
        raise ValueError(f"config must be a TrainConfig, as rm.configure(...) returns, got {config!r}")
    if torch.is_autocast_enabled(device.type):  # which would keep its copies of the weights from step to step
        raise ValueError("train must be called outside torch.autocast: precision is a field of the configuration")
    if workers is not None:
        check_count("workers", workers, least=0)
    if tensorboard and find_spec("tensorboard") is None:
        raise ValueError("event files need TensorBoard: pip install 'regmixup[tensorboard]'")


def must_train(run: Run, ranks: Ranks, root: str | Path | None) -> bool:
    """Return, on all ranks, whether a run is not finished; raise if one that is has other images now than it had."""
    finished = ranks.from_first(ranks.is_first and not run.why_unfinished(whole=True))
    if finished and ranks.is_first:
        for name in filter(None, (run.config.train_set, run.config.validation)):
            if find(name).may_change:  # as a folder is named by its path
                run.check_same_data(run.provenance()["data"][name], data.load(name, root=root).fingerprint)
    return not finished


def stop_if_asked(stop: Stop, ranks: Ranks) -> None:
    """Raise on all ranks if a signal asked one of them to stop."""
    if signal := ranks.largest_of(stop.signal)[0]:
        raise Interrupted(signal)


def check_resumable(training: Training) -> None:
    """Raise unless its folder can be written to and its last checkpoint, if there is one, can be read."""
    if training.ranks.is_first:  # each would remove the folder that another one tries
        check_writable(training.run.folder / run_folder.CONFIG)
    training.resume()


@contextmanager
def resumed(training: Training, hooks: Hooks, *, tensorboard: bool) -> Iterator[None]:
    """Hold the run's folder, and begin where the run was left. tensorboard: draw curves, too."""
    explaining = explaining_lone_images(training.config, training.num_images)
    with training.run.owned(training.ranks), ExitStack() as stack, explaining:
        training.resume()
        delete_stale_results(training)
        if tensorboard and training.ranks.is_first:
            training.hooks.append(draw_curves(training, stack))
        training.hooks.append(hooks)
        hooks.on_start("\n".join(str(part) for part in (training.execution, training.initial) if part is not None))
        yield


def delete_stale_results(training: Training) -> None:
    """Delete what an earlier training has left, whose checkpoint was deleted: it would call this one finished."""
    folder = training.run.folder
    if training.ranks.is_first:
        (folder / run_folder.PROVENANCE).unlink(missing_ok=True)
        if training.position == Position():
            run_folder.delete_predictions(folder)


def draw_curves(training: Training, stack: ExitStack) -> Hooks:
    """Return hooks that write curves for TensorBoard, `step/...` and `epoch/...`, until the stack closes.

    Every start begins a new file, and hides what older ones say about later steps, as of a run that was killed.
    """
    from torch.utils.tensorboard import SummaryWriter

    steps = training.steps_per_epoch
    taken = training.position.epoch * steps + training.position.step
    writer = stack.enter_context(SummaryWriter(str(training.run.folder), purge_step=taken + 1))

    def write(kind: str, record: Record, step: int) -> None:
        for name in record.keys() - {"epoch", "step", "steps"}:
            writer.add_scalar(f"{kind}/{name}", record[name], step)
        writer.flush()  # else a kill would lose up to two minutes of what a checkpoint counts as done

    return Hooks(
        on_step=lambda record: write("step", record, (record["epoch"] - 1) * steps + record["step"]),
        on_epoch=lambda record: write("epoch", record, record["epoch"] * steps),
    )


def conclude(training: Training) -> None:
    """Complete the mean of the weights, show the head the train images, and record that the run has ended."""
    if training.swa is not None:
        complete_mean(training, training.swa)
    finalized = finalize(training)
    if finalized:
        for copy in training.copies:
            with copy.in_place():
                finalize(training)
    if finalized or training.swa is not None or training.config.total_epochs == 0:
        training.save()
    if training.ranks.is_first:
        run_folder.write_provenance(training.run.folder, provenance_record(training))


def complete_mean(training: Training, average: WeightMean) -> None:
    """Give SWA's mean of the weights what is no mean: vectors of power iterations, and batch-norm statistics.

    A backbone that was frozen to the end was in evaluation mode: the head has learned on the statistics that it has.
    """
    model, config, device = training.model, training.config, training.device
    last = config.total_epochs - 1
    if last < 0 or config.frozen_at(last):
        return
    with average.in_place():
        settle_vectors(model)
        if batch_norms(model):
            # Of the mixture that it was trained on: with clean images alone, a network of RegMixup detects worse.
            batches = one_more_epoch(training.dataset, config, device, workers=training.workers)
            with autocast(config.precision, device), refreshing(model):
                forward_mixture(model, config, batches)


def finalize(training: Training) -> bool:
    """Let the head see the clean train images, if it wants to; return whether it did."""
    images = training.dataset.parts(make_decoder(training.transform, training.shape[1:]))
    return training.model.finalize(x.to(training.device) for part in images for x in part.images.split(1000))


def provenance_record(training: Training) -> dict[str, Any]:
    """Return what a finished run records about itself; of its engine, what was asked for and what was chosen."""
    config, selection = training.config, training.selection
    record = {
        "fingerprint": training.run.fingerprint,
        "commit": _commit(),
        "seed": config.seed,
        "data": {dataset.name: dataset.fingerprint for dataset in training.datasets},
        "train_images": len(training.dataset),
        "input": list(training.shape),
        "transform": encode(training.transform) if training.transform is not None else None,
        "classes": list(training.dataset.classes),
        "device": device_name(training.device),
        "engine": encode(training.engine),
        "execution": str(training.execution),
        "processes": training.ranks.world,
        "threads": torch.get_num_threads(),
        "seconds": seconds_of(training.history, config.total_epochs),
    }
    if training.initial is not None:
        record["init"] = asdict(training.initial)
    if selection is not None and config.epochs:
        record["selected"] = selection.record(config.validation)
    ours = {"regmixup": regmixup.__version__, "numerics": NUMERICS_VERSION, "python": platform.python_version()}
    others = {name: version(name) for name in ("torch", "timm", "numpy", "scipy", "safetensors")}
    return {**record, "versions": {**ours, **others}}


def seconds_of(history: Sequence[Record], epochs: int) -> float:
    """Return the seconds of a training; an epoch without a sound record took as long as the mean of the others.

    >>> seconds_of([{"epoch": 1, "seconds": 2.0}, {"epoch": 2}, {"epoch": 3, "seconds": 3.0}], epochs=3)
    7.5
    """
    known = [record["seconds"] for record in history if "seconds" in record]
    return round(sum(known) * epochs / max(1, len(known)), 3)


def _commit() -> str | None:
    """Return the commit of the code that runs: from REGMIXUP_COMMIT, for a copy without git, else from git."""
    if named := os.environ.get("REGMIXUP_COMMIT"):
        return named
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # installed; it may lie in a repository of other code
        return None
    git = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def record_ensemble(run: Run) -> None:
    """Record an ensemble whose members are trained: their epochs one after the other, and what they have in common."""
    members, history = run.members(), []
    for index, member in enumerate(members):
        earlier = index * run.config.total_epochs
        history += [{**record, "epoch": earlier + record["epoch"]} for record in member.history()]
    shared = {key: entry for key, entry in members[0].provenance().items() if key != "selected"}  # each its own
    record = {
        "fingerprint": run.fingerprint,
        "seed": run.config.seed,
        "seconds": round(sum(member.provenance()["seconds"] for member in members), 3),
        "members": [member.folder.name for member in members],
    }
    with run.owned():
        run_folder.delete_predictions(run.folder)
        run_folder.write_history(run.folder, history)
        run_folder.write_provenance(run.folder, {**shared, **record})
