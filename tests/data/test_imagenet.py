"""ImageNet's layouts, its variants, and restricting a model to some of its classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from regmixup import data
from regmixup.data import imagenet
from regmixup.data.files import MissingDataError
from regmixup.data.folders import FolderSet
from regmixup.evaluation.class_subset import restrict_labels, subset_of

from .official import mark_rebuilt, smooth_image, write_image, write_image_folder

WNIDS = ("n01440764", "n01443537", "n02102040")


def write_val(root: Path, *, flat: bool, per_class: int = 4) -> list[str]:
    """Validation files, numbered across the classes in turn; returns the class of each."""
    mark_rebuilt(root / "imagenet")
    classes = [WNIDS[(2 * i) % 3] for i in range(3 * per_class)]
    for i, wnid in enumerate(classes, start=1):
        folder = root / "imagenet" / "val" / ("." if flat else wnid)
        write_image(folder / f"ILSVRC2012_val_{i:08d}.JPEG", smooth_image(i, 20, 20))
    return classes


def check_val(root: Path, classes: list[str]) -> None:
    found = data.load("imagenet/val", root=root)
    assert isinstance(found, FolderSet)
    assert [Path(p).name for p in found.paths] == [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, len(classes) + 1)]
    assert [found.classes[label] for label in found.labels.tolist()] == classes
    assert found.classes == WNIDS


def test_train_and_val_in_class_folders(tmp_path: Path) -> None:
    check_val(tmp_path, write_val(tmp_path, flat=False))
    write_image_folder(tmp_path / "imagenet" / "train", dict.fromkeys(WNIDS, 2))
    train = data.load("imagenet/train", root=tmp_path)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.info == {"rebuilt": "true"}


def test_flat_val_with_a_list(tmp_path: Path) -> None:
    classes = write_val(tmp_path, flat=True)
    lines = [f"ILSVRC2012_val_{i:08d}.JPEG {wnid}" for i, wnid in enumerate(classes, start=1)]
    (tmp_path / "imagenet" / "val.txt").write_text("\n".join(reversed(lines)))
    check_val(tmp_path, classes)


def test_flat_val_with_kaggles_list(tmp_path: Path) -> None:
    classes = write_val(tmp_path, flat=True)
    lines = [f"ILSVRC2012_val_{i:08d},{wnid} 85 1 499 272 " for i, wnid in enumerate(classes, start=1)]
    (tmp_path / "imagenet" / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "\n".join(lines))
    check_val(tmp_path, classes)


@pytest.mark.parametrize("where", [".", "ILSVRC2012_devkit_t12/data"])
def test_flat_val_with_the_devkit(tmp_path: Path, where: str) -> None:
    """The devkit numbers the classes from 1, in an order of its own."""
    classes = write_val(tmp_path, flat=True)
    folder = tmp_path / "imagenet" / where
    folder.mkdir(parents=True, exist_ok=True)
    number = {WNIDS[2]: 1, WNIDS[0]: 2, WNIDS[1]: 3}
    rows = np.array(
        [(n, wnid, "words") for wnid, n in number.items()],
        dtype=[(k, object) for k in ("ILSVRC2012_ID", "WNID", "words")],
    )
    savemat(folder / "meta.mat", {"synsets": rows})
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{number[wnid]}\n" for wnid in classes))
    check_val(tmp_path, classes)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n")
    with pytest.raises(ValueError, match=r"ground_truth.txt .* expected 12 numbers of classes"):
        data.load("imagenet/val", root=tmp_path)
    (folder / "meta.mat").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"meta\.mat"):
        data.load("imagenet/val", root=tmp_path)


def test_flat_val_without_a_list_or_with_a_gap(tmp_path: Path) -> None:
    classes = write_val(tmp_path, flat=True)
    with pytest.raises(ValueError, match=r"must be listed in .*val\.txt"):
        data.load("imagenet/val", root=tmp_path)
    lines = [f"ILSVRC2012_val_{i:08d}.JPEG {wnid}" for i, wnid in enumerate(classes, start=1) if i != 5]
    (tmp_path / "imagenet" / "val.txt").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="a class for every validation image, found none for ILSVRC2012_val_00000005"):
        data.load("imagenet/val", root=tmp_path)


def test_the_tenth_for_tuning_is_stratified_and_the_same_in_both_layouts(tmp_path: Path) -> None:
    for layout in ("folders", "flat"):
        classes = write_val(tmp_path / layout, flat=layout == "flat", per_class=20)
        lines = [f"ILSVRC2012_val_{i:08d}.JPEG {wnid}" for i, wnid in enumerate(classes, start=1)]
        (tmp_path / layout / "imagenet" / "val.txt").write_text("\n".join(lines))
    parts = {
        (layout, part): data.load(f"imagenet/val-{part}", root=tmp_path / layout)
        for layout in ("folders", "flat")
        for part in ("tune", "test")
    }
    files = {key: [Path(p).name for p in value.paths] for key, value in parts.items()}
    assert files["folders", "tune"] == files["flat", "tune"]
    assert files["folders", "test"] == files["flat", "test"]
    assert len(set(files["flat", "tune"]) | set(files["flat", "test"])) == 60
    assert parts["flat", "tune"].labels.bincount().tolist() == [2, 2, 2]
    assert parts["flat", "test"].labels.bincount().tolist() == [18, 18, 18]
    assert parts["flat", "tune"].info["part_of"] == "imagenet/val"


def test_subset_variants_are_numbered_among_the_thousand(tmp_path: Path) -> None:
    mark_rebuilt(tmp_path / "imagenet-a")
    write_image_folder(tmp_path / "imagenet-a", {"n01443537": 2, "n02102040": 1}, suffix=".jpg")
    found = data.load("imagenet-a/test", root=tmp_path)
    assert len(found.classes) == 1000
    assert found.labels.tolist() == [1, 1, 217]
    assert subset_of(found.info) == (1, 217)
    assert restrict_labels(found.labels, subset_of(found.info)).tolist() == [0, 0, 1]


def test_the_thousand_come_from_the_folders_where_they_are(tmp_path: Path) -> None:
    for n in range(1000):
        (tmp_path / "imagenet" / "val" / f"n{n:08d}").mkdir(parents=True)
    mark_rebuilt(tmp_path / "imagenet-o")
    write_image_folder(tmp_path / "imagenet-o", {"n00000123": 1, "n00000999": 1})
    assert data.load("imagenet-o/test", root=tmp_path).labels.tolist() == [123, 999]


def test_v2_folders_are_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    mark_rebuilt(folder)
    write_image_folder(folder, {"0": 1, "10": 2, "9": 1, "999": 1}, suffix=".jpeg")
    found = data.load("imagenet-v2/test", root=tmp_path)
    assert found.labels.tolist() == [0, 9, 10, 10, 999]
    assert "class_subset" not in found.info


@pytest.mark.parametrize("strange", ["007", "1000", "x"])
def test_v2_folders_are_the_official_numbers(tmp_path: Path, strange: str) -> None:
    """Two folders of one number would give a class twice."""
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    mark_rebuilt(folder)
    write_image_folder(folder, {"7": 1, strange: 1}, suffix=".jpeg")
    with pytest.raises(ValueError, match=f"expected folders 0 to 999, found 2 folders, among them '{strange}'"):
        data.load("imagenet-v2/test", root=tmp_path)


def test_sketch(tmp_path: Path) -> None:
    mark_rebuilt(tmp_path / "sketch")
    write_image_folder(tmp_path / "sketch", {"n01443537": 1, "n01440764": 1})
    assert data.load("imagenet-sketch/test", root=tmp_path).labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("imagenet/train", "imagenet/train", "expected 1000 class folders, found 3"),
        ("imagenet-a/test", "imagenet-a", "expected 200 class folders, found 3"),
        ("imagenet-sketch/test", "sketch", "expected 1000 class folders, found 3"),
        ("imagenet-v2/test", "imagenetv2-matched-frequency-format-val", "expected folders 0 to 999, found 3 folders"),
    ],
)
def test_official_sets_must_be_complete(tmp_path: Path, name: str, folder: str, message: str) -> None:
    write_image_folder(tmp_path / folder, dict.fromkeys(WNIDS, 1))
    with pytest.raises(ValueError, match=message):
        data.load(name, root=tmp_path)


def test_official_number_of_files(tmp_path: Path) -> None:
    for wnid in imagenet.wnids(tmp_path)[:200]:
        (tmp_path / "imagenet-r" / wnid).mkdir(parents=True)
    write_image(tmp_path / "imagenet-r" / WNIDS[0] / "a.jpg", smooth_image(1))
    with pytest.raises(ValueError, match="expected 30000 image files, found 1"):
        data.load("imagenet-r/test", root=tmp_path)


def test_strange_folders(tmp_path: Path) -> None:
    mark_rebuilt(tmp_path / "imagenet-a")
    write_image_folder(tmp_path / "imagenet-a", {"n01443537": 1, "README": 1})
    with pytest.raises(ValueError, match=r"WordNet ids .* found 'README'"):
        data.load("imagenet-a/test", root=tmp_path)
    mark_rebuilt(tmp_path / "imagenet-r")
    write_image_folder(tmp_path / "imagenet-r", {"n99999999": 1})
    with pytest.raises(ValueError, match="only folders named by the 1000 classes, found n99999999"):
        data.load("imagenet-r/test", root=tmp_path)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"imagenet/val/  missing\n.*regmixup data fetch imagenet/val"):
        data.load("imagenet/val-tune", root=tmp_path)


def test_restricting() -> None:
    assert restrict_labels(torch.tensor([4, 0, 4]), (4, 0)).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="labels must be among the 2 classes of the subset, got 3"):
        restrict_labels(torch.tensor([0, 3]), (4, 0))
    with pytest.raises(ValueError, match="covers all classes"):
        subset_of({})


def test_interpolation_needs_images_in_memory(tmp_path: Path) -> None:
    write_val(tmp_path, flat=False)
    with pytest.raises(ValueError, match="interpolations need a dataset in memory"):
        data.load("path:imagenet/val", root=tmp_path)
