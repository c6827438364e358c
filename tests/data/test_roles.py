"""Which datasets may choose a temperature or a threshold."""

import pytest

from regmixup.data import names
from regmixup.data.roles import check_validation, validation_of

EXPECTED = {
    "digits/train": "digits/val",
    "cifar10/train-90": "cifar10/val-10",
    "cifar100/train-90": "cifar100/val-10",
    "svhn/train-90": "svhn/val-10",
    "tiny-imagenet/train-90": "tiny-imagenet/val-10",
    "tiny-imagenet/train": "tiny-imagenet/val",
    "tiny-imagenet-64/train": "tiny-imagenet-64/val",
    "imagenet/train": "imagenet/val-tune",
}


@pytest.mark.parametrize(("train_set", "validation"), EXPECTED.items())
def test_a_train_set_has_its_validation_set(train_set, validation):
    assert validation_of(train_set) == validation
    check_validation(validation, train_set)


@pytest.mark.parametrize("train_set", ["cifar10/train", "svhn/train", "folder:somewhere"])
def test_a_train_set_without_one_asks_for_a_name(train_set):
    with pytest.raises(ValueError, match=f"validation must be named: {train_set} has no"):
        validation_of(train_set)


@pytest.mark.parametrize("train_set", EXPECTED)
def test_no_test_set_of_the_catalogue_passes(train_set):
    accepted = set()
    for name in names():
        try:
            check_validation(name, train_set)
        except ValueError:
            continue
        accepted.add(name)
    family = train_set.partition("/")[0]
    assert EXPECTED[train_set] in accepted
    assert accepted <= {f"{family}/{split}" for split in ("val", "val-10", "val-tune", "extra")}


def test_a_set_that_contains_the_test_set_is_refused():
    with pytest.raises(ValueError, match=r"must not be a test, shifted or OOD set .* got 'imagenet/val'"):
        check_validation("imagenet/val", "imagenet/train")


@pytest.mark.parametrize(
    ("name", "train_set"),
    [
        ("cifar10/val-10", "cifar10/train"),
        ("cifar10/train", "cifar10/train-90"),
        ("cifar10/train-90", "cifar10/train-90"),
        ("folder:mine", "folder:mine"),
    ],
)
def test_images_that_were_trained_on_are_refused_unless_a_companion_predicted_them(name, train_set):
    with pytest.raises(ValueError, match="not trained on"):
        check_validation(name, train_set)
    check_validation(name, train_set, seen=False)


def test_a_folder_may_validate_any_model():
    check_validation("folder:new", "folder:mine")
    check_validation("folder:new", "cifar10/train")


def test_a_folder_is_the_same_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set" / "val").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "set" / "train")
    for name in (
        "folder:set/train",
        "folder:./set/train/",
        f"folder:{tmp_path}/set/train",
        "folder:link",
        "folder:set",
    ):
        with pytest.raises(ValueError, match="must be images that were not trained on"):
            check_validation(name, "folder:set/train")
    check_validation("folder:set/val", "folder:set/train")
