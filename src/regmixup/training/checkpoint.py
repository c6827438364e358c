"""Where training is, as one safetensors file: nothing is executed when it is read, and damage is noticed.

A save writes a new file, reads it back, and only then lets it take the newest one's place, which becomes the previous.
So at every moment there is a whole checkpoint on disk; one that was damaged later is passed over for the previous.
"""

from __future__ import annotations

import json
import time
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regmixup.storage import save_tensors
from regmixup.training.tally import Totals

NAME = "checkpoint.safetensors"
_NEW, _PREVIOUS = "checkpoint-new.safetensors", "checkpoint-previous.safetensors"


@dataclass(frozen=True)
class Position:
    """Where in training: so many whole epochs, so many steps of the next one, and what those reported so far.

    All randomness is named by seed, purpose, epoch and step, so no generator's state needs to be kept.
    """

    epoch: int = 0
    step: int = 0
    totals: Totals = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: weights and buffers, the optimizer's state by parameter, and the position."""

    tensors: dict[str, Tensor]
    position: Position

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Bring model and optimizer into this state, in place."""
        targets = _model_tensors(model) | (_optimizer_tensors(optimizer) if optimizer is not None else {})
        for name, target in targets.items():
            if name not in self.tensors or target.shape != self.tensors[name].shape:
                raise ValueError(f"the checkpoint must hold {name} of shape {tuple(target.shape)}")
            target.copy_(self.tensors[name])


class Schedule:
    """When to save: so many minutes after the last time (or the start), and after every so many epochs."""

    def __init__(self, *, minutes: float, epochs: int | None) -> None:
        self.minutes, self.epochs = minutes, epochs
        self.last = time.monotonic()

    def after_step(self) -> bool:
        return time.monotonic() - self.last >= 60 * self.minutes

    def after_epoch(self, epoch: int) -> bool:
        return self.epochs is not None and epoch % self.epochs == 0

    def saved(self) -> None:
        self.last = time.monotonic()


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors that training goes on from, on the CPU."""
    return {name: value.detach().cpu().contiguous() for name, value in live_state(model, optimizer).items()}


def live_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The same tensors, where they are."""
    return _model_tensors(model) | _optimizer_tensors(optimizer)


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], position: Position, *, fingerprint: str) -> None:
    """Write a checkpoint into a run's folder; the one before is kept as the previous one."""
    new, newest = folder / _NEW, folder / NAME
    write_state(new, tensors, position, fingerprint=fingerprint)
    read_checkpoint(new, fingerprint=fingerprint)
    if newest.exists():
        newest.replace(folder / _PREVIOUS)
    new.replace(newest)


def write_state(path: Path, tensors: dict[str, Tensor], position: Position, *, fingerprint: str) -> None:
    """Write one file with the state of training, atomically."""
    where = {"epoch": position.epoch, "step": position.step, "totals": position.totals, "seconds": position.seconds}
    metadata = {"position": json.dumps(where), "fingerprint": fingerprint, "checksum": _checksum(tensors)}
    save_tensors(path, tensors, metadata)


def read_checkpoint(path: Path, *, fingerprint: str) -> Checkpoint:
    """Read a checkpoint; ValueError if it is damaged or of another configuration."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        if metadata.get("fingerprint") != fingerprint:
            raise ValueError(f"it belongs to configuration {metadata.get('fingerprint')}, expected {fingerprint}")
        if metadata.get("checksum") != _checksum(tensors):
            raise ValueError("its content has changed since it was written")
        where = json.loads(metadata["position"])
        totals = {name: (float(total), float(count)) for name, (total, count) in where["totals"].items()}
        return Checkpoint(tensors, Position(where["epoch"], where["step"], totals, where["seconds"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"cannot use checkpoint {path}: {error}. Delete it to train this run again from the start"
        ) from error


def newest_checkpoint(folder: Path, *, fingerprint: str) -> Checkpoint | None:
    """The newest whole checkpoint of a run, with a warning about damaged ones; None if there never was one."""
    damaged: ValueError | None = None
    # Between its two renamings a save leaves the newest one under the name it was written with.
    for name in (NAME, _NEW, _PREVIOUS):
        if (folder / name).exists():
            try:
                return read_checkpoint(folder / name, fingerprint=fingerprint)
            except ValueError as error:
                damaged = damaged or error
                warnings.warn(f"{str(error).partition('. Delete')[0]}; trying an earlier one", stacklevel=2)
    if damaged is not None:
        raise damaged
    return None


def forget_previous(folder: Path) -> None:
    """Remove all checkpoints but the newest, once training has ended."""
    for name in (_NEW, _PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def _model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": value for name, value in model.state_dict().items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        f"optimizer.{index}.{name}": value
        for index, parameter in enumerate(parameters)
        for name, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }


def _checksum(tensors: dict[str, Tensor]) -> str:
    """CRC-32 of names, types, shapes and bytes."""
    value = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        value = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"
