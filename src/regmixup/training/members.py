"""Deep ensembles: members are runs like any other, beside the ensemble's own folder, and may serve other studies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Protocol

from regmixup.storage import write_json
from regmixup.training.config import TrainConfig
from regmixup.training.run import Run

EpochRecord = dict[str, Any]


class TrainOne(Protocol):
    """`train`, with everything given but the configuration and what is told after every epoch."""

    def __call__(self, config: TrainConfig, *, on_epoch: Callable[[EpochRecord], None] | None) -> Run: ...


def train_members(
    run: Run, train_one: TrainOne, on_epoch: Callable[[EpochRecord], None] | None, *, writes: bool
) -> None:
    """Train every member, then record the ensemble. writes: whether this process is the one that writes files."""
    epochs = run.config.epochs

    def numbered(member: int) -> Callable[[EpochRecord], None] | None:
        return on_epoch and (lambda record: on_epoch({**record, "epoch": member * epochs + record["epoch"]}))

    members = [train_one(member.config, on_epoch=numbered(index)) for index, member in enumerate(run.members())]
    if not writes:
        return
    histories = [member.history() for member in members]
    run.write_history([_mean_record(records) for records in zip(*histories, strict=True)])
    seconds = sum(record["seconds"] for history in histories for record in history)
    own = {"fingerprint": run.fingerprint, "seed": run.config.seed, "seconds": round(seconds, 3)}
    names = [member.folder.name for member in members]
    write_json(run.folder / "provenance.json", {**members[0].provenance(), **own, "members": names})


def _mean_record(records: Sequence[EpochRecord]) -> EpochRecord:
    """What several models reported for one epoch: the mean of each value over those that have it."""
    names = dict.fromkeys(name for record in records for name in record if name != "epoch")
    means = {name: fmean(record[name] for record in records if name in record) for name in names}
    return {"epoch": records[0]["epoch"], **means}
