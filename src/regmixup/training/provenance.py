"""Where a result came from: versions, device, data, time."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import regmixup
from regmixup.config import NUMERICS_VERSION, encode, fingerprint
from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages
from regmixup.training.config import TrainConfig
from regmixup.training.engine import Engine, Execution


def provenance(
    config: TrainConfig,
    dataset: LabelledImages,
    shape: tuple[int, int, int],
    transform: EvalTransform | None,
    engine: Engine,
    execution: Execution,
    processes: int,
    seconds: float,
) -> dict[str, Any]:
    """What a finished run records about itself; of its engine, what was asked for and what that came to."""
    device = execution.device
    return {
        "fingerprint": fingerprint(config),
        "commit": _commit(),
        "seed": config.seed,
        "data": {dataset.name: dataset.fingerprint},
        "input": list(shape),
        "transform": None if transform is None else encode(transform),
        "classes": list(dataset.classes),
        "device": device_name(device),
        "engine": encode(engine),
        "execution": str(execution),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 3),
        "versions": {
            "regmixup": regmixup.__version__,
            "numerics": NUMERICS_VERSION,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "timm", "numpy", "scipy", "scikit-learn", "safetensors")},
        },
    }


def device_name(device: torch.device) -> str:
    """Return what a device is called, which tells how fast it is."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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
