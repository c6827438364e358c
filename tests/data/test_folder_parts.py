"""Parts of folders: stratified, decided by content, the same protocol as the parts of other datasets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regmixup import data
from regmixup.data import catalogue
from regmixup.data.folders import FolderSet
from regmixup.data.splits import stratified

PAIRS = [("train-90", "val-10"), ("train-50", "val-50"), ("train-1", "val-99"), ("without-2-of-3", "fold-2-of-3")]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return _write(tmp_path / "photos", {"cat": 20, "dog": 12, "emu": 3})


def _write(folder: Path, counts: dict[str, int], *, text: str = "") -> Path:
    """Write files that are told apart by their content; nothing here decodes one."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / name / f"{number:03}.jpg").write_text(f"{name} {number} {text}")
    return folder


def _texts(found: FolderSet) -> list[str]:
    return [Path(path).read_text() for path in found.paths]


@pytest.mark.parametrize(("train", "val"), PAIRS)
def test_the_two_sides_are_the_whole_with_every_class_on_both(photos: Path, train: str, val: str) -> None:
    first, second = (data.load(f"folder:{photos}/{part}") for part in (train, val))
    assert sorted(first.paths + second.paths) == sorted(data.load(f"folder:{photos}").paths)
    for part in (first, second):
        assert part.classes == ("cat", "dog", "emu")
        assert part.labels.bincount(minlength=3).min() >= 1
        assert part.paths == tuple(sorted(part.paths))
        assert part.info["part_of"] == f"folder:{photos}"
    expected = {"train-90": [18, 11, 2], "train-50": [10, 6, 2], "train-1": [1, 1, 1], "without-2-of-3": [14, 8, 2]}
    assert first.labels.bincount().tolist() == expected[train]


def test_content_decides_whatever_files_are_called_and_wherever_they_lie(photos: Path, tmp_path: Path) -> None:
    before = data.load(f"folder:{photos}/train-80")
    other = tmp_path / "other"
    for path in photos.rglob("*.jpg"):
        target = other / path.parent.name / "deeper" / f"{1000 - int(path.stem)}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    after = data.load(f"folder:{other}/train-80")
    assert sorted(_texts(after)) == sorted(_texts(before))
    _write(photos, {"cat": 20, "dog": 12, "emu": 3}, text="changed")
    changed = data.load(f"folder:{photos}/train-80")
    assert [Path(p).stem for p in changed.paths] != [Path(p).stem for p in before.paths]


def test_copies_never_lie_on_both_sides(photos: Path) -> None:
    for number in range(20):
        shutil.copy(photos / "cat" / f"{number:03}.jpg", photos / "cat" / f"copy-{number}.jpg")
        if number % 2:  # the same photograph under two labels
            shutil.copy(photos / "cat" / f"{number:03}.jpg", photos / "dog" / f"copy-{number}.jpg")
    for train, val in PAIRS[:3]:
        first, second = (data.load(f"folder:{photos}/{part}") for part in (train, val))
        assert not set(_texts(first)) & set(_texts(second))
        assert len(first) + len(second) == 35 + 20 + 10


def test_the_fingerprint_is_of_the_content(photos: Path) -> None:
    found = data.load(f"folder:{photos}/val-20")
    whole = data.load(f"folder:{photos}").fingerprint
    path = Path(found.paths[0])
    path.write_bytes(path.read_bytes()[::-1])  # as long as before
    assert data.load(f"folder:{photos}").fingerprint == whole
    again = data.load(f"folder:{photos}/val-20")
    rest = data.load(f"folder:{photos}/train-80")
    assert found.fingerprint not in (again.fingerprint, rest.fingerprint)
    assert again.info["whole"] == rest.info["whole"] != found.info["whole"]


def test_a_part_can_be_split_again(photos: Path) -> None:
    names = ("train-80/train-75", "train-80/val-25", "val-20")
    parts = [data.load(f"folder:{photos}/{name}", root=photos) for name in names[:2]]
    assert sorted(parts[0].paths + parts[1].paths) == list(data.load(f"folder:{photos}/train-80").paths)
    assert catalogue.find(f"folder:{photos}/{names[0]}").whole == f"folder:{photos}"


def test_a_class_with_too_few_different_images_is_an_error_that_says_so(photos: Path) -> None:
    with pytest.raises(ValueError, match=r"each of the 5 parts.* emu has 3 images, 3 of them different.*: add"):
        data.load(f"folder:{photos}/fold-1-of-5")
    for number in range(1, 3):
        shutil.copy(photos / "emu" / "000.jpg", photos / "emu" / f"{number:03}.jpg")
    with pytest.raises(ValueError, match=r"in each of the 2 parts.* emu has 3 images, 1 of them different"):
        data.load(f"folder:{photos}/val-10")


@pytest.mark.parametrize("end", ["train-0", "fold-6-of-5", "fold-1-of-1"])
def test_a_part_that_there_cannot_be(photos: Path, end: str) -> None:
    with pytest.raises(ValueError, match=r"\(a part of a folder ends in train-90, val-10, fold"):
        data.load(f"folder:{photos}/{end}")


def test_a_real_folder_of_such_a_name_is_itself(photos: Path) -> None:
    _write(photos / "train-90", {"cat": 2, "dog": 2})
    assert len(data.load(f"folder:{photos}/train-90")) == 4
    assert catalogue.find(f"folder:{photos}/train-90").part is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=60),
    st.sampled_from([(0.9, 0.1), (0.5, 0.5), (1 / 3,) * 3, (0.2,) * 5]),
)
def test_parts_divide_every_class_and_keep_equal_content_together(
    samples: list[tuple[int, int]], fractions: tuple[float, ...]
) -> None:
    labels, digests = torch.tensor([s[0] for s in samples]), tuple(f"{s[1]:02}" for s in samples)
    try:
        parts = stratified(labels, fractions, digests=digests)
    except ValueError as error:
        own = {d for d, label in zip(digests, labels.tolist(), strict=True) if label == int(str(error))}
        elsewhere = {d for d, label in zip(digests, labels.tolist(), strict=True) if label != int(str(error))}
        assert len(own) < len(fractions) or own & elsewhere
        return
    assert sorted(torch.cat(parts).tolist()) == list(range(len(samples)))
    contents = [{digests[i] for i in part.tolist()} for part in parts]
    assert sum(map(len, contents)) == len(set(digests))
    for part in parts:
        assert set(labels[part].tolist()) == set(labels.tolist())
