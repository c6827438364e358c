"""A page of a dataset's images with their labels, to look at."""

from __future__ import annotations

from pathlib import Path

import torch

from regmixup.data.folders import FolderSet, decode
from regmixup.data.images import ImageSet
from regmixup.storage import replacing


def contact_sheet(image_set: ImageSet | FolderSet, path: str | Path, rows: int = 6, columns: int = 10) -> None:
    """Write a PNG with rows x columns images, evenly spaced over the set, each under the name of its class."""
    from matplotlib.figure import Figure

    if rows < 1 or columns < 1:
        raise ValueError(f"rows and columns must be >= 1, got {rows} and {columns}")
    count = min(rows * columns, len(image_set))
    chosen = image_set.select(torch.arange(count) * len(image_set) // count)
    shown = decode(chosen) if isinstance(chosen, FolderSet) else chosen
    figure = Figure(figsize=(1.1 * columns, 1.3 * rows + 0.4), layout="constrained")
    figure.suptitle(f"{image_set.name}: {len(image_set):,} images, {len(image_set.classes)} classes", fontsize=9)
    for number, axes in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
        axes.axis("off")
        if number < count:
            pixels = shown.images[number].permute(1, 2, 0).squeeze(-1).numpy()
            grey = {"cmap": "gray", "vmin": 0, "vmax": 255 if pixels.dtype == "uint8" else 1}
            axes.imshow(pixels, interpolation="nearest", **(grey if pixels.ndim == 2 else {}))
            axes.set_title(shown.classes[int(shown.labels[number])][:16], fontsize=7, pad=2)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
