"""Tiny-ImageNet-200: `tiny-imagenet-200/`, 64x64 JPEG files of 200 classes; its validation images.

`tiny-imagenet/val` is resized to 32x32, the size at which the paper uses it against CIFAR, by torchvision's antialiased
bilinear resize, in float32, rounded half up. (The paper does not name its interpolation. torchvision on uint8 images
may differ by one grey level, depending on the processor.) `tiny-imagenet-64/val` is the images as they are. Labels
number the classes in the sorted order of their WordNet ids, as an image folder would.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from regmixup.data.decode import decode_all, open_rgb
from regmixup.data.files import explaining_damage, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.records import Dataset


def load_tiny_imagenet(dataset: Dataset, root: Path) -> ImageSet:
    """Read the images in the order of `val_annotations.txt`.

    A line has the file's name, the class, and a bounding box, separated by tabs.
    """
    wnids, annotations, folder = (root / file for file in dataset.files)
    classes = tuple(sorted(_read_lines(wnids)))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    paths, labels = [], []
    for line in _read_lines(annotations):
        file, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in label_of or not re.fullmatch(r"[\w.-]+\.JPEG", file):
            raise wrong_file(annotations, "a file's name and one of the classes, separated by a tab", f"{line!r:.80}")
        paths.append(folder / file)
        labels.append(label_of[wnid])
    if not paths:
        raise wrong_file(annotations, "images", "none")
    with explaining_damage(folder, "images of 64x64 pixels"):
        images = decode_all(paths, open_rgb).view(len(paths), 3, 64, 64)
    if dataset.family == "tiny-imagenet":
        images = torch.cat([halve(part) for part in images.split(1000)])
    return ImageSet(images, torch.tensor(labels), classes, dataset.name)


def _read_lines(path: Path) -> list[str]:
    with explaining_damage(path, "text"):
        return path.read_text(encoding="utf-8").splitlines()


def halve(images: Tensor) -> Tensor:
    """Resize uint8 (N, 3, 64, 64) to uint8 (N, 3, 32, 32)."""
    from torchvision.transforms.v2.functional import resize

    small = resize(images.float(), [32, 32], antialias=True)
    # The exact values are multiples of 1/64, 1/56 (edges) or 1/49 (corners). The margin is far less than that and far
    # more than float32's errors, so that exact halves are rounded up on every machine, and nothing else is changed.
    return (small + (0.5 + 1e-3)).floor().to(torch.uint8)
