"""Detect numbers that are not finite on the device, and explain a divergence."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regmixup.training.batch_norm import flattened
from regmixup.training.distributed import Ranks


class DivergedError(RuntimeError):
    """Training produced a loss, a gradient or batch-norm statistics that are not finite."""


class Guard:
    """Remember the first bad step of an epoch on the device, so that no step waits for it.

    A step is bad if its loss or the norm of its gradient is infinite or NaN, or if a buffer became so: an infinite
    variance divides a batch to zero, so that the loss looks sound, and never leaves batch norm's running one. Training
    goes on until the loop reads the guard, which it does before it saves anything.
    """

    def __init__(self, device: torch.device, ranks: Ranks, *, buffers: Iterable[Tensor] = ()) -> None:
        self.ranks = ranks
        self._buffers = [buffer for buffer in buffers if buffer.is_floating_point()]
        if self._buffers:  # a mask may have infinite numbers from the start
            self._unbounded = ~torch.isfinite(flattened(self._buffers))
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)

    def check_step(self, losses: Iterable[Tensor], parameters: Iterable[nn.Parameter]) -> Tensor:
        """Check a step's losses, gradients and buffers; return the norm of the gradient, for whoever clips it."""
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        sound = torch.isfinite(torch.stack([norm.float(), *(loss.detach().float() for loss in losses)])).all()
        if self._buffers:
            sound &= (torch.isfinite(flattened(self._buffers)) | self._unbounded).all()
        bad = (~sound).float()
        self.ranks.largest(bad)
        self.bad_step.copy_(torch.where((self.bad_step < 0) & (bad > 0), self.step, self.bad_step))
        self.step += 1
        return norm

    def first_bad_step(self) -> int | None:
        """Return the first bad step, if there was one; waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None
