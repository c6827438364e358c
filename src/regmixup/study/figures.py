"""The data of a run's figures, from its predictions and, where they are here, the images themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup import data
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.files import data_root
from regmixup.data.images import LabelledImages, pair_ends
from regmixup.evaluation.curves import SIDE, GetImages, model_figures, path_curves, thumbnail
from regmixup.training.loading import make_decoder
from regmixup.types import Predictions

PAIRS = 8
"""Paths between two images that a reader can explore: the first of those behind the profile."""


def figure_data(
    versions: Mapping[str, Predictions],
    ood: Sequence[Predictions],
    *,
    profile: Predictions | None = None,
    classes: Sequence[str],
    root: str | Path | None = None,
) -> dict[str, Any]:
    """Return the data of a run's figures.

    versions: as `model_figures` takes them. profile: predictions of a `path:` set. classes: those that number the
    labels; a test folder may lack some of them. root: where the images lie.

    The result has what `model_figures` returns and, with a profile, "path", as `path_curves` makes it, and "images",
    the two ends of its first paths with their classes. Scores of features have rows and no curves: to fit and compute
    them a second time would double the time of an evaluation.
    """
    images_of, _ = find_images([predicted.dataset for predicted in (versions["none"], *ood)], root)
    drawn = model_figures(versions, ood, images_of=images_of, classes=classes)
    if profile is not None:
        drawn["path"] = path_curves(profile, pairs=PAIRS)
        drawn["images"] = _path_ends(profile.dataset.removeprefix("path:"), root)
    return drawn


def find_images(
    names: Sequence[str], root: str | Path | None, *, side: int = SIDE
) -> tuple[dict[str, GetImages], tuple[str, ...]]:
    """Return how to get at the images of some sets, and the classes of the first; without sets that are not here.

    Predictions may have come from another machine than the data. side: in pixels, of images that are files.
    """
    sources: dict[str, LabelledImages] = {}
    for name in names:
        with suppress(OSError, ValueError):
            load = data.load if find(name).may_change else _load_once
            sources[name] = load(name, root=data_root(root))
    classes = sources[names[0]].classes if names and names[0] in sources else ()
    return {name: partial(_thumbnails, source, side) for name, source in sources.items()}, classes


@lru_cache(maxsize=8)
def _load_once(name: str, root: Path) -> LabelledImages:
    """Load a set whose content is fixed: all runs of a study show images of the same sets."""
    return data.load(name, root=root)


def _thumbnails(source: LabelledImages, side: int, places: Sequence[int]) -> list[Tensor]:
    """Return some images of a set, files upright and at the size of a thumbnail."""
    decode = make_decoder(EvalTransform(size=side, resize=side, orient=True), (side, side))
    selected = source.select(torch.tensor(places, dtype=torch.int64))
    return [image for part in selected.parts(decode) for image in part.images]


def _path_ends(dataset: str, root: str | Path | None) -> list[dict[str, Any]]:
    """Return both ends of the first paths, lambda = 1 first: PNG in base64, and the names of their classes."""
    source = data.load(dataset, root=root)
    ends = [index[:PAIRS].tolist() for index in pair_ends(source)]
    return [
        {
            "classes": [source.classes[int(source.labels[index])] for index in pair],
            "png": [thumbnail(source.images[index]).partition(",")[2] for index in pair],
        }
        for pair in zip(*ends, strict=True)
    ]
