"""The files of a run folder: their names, who writes them, and how to read and write them. Imports no torch.

    file                             what it holds, and the function that writes it
    config.json                      the configuration: training.run.Run.owned
    history.jsonl                    one line per finished epoch: write_history, called by training.loop and .train
    checkpoint.safetensors           weights, optimizer state, position: training.checkpoint.save_checkpoint
    provenance.json                  versions, device, data, seconds; training has ended: write_provenance
    events.out.tfevents.*            curves, where asked for: training.train.draw_curves
    predictions/*.safetensors        one file per dataset: predictions.predict.store_predictions
    predictions-refreshed*/          the same with refreshed batch-norm statistics: the same
    rows-STEM.csv, .json             what an evaluation measured, and its checksum: study.evaluate_run.evaluate_run
    figures-STEM.json                the data of its figures: the same
    outcomes-STEM.npz                right or wrong, and scores, of every image: study.archive.write_outcomes
    failure.txt                      the error of a failed attempt: write_failure, called by study.tasks, .launchers
    finetune.json                    what `regmixup finetune` did and chose: deployment.finish
    predictor/                       the predictor that it fitted: deployment.predictor.Predictor.save
    report.html                      its page: deployment.finish
    earlier-N/                       the last three of an earlier call with another score or threshold: the same
    .lock, .owner                    who works in the folder now: storage.owning
    .partial-*                       unfinished files, which a kill leaves behind: storage.replacing

`training.run.Run.finished` says when a run is finished. study/archive.py describes the folder of an archived run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from regmixup import storage
from regmixup.names import percent, shortened, warn_user
from regmixup.types import RESERVED, VALIDATED

CONFIG = "config.json"
HISTORY = "history.jsonl"
CHECKPOINT = "checkpoint.safetensors"
PROVENANCE = "provenance.json"
FAILURE = "failure.txt"
ARCHIVED = "archive.json"
FINETUNED = "finetune.json"
FITTED = "predictor"
"""The folder of the predictor that `finetune` fits, beside its record."""
PAGE = "report.html"
PUBLISHED = "model.safetensors"
"""The weights in a folder that `publish` has written, which has a config.json, too, and is no run folder."""


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration as plain values; `Run.open` decodes it into a TrainConfig."""
    return storage.read_table(folder / CONFIG)


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read what a finished run recorded about itself: versions, device, data, input shape, classes."""
    return storage.read_table(folder / PROVENANCE)


def write_provenance(folder: Path, record: dict[str, Any]) -> None:
    storage.write_table(folder / PROVENANCE, record)


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Read one record per finished epoch; none if the file is missing. A damaged line is left out, with a warning."""
    path = folder / HISTORY
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    records, damaged = [], []
    for number, line in enumerate(lines, start=1):
        record: Any = None
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
        if _is_record(record):
            records.append(record)
        else:
            damaged.append(str(number))
    if damaged:
        noun = "line" if len(damaged) == 1 else "lines"
        which = f"{noun} {shortened(damaged, 10)} of {len(lines)}"
        warn_user(f"{path} is damaged in {which}: these epochs have no record")
    return records


def _is_record(record: Any) -> bool:
    """Return whether a line of a history holds what training has written: numbers by name, and which epoch's."""
    if not isinstance(record, dict) or not isinstance(record.get("epoch"), int):
        return False
    return all(isinstance(number, int | float) for number in record.values())


def write_history(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    storage.write_text(folder / HISTORY, "".join(json.dumps(record) + "\n" for record in records))


def describe_last(history: list[dict[str, Any]]) -> str:
    """Return the numbers of the last record in a line.

    >>> describe_last([{"epoch": 3, "loss": 0.5, "clean": 0.25, "mixed": 0.75, "train_accuracy": 0.98, "seconds": 1.0}])
    'loss 0.500, clean 0.250, mixed 0.750, train accuracy 98.0 %'
    >>> describe_last([{"epoch": 1, "loss": 0.5, "val_nll": 0.25, "seconds": 1.0}])
    'loss 0.500, val_nll 0.250'
    """
    if not history:
        return "finished, without a history"
    record = history[-1]
    hidden = set(RESERVED) - {"loss", *VALIDATED}
    parts = [f"{name} {value:.3f}" for name, value in record.items() if name not in hidden]
    if "train_accuracy" in record:
        parts.append(f"train accuracy {percent(record['train_accuracy'])}")
    if speed := record.get("images_per_second"):
        parts.append(f"{speed:,.0f} images/s" if speed >= 10 else f"{speed:.1f} images/s")
    return ", ".join(parts)


def rows_path(folder: Path, stem: str) -> Path:
    return folder / f"rows-{stem}.csv"


def figures_path(folder: Path, stem: str) -> Path:
    return folder / f"figures-{stem}.json"


def read_figures(folder: Path, stem: str) -> dict[str, Any]:
    """Read the figure data of an evaluation; empty if none were stored."""
    return _read_or_empty(figures_path(folder, stem))


def read_archived(folder: Path) -> dict[str, Any]:
    """Read what an archive holds; empty for every other folder."""
    return _read_or_empty(folder / ARCHIVED)


def _read_or_empty(path: Path) -> dict[str, Any]:
    try:
        return storage.read_table(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def check_archive(folder: Path) -> None:
    """Raise ValueError unless every file of an archive is there and has the content that it was archived with.

    OSError if one cannot be read now.
    """
    remedy = f"take the folder {folder} from where it was copied from again, or delete it to run it again"
    try:
        files = read_archived(folder).get("files", {})
    except ValueError as error:
        raise ValueError(f"{error}: {remedy}") from error
    for name, checksum in files.items():
        path = folder / name
        if not path.is_file() or storage.digest(path) != checksum:
            raise ValueError(f"{path} has changed since it was archived, or is missing: {remedy}")


def read_finetuned(folder: Path) -> dict[str, Any]:
    """Read what `regmixup finetune` has recorded of the model that it chose; empty for every other run."""
    return _read_or_empty(folder / FINETUNED)


def predictions_folder(folder: Path, batch_norm: str = "trained") -> Path:
    """Return the folder of the predictions made with these batch-norm statistics."""
    return folder / ("predictions" if batch_norm == "trained" else f"predictions-{batch_norm}")


def delete_predictions(folder: Path) -> None:
    """Delete all stored predictions, because the weights have changed. Links are not followed."""
    for inside in folder.glob("predictions*"):
        if inside.is_dir() and not inside.is_symlink():
            for path in inside.glob("*.safetensors"):
                path.unlink()
            storage.sync_folder(inside)


def write_failure(folder: Path, text: str) -> None:
    """Leave the error of a failed attempt; do nothing if the folder cannot be written to."""
    with suppress(OSError):
        storage.write_text(folder / FAILURE, text)
