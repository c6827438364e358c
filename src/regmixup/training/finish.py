"""The end of a run: the head's last pass over the train images, and the record of how the run was made."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import regmixup
from regmixup.config import NUMERICS_VERSION, encode
from regmixup.run_folder import write_provenance
from regmixup.training.checkpoint import forget_previous
from regmixup.training.config import device_name
from regmixup.training.loading import clean_parts, reader
from regmixup.training.loop import Training
from regmixup.training.stopping import Interrupted, Stop

_PACKAGES = ("torch", "timm", "numpy", "scipy", "safetensors")


def finish(training: Training, stop: Stop) -> None:
    """Let the head see the train images once more, if it wants to, and record that the run has finished."""
    finalized = finalize(training)
    for copy in training.copies if finalized else ():
        with copy.in_place():
            finalize(training)
    if finalized or training.config.total_epochs == 0:
        training.save()
    if training.ranks.first:
        record = provenance_record(training)
        forget_previous(training.run.folder)
        write_provenance(training.run.folder, record)
    if signal := training.ranks.largest_of(stop.signal or 0)[0]:
        raise Interrupted(signal)


def finalize(training: Training) -> bool:
    """Let the head see the clean train images, if it wants to; return whether it did."""
    images = clean_parts(training.dataset, reader(training.transform, training.shape[1:]))
    return training.model.finalize(x.to(training.device) for part in images for x in part.images.split(1000))


def provenance_record(training: Training) -> dict[str, Any]:
    """Return what a finished run records about itself; of its engine, what was asked for and what was chosen."""
    config, selection = training.config, training.selection
    sets = [training.dataset, *([selection.dataset] if selection is not None else [])]
    return {
        "fingerprint": training.run.fingerprint,
        "commit": _commit(),
        "seed": config.seed,
        "data": {dataset.name: dataset.fingerprint for dataset in sets},
        "input": list(training.shape),
        "transform": training.transform and encode(training.transform),
        "classes": list(training.dataset.classes),
        "device": device_name(training.device),
        "engine": encode(training.engine),
        "execution": str(training.execution),
        "processes": training.ranks.world,
        "threads": torch.get_num_threads(),
        "seconds": round(sum(record["seconds"] for record in training.history), 3),
        **({"init": training.initial.record()} if training.initial is not None else {}),
        **({"selected": selection.record()} if selection is not None else {}),
        "versions": {
            "regmixup": regmixup.__version__,
            "numerics": NUMERICS_VERSION,
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
    }


def _commit() -> str | None:
    """Return the commit of the code that runs, where git knows it."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # installed; it may lie in a repository of other code
        return None
    git = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
