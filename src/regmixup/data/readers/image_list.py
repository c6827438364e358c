"""Some images of a dataset, by a list that the user has, such as the lists of OpenOOD v1.5 (Zhang et al., 2023).

A line holds the number n of a file `val_n.JPEG` of Tiny-ImageNet, which is the image's place in the official order; or
a class and the number of the image within the class, counted from 1. That these numbers follow the official order
within each class is assumed. It has not been checked.

Lists of validation images choose settings. So an image on one is left out of every test list: 493 images of OpenOOD's
`cifar10_val_tin` are also on its `cifar100_test_tin`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from regmixup.data.files import explaining_damage
from regmixup.data.images import ImageSet
from regmixup.data.records import ImageList


def listed_indices(whole: ImageSet, listed: ImageList, root: Path) -> Tensor:
    """Return the places in the whole dataset of the images on a list, without those on other lists; sorted."""
    chosen = _read_places(whole, root / listed.file)
    for file in listed.without:
        chosen -= _read_places(whole, root / file)
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def _read_places(whole: ImageSet, path: Path) -> set[int]:
    """Return the places in a dataset of the images on a list."""
    label_of = {name: label for label, name in enumerate(whole.classes)}
    members = [(whole.labels == label).nonzero().flatten().tolist() for label in label_of.values()]
    places = set()
    with explaining_damage(path, "a list of images"):
        for line in path.read_text(encoding="utf-8").splitlines():
            *name, number = line.split()
            place = int(number)
            if name:
                place = members[label_of[name[0]]][place - 1]
            if not 0 <= place < len(whole) or (name and int(number) < 1):
                raise ValueError(f"numbers must be of images of {whole.name}, got the line {line!r}")
            places.add(place)
    return places
