"""CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, 2019): `CIFAR-10-C/<corruption>.npy` and `labels.npy`.

A corruption's file is uint8 (50000, 32, 32, 3): the test images at severity 1, then at severity 2, up to 5.
`labels.npy` repeats the test labels five times. Files are memory-mapped: asking for one severity reads a fifth of one.

A folder of corruptions that were generated anew has a `provenance.json` with `"rebuilt": true`. Its sets say so in
`info["rebuilt"]`, and may be smaller than the released ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regmixup.data import expected_files
from regmixup.data.arrays import open_npy, to_images, to_labels
from regmixup.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, class_names
from regmixup.data.files import is_rebuilt, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet

BLOCK = 10_000
SEVERITIES = 5


def load_cifar_c(name: str, root: Path) -> ImageSet:
    """`cifar10-c/<corruption>/<severity>` and `cifar100-c/<corruption>/<severity>`."""
    family, _, severity = name.split("/")
    path, labels_path = (root / file for file in expected_files(name))
    images, labels = open_npy(path), open_npy(labels_path)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3) or len(images) % SEVERITIES:
        raise wrong_file(
            path, f"images of type uint8 and shape ({SEVERITIES} x N, 32, 32, 3)", f"{images.dtype} {images.shape}"
        )
    block = len(images) // SEVERITIES
    if block != BLOCK and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{SEVERITIES} severities of {BLOCK} images", f"{len(images)} images")
    if labels.shape != (len(images),):
        raise wrong_file(labels_path, f"({len(images)},) integer labels", f"{labels.dtype} {labels.shape}")
    part = slice((int(severity) - 1) * block, int(severity) * block)
    classes = CIFAR10_CLASSES if family == "cifar10-c" else cifar100_classes(root)
    numbers = to_labels(labels_path, labels[part], count=block, num_classes=len(classes))
    return ImageSet(to_images(images[part]), numbers, classes, name, rebuilt_info(path.parent))


def cifar100_classes(root: Path) -> tuple[str, ...]:
    """CIFAR-100's class names: those of the copy that lies beside, or the official ones."""
    meta = root / "cifar-100-python" / "meta"
    return class_names(meta, "cifar100") if meta.is_file() else CIFAR100_CLASSES
