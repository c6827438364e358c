"""THE loop, readable from top to bottom.

Randomness comes in named streams derived from (seed, purpose, epoch): initialisation, order, augmentation, mixing,
dropout. A checkpoint is therefore the weights, the momentum and the number of epochs; resuming from it is exact.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from regmixup import data
from regmixup.data.loader import Loader
from regmixup.data.seeds import generator_for, seed_for
from regmixup.mixing import Draw
from regmixup.networks.contract import Classifier
from regmixup.storage import write_json
from regmixup.training.checkpoint import load_checkpoint, save_checkpoint
from regmixup.training.config import TrainConfig, choose_device, resolve
from regmixup.training.loading import clean_parts, input_shape, make_loader
from regmixup.training.optim import make_optimizer
from regmixup.training.provenance import provenance
from regmixup.training.run import Run
from regmixup.types import Batch, LossOutput

EpochRecord = dict[str, Any]


class DivergedError(RuntimeError):
    """Training produced a loss that is not a finite number."""


def train(
    config: TrainConfig,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Run:
    """Train, or go on from the last epoch, or return at once if the run is finished.

    runs: the folder of run folders; the run's own is named by its configuration's fingerprint.
    root: where datasets read from disk lie. device: default, the accelerator if there is one.
    workers: processes that decode image files, default one per core and at most 4; they do not change the result.
    on_epoch: called after every epoch with its record, for progress displays.
    """
    device = choose_device(device)
    config = resolve(config, device)
    run = Run(Path(runs) / config.name, config)
    if run.finished:
        _check_same_folder(run, root)
        return run
    if config.members > 1:
        return _train_members(run, root=root, device=device, workers=workers, on_epoch=on_epoch)
    # fork_rng would otherwise start every accelerator of the machine.
    seeded = [] if device.type == "cpu" else [device]
    with run.owned(), torch.random.fork_rng(seeded, device_type=device.type if seeded else "cuda"):
        dataset = data.load(config.train_set, root=root)
        torch.manual_seed(seed_for(config.seed, "init"))
        shape = input_shape(dataset, config)
        model = run.build(num_classes=len(dataset.classes), input_shape=shape).to(device)
        if device.type == "cuda":
            model = model.to(memory_format=torch.channels_last)
        optimizer = make_optimizer(model, config)
        loader = make_loader(dataset, config, device, workers if workers is not None else min(4, os.cpu_count() or 1))
        done = 0
        if run.checkpoint.exists():
            done = load_checkpoint(run.checkpoint, model, optimizer, fingerprint=run.fingerprint)
        # The history is written before the checkpoint, so it may be one epoch ahead of it, never behind.
        history = run.history()[:done]
        for epoch in range(done, config.epochs):
            started = time.perf_counter()
            record = train_epoch(config, model, optimizer, loader, epoch)
            history.append({"epoch": epoch + 1, **record, "seconds": time.perf_counter() - started})
            run.write_history(history)
            save_checkpoint(run.checkpoint, model, optimizer, epoch=epoch + 1, fingerprint=run.fingerprint)
            if on_epoch is not None:
                on_epoch(history[-1])
        images = (x.to(device) for part in clean_parts(dataset, shape[1:]) for x in part.images.split(1000))
        if model.finalize(images):
            save_checkpoint(run.checkpoint, model, optimizer, epoch=config.epochs, fingerprint=run.fingerprint)
        seconds = sum(record["seconds"] for record in history)
        write_json(run.folder / "provenance.json", provenance(config, dataset, shape, device, seconds))
    return run


def _train_members(
    run: Run,
    *,
    root: str | Path | None,
    device: torch.device,
    workers: int | None,
    on_epoch: Callable[[EpochRecord], None] | None,
) -> Run:
    """An ensemble's members are runs like any other, beside its own folder, and may serve other studies too."""
    epochs = run.config.epochs

    def numbered(member: int) -> Callable[[EpochRecord], None] | None:
        return on_epoch and (lambda record: on_epoch({**record, "epoch": member * epochs + record["epoch"]}))

    with run.owned():
        members = [
            train(member.config, run.folder.parent, root=root, device=device, workers=workers, on_epoch=numbered(index))
            for index, member in enumerate(run.members())
        ]
        histories = [member.history() for member in members]
        run.write_history([_mean_record(records) for records in zip(*histories, strict=True)])
        seconds = sum(record["seconds"] for history in histories for record in history)
        own = {"fingerprint": run.fingerprint, "seed": run.config.seed, "seconds": round(seconds, 3)}
        names = [member.folder.name for member in members]
        write_json(run.folder / "provenance.json", {**members[0].provenance(), **own, "members": names})
    return run


