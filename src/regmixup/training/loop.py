"""THE loop, readable from top to bottom.

Randomness comes in named streams derived from (seed, purpose, epoch): initialisation, order, augmentation, mixing,
dropout. A checkpoint is therefore the weights, the momentum and the number of epochs; resuming from it is exact.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regmixup import data
from regmixup.data.loader import Loader
from regmixup.data.seeds import generator_for, seed_for
from regmixup.storage import write_json
from regmixup.training.checkpoint import load_checkpoint, save_checkpoint
from regmixup.training.config import TrainConfig, choose_device, resolve
from regmixup.training.loading import input_shape, make_loader
from regmixup.training.provenance import provenance
from regmixup.training.run import Run

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
    # fork_rng would otherwise start every accelerator of the machine.
    seeded = [] if device.type == "cpu" else [device]
    with run.owned(), torch.random.fork_rng(seeded, device_type=device.type if seeded else "cuda"):
        dataset = data.load(config.train_set, root=root)
        torch.manual_seed(seed_for(config.seed, "init"))
        shape = input_shape(dataset, config)
        model = run.build(num_classes=len(dataset.classes), shape=shape).to(device)
        if device.type == "cuda":
            model = model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=config.lr,
            momentum=config.momentum,
            nesterov=config.nesterov and config.momentum > 0,
            weight_decay=config.weight_decay,
        )
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
        seconds = sum(record["seconds"] for record in history)
        write_json(run.folder / "provenance.json", provenance(config, dataset, shape, device, seconds))
    return run


def train_epoch(
    config: TrainConfig, model: nn.Module, optimizer: torch.optim.Optimizer, loader: Loader, epoch: int
) -> EpochRecord:
    """One pass over the data. What it reports is summed on the device and read once, at the end."""
    model.train()
    torch.manual_seed(seed_for(config.seed, "dropout", epoch))
    draws = generator_for(config.seed, "draw", epoch)
    device = loader.device
    totals: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    for step, batch in enumerate(loader.epoch(epoch)):
        for group in optimizer.param_groups:
            group["lr"] = config.lr_at(epoch + step / len(loader))
        draw = config.objective.draw(len(batch.x), tuple(batch.x.shape[1:]), draws)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.precision == "bfloat16"):
            out = config.objective(model, batch.x, batch.y, draw=draw)
        optimizer.zero_grad(set_to_none=True)
        out.loss.backward()
        optimizer.step()

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
