"""The role of a dataset for a model, and which datasets a temperature or a threshold may be fitted on."""

from pathlib import Path

import pytest

from regmixup.data import names
from regmixup.data.roles import check_ood_validation, check_validation, rest_of, role_of, validation_of

EXPECTED = {
    "digits/train": "digits/val",
    "cifar10/train-90": "cifar10/val-10",
    "svhn/train-90": "svhn/val-10",
    "imagenet/train": "imagenet/val-tune",
}


@pytest.mark.parametrize(("train", "beside"), [("train", "val"), ("Training", "Dev")])
def test_the_validation_set_of_a_folder_called_train_is_the_one_beside_it(tmp_path, train, beside):
    for name in (train, "test"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of(f"folder:{tmp_path}/{train}")
    (tmp_path / beside).mkdir()
    assert validation_of(f"folder:{tmp_path}/{train}") == f"folder:{tmp_path}/{beside}"
    check_validation(f"folder:{tmp_path}/{beside}", f"folder:{tmp_path}/{train}")
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of(f"folder:{tmp_path}/test")


@pytest.mark.skipif(Path("/val").is_dir(), reason="has a validation set beside /train")
def test_the_devices_are_no_validation_images_of_a_folder_at_the_root():
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of("folder:/train")


def test_folders_of_the_working_directory_are_known_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    assert validation_of("folder:train") == "folder:val"
    (tmp_path / "train" / "val").mkdir()  # a class
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of("folder:train/.")
    with pytest.raises(ValueError, match="must not be a test set, as 'folder:test' is by its name"):
        check_validation("folder:test", "folder:train")
    with pytest.raises(ValueError, match="ood must be no test set"):
        check_ood_validation("folder:test", "cifar10/train-90")


@pytest.mark.parametrize(("train_set", "validation"), EXPECTED.items())
def test_a_train_set_has_its_validation_set(train_set, validation):
    assert validation_of(train_set) == validation
    check_validation(validation, train_set)


@pytest.mark.parametrize("train_set", ["digits/train", "cifar10/train-90", "imagenet/train"])
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
    lists = {name for name in names() if name.startswith(f"{family}/openood")} - {"cifar10/openood-test"}
    assert accepted - lists <= {f"{family}/{split}" for split in ("val", "val-10", "val-tune")}


@pytest.mark.parametrize(
    ("name", "train_set"),
    [("cifar10/val-10", "cifar10/train"), ("cifar10/train", "cifar10/train-90"), ("folder:mine", "folder:mine")],
)
def test_images_that_were_trained_on_are_refused_unless_a_companion_predicted_them(name, train_set):
    with pytest.raises(ValueError, match="not trained on"):
        check_validation(name, train_set)
    check_validation(name, train_set, seen=False)


@pytest.mark.parametrize(
    ("train_set", "validation"),
    [
        ("folder:x/train-75", "folder:x/val-25"),
        ("folder:x/without-3-of-4", "folder:x/fold-3-of-4"),
        ("folder:x/train-80/train-90", "folder:x/train-80/val-10"),
    ],
)
def test_a_part_of_a_folder_has_its_validation_set(train_set, validation):
    assert validation_of(train_set) == validation
    check_validation(validation, train_set)
    with pytest.raises(ValueError, match="must be images that were not trained on"):
        check_validation("folder:x", train_set)
    with pytest.raises(ValueError, match="validation must be named"):
        validation_of(validation)


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
    with pytest.raises(ValueError, match="must not be a test set, as 'folder:set/Test' is by its name"):
        check_validation("folder:set/Test", "folder:set/train")


@pytest.mark.parametrize(
    ("name", "train_set", "role"),
    [
        ("digits/train", "digits/train", "train"),
        ("digits-c/contrast/3", "digits/train", "shifted"),
        ("digits-mirrored/test", "digits/train", "ood"),
        ("path:digits/test", "digits/train", "shifted"),
        ("cifar10/train", "cifar10/train-90", "train"),
        ("cifar10/val-10", "cifar10/train", "train"),
        ("svhn/train-90", "svhn/val-10", "validation"),
        ("cifar10.1/test", "cifar10/train", "shifted"),
        ("cifar10-c/fog/1", "cifar100/train", "ood"),
        ("cifar10/train", "cifar100/train", "ood"),
        ("imagenet/val", "imagenet/train", "test"),
        ("folder:here", "cifar10/train", ""),
        ("folder:here/train", "folder:here", "train"),
        ("cifar10/test", "folder:here", "test"),
        ("folder:here/val-10", "folder:here/train-90", "validation"),
        ("folder:./here/val-10", "folder:here/train-90/", "validation"),
        ("folder:here/train-90", "folder:here/val-10", "validation"),
        ("folder:here/val-10", "folder:here", "train"),
        ("folder:here", "folder:here/train-90", "train"),
        ("folder:here/val-20", "folder:here/train-90", "train"),  # cut elsewhere: it may share images
        ("folder:here/fold-2-of-5", "folder:here/without-2-of-5", "validation"),
        ("folder:here/fold-1-of-5", "folder:here/without-2-of-5", "train"),
        ("folder:here/without-1-of-5", "folder:here/without-2-of-5", "train"),
        ("folder:here/val-20", "folder:here/train-80/train-90", "validation"),
        ("folder:here/train-80/val-10", "folder:here/train-80/train-90", "validation"),
        ("folder:here/val-10", "folder:there/train-90", ""),
    ],
)
def test_roles(name, train_set, role):
    assert role_of(name, train_set) == role


def test_the_rest_of_a_split():
    assert rest_of("cifar10/val-10") == "cifar10/train-90"
    assert rest_of("imagenet/val-test") == "imagenet/val-tune"
    assert rest_of("folder:x/val-10") == "folder:x/train-90"
    assert rest_of("folder:x/train-80/train-75/") == "folder:x/train-80/val-25"
    assert rest_of("folder:x/fold-2-of-5") == "folder:x/without-2-of-5"
    assert rest_of("folder:x/without-2-of-5") == "folder:x/fold-2-of-5"
    for name in ("cifar10/test", "digits/val", "folder:x", "folder:x/val-100", "folder:x/fold-6-of-5"):
        with pytest.raises(ValueError, match=r"must be part of a split, such as cifar10/val-10"):
            rest_of(name)


@pytest.mark.parametrize("name", ["tiny-imagenet/openood-cifar10-val", "cifar100/val-10", "folder:strange"])
def test_ood_validation_sets_show_something_else_and_are_not_reported(name):
    check_ood_validation(name, "cifar10/train-90")


@pytest.mark.parametrize(
    "name",
    ["svhn/test", "cifar100/openood-cifar10", "tiny-imagenet/openood-cifar10", "cifar10/val-10", "digits-mirrored/test",
     "cifar10/openood-val", "folder:strange/test"],
)  # fmt: skip
def test_test_sets_and_images_like_those_trained_on_are_no_ood_validation_sets(name):
    with pytest.raises(ValueError, match=f"ood must be no test set, and of other classes than .* got '{name}'"):
        check_ood_validation(name, "cifar10/train-90")