def _mean_record(records: Sequence[EpochRecord]) -> EpochRecord:
    """What several models reported for one epoch: the mean of each value over those that have it."""
    names = dict.fromkeys(name for record in records for name in record if name != "epoch")
    means = {name: fmean(record[name] for record in records if name in record) for name in names}
    return {"epoch": records[0]["epoch"], **means}


def train_epoch(
    config: TrainConfig, model: Classifier, optimizer: torch.optim.Optimizer, loader: Loader, epoch: int
) -> EpochRecord:
    """One pass over the data. What it reports is summed on the device and read once, at the end."""
    model.train()
    model.start_epoch()
    torch.manual_seed(seed_for(config.seed, "dropout", epoch))
    draws = generator_for(config.seed, "draw", epoch)
    device = loader.device
    totals: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    for step, batch in enumerate(loader.epoch(epoch)):
        for group in optimizer.param_groups:
            group["lr"] = config.lr_at(epoch + step / len(loader))
        draw = config.objective.draw(len(batch.x), tuple(batch.x.shape[1:]), draws)
        out = train_step(config, model, optimizer, batch, draw)

        count = len(batch.x)
        sums = {"loss": out.loss.detach() * count, **{name: value * count for name, value in out.parts.items()}}
        if out.logits is not None:
            sums["train_accuracy"] = (out.logits.detach().argmax(dim=1) == batch.y).sum()
        for name, value in sums.items():
            totals[name] = totals.get(name, 0) + (value.float() if device.type == "mps" else value.double())
            counts[name] = counts.get(name, 0) + count
    # A part that only some steps have, as under Alternate, is averaged over those.
    record = {name: float(value) / counts[name] for name, value in totals.items()}
    if not math.isfinite(record["loss"]):
        kept = f"; the checkpoint still holds epoch {epoch}" if epoch else ""
        raise DivergedError(
            f"the loss became {record['loss']} in epoch {epoch + 1}{kept}. "
            f"A smaller lr (now {config.lr:g}) or some warm-up usually helps"
        )
    return record


def train_step(
    config: TrainConfig, model: Classifier, optimizer: torch.optim.Optimizer, batch: Batch, draw: Draw
) -> LossOutput:
    """One update of the weights, and of what the head keeps beside them."""
    precision = torch.autocast(batch.x.device.type, dtype=torch.bfloat16, enabled=config.precision == "bfloat16")
    with precision:
        out = config.objective(model, batch.x, batch.y, draw=draw)
    optimizer.zero_grad(set_to_none=True)
    out.loss.backward()
    optimizer.step()
    with precision:
        model.after_step(batch.x, batch.y)
    return out


def _check_same_folder(run: Run, root: str | Path | None) -> None:
    """A folder is named by its path, so its files may have changed since a run was trained on them."""
    name = run.config.train_set
    if not name.startswith("folder:"):
        return
    recorded, found = run.provenance()["data"][name], data.load(name, root=root).fingerprint
    if recorded != found:
        raise ValueError(
            f"{name} has changed since {run.folder} was trained on it (fingerprint {recorded[:12]}, now {found[:12]}): "
            "delete the run folder to train again"
        )
