"""ImageNet's layouts and its variants."""

from pathlib import Path

import pytest
import torch

from regmixup import data
from regmixup.data.images import FolderSet
from regmixup.evaluation.class_subset import restrict_labels, subset_of
from tests.data.official import mark_rebuilt, smooth_image, write_image, write_image_folder

WNIDS = ("n01440764", "n01443537", "n02102040")


def write_val(root, per_class=4):
    """Validation files, numbered across the classes in turn; returns the class of each."""
    mark_rebuilt(root / "imagenet")
    classes = [WNIDS[(2 * i) % 3] for i in range(3 * per_class)]
    for i, wnid in enumerate(classes, start=1):
        write_image(root / "imagenet" / "val" / wnid / f"ILSVRC2012_val_{i:08d}.JPEG", smooth_image(i, 20, 20))
    return classes


def test_train_goes_class_after_class_and_val_in_the_order_of_the_names(tmp_path):
    classes = write_val(tmp_path)
    val = data.load("imagenet/val", root=tmp_path)
    assert isinstance(val, FolderSet)
    assert [Path(p).name for p in val.paths] == [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, len(classes) + 1)]
    assert [val.classes[label] for label in val.labels.tolist()] == classes
    assert val.classes == WNIDS
    write_image_folder(tmp_path / "imagenet" / "train", dict.fromkeys(WNIDS, 2))
    train = data.load("imagenet/train", root=tmp_path)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.info == {"rebuilt": "true"}


def test_the_tenth_for_tuning_is_stratified(tmp_path):
    write_val(tmp_path, per_class=20)
    tune, test = (data.load(f"imagenet/val-{part}", root=tmp_path) for part in ("tune", "test"))
    assert len({*tune.paths, *test.paths}) == 60
    assert tune.labels.bincount().tolist() == [2, 2, 2]
    assert test.labels.bincount().tolist() == [18, 18, 18]
    assert tune.info["part_of"] == "imagenet/val"


def test_subset_variants_are_numbered_among_the_thousand(tmp_path):
    mark_rebuilt(tmp_path / "imagenet-a")
    write_image_folder(tmp_path / "imagenet-a", {"n01443537": 2, "n02102040": 1}, suffix=".jpg")
    found = data.load("imagenet-a/test", root=tmp_path)
    assert len(found.classes) == 1000
    assert found.labels.tolist() == [1, 1, 217]
    assert subset_of(found.info) == (1, 217)
    assert restrict_labels(found.labels, subset_of(found.info)).tolist() == [0, 0, 1]


def test_v2_folders_are_numbers(tmp_path):
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    mark_rebuilt(folder)
    write_image_folder(folder, {"0": 1, "10": 2, "9": 1, "999": 1}, suffix=".jpeg")
    found = data.load("imagenet-v2/test", root=tmp_path)
    assert found.labels.tolist() == [0, 9, 10, 10, 999]
    assert "class_subset" not in found.info


def test_strange_folders(tmp_path):
    mark_rebuilt(tmp_path / "imagenetv2-matched-frequency-format-val")
    write_image_folder(tmp_path / "imagenetv2-matched-frequency-format-val", {"7": 1, "007": 1})
    with pytest.raises(ValueError, match="only folders named by numbers 0 to 999, found '007'"):
        data.load("imagenet-v2/test", root=tmp_path)
    mark_rebuilt(tmp_path / "imagenet-r")
    write_image_folder(tmp_path / "imagenet-r", {"n99999999": 1})
    with pytest.raises(ValueError, match="WordNet ids of the 1000 classes, found 'n99999999'"):
        data.load("imagenet-r/test", root=tmp_path)
    write_image_folder(tmp_path / "imagenet" / "train", {"n01443537": 1, "README": 1})
    with pytest.raises(ValueError, match=r"WordNet ids .* found 'README'"):
        data.load("imagenet/train", root=tmp_path)
    write_image(tmp_path / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG", smooth_image(1))
    with pytest.raises(ValueError, match=r"imagenet/val holds no images .* in class folders"):
        data.load("imagenet/val", root=tmp_path)


def test_restricting():
    assert restrict_labels(torch.tensor([4, 0, 4]), (4, 0)).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="labels must be among the 2 classes of the subset, got 3"):
        restrict_labels(torch.tensor([0, 3]), (4, 0))


def test_interpolation_needs_images_in_memory(tmp_path):
    write_val(tmp_path)
    with pytest.raises(ValueError, match="interpolations need a dataset in memory"):
        data.load("path:imagenet/val", root=tmp_path)
