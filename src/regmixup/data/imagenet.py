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

from regmixup.data.catalogue import Dataset
from regmixup.data.files import file_of, is_rebuilt, read_text, reading, rebuilt_info, wrong_file
from regmixup.data.folders import FolderSet, class_folders, from_class_folders, image_files
from regmixup.data.mat5 import read_records

WNID = re.compile(r"n\d{8}")


def load_imagenet(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet/train` or `imagenet/val`."""
    base, name = root / "imagenet", dataset.name
    folder = base / dataset.split
    found = class_folders(folder)
    if dataset.split == "val" and not found:
        return _check_count(_flat_val(name, base, folder), dataset, base)
    classes = _check_classes(folder, found, base, 1000)
    info = rebuilt_info(base)
    files = from_class_folders(name, folder, {c: label for label, c in enumerate(classes)}, classes, info)
    return _check_count(_by_file_name(files) if dataset.split == "val" else files, dataset, base)


def load_variant(dataset: Dataset, root: Path) -> FolderSet:
    """List the files of `imagenet-a/test`, or of -r, -o, -v2 or -sketch."""
    folder = root / dataset.files[0]
    classes = wnids(root)
    info = rebuilt_info(folder)
    if dataset.family == "imagenet-v2":
        found = class_folders(folder)
        official = set(map(str, range(1000)))
        if not official.issuperset(found) or (len(found) != 1000 and not info):
            strange = sorted(set(found) - official)[:1] or found[:1]
            raise wrong_file(folder, "folders 0 to 999", f"{len(found)} folders, among them {strange[0]!r}")
        labels = {c: int(c) for c in sorted(found, key=int)}
    else:
        own = _check_classes(folder, class_folders(folder), folder, dataset.num_classes)
        position = {wnid: index for index, wnid in enumerate(classes)}
        if unknown := [wnid for wnid in own if wnid not in position]:
            raise wrong_file(folder, f"only folders named by the {len(classes)} classes", unknown[0])
        labels = {wnid: position[wnid] for wnid in own}
    if dataset.num_classes == 200:
        info["class_subset"] = ",".join(map(str, labels.values()))
    return _check_count(from_class_folders(dataset.name, folder, labels, classes, info), dataset, folder)


def wnids(root: Path) -> tuple[str, ...]:
    """Return the sorted WordNet ids of the classes, from ImageNet's folders under the root, else from timm's list."""
    for split in ("train", "val"):
        folder = root / "imagenet" / split
        found = class_folders(folder) if folder.is_dir() else ()
        if len(found) == 1000:
            return found
    listed = file_of("timm", "data/_info/imagenet_synsets.txt")
    if not listed.is_file():
        raise ValueError(
            f"the 1000 classes are named by the folders in {root / 'imagenet' / 'train'}, which is not there"
        )
    return tuple(sorted(listed.read_text(encoding="utf-8").split()))


def _check_classes(folder: Path, found: tuple[str, ...], base: Path, count: int | None) -> tuple[str, ...]:
    strange = next((c for c in found if not WNID.fullmatch(c)), None)
    if strange is not None:
        raise wrong_file(folder, "folders named by WordNet ids (n and 8 digits)", repr(strange))
    if len(found) != count and not (found and is_rebuilt(base)):
        raise wrong_file(folder, f"{count} class folders", len(found))
    return found


def _check_count(files: FolderSet, dataset: Dataset, base: Path) -> FolderSet:
    if len(files) != dataset.images and not is_rebuilt(base):
        raise wrong_file(files.folder, f"{dataset.images} image files", len(files))
    return files


def _by_file_name(files: FolderSet) -> FolderSet:
    names = [path.replace("\\", "/").rpartition("/")[2] for path in files.paths]
    return files.select(torch.tensor(sorted(range(len(names)), key=names.__getitem__)))


def _flat_val(name: str, base: Path, folder: Path) -> FolderSet:
    """List the validation files where all are in one folder, with a list of their classes beside it."""
    files = image_files(folder)
    wnid_of = _val_classes(base, len(files))
    classes = tuple(sorted(set(wnid_of.values())))
    if len(classes) != 1000 and not is_rebuilt(base):
        raise wrong_file(base, "a list with 1000 classes", len(classes))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    stems = [Path(file).stem for file in files]
    if unlisted := next((stem for stem in stems if stem not in wnid_of), ""):
        raise wrong_file(base, "a class for every validation image", f"none for {unlisted}")
    labels = torch.tensor([label_of[wnid_of[stem]] for stem in stems], dtype=torch.int64)
    return FolderSet(tuple(files), labels, classes, name, folder, rebuilt_info(base))


def _val_classes(base: Path, count: int) -> dict[str, str]:
    """Return the WordNet id of every validation image, by the file's name without its extension."""
    for path in (base / "val.txt", base / "LOC_val_solution.csv"):
        if path.is_file():
            pairs = [re.split(r"[\s,]+", line.strip())[:2] for line in read_text(path).splitlines()]
            return {Path(p[0]).stem: p[1] for p in pairs if len(p) == 2 and WNID.fullmatch(p[1])}
    for where in (base, base / "ILSVRC2012_devkit_t12" / "data"):
        path = where / "ILSVRC2012_validation_ground_truth.txt"
        if path.is_file():
            numbers = read_text(path).split()
            wnid_of = _devkit_ids(where / "meta.mat")
            if len(numbers) != count or not set(numbers) <= wnid_of.keys():
                raise wrong_file(path, f"{count} numbers of classes, one per image", f"{len(numbers)} values")
            return {f"ILSVRC2012_val_{i:08d}": wnid_of[number] for i, number in enumerate(numbers, start=1)}
    raise ValueError(
        f"the images in {base / 'val'} are not in class folders, so their classes must be listed in {base / 'val.txt'} "
        "(lines such as 'ILSVRC2012_val_00000001.JPEG n01751748'), LOC_val_solution.csv, or "
        "ILSVRC2012_validation_ground_truth.txt with meta.mat; none of them is there"
    )


def _devkit_ids(path: Path) -> dict[str, str]:
    """Return the WordNet ids by the devkit's class numbers, which are 1-based and in an order of their own."""
    with reading(path, "the meta.mat of the ImageNet devkit"):
        records = read_records(path, "synsets", limit=1 << 24)
        pairs = {str(int(record["ILSVRC2012_ID"].item())): record["WNID"] for record in records}
        if not all(WNID.fullmatch(wnid) for wnid in pairs.values()):
            raise ValueError("expected WordNet ids in the field WNID")
    return pairs
