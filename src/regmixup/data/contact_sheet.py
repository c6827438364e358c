"""A picture of a dataset's first images with their labels."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from regmixup.data.images import ImageSet
from regmixup.mixing import to_float
from regmixup.storage import replacing


def contact_sheet(dataset: ImageSet, path: str | Path, *, rows: int = 6, columns: int = 10) -> None:
    """Write a PNG of the first rows x columns images."""
    figure = Figure(figsize=(1.1 * columns, 1.25 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if index < len(dataset):
            image = to_float(dataset.images[index]).permute(1, 2, 0).numpy()
            axis.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_title(dataset.classes[int(dataset.labels[index])], fontsize=7, pad=2)
    figure.suptitle(f"{dataset.name}: first {min(rows * columns, len(dataset))} of {len(dataset)}", fontsize=9)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
