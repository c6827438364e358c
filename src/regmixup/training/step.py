"""Model and objective as one module, from a part of a batch to its loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regmixup.data.loader import Loader
from regmixup.mixing import Draw
from regmixup.networks.batch_norm import compile_options
from regmixup.networks.contract import Classifier
from regmixup.precision import autocast
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.tally import precise


@dataclass(frozen=True)
class Part:
    """What one forward and backward pass needs.

    picked: which images, see `Loader.picks`. draw: the objective's randomness. count: how many images; may be 0.
    seed: of the rest, dropout; None leaves the generator as it is.
    """

    picked: Any
    draw: Draw
    count: int
    seed: int | None


class Outcome(NamedTuple):
    """The mean loss over a part, and what is reported of it: sums over its images, one for each name."""

    loss: Tensor
    names: tuple[str, ...]
    sums: Tensor


class Step(nn.Module):
    """From a `Part` to a loss: what is compiled, and what DDP wraps.

    compiled: the numbers of images for which there is a compiled version; another number, as in the last, partial
    batch of an epoch, is not worth compiling for.
    """

    def __init__(
        self, model: Classifier, config: TrainConfig, loader: Loader, *, compiled: Collection[int] = ()
    ) -> None:
        super().__init__()
        self.model, self.config, self.loader, self.compiled = model, config, loader, frozenset(compiled)
        self._compiled = self.outcome
        if compiled:
            # Partitions are for torch's own CUDA graphs: without, compiling is a twentieth shorter.
            options = {"graph_partition": False, **compile_options(model)}
            self._compiled = torch.compile(self.outcome, fullgraph=True, dynamic=False, options=options)

    def forward(self, part: Part) -> Outcome:
        if part.count == 0:  # a last batch of fewer images than ranks: only take part in the exchange of gradients
            nothing = torch.stack([(0 * parameter).sum() for parameter in self.model.parameters()]).sum()
            return Outcome(nothing, (), nothing.detach())
        outcome = self._compiled if part.count in self.compiled else self.outcome
        return outcome(part.picked, part.draw)

    def outcome(self, picked: Any, draw: Draw) -> Outcome:
        """A pure tensor function of the part and the weights, but for dropout."""
        batch = self.loader.load(picked)
        with autocast(self.config.precision, self.loader.device):
            out = self.config.objective(self.model, batch.x, batch.y, draw=draw)
        count = len(batch.x)
        sums = {"loss": out.loss.detach() * count, **{name: value * count for name, value in out.parts.items()}}
        if out.logits is not None:
            sums["train_accuracy"] = (out.logits.detach().argmax(dim=1) == batch.y).sum()
        dtype = precise(batch.x.device)
        return Outcome(out.loss, tuple(sums), torch.stack([value.to(dtype) for value in sums.values()]))

    def after(self, parts: Sequence[Part], ranks: Ranks, *, total: int) -> None:
        """Show the clean images of all ranks' parts, `total`, to a head that learns from them beside the gradient."""
        if not self.model.wants_step():
            return
        batches = [self.loader.load(part.picked) for part in parts]
        x, y = torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
        with autocast(self.config.precision, self.loader.device):
            self.model.after_step(ranks.rows(x, total=total), ranks.rows(y, total=total))
