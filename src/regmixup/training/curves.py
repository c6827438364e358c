"""What the loggers of a run are told, and when."""

from __future__ import annotations

from collections.abc import Mapping

from regmixup.recipes import Recipe
from regmixup.training.checkpoint import Position
from regmixup.training.loggers import Loggers
from regmixup.training.tally import Totals, between, means


class Curves:
    """Numbers over steps, counted from the beginning of training.

    `step/...` at every look: means over the steps since the last one, the learning rate, the speed. `epoch/...` after
    every epoch: its record. A logger that knows these steps of an earlier, killed run is told where training goes on.
    """

    def __init__(self, loggers: Loggers, recipe: Recipe, *, steps: int, at: Position) -> None:
        self.loggers, self.recipe, self.steps = loggers, recipe, steps
        self._seen = at.totals
        loggers.start(at.epoch * steps + at.step, recipe.total_epochs * steps)

    def look(self, epoch: int, step: int, totals: Totals, pace: Mapping[str, float]) -> None:
        """After `step` steps of an epoch, which have reported `totals`."""
        lr = self.recipe.lr_at(epoch + (step - 1) / self.steps)
        values = {**means(between(self._seen, totals)), "lr": lr, **pace}
        self._seen = totals
        self.loggers.log({f"step/{name}": value for name, value in values.items()}, epoch * self.steps + step)

    def epoch(self, record: Mapping[str, float]) -> None:
        """After an epoch."""
        self._seen = {}
        values = {f"epoch/{name}": value for name, value in record.items() if name != "epoch"}
        self.loggers.log({"epoch": record["epoch"], **values}, int(record["epoch"]) * self.steps)
