"""The catalogue, the root and what is known: names that everything else relies on."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from regmixup import data, recipes
from regmixup.data.catalogue import DATASETS, FAMILIES, find, get, sets_of
from regmixup.data.files import MissingDataError, data_root, file_sum

from .official import write_cifar, write_cifar10_2, write_svhn


def test_catalogue_and_sources_import_no_torch() -> None:
    code = (
        "import sys, regmixup.data, regmixup.data.inventory, regmixup.data.fetch, regmixup.recipes; "
        "regmixup.data.names(); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_records_are_consistent(family: str) -> None:
    names = FAMILIES[family].names
    for dataset in FAMILIES[family].datasets:
        module, _, function = dataset.reader.partition(":")
        assert callable(getattr(import_module(f"regmixup.data.{module}"), function))
        assert find(dataset.name) is dataset
        assert dataset.family == family
        assert dataset.benchmark in FAMILIES
        assert dataset.role in ("train", "validation", "test", "shifted", "ood")
        assert dataset.whole in names
        assert dataset.files[: len(find(dataset.whole).files)] == find(dataset.whole).files
        assert set(dataset.checksums) <= set(dataset.files)
        assert bool(dataset.files) == bool(dataset.sources or dataset.by_hand)
        assert dataset.images or dataset.listed
        assert (dataset.name.count("/") == 2) == bool(dataset.corruption) == bool(dataset.severity)
        assert (dataset.side is None) == family.startswith("imagenet")


def test_an_interpolation_is_a_shifted_set_of_its_sources_files() -> None:
    path = find("path:cifar10/val-10")
    assert (path.family, path.role, path.whole, path.images) == ("cifar10", "shifted", "cifar10/train", 20_000)
    assert path.files == find("cifar10/train").files


@pytest.mark.parametrize("name", ["vitamin-c/val", "mine/test", "cifar10", "folder:", "path:", "", "cifar10-c/fog"])
def test_other_names_are_nobodys(name: str) -> None:
    assert get(name) is None


def test_a_family_stands_for_the_benchmarks_corruptions() -> None:
    assert len(sets_of("cifar10-c")) == 75
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
def test_an_unknown_name_gets_the_nearest_and_the_families(name: str, nearest: str) -> None:
    message = f"unknown dataset '{name}': did you mean '{nearest}.* Available: the families digits, .*; see `regmixup"
    with pytest.raises(ValueError, match=message):
        data.load(name)
    with pytest.raises(ValueError, match="a dataset must be named by a string, such as digits/train"):
        find(None)  # type: ignore[arg-type]


def test_sources_and_checksums_are_well_formed() -> None:
    well_formed = re.compile(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}")
    checksums: dict[str, str] = {}
    for dataset in DATASETS.values():
        checksums |= dataset.checksums
        for source in dataset.sources:
            assert well_formed.fullmatch(source.checksum)
            assert source.urls
            assert all(re.match(r"https?://", url) for url in source.urls)
    assert all(map(well_formed.fullmatch, checksums.values()))
    assert len(set(checksums.values())) == len(checksums) == 45


@pytest.mark.parametrize("name", [family.names[0] for family in FAMILIES.values() if family.datasets])
def test_missing_datasets_say_what_is_missing(tmp_path: Path, name: str) -> None:
    if not find(name).files:
        assert len(data.load(name, root=tmp_path)) == find(name).images
        return
    with pytest.raises(MissingDataError, match=r"Expected there:\n.*missing") as error:
        data.load(name, root=tmp_path)
    assert all(file in str(error.value) for file in find(name).files)
    assert (find(name).by_hand or f"`regmixup data fetch {name} --root {tmp_path}`") in str(error.value)


def test_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGMIXUP_DATA", str(tmp_path / "named"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "named"
    monkeypatch.delenv("REGMIXUP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "regmixup"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_root() == tmp_path / "home" / ".cache" / "regmixup"
    assert data_root("~/data") == tmp_path / "home" / "data"


def test_verify(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError):
        data.verify("cifar10/test", root=tmp_path)
    write_cifar(tmp_path, "cifar10")
    report = data.verify("cifar10/test", root=tmp_path)
    assert report.status == "unknown"
    assert "rebuilt" in report.detail
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:-200])
    damaged = data.verify("cifar10/test", root=tmp_path)
    assert damaged.status == "mismatch"
    assert str(path) in damaged.detail
    assert data.verify("path:cifar10/test", root=tmp_path) == dataclasses.replace(damaged, name="path:cifar10/test")
    assert data.verify("digits/test").status == "unknown"


def test_verify_by_the_published_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is bit for bit the published one is right, whatever the content's hash."""

    def declare(name: str, **fields: Any) -> None:
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(find(name), **fields))

    write_cifar10_2(tmp_path, count=20)
    write_svhn(tmp_path, "test", count=20)
    (tmp_path / "provenance.json").unlink()
    for name in ("cifar10.2/test", "svhn/test"):
        declare(name, images=20)
    report = data.verify("cifar10.2/test", root=tmp_path)
    assert report.status == "mismatch"
    assert report.detail.startswith("cifar102_test.npz: expected sha256:e4fd6462")
    with pytest.raises(ValueError, match=r"test_32x32.mat .* SHA-256 985e56ae"):
        data.load("svhn/test", root=tmp_path)
    for name, algorithm in (("cifar10.2/test", "sha256"), ("svhn/test", "md5")):
        declare(name, checksums={file: file_sum(tmp_path / file, algorithm) for file in find(name).files})
        assert len(data.load(name, root=tmp_path)) == 20
        assert data.verify(name, root=tmp_path).status == "ok"


@pytest.mark.parametrize("name", ["cifar10-wrn28-10", "cifar10-resnet50", "cifar100-wrn28-10", "cifar100-resnet50"])
def test_cifar_recipes(name: str) -> None:
    recipe = recipes.get(name)
    family, _, network = name.partition("-")
    assert (recipe.train_set, recipe.network) == (f"{family}/train", network)
    assert find(recipe.train_set).role == "train"
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.weight_decay) == (350, 128, 0.1, 5e-4)
    assert (recipe.momentum, recipe.nesterov, recipe.crop_padding, recipe.flip) == (0.9, True, 4, True)
    rates = [recipe.lr_at(epoch) for epoch in (0, 149.9, 150, 249.9, 250, 349)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    means = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4867, 0.4408)}
    stds = {"cifar10": (0.2023, 0.1994, 0.2010), "cifar100": (0.2675, 0.2565, 0.2761)}
    assert (recipe.mean, recipe.std) == (means[family], stds[family])
