"""Deep ensembles: members are runs like any other, beside the ensemble's own folder, and may serve other studies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Protocol

from regmixup.storage import write_table
from regmixup.training.config import TrainConfig
from regmixup.training.loggers import Logger, Loggers, MemberLogger
from regmixup.training.run import Run

Record = dict[str, Any]
StepRecord = Record
EpochRecord = Record
Told = Callable[[Record], None]


class TrainOne(Protocol):
    """`train`, with everything given but the configuration and who is told how it goes."""

    def __call__(
        self, config: TrainConfig, *, loggers: Sequence[Logger], on_step: Told | None, on_epoch: Told | None
    ) -> Run: ...


def train_members(
    run: Run, train_one: TrainOne, loggers: Loggers, on_step: Told | None, on_epoch: Told | None, *, writes: bool
) -> None:
    """Train every member, then record the ensemble. writes: whether this process is the one that writes files.

    Who is told how it goes sees one training after the other as one long one.
    """
    epochs = run.config.total_epochs

    def numbered(told: Told | None, member: int) -> Told | None:
        return told and (lambda record: told({**record, "epoch": member * epochs + record["epoch"]}))

    members = [
        train_one(
            member.config,
            loggers=[MemberLogger(loggers, index)] if loggers else [],
            on_step=numbered(on_step, index),
            on_epoch=numbered(on_epoch, index),
        )
        for index, member in enumerate(run.members())
    ]
    if not writes:
        return
    run.forget_predictions()
    records = [record for member in members for record in member.history()]  # of which some may have been lost
    epochs_known = sorted({record["epoch"] for record in records})
    run.write_history([_mean_record([r for r in records if r["epoch"] == epoch]) for epoch in epochs_known])
    seconds = sum(record["seconds"] for record in records)
    own = {"fingerprint": run.fingerprint, "seed": run.config.seed, "seconds": round(seconds, 3)}
    names = [member.folder.name for member in members]
    write_table(run.folder / "provenance.json", {**members[0].provenance(), **own, "members": names})


def _mean_record(records: Sequence[EpochRecord]) -> EpochRecord:
    """What several models reported for one epoch: the mean of each value over those that have it."""
    names = dict.fromkeys(name for record in records for name in record if name != "epoch")
    means = {name: fmean(record[name] for record in records if name in record) for name in names}
    return {"epoch": records[0]["epoch"], **means}
