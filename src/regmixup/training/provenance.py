"""Where a result came from: versions, device, data, time."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import torch

import regmixup
from regmixup.config import NUMERICS_VERSION, encode, fingerprint
from regmixup.data.folders import FolderSet
from regmixup.data.images import ImageSet
from regmixup.data.transforms import EvalTransform
from regmixup.training.config import TrainConfig
from regmixup.training.engine import Engine, Execution


def provenance(
    config: TrainConfig,
    dataset: ImageSet | FolderSet,
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
        "seed": config.seed,
        "data": {dataset.name: dataset.fingerprint},
        "input": list(shape),
        "transform": None if transform is None else encode(transform),
        "classes": list(dataset.classes),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
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
