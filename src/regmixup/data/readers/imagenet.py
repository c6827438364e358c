"""ImageNet-1K and the sets that test its classifiers, as files on disk, in class folders.

imagenet/train, /val    `imagenet/train/<wnid>/*.JPEG`, `imagenet/val/<wnid>/*.JPEG`
imagenet-a, -r, -o      `imagenet-a/<wnid>/*`, 200 of the classes each; O's images belong to none of them
imagenet-v2             `imagenetv2-matched-frequency-format-val/<0..999>/*.jpeg`
imagenet-sketch         `sketch/<wnid>/*.JPEG`

Labels number the 1000 classes in the sorted order of their WordNet ids, everywhere. `imagenet/val` is in the order of
the files' names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from regmixup.data.files import wrong_file
from regmixup.data.folders import class_folders, from_class_folders
from regmixup.data.images import FolderSet
from regmixup.data.records import Dataset

SUBSETS = ("imagenet-a", "imagenet-r", "imagenet-o")
"""Those with 200 of the classes."""


def load_imagenet(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet/train` or `imagenet/val`."""
    folder = root / "imagenet" / dataset.split
    classes = class_folders(folder)
    if strange := [name for name in classes if not re.fullmatch(r"n\d{8}", name)]:
        raise wrong_file(folder, "folders named by WordNet ids (n and 8 digits)", repr(strange[0]))
    files = from_class_folders(dataset.name, folder, {name: label for label, name in enumerate(classes)}, classes)
    if dataset.split == "train":
        return files
    names = [Path(path).name for path in files.paths]
    return files.select(torch.tensor(sorted(range(len(names)), key=names.__getitem__)))


def load_variant(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet-a/test`, or of -r, -o, -v2 or -sketch."""
    from timm.data.imagenet_info import ImageNetInfo  # takes a second

    folder = root / dataset.files[0]
    classes = tuple(sorted(ImageNetInfo().label_names()))
    is_numbered = dataset.family == "imagenet-v2"
    label_of = {str(label) if is_numbered else wnid: label for label, wnid in enumerate(classes)}
    folders = class_folders(folder)
    if unknown := [name for name in folders if name not in label_of]:
        named = "numbers 0 to 999" if is_numbered else "WordNet ids of the 1000 classes"
        raise wrong_file(folder, f"only folders named by {named}", repr(unknown[0]))
    labels = {name: label_of[name] for name in sorted(folders, key=lambda name: label_of[name])}
    info = {"class_subset": ",".join(map(str, labels.values()))} if dataset.family in SUBSETS else {}
    return replace(from_class_folders(dataset.name, folder, labels, classes), info=info)
