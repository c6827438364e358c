"""Forward clean images and changed ones: together, or apart."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.networks.layers import batch_norms
from regmixup.networks.outputs import logits_of

Passes = Literal["joint", "separate", "separate-clean"]


def forward_both(model: nn.Module, clean: Tensor, changed: Tensor, passes: Passes) -> tuple[Tensor, Tensor]:
    """Return the logits of clean images and of changed ones.

    passes: joint: in one forward pass, so batch norm normalises both by statistics of both; separate: in two, each
    normalised by its own; separate-clean: in two, of which only the clean one moves the running statistics, so that
    predictions are normalised as clean images were. Without batch norm all three are the same.

    separate-clean does not work with activation checkpointing, which forwards the changed images again in the backward
    pass: either the statistics move then, or torch finds that the two passes differ and raises CheckpointError.
    """
    if passes == "joint":
        logits, changed_logits = logits_of(model, torch.cat([clean, changed])).split([len(clean), len(changed)])
        return logits, changed_logits
    if passes == "separate-clean" and not hasattr(model, "modules"):
        raise ValueError(
            f"model must be an nn.Module, whose batch norm is found, for passes='separate-clean', got {model!r}"
        )
    logits = logits_of(model, clean)
    tracking = batch_norms(model) if passes == "separate-clean" else []
    for layer in tracking:
        layer.track_running_stats = False  # in training mode it normalises by the batch all the same
    try:
        return logits, logits_of(model, changed)
    finally:
        for layer in tracking:
            layer.track_running_stats = True
