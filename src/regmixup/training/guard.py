"""Numbers that are not finite never reach the weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regmixup.training.distributed import Ranks


class DivergedError(RuntimeError):
    """Training produced a loss, a gradient or batch-norm statistics that are not finite."""


class Guard:
    """Closes the optimizer from the first bad step on, decided on the device, so that nothing waits for it.

    A step is bad if its loss or the norm of its gradient is infinite or NaN, or if a buffer became so: an infinite
    variance divides a batch to zero, so that the loss looks sound, and never leaves batch norm's running one. A fused
    optimizer leaves weights and momentum alone while its `found_inf` is 1; that gate stays closed, so they are those
    from before the bad step whenever the loop gets to look. The forward pass has changed the buffers by then
    (batch-norm statistics, centroids), with values that may be NaN; so the guard keeps a copy from before each step,
    which stops at the same gate.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        ranks: Ranks,
        *,
        buffers: Iterable[Tensor] = (),
    ) -> None:
        self.ranks = ranks
        self._buffers: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for buffer in buffers:
            self._buffers[buffer.dtype].append(buffer)
        self._kept = {dtype: _joined(group) for dtype, group in self._buffers.items()}
        self.closed = torch.zeros((), device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        optimizer.found_inf = self.closed  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]

    def remember(self) -> None:
        """Before a step: keep the buffers as they are, unless the gate is closed. Two kernels for each type of them."""
        for dtype, group in self._buffers.items():
            kept = self._kept[dtype]
            torch.where(self.closed > 0, kept, _joined(group), out=kept)

    def rewind(self) -> None:
        """Give the buffers the values they had before the bad step."""
        for dtype, group in self._buffers.items():
            values = self._kept[dtype].split([buffer.numel() for buffer in group])
            for buffer, value in zip(group, values, strict=True):
                buffer.copy_(value.view_as(buffer))

    def watch(self, losses: Iterable[Tensor], parameters: Iterable[nn.Parameter]) -> None:
        """Look at a step's losses, gradients and buffers, and close the gate if they are bad."""
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        bad = ~torch.isfinite(torch.stack([norm.float(), *(loss.detach().float() for loss in losses)])).all()
        for dtype, group in self._buffers.items():
            if dtype.is_floating_point:  # a mask may be infinite from the start
                bad |= (torch.isfinite(self._kept[dtype]) & ~torch.isfinite(_joined(group))).any()
        flag = bad.to(self.closed.dtype)
        self.ranks.largest(flag)
        self.bad_step.copy_(torch.where((self.bad_step < 0) & (flag > 0), self.step, self.bad_step))
        self.closed.copy_(torch.maximum(self.closed, flag))
        self.step += 1

    def tensors(self) -> list[Tensor]:
        """Its state."""
        return [self.closed, self.step, self.bad_step, *self._kept.values()]

    def found(self) -> int | None:
        """The first bad step, if there was one; waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None


def _joined(buffers: list[Tensor]) -> Tensor:
    """All values in one row."""
    return torch.cat([buffer.flatten() for buffer in buffers])
