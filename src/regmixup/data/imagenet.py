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
from importlib.util import find_spec
from pathlib import Path

import torch

from regmixup.data.files import is_rebuilt, read_text, reading, rebuilt_info, wrong_file
from regmixup.data.folders import FolderSet, class_folders, from_class_folders, image_files
from regmixup.data.mat5 import read_records

IMAGES = {
    "imagenet/train": 1_281_167,
    "imagenet/val": 50_000,
    "imagenet-a/test": 7_500,
    "imagenet-r/test": 30_000,
    "imagenet-o/test": 2_000,
    "imagenet-v2/test": 10_000,
    "imagenet-sketch/test": 50_889,
}
FOLDERS = {
    "imagenet-a/test": "imagenet-a",
    "imagenet-r/test": "imagenet-r",
    "imagenet-o/test": "imagenet-o",
    "imagenet-v2/test": "imagenetv2-matched-frequency-format-val",
    "imagenet-sketch/test": "sketch",
}
SUBSETS = ("imagenet-a/test", "imagenet-r/test", "imagenet-o/test")
WNID = re.compile(r"n\d{8}")


def load_imagenet(name: str, root: Path) -> FolderSet:
    """`imagenet/train`, `imagenet/val`."""
    base = root / "imagenet"
    folder = base / name.partition("/")[2]
    found = class_folders(folder)
    if name == "imagenet/val" and not found:
        return _check_count(_flat_val(name, base, folder), base)
    classes = _check_classes(folder, found, base, 1000)
    info = rebuilt_info(base)
    dataset = from_class_folders(name, folder, {c: label for label, c in enumerate(classes)}, classes, info)
    return _check_count(_by_file_name(dataset) if name == "imagenet/val" else dataset, base)


def load_variant(name: str, root: Path) -> FolderSet:
    """`imagenet-a/test`, `imagenet-r/test`, `imagenet-o/test`, `imagenet-v2/test`, `imagenet-sketch/test`."""
    folder = root / FOLDERS[name]
    classes = wnids(root)
    info = rebuilt_info(folder)
    if name == "imagenet-v2/test":
        found = class_folders(folder)
        official = set(map(str, range(1000)))
        if not official.issuperset(found) or (len(found) != 1000 and not info):
            strange = sorted(set(found) - official)[:1] or found[:1]
            raise wrong_file(folder, "folders 0 to 999", f"{len(found)} folders, among them {strange[0]!r}")
        labels = {c: int(c) for c in sorted(found, key=int)}
    else:
        own = _check_classes(folder, class_folders(folder), folder, 200 if name in SUBSETS else 1000)
        labels = dict(zip(own, indices_of(own, classes, folder), strict=True))
    if name in SUBSETS:
        info["class_subset"] = ",".join(map(str, labels.values()))
    return _check_count(from_class_folders(name, folder, labels, classes, info), folder)


def class_indices(name: str, root: Path) -> tuple[int, ...]:
    """The indices among the 1000 classes that ImageNet-A, -R or -O covers.

    They come from the set's own folder names; where the folder is absent, from the list in timm (A and R only).
    """
    if name not in SUBSETS:
        raise ValueError(f"name must be one of {', '.join(SUBSETS)}, got {name!r}")
    folder = root / FOLDERS[name]
    if folder.is_dir():
        return indices_of(_check_classes(folder, class_folders(folder), folder, 200), wnids(root), folder)
    listed = _timm_list(FOLDERS[name].replace("-", "_") + "_synsets.txt")
    if listed is None:
        raise ValueError(f"the classes of {name} are the names of the folders in {folder}, which is not there")
    return indices_of(listed, wnids(root), folder)


def indices_of(own: tuple[str, ...], classes: tuple[str, ...], folder: Path) -> tuple[int, ...]:
    """Positions of some WordNet ids among all."""
    position = {wnid: index for index, wnid in enumerate(classes)}
    for wnid in own:
        if wnid not in position:
            raise wrong_file(folder, f"only folders named by the {len(classes)} classes", wnid)
    return tuple(position[wnid] for wnid in own)


def wnids(root: Path) -> tuple[str, ...]:
    """The WordNet ids of the classes, sorted: from the folders of ImageNet under the root, else from timm's list."""
    for split in ("train", "val"):
        folder = root / "imagenet" / split
        found = class_folders(folder) if folder.is_dir() else ()
        if len(found) == 1000:
            return found
    listed = _timm_list("imagenet_synsets.txt")
    if listed is None:
        raise ValueError(
            f"the 1000 classes are named by the folders in {root / 'imagenet' / 'train'}, which is not there"
        )
    return tuple(sorted(listed))


def _timm_list(file: str) -> tuple[str, ...] | None:
    """A list that timm ships, without importing timm."""
    spec = find_spec("timm")
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / "data" / "_info" / file
        if path.is_file():
            return tuple(path.read_text(encoding="utf-8").split())
    return None


def _check_classes(folder: Path, found: tuple[str, ...], base: Path, count: int) -> tuple[str, ...]:
    strange = next((c for c in found if not WNID.fullmatch(c)), None)
    if strange is not None:
        raise wrong_file(folder, "folders named by WordNet ids (n and 8 digits)", repr(strange))
    if len(found) != count and not (found and is_rebuilt(base)):
        raise wrong_file(folder, f"{count} class folders", len(found))
    return found


def _check_count(dataset: FolderSet, base: Path) -> FolderSet:
    if len(dataset) != IMAGES[dataset.name] and not is_rebuilt(base):
        raise wrong_file(dataset.folder, f"{IMAGES[dataset.name]} image files", len(dataset))
    return dataset


def _by_file_name(dataset: FolderSet) -> FolderSet:
    names = [path.replace("\\", "/").rpartition("/")[2] for path in dataset.paths]
    return dataset.select(torch.tensor(sorted(range(len(names)), key=names.__getitem__)))


def _flat_val(name: str, base: Path, folder: Path) -> FolderSet:
    """All validation files in one folder, and a list of their classes beside it."""
    files = image_files(folder)
    wnid_of = _val_classes(base, len(files))
    classes = tuple(sorted(set(wnid_of.values())))
    if len(classes) != 1000 and not is_rebuilt(base):
        raise wrong_file(base, "a list with 1000 classes", len(classes))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    labels = []
    for file in files:
        stem = Path(file).stem
        if stem not in wnid_of:
            raise wrong_file(base, "a class for every validation image", f"none for {stem}")
        labels.append(label_of[wnid_of[stem]])
    return FolderSet(tuple(files), torch.tensor(labels, dtype=torch.int64), classes, name, folder, rebuilt_info(base))


def _val_classes(base: Path, count: int) -> dict[str, str]:
    """The WordNet id of every validation image, by the file's name without its extension."""
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
    """The devkit's class numbers (1-based, in an order of their own) and their WordNet ids."""
    with reading(path, "the meta.mat of the ImageNet devkit"):
        records = read_records(path, "synsets", limit=1 << 24)
        pairs = {str(int(record["ILSVRC2012_ID"].item())): record["WNID"] for record in records}
        if not all(WNID.fullmatch(wnid) for wnid in pairs.values()):
            raise ValueError("expected WordNet ids in the field WNID")
    return pairs
