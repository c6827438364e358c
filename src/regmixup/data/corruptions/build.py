"""Write corrupted copies of a test set in the format of CIFAR-10-C."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regmixup import __version__
from regmixup.data.catalogue import BENCHMARK, SEVERITIES
from regmixup.data.corruptions import choose_constants, corrupt
from regmixup.data.corruptions.constants import nearest_constants
from regmixup.data.images import ImageSet
from regmixup.data.splits import generator_for
from regmixup.storage import owning, read_json, replacing, write_json

NUMERICS = 2  # raised whenever the same seed gives other pixels; a folder never mixes two


def build_corrupted(
    source: ImageSet,
    folder: str | Path,
    *,
    names: Iterable[str] = BENCHMARK,
    seed: int = 0,
    device: str | torch.device = "cpu",
    on_progress: Callable[[str, int], None] = lambda *_: None,
) -> Path:
    """Corrupt `source` and write it as CIFAR-10-C is stored; return the folder.

    `<corruption>.npy`: uint8 (5 N, H, W, C), the N images at severity 1, then at severity 2, and so on.
    `labels.npy`: the labels, repeated 5 times. `provenance.json`: says that this was rebuilt, from what and how; it is
    written first, so that no reader can take the folder for the released one.

    Each corruption and severity has a random stream of its own, so a file does not depend on which others are built. A
    corruption that is already complete is kept: after an interruption, call again with the same arguments. A folder
    that was built from other images, with another seed or by other code is rejected.

    device: where the work is done; the random numbers are the same on all. on_progress: called with the corruption
    and the severity that have just been finished.
    """
    names, folder = list(names), Path(folder)
    height, width = source.images.shape[-2:]
    for name in names:
        choose_constants(name, height, width)  # raises what cannot be built before anything is written
    plan = {
        "rebuilt": True,
        "source": source.name,
        "source_fingerprint": source.fingerprint,
        "images": len(source),
        "severities": list(SEVERITIES),
        "seed": seed,
        "constants": nearest_constants(height, width),
        "frost": "procedural textures, not the photographs of CIFAR-C",
        "numerics": NUMERICS,
    }
    images = source.images.to(device)
    with owning(folder):
        _record(folder / "provenance.json", plan)
        labels = source.labels.repeat(len(SEVERITIES)).numpy()
        with replacing(folder / "labels.npy") as temporary, temporary.open("wb") as file:
            np.save(file, labels.astype(np.uint8 if len(source.classes) <= 256 else np.int64))
        for name in names:
            path = folder / f"{name}.npy"
            if not path.exists():  # one that exists is complete, as it appears by a rename
                _write(path, images, name, seed, on_progress)
    return folder


def _write(path: Path, images: Tensor, name: str, seed: int, on_progress: Callable[[str, int], None]) -> None:
    """Write a corruption at all severities, of which one at a time is held in memory."""
    count, channels, height, width = images.shape
    shape = (len(SEVERITIES) * count, height, width, channels)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for severity in SEVERITIES:
            generator = generator_for(seed, "corrupt", name, severity)
            corrupted = corrupt(images, name, severity=severity, generator=generator)
            file.write(corrupted.permute(0, 2, 3, 1).contiguous().cpu().numpy().data)
            on_progress(name, severity)


def _record(path: Path, plan: dict[str, Any]) -> None:
    """Write the provenance, or check that what is there describes the same build."""
    if not path.exists():
        if any(path.parent.glob("*.npy")):
            raise ValueError(f"{path.parent} holds arrays that were not built here: choose another folder")
        write_json(path, plan | {"version": __version__})
        return
    recorded = read_json(path)
    changed = [key for key in plan if recorded.get(key) != plan[key]]
    if changed:
        differences = "; ".join(f"{key} is {recorded.get(key)!r}, not {plan[key]!r}" for key in changed)
        raise ValueError(f"{path.parent} holds another build ({differences}): choose another folder")
