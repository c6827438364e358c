"""OpenOOD's lists: some images of a dataset, test lists without what a validation list has used."""

import pytest
import torch

from regmixup import data
from regmixup.data.catalogue import find
from regmixup.data.files import MissingDataError
from regmixup.data.roles import check_validation, overlap, role_of, validation_of
from tests.data.official import write_cifar, write_tiny_imagenet


def write_list(root, name, lines):
    (root / "openood").mkdir(exist_ok=True)
    (root / "openood" / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def write_tiny_lists(root):
    """Ten validation images; images 3 and 4 are on a validation list of one train set and a test list of the other."""
    write_tiny_imagenet(root, per_class=5)
    write_list(root, "cifar10_val_tin", ["0", "3"])
    write_list(root, "cifar100_val_tin", ["1", "4"])
    write_list(root, "cifar10_test_tin", ["2", "4", "5", "6", "9"])
    write_list(root, "cifar100_test_tin", ["3", "7", "8"])


@pytest.mark.parametrize(
    ("split", "places"),
    [
        ("openood-cifar10", [2, 5, 6, 9]),
        ("openood-cifar10-val", [0, 3]),
        ("openood-cifar100", [7, 8]),
        ("openood-cifar100-val", [1, 4]),
    ],
)
def test_what_a_validation_list_has_used_leaves_every_test_list(tmp_path, split, places):
    write_tiny_lists(tmp_path)
    whole = data.load("tiny-imagenet/val", root=tmp_path)
    listed = data.load(f"tiny-imagenet/{split}", root=tmp_path)
    assert torch.equal(listed.images, whole.images[places])
    assert torch.equal(listed.labels, whole.labels[places])
    assert listed.name == f"tiny-imagenet/{split}"
    assert listed.info == {"rebuilt": "true", "part_of": "tiny-imagenet/val", "whole": whole.fingerprint}


def test_a_class_and_a_number_count_from_1_in_the_order_of_the_class(tmp_path):
    write_cifar(tmp_path, "cifar10", per_file=30)
    write_list(tmp_path, "cifar10_test_cifar10", ["cat 1", "cat 3", "ship 2"])
    write_list(tmp_path, "cifar10_val_cifar10", ["cat 2"])
    whole = data.load("cifar10/test", root=tmp_path)
    cats, ships = ((whole.labels == label).nonzero().flatten().tolist() for label in (3, 8))
    tests, validation = (data.load(f"cifar10/openood-{split}", root=tmp_path) for split in ("test", "val"))
    assert torch.equal(tests.images, whole.images[sorted([cats[0], cats[2], ships[1]])])
    assert torch.equal(validation.images, whole.images[cats[1:2]])


@pytest.mark.parametrize("line", ["cat 0", "cat 99", "unicorn 1", "10", "-1", "cat", "cat one"])
def test_a_line_of_no_image_is_an_error(tmp_path, line):
    write_cifar(tmp_path, "cifar10", per_file=10)
    write_list(tmp_path, "cifar10_val_cifar10", [line])
    with pytest.raises(ValueError, match=r"cannot read .*cifar10_val_cifar10\.txt as a list of images"):
        data.load("cifar10/openood-val", root=tmp_path)


def test_a_missing_list_is_named_with_where_it_comes_from(tmp_path):
    write_tiny_imagenet(tmp_path)
    with pytest.raises(MissingDataError, match=r"cifar100_val_tin\.txt +missing\n(.|\n)*the lists are OpenOOD's"):
        data.load("tiny-imagenet/openood-cifar10", root=tmp_path)


def test_roles():
    assert role_of("tiny-imagenet/openood-cifar10", "cifar10/train") == "ood"
    assert role_of("cifar100/openood-cifar10", "cifar10/train") == "ood"
    assert role_of("cifar10/openood-test", "cifar10/train") == "test"
    assert role_of("cifar10/openood-val", "cifar10/train") == "validation"
    check_validation("cifar10/openood-val", "cifar10/train")
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of("cifar10/train")  # its lists are used where they are named


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("cifar10/openood-test", "cifar10/test", True),
        ("cifar10/openood-test", "cifar10/openood-test", True),
        ("cifar10/openood-test", "cifar10/openood-val", False),
        ("cifar10/openood-test", "cifar10/train", False),
        ("cifar100/openood-test", "cifar100/openood-cifar10", True),
        ("tiny-imagenet/openood-cifar10", "tiny-imagenet/openood-cifar100-val", False),
        ("tiny-imagenet/openood-cifar10", "tiny-imagenet/openood-cifar100", True),
    ],
)
def test_whether_lists_share_images(first, second, shared):
    assert overlap(find(first), find(second)) == overlap(find(second), find(first)) == shared


COUNTS = {
    "cifar10/openood-test": 9_000,
    "cifar10/openood-val": 1_000,
    "cifar100/openood-test": 9_000,
    "cifar100/openood-cifar10": 9_000,
    "tiny-imagenet/openood-cifar10": 7_115,  # of 7,793
    "tiny-imagenet/openood-cifar10-val": 1_000,
    "tiny-imagenet/openood-cifar100": 6_033,  # of 6,526
    "tiny-imagenet/openood-cifar100-val": 972,
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_real_lists(name, count, real_root):
    if not (real_root / "openood").is_dir():
        pytest.skip("needs OpenOOD's lists")
    assert len(data.load(name, root=real_root)) == count
