"""Weights and optimizer state as one safetensors file: nothing is executed when it is read."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regmixup.storage import save_tensors


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, epoch: int, fingerprint: str
) -> None:
    """Write the state after `epoch` epochs, atomically."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": v for name, v in state.items() if isinstance(v, Tensor)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_tensors(path, tensors, {"epoch": str(epoch), "fingerprint": fingerprint})


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, fingerprint: str
) -> int:
    """Restore the state in place and return the number of epochs it has seen."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        if metadata.get("fingerprint") != fingerprint:
            raise ValueError(f"it belongs to configuration {metadata.get('fingerprint')}, expected {fingerprint}")
        model.load_state_dict({n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
        if optimizer is not None:
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in tensors.items():
                kind, _, rest = name.partition(".")
                if kind == "optimizer":
                    index, _, key = rest.partition(".")
                    state.setdefault(int(index), {})[key] = tensor
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        return int(metadata["epoch"])
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"cannot use checkpoint {path}: {error}. Delete it to train this run again from the start"
        ) from error
