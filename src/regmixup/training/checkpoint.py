"""Checkpoints: the state of training as one safetensors file. Reading executes nothing and detects damage."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regmixup.run_folder import CHECKPOINT
from regmixup.storage import load_tensors, save_tensors

Totals = dict[tuple[str, ...], list[float]]
"""For names that are reported together the sum of each over images so far and, last, the number of these images."""

MODELS = ("best.", "swa.", "ema.", "model.")
"""The prefixes of what a checkpoint may hold of a model; the first that it has is the run's model."""
PREFIXES = (*MODELS, "optimizer.", "sharpness.")
"""The prefixes of all its tensors."""
COUNTERS = ("updates", "epochs", "selected_epoch", "selected_value")
"""The names of the counters of weight copies (`weight_copies.WeightCopy`), which are no tensors of the model."""


@dataclass(frozen=True)
class Position:
    """A position in training: finished epochs, steps taken of the next one, and what those reported so far."""

    epoch: int = 0
    step: int = 0
    totals: Totals = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file.

    tensors: weights and buffers, their running mean and those of the selected epoch if there are such, and the
    optimizer's state by parameter. data: fingerprint of the train set, and of the validation set if there is one.
    """

    tensors: dict[str, Tensor]
    position: Position
    data: str

    def restore_model(self, model: nn.Module) -> None:
        """Give a model the trained weights, in place: the selected ones or their running mean, if there are such."""
        prefix = next(first for first in MODELS if any(name.startswith(first) for name in self.tensors))
        self.copy_to({prefix + name: tensor for name, tensor in model.state_dict().items()})

    def copy_to(self, targets: dict[str, Tensor]) -> None:
        """Restore tensors, such as those of `Training.state`, in place."""
        for name, target in targets.items():
            if name not in self.tensors and name.endswith(".num_batches_tracked"):
                continue  # training counts batches only where a layer reads the count, see `drop_counters`
            if name not in self.tensors or target.shape != self.tensors[name].shape:
                raise ValueError(f"the checkpoint must hold {name} of shape {tuple(target.shape)}")
            target.copy_(self.tensors[name])


class SaveSchedule:
    """Decide when to save: `minutes` after the last save (or the start), and at the end of some epochs.

    These are the epochs where saving takes less than a hundredth of the time since the last save. So small models lose
    next to nothing when they are killed, and large ones lose no time to saving.
    """

    def __init__(self, *, minutes: float) -> None:
        self.minutes = minutes
        self.last, self.cost = time.monotonic(), 0.0

    def due_after_step(self) -> bool:
        return time.monotonic() - self.last >= 60 * self.minutes

    def due_after_epoch(self) -> bool:
        return self.due_after_step() or time.monotonic() - self.last >= 100 * self.cost

    def saved(self, begun: float) -> None:
        """Note that a save has ended. begun: when it began, by the monotonic clock."""
        self.last = time.monotonic()
        self.cost = self.last - begun


def save_checkpoint(folder: Path, content: Checkpoint, *, fingerprint: str) -> None:
    """Write a checkpoint into a run's folder. fingerprint: of the configuration."""
    position = asdict(content.position) | {"totals": list(content.position.totals.items())}
    metadata = {"position": json.dumps(position), "fingerprint": fingerprint, "data": content.data}
    save_tensors(folder / CHECKPOINT, content.tensors, metadata)


def read_checkpoint(path: Path, *, fingerprint: str, whole: bool = True) -> Checkpoint:
    """Read a checkpoint; ValueError if it is damaged or of another configuration, OSError if it cannot be read now.

    whole: False leaves its tensors out; then a damaged header and a truncated file are detected, and no other damage.
    """
    try:
        path.open("rb").close()  # as `safe_open` calls every file missing that it cannot open
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("fingerprint") != fingerprint:
            raise ValueError(f"it belongs to configuration {metadata.get('fingerprint')}, expected {fingerprint}")
        stored = json.loads(metadata["position"])
        totals = {tuple(names): sums for names, sums in stored["totals"]}
        position = Position(stored["epoch"], stored["step"], totals, stored["seconds"])
        tensors = load_tensors(path)[0] if whole else {}
        return Checkpoint(tensors, position, metadata["data"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        problem = f"it is damaged, as it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"cannot use checkpoint {path}: {problem}. Delete it to train this run again from the start"
        ) from error
