"""ImageNet-1K and the sets that test its classifiers, as files on disk.

imagenet/train          `imagenet/train/<wnid>/*.JPEG`
imagenet/val            `imagenet/val/<wnid>/*.JPEG`, or all files in `imagenet/val/` and a list of their classes:
                        `imagenet/val.txt` (lines "ILSVRC2012_val_00000001.JPEG n01751748"), Kaggle's
                        `imagenet/LOC_val_solution.csv`, or the devkit's `ILSVRC2012_validation_ground_truth.txt`
                        with its `meta.mat`, both in `imagenet/` or in `imagenet/ILSVRC2012_devkit_t12/data/`
imagenet-a, -r, -o      `imagenet-a/<wnid>/*`, 200 of the classes each; O's images belong to none of them
imagenet-v2             `imagenetv2-matched-frequency-format-val/<0..999>/*.jpeg`
imagenet-sketch         `sketch/<wnid>/*.JPEG`

Labels number the 1000 classes in the sorted order of their WordNet ids, everywhere. `imagenet/val` is in the order of
the files' names, however they are stored. A `provenance.json` with `"rebuilt": true` allows other numbers of files.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from regmixup.data.files import file_of, reading, wrong_file
from regmixup.data.folders import FolderSet, class_folders, from_class_folders, image_files
from regmixup.data.records import Dataset

WNID = re.compile(r"n\d{8}")


def load_imagenet(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet/train` or `imagenet/val`."""
    folder = root / "imagenet" / dataset.split
    classes = class_folders(folder)
    if dataset.split == "val" and not classes:
        return _flat_val(dataset.name, folder)
    if strange := [name for name in classes if not WNID.fullmatch(name)]:
        raise wrong_file(folder, "folders named by WordNet ids (n and 8 digits)", repr(strange[0]))
    files = from_class_folders(dataset.name, folder, {name: label for label, name in enumerate(classes)}, classes)
    return _by_file_name(files) if dataset.split == "val" else files


def load_variant(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet-a/test`, or of -r, -o, -v2 or -sketch."""
    folder = root / dataset.files[0]
    classes = wnids(root)
    is_numbered = dataset.family == "imagenet-v2"
    label_of = {str(label) if is_numbered else wnid: label for label, wnid in enumerate(classes)}
    folders = class_folders(folder)
    if unknown := [name for name in folders if name not in label_of]:
        named = "numbers 0 to 999" if is_numbered else "WordNet ids of the 1000 classes"
        raise wrong_file(folder, f"only folders named by {named}", repr(unknown[0]))
    labels = {name: label_of[name] for name in sorted(folders, key=lambda name: label_of[name])}
    info = {"class_subset": ",".join(map(str, labels.values()))} if dataset.num_classes == 200 else {}
    return from_class_folders(dataset.name, folder, labels, classes, info)


def wnids(root: Path) -> tuple[str, ...]:
    """Return the sorted WordNet ids of the classes, from ImageNet's folders under the root, else from timm's list."""
    for split in ("train", "val"):
        folder = root / "imagenet" / split
        names = class_folders(folder) if folder.is_dir() else ()
        if len(names) == 1000:
            return names
    return tuple(sorted(file_of("timm", "data/_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()))


def _by_file_name(files: FolderSet) -> FolderSet:
    names = [path.replace("\\", "/").rpartition("/")[2] for path in files.paths]
    return files.select(torch.tensor(sorted(range(len(names)), key=names.__getitem__)))


def _flat_val(name: str, folder: Path) -> FolderSet:
    """List the validation files where all are in one folder, with a list of their classes beside it."""
    files = image_files(folder)
    wnid_of = _val_classes(folder.parent)
    classes = tuple(sorted(set(wnid_of.values())))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    stems = [Path(file).stem for file in files]
    if unlisted := [stem for stem in stems if stem not in wnid_of]:
        raise wrong_file(folder.parent, "a class for every validation image", f"none for {unlisted[0]}")
    labels = torch.tensor([label_of[wnid_of[stem]] for stem in stems], dtype=torch.int64)
    return FolderSet(tuple(files), labels, classes, name, folder)


def _val_classes(base: Path) -> dict[str, str]:
    """Return the WordNet id of every validation image, by the file's name without its extension."""
    for path in (base / "val.txt", base / "LOC_val_solution.csv"):
        if path.is_file():
            with reading(path, "text"):
                pairs = [re.split(r"[\s,]+", line.strip())[:2] for line in path.read_text("utf-8").splitlines()]
            return {Path(p[0]).stem: p[1] for p in pairs if len(p) == 2 and WNID.fullmatch(p[1])}
    for where in (base, base / "ILSVRC2012_devkit_t12" / "data"):
        path = where / "ILSVRC2012_validation_ground_truth.txt"
        if path.is_file():
            wnid_of = _devkit_ids(where / "meta.mat")
            with reading(path, "numbers of classes"):
                numbers = map(int, path.read_text("utf-8").split())
                return {f"ILSVRC2012_val_{i:08d}": wnid_of[number] for i, number in enumerate(numbers, start=1)}
    raise ValueError(
        f"the images in {base / 'val'} are not in class folders, so their classes must be listed in {base / 'val.txt'} "
        "(lines such as 'ILSVRC2012_val_00000001.JPEG n01751748'), LOC_val_solution.csv, or "
        "ILSVRC2012_validation_ground_truth.txt with meta.mat; none of them is there"
    )


def _devkit_ids(path: Path) -> dict[int, str]:
    """Return the WordNet ids by the devkit's class numbers, which are 1-based and in an order of their own."""
    from scipy.io import loadmat

    with reading(path, "the meta.mat of the ImageNet devkit"):
        synsets = loadmat(path, simplify_cells=True)["synsets"]
        return {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
