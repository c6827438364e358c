"""The end of a run: the head's last pass over the train images, and the record of how the run was made."""

from __future__ import annotations

import os
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
from regmixup.training.parts import Parts
from regmixup.training.stopping import Interrupted, Stop

_PACKAGES = ("torch", "timm", "numpy", "scipy", "safetensors")


def finish(training: Training, stop: Stop) -> None:
    """Let the head see the train images once more, if it wants to, and record that the run has finished."""
    parts = training.parts
    finalized = finalize(parts)
    for copy in parts.copies if finalized else ():
        with copy.in_place():
            finalize(parts)
    if finalized or training.config.total_epochs == 0:
        training.save()
    if parts.ranks.first:
        record = provenance_record(training)
        forget_previous(parts.run.folder)
        write_provenance(parts.run.folder, record)
    if signal := training.stop_or_save(stop)[0]:
        raise Interrupted(signal)


def finalize(parts: Parts) -> bool:
    """Let the head see the clean train images, if it wants to; return whether it did."""
    images = clean_parts(parts.dataset, reader(parts.transform, parts.shape[1:]))
    return parts.model.finalize(x.to(parts.device) for part in images for x in part.images.split(1000))


def provenance_record(training: Training) -> dict[str, Any]:
    """Return what a finished run records about itself; of its engine, what was asked for and what was chosen."""
    parts, config = training.parts, training.config
    sets = [parts.dataset, *([parts.selection.dataset] if parts.selection is not None else [])]
    return {
        "fingerprint": parts.run.fingerprint,
        "commit": _commit(),
        "seed": config.seed,
        "data": {dataset.name: dataset.fingerprint for dataset in sets},
        "input": list(parts.shape),
        "transform": None if parts.transform is None else encode(parts.transform),
        "classes": list(parts.dataset.classes),
        "device": device_name(parts.device),
        "engine": encode(parts.engine),
        "execution": training.execution.summary,
        "processes": parts.ranks.world,
        "threads": torch.get_num_threads(),
        "seconds": round(sum(record["seconds"] for record in training.history), 3),
        **({"init": parts.initial.record()} if parts.initial is not None else {}),
        **({"selected": parts.selection.record()} if parts.selection is not None else {}),
        "versions": {
            "regmixup": regmixup.__version__,
            "numerics": NUMERICS_VERSION,
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
    }


def _commit() -> str | None:
    """Return the commit of the code that runs, from git or, for a copy without git, from REGMIXUP_COMMIT."""
    if named := os.environ.get("REGMIXUP_COMMIT"):
        return named
    here = Path(__file__)
    commit = None
    try:
        # The first makes sure that it is this package's repository, and not one that a copy happens to lie in.
        for command in (["ls-files", "--error-unmatch", here.name], ["describe", "--always", "--abbrev=40", "--dirty"]):
            git = ["git", "-C", str(here.parent), *command]
            commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit
