"""A loss that is not a finite number never reaches the weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regmixup.training.distributed import Ranks

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their number of bytes."""


class DivergedError(RuntimeError):
    """Training produced a loss or a gradient that is not finite."""


class Guard:
    """Closes the optimizer from the first bad step on, decided on the device, so that nothing waits for it.

    A step is bad if its loss or the norm of its gradient is infinite or NaN. A fused optimizer leaves weights and
    momentum alone while its `found_inf` is 1; that gate stays closed, so they are those from before the bad step
    whenever the loop gets to look. The forward pass has changed the buffers by then (batch-norm statistics, centroids),
    with values that may be NaN; so the guard keeps a copy from before each step, which stops at the same gate.
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
        self.buffers = list(buffers)
        self.kept = [buffer.clone() for buffer in self.buffers]
        self._bits: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for buffer, kept in zip(self.buffers, self.kept, strict=True):
            dtype = _INTEGERS[buffer.element_size()]
            self._bits[dtype][0].append(buffer.view(dtype))
            self._bits[dtype][1].append(kept.view(dtype))
        self.closed = torch.zeros((), device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        optimizer.found_inf = self.closed  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]

    def remember(self) -> None:
        """Before a step: keep the buffers as they are, unless the gate is closed.

        kept <- kept + gate (buffer - kept), with the bits read as integers: exact whatever they stand for, NaN
        included, and a few kernels for all buffers together.
        """
        for dtype, (now, before) in self._bits.items():
            change = torch._foreach_sub(now, before)
            torch._foreach_mul_(change, (1 - self.closed).to(dtype))
            torch._foreach_add_(before, change)

    def rewind(self) -> None:
        """Give the buffers the values they had before the bad step."""
        for buffer, kept in zip(self.buffers, self.kept, strict=True):
            buffer.copy_(kept)

    def watch(self, losses: Iterable[Tensor], parameters: Iterable[nn.Parameter]) -> None:
        """Look at a step's losses and gradients, and close the gate if they are bad."""
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        bad = ~torch.isfinite(torch.stack([norm.float(), *(loss.detach().float() for loss in losses)])).all()
        flag = bad.to(self.closed.dtype)
        self.ranks.largest(flag)
        self.bad_step.copy_(torch.where((self.bad_step < 0) & (flag > 0), self.step, self.bad_step))
        self.closed.copy_(torch.maximum(self.closed, flag))
        self.step += 1

    def tensors(self) -> list[Tensor]:
        """Its state."""
        return [self.closed, self.step, self.bad_step, *self.kept]

    def found(self) -> int | None:
        """The first bad step, if there was one; waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None
