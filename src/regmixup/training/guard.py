"""Keep numbers that are not finite away from the weights, and explain a divergence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regmixup.storage import write_json
from regmixup.training.checkpoint import Checkpoint, write_checkpoint
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.optim import cut_up, flattened


class DivergedError(RuntimeError):
    """Training produced a loss, a gradient or batch-norm statistics that are not finite."""


class Guard:
    """Disable the optimizer from the first bad step on; decided on the device, so that nothing waits for it.

    A step is bad if its loss or the norm of its gradient is infinite or NaN, or if a buffer became so: an infinite
    variance divides a batch to zero, so that the loss looks sound, and never leaves batch norm's running one. A fused
    optimizer leaves weights and momentum alone while its `found_inf` is 1. It stays 1, so they are those from before
    the bad step whenever the loop reads the guard. The forward pass has changed the buffers by then (batch-norm
    statistics, centroids), with values that may be NaN; so the guard keeps a copy from before each step, which is not
    replaced after a bad one.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, device: torch.device, ranks: Ranks, *, buffers: Iterable[Tensor] = ()
    ) -> None:
        self.ranks = ranks
        self._buffers: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for buffer in buffers:
            self._buffers[buffer.dtype].append(buffer)
        self._kept = {dtype: flattened(group) for dtype, group in self._buffers.items()}
        self.closed = torch.zeros((), device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        optimizer.found_inf = self.closed  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]

    def save_buffers(self) -> None:
        """Copy the buffers before a step, unless one was bad. Takes two kernels for each of their types."""
        for dtype, group in self._buffers.items():
            kept = self._kept[dtype]
            torch.where(self.closed > 0, kept, flattened(group), out=kept)

    def restore_buffers(self) -> None:
        """Give the buffers the values they had before the bad step."""
        for dtype, group in self._buffers.items():
            for buffer, kept in zip(group, cut_up(self._kept[dtype], group), strict=True):
                buffer.copy_(kept)

    def check_step(self, losses: Iterable[Tensor], parameters: Iterable[nn.Parameter]) -> Tensor:
        """Check a step's losses, gradients and buffers, and disable the optimizer if they are bad.

        Return the norm of the gradient, for whoever clips it.
        """
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        bad = ~torch.isfinite(torch.stack([norm.float(), *(loss.detach().float() for loss in losses)])).all()
        for dtype, group in self._buffers.items():
            if dtype.is_floating_point:  # a mask may be infinite from the start
                bad |= (torch.isfinite(self._kept[dtype]) & ~torch.isfinite(flattened(group))).any()
        flag = bad.to(self.closed.dtype)
        self.ranks.largest(flag)
        self.bad_step.copy_(torch.where((self.bad_step < 0) & (flag > 0), self.step, self.bad_step))
        self.closed.copy_(torch.maximum(self.closed, flag))
        self.step += 1
        return norm

    def tensors(self) -> list[Tensor]:
        return [self.closed, self.step, self.bad_step, *self._kept.values()]

    def first_bad_step(self) -> int | None:
        """Return the first bad step, if there was one; waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None


def save_snapshot(folder: Path, content: Checkpoint, *, fingerprint: str, lr: float, images: Sequence[int]) -> str:
    """Save the state from before a bad step and what that step was; return how it went, for the error message."""
    snapshot, position = folder / "diverged.safetensors", content.position
    record = {"epoch": position.epoch + 1, "step": position.step + 1, "lr": lr, "images": list(images)}
    try:
        write_checkpoint(snapshot, content, fingerprint=fingerprint)
        write_json(folder / "diverged.json", record)
    except OSError as error:
        return f"they could not be saved ({error}), but "
    return f"{snapshot} has them as they were before that step, and "


def diverged(
    config: TrainConfig, *, epoch: int, step: int, lr: float, images: Sequence[int], saved: str
) -> DivergedError:
    """Return the error for a bad step, counted from 0, of an epoch. saved: what `save_snapshot` returned."""
    return DivergedError(
        f"the loss, its gradient or a buffer became infinite or NaN in epoch {epoch + 1}, step {step + 1} "
        f"(images {', '.join(map(str, images[:8]))}{', ...' if len(images) > 8 else ''} of {config.train_set}). It "
        f"did not reach the weights: {saved}the last checkpoint is kept. A smaller lr (now {lr:g}) or some warm-up "
        "usually helps"
    )
