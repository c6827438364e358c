"""The catalogue, the root and what is known: names that everything else relies on."""

import re
from importlib import import_module

import pytest

from regmixup import data
from regmixup.data.catalogue import FAMILIES, find, get, members, sets_of
from regmixup.data.files import MissingDataError, data_root, present

from .official import write_cifar, write_cifar_c, write_svhn, write_tiny_imagenet


@pytest.mark.parametrize("family", FAMILIES)
def test_records_are_consistent(family):
    names = {dataset.name for dataset in members(family)}
    for dataset in members(family):
        module, _, function = dataset.reader.partition(":")
        assert callable(getattr(import_module(f"regmixup.data.{module}"), function))
        assert find(dataset.name) is dataset
        assert dataset.family == family
        assert dataset.benchmark in FAMILIES
        assert dataset.role in ("train", "validation", "test", "shifted", "ood")
        assert dataset.whole in names or dataset.corruption
        assert dataset.files[: len(find(dataset.whole).files)] == find(dataset.whole).files
        assert bool(dataset.files) == bool(dataset.sources or dataset.by_hand)
        assert dataset.images
        assert (dataset.name.count("/") == 2) == bool(dataset.corruption) == bool(dataset.severity)
        for source in dataset.sources:
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", source.checksum)
            assert all(re.match(r"https?://", url) for url in source.urls)


def test_an_interpolation_is_a_shifted_set_of_its_sources_files():
    path = find("path:cifar10/val-10")
    assert (path.family, path.role, path.whole, path.images) == ("cifar10", "shifted", "cifar10/train", 20_000)
    assert path.files == find("cifar10/train").files


def test_the_images_of_a_list_are_those_of_another_set():
    assert find("cifar10/openood-val").whole == "cifar10/test"


@pytest.mark.parametrize("name", ["vitamin-c/val", "mine/test", "cifar10", "folder:", "path:", "", "cifar10-c/fog"])
def test_other_names_are_nobodys(name):
    assert get(name) is None


def test_a_family_stands_for_the_benchmarks_corruptions():
    assert len(sets_of("cifar10-c")) == 75
    assert len(sets_of("cifar10-val-c")) == 20
    assert len(sets_of("digits-c")) == 25


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("cifra10/test", "cifar10/test"),
        ("path:cifra10/test", "cifar10/test"),
        ("cifar10-c/fgo/3", "cifar10-c/fog/3"),
        ("digits-c/contrast/6", "digits-c/contrast/"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_the_families(name, nearest):
    message = f"unknown dataset '{name}': did you mean '{nearest}.* Available: the families digits, .*; see `regmixup"
    with pytest.raises(ValueError, match=message):
        data.load(name)
    with pytest.raises(ValueError, match="a dataset must be named by a string, such as digits/train"):
        find(None)


@pytest.mark.parametrize("name", [members(family)[0].name for family in FAMILIES if members(family)])
def test_missing_datasets_say_what_is_missing(tmp_path, name):
    if not find(name).files:
        assert len(data.load(name, root=tmp_path)) == find(name).images
        return
    with pytest.raises(MissingDataError, match=r"Expected there:\n.*missing") as error:
        data.load(name, root=tmp_path)
    assert all(file in str(error.value) for file in find(name).files)
    assert (find(name).by_hand or f"`regmixup data fetch {find(name).whole} --root {tmp_path}`") in str(error.value)


def test_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("REGMIXUP_DATA", str(tmp_path / "named"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "named"
    monkeypatch.delenv("REGMIXUP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "regmixup"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == tmp_path / "home" / ".cache" / "regmixup"
    assert data_root("~/data") == tmp_path / "home" / "data"


def test_lists_what_is_there(tmp_path):
    assert present(tmp_path) == {}
    with pytest.raises(ValueError, match=r"root must name a folder, got .*absent$"):
        present(tmp_path / "absent")
    write_cifar(tmp_path, "cifar10")
    write_cifar_c(tmp_path)
    write_svhn(tmp_path)
    write_tiny_imagenet(tmp_path)
    assert present(tmp_path) == dict.fromkeys(
        ("cifar10/train", "cifar10/test", "cifar10-c/fog", "svhn/test", "tiny-imagenet/val", "tiny-imagenet-64/val"),
        True,
    )
    (tmp_path / "provenance.json").unlink()
    assert [name for name, rebuilt in present(tmp_path).items() if not rebuilt] == ["svhn/test"]
