"""Image folders: `folder:PATH`, decoding, parts, fingerprints."""

import hashlib
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder

from regmixup import data
from regmixup.data import catalogue, folders
from regmixup.data.decode import open_rgb
from regmixup.data.folders import hash_file, image_files
from regmixup.data.images import FolderSet
from regmixup.data.splits import stratified
from regmixup.storage import digest

from .official import decode, smooth_image, write_image, write_image_folder


def test_agrees_with_torchvision(tmp_path):
    write_image_folder(tmp_path / "set", {"dog": 3, "cat": 2, "ant": 2})
    found = data.load(f"folder:{tmp_path / 'set'}")
    assert isinstance(found, FolderSet)
    transform = transforms.Compose([transforms.Resize(48), transforms.CenterCrop(32), transforms.PILToTensor()])
    reference = ImageFolder(str(tmp_path / "set"), transform)
    assert found.classes == tuple(reference.classes)
    assert [(p, int(label)) for p, label in zip(found.paths, found.labels, strict=True)] == reference.samples
    images = decode(found, resize=48, crop=32)
    assert torch.equal(images.images, torch.stack([image for image, _ in reference]))
    assert decode(found).images.shape == (7, 3, 224, 224)


def test_formats_nested_folders_and_links(tmp_path):
    pixels = smooth_image(1, 40, 40)
    for suffix in ("png", "bmp", "webp", "ppm", "jpg", "JPG", "jpeg", "tif", "TIFF", "gif"):
        write_image(tmp_path / "set" / "a" / f"image-{suffix}.{suffix}", pixels)
    write_image(tmp_path / "elsewhere" / "one.png", pixels)
    (tmp_path / "set" / "a").mkdir(parents=True, exist_ok=True)
    (tmp_path / "set" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "set" / "a" / ".hidden.png").write_text("no image")
    write_image(tmp_path / "set" / "a" / ".ipynb_checkpoints" / "a-checkpoint.png", pixels)
    (tmp_path / "set" / ".git").mkdir()
    found = data.load(f"folder:{tmp_path / 'set'}")
    assert len(found) == 11
    assert found.classes == ("a",)
    lossless = found.select(
        torch.tensor([i for i, p in enumerate(found.paths) if p.endswith((".png", ".bmp", ".ppm", ".tif", ".TIFF"))])
    )
    for image in decode(lossless, resize=40, crop=40).images:
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), pixels)


def test_links_that_lead_back_are_not_followed(tmp_path):
    """The operating system would stop only after 40 rounds, each with the same files again."""
    for number, name in enumerate(("a", "b")):
        write_image(tmp_path / "set" / name / "0.png", smooth_image(number))
    (tmp_path / "set" / "a" / "up").symlink_to("..")
    assert image_files(tmp_path / "set") == [str(tmp_path / "set" / name / "0.png") for name in ("a", "b")]
    (tmp_path / "set" / "a" / "up").unlink()
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / "set" / name / "other").symlink_to(Path("..") / other)
    files = [str(Path(file).relative_to(tmp_path / "set" / "a")) for file in image_files(tmp_path / "set" / "a")]
    assert files == ["0.png", "other/0.png"]


def test_modes_become_rgb(tmp_path):
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    for mode in ("L", "RGBA", "P", "CMYK", "1", "I;16"):
        picture = Image.fromarray(smooth_image(1)[:, :, 0]) if mode == "I;16" else Image.fromarray(smooth_image(1))
        picture.convert(mode).save(folder / f"{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}")
    assert decode(data.load(f"folder:{tmp_path / 'set'}"), resize=32, crop=32).images.shape == (6, 3, 32, 32)
    with pytest.raises(ValueError, match="expected 8 or 16 bits per channel, found Pillow's mode F"):
        open_rgb(Image.fromarray(np.zeros((4, 4), np.float32)))


def test_of_several_images_in_a_file_the_first_is_read_and_16_bits_are_scaled(tmp_path):
    first, second = (Image.fromarray(np.full((6, 5, 3), value, np.uint8)) for value in (40, 200))
    for suffix in ("gif", "tif"):
        first.save(tmp_path / f"two.{suffix}", save_all=True, append_images=[second])
        with Image.open(tmp_path / f"two.{suffix}") as image:
            assert image.n_frames == 2
        np.testing.assert_array_equal(np.asarray(open_rgb(tmp_path / f"two.{suffix}")), np.asarray(first))
    for order in ("<", ">"):
        Image.fromarray(np.full((6, 5), 40 * 256 + 7, f"{order}u2")).save(tmp_path / "deep.tif")
        np.testing.assert_array_equal(np.asarray(open_rgb(tmp_path / "deep.tif")), np.asarray(first))


def test_fingerprint_is_of_paths_and_sizes(tmp_path):
    write_image_folder(tmp_path / "set", {"a": 2, "b": 1})
    found = data.load(f"folder:{tmp_path / 'set'}")
    lines = sorted(f"{Path(p).relative_to(tmp_path / 'set').as_posix()}\t{Path(p).stat().st_size}" for p in found.paths)
    assert found.fingerprint == hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert found.select(torch.tensor([2, 1, 0])).fingerprint == found.fingerprint
    assert found.select(torch.tensor([0, 1])).fingerprint != found.fingerprint
    with Path(found.paths[0]).open("ab") as file:
        file.write(b"x")
    assert data.load(f"folder:{tmp_path / 'set'}").fingerprint != found.fingerprint


def test_a_relative_path_is_that_of_the_working_directory_or_else_of_the_root(tmp_path, monkeypatch):
    root, here = tmp_path / "root", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match=rf"^folder:mine: expected a folder .* in {here} or in {root} \(a part"):
        data.load("folder:mine", root=root)
    write_image_folder(root / "mine", {"a": 1})
    assert len(data.load("folder:mine", root=root)) == 1
    write_image_folder(here / "mine", {"a": 2})
    assert len(data.load("folder:mine", root=root)) == 2


def test_damaged_images_are_named(tmp_path):
    write_image_folder(tmp_path / "set", {"a": 2})
    found = data.load(f"folder:{tmp_path / 'set'}")
    damaged = Path(found.paths[1])
    damaged.write_bytes(damaged.read_bytes()[:300])
    with pytest.raises(ValueError, match=rf"cannot read {damaged} as an image"):
        decode(found)
    damaged.write_bytes(b"<svg/>")
    with pytest.raises(ValueError, match=rf"cannot read {damaged} as an image: cannot identify"):
        decode(found)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # Pillow's own limit comes later
def test_an_image_that_claims_to_be_enormous_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "bomb.ppm").write_bytes(b"P6 10001 10000 255\n" + b"\x00" * 100)
    with pytest.raises(ValueError, match="expected at most 100000000 pixels, found 10001x10000"):
        open_rgb(tmp_path / "bomb.ppm")


def test_folders_without_images(tmp_path):
    path = tmp_path / "set"
    path.mkdir()
    with pytest.raises(ValueError, match="expected one subfolder of images per class"):
        data.load(f"folder:{path}")
    (path / "a").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        data.load(f"folder:{path}")


@pytest.mark.parametrize("parts", [("train", "val"), ("Train", "TEST", "notes")])
def test_the_parent_of_parts_is_refused_with_the_names_to_use(tmp_path, parts):
    for part in parts:
        write_image_folder(tmp_path / "set" / part, {"cat": 1, "dog": 1})
    splits = [part for part in sorted(parts) if part != "notes"]
    names = " or ".join(f"folder:{tmp_path}/set/{part}" for part in splits)
    message = f"holds {', '.join(splits)}, which are parts and not classes: name {names}$"
    for name in (f"folder:{tmp_path}/set", f"folder:{tmp_path}/set/"):
        with pytest.raises(ValueError, match=message):
            data.load(name)


def test_classes_may_be_called_like_parts(tmp_path):
    """A train on rails, with its images in it or in folders of their own, and tests without classes."""
    write_image_folder(tmp_path / "vehicles", {"bus": 1, "train": 2})
    assert data.load(f"folder:{tmp_path}/vehicles").classes == ("bus", "train")
    write_image_folder(tmp_path / "vehicles" / "train", {"freight": 1})
    assert data.load(f"folder:{tmp_path}/vehicles").labels.tolist() == [0, 1, 1, 1]
    write_image_folder(tmp_path / "flat", {"train": 1, "test": 2})
    assert data.load(f"folder:{tmp_path}/flat").classes == ("test", "train")


def test_empty_subfolders_are_no_classes(tmp_path):
    write_image_folder(tmp_path / "set", {"b": 2, "d": 1})
    for name in ("a", "c", "e\x1b[2J"):
        (tmp_path / "set" / name / "deeper").mkdir(parents=True)
    (tmp_path / "set" / "c" / "notes.txt").write_text("no image")
    write_image(tmp_path / "set" / "loose.png", smooth_image(1))
    with (
        pytest.warns(UserWarning, match=r"left out subfolders without images: a, c, e\\x1b\[2J$"),
        pytest.warns(UserWarning, match=r"left out 1 image outside of class folders, such as loose\.png$"),
    ):
        found = data.load(f"folder:{tmp_path}/set")
    assert (found.classes, found.labels.tolist()) == (("b", "d"), [0, 0, 1])


def test_a_checksum_is_of_the_content_even_where_the_time_of_files_steps_and_an_older_file_is_read_once(
    tmp_path, monkeypatch
):
    file, read = tmp_path / "rows.csv.gz", []
    for content in (b"before", b"behind") * 50:
        file.write_bytes(content)
        assert hash_file(file) == hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(folders, "digest", lambda path: read.append(path) or digest(path))
    later = time.time_ns() + 10**10
    monkeypatch.setattr(folders.time, "time_ns", lambda: later)
    assert hash_file(file) == hash_file(file)
    assert read == [file]


PAIRS = [("train-90", "val-10"), ("train-50", "val-50"), ("train-1", "val-99"), ("without-2-of-3", "fold-2-of-3")]


@pytest.fixture
def photos(tmp_path):
    return _write_texts(tmp_path / "photos", {"cat": 20, "dog": 12, "emu": 3})


def _write_texts(folder, counts, *, text=""):
    """Write files that are told apart by their content; nothing here decodes one."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / name / f"{number:03}.jpg").write_text(f"{name} {number} {text}")
    return folder


def _texts(found):
    return [Path(path).read_text() for path in found.paths]


@pytest.mark.parametrize(("train", "val"), PAIRS)
def test_the_two_sides_are_the_whole_with_every_class_on_both(photos, train, val):
    first, second = (data.load(f"folder:{photos}/{part}") for part in (train, val))
    assert sorted(first.paths + second.paths) == sorted(data.load(f"folder:{photos}").paths)
    for part in (first, second):
        assert part.classes == ("cat", "dog", "emu")
        assert part.labels.bincount(minlength=3).min() >= 1
        assert part.paths == tuple(sorted(part.paths))
        assert part.info["part_of"] == f"folder:{photos}"
    expected = {"train-90": [18, 11, 2], "train-50": [10, 6, 2], "train-1": [1, 1, 1], "without-2-of-3": [14, 8, 2]}
    assert first.labels.bincount().tolist() == expected[train]


def test_content_decides_whatever_files_are_called_and_wherever_they_lie(photos, tmp_path):
    before = data.load(f"folder:{photos}/train-80")
    other = tmp_path / "other"
    for path in photos.rglob("*.jpg"):
        target = other / path.parent.name / "deeper" / f"{1000 - int(path.stem)}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    after = data.load(f"folder:{other}/train-80")
    assert sorted(_texts(after)) == sorted(_texts(before))
    _write_texts(photos, {"cat": 20, "dog": 12, "emu": 3}, text="changed")
    changed = data.load(f"folder:{photos}/train-80")
    assert [Path(p).stem for p in changed.paths] != [Path(p).stem for p in before.paths]


def test_copies_never_lie_on_both_sides(photos):
    for number in range(20):
        shutil.copy(photos / "cat" / f"{number:03}.jpg", photos / "cat" / f"copy-{number}.jpg")
        if number % 2:  # the same photograph under two labels
            shutil.copy(photos / "cat" / f"{number:03}.jpg", photos / "dog" / f"copy-{number}.jpg")
    for train, val in PAIRS[:3]:
        first, second = (data.load(f"folder:{photos}/{part}") for part in (train, val))
        assert not set(_texts(first)) & set(_texts(second))
        assert len(first) + len(second) == 35 + 20 + 10


def test_the_fingerprint_is_of_the_content(photos):
    found = data.load(f"folder:{photos}/val-20")
    whole = data.load(f"folder:{photos}").fingerprint
    path = Path(found.paths[0])
    path.write_bytes(path.read_bytes()[::-1])  # as long as before
    assert data.load(f"folder:{photos}").fingerprint == whole
    again = data.load(f"folder:{photos}/val-20")
    rest = data.load(f"folder:{photos}/train-80")
    assert found.fingerprint not in (again.fingerprint, rest.fingerprint)
    assert again.info["whole"] == rest.info["whole"] != found.info["whole"]


def test_a_part_can_be_split_again(photos):
    names = ("train-80/train-75", "train-80/val-25", "val-20")
    parts = [data.load(f"folder:{photos}/{name}", root=photos) for name in names[:2]]
    assert sorted(parts[0].paths + parts[1].paths) == list(data.load(f"folder:{photos}/train-80").paths)
    assert catalogue.find(f"folder:{photos}/{names[0]}").whole == f"folder:{photos}"


def test_a_class_with_too_few_different_images_is_an_error_that_says_so(photos):
    with pytest.raises(ValueError, match=r"each of the 5 parts.* emu has 3 images, 3 of them different.*: add"):
        data.load(f"folder:{photos}/fold-1-of-5")
    for number in range(1, 3):
        shutil.copy(photos / "emu" / "000.jpg", photos / "emu" / f"{number:03}.jpg")
    with pytest.raises(ValueError, match=r"in each of the 2 parts.* emu has 3 images, 1 of them different"):
        data.load(f"folder:{photos}/val-10")


@pytest.mark.parametrize("end", ["train-0", "fold-6-of-5", "fold-1-of-1"])
def test_a_part_that_there_cannot_be(photos, end):
    with pytest.raises(ValueError, match=r"\(a part of a folder ends in train-90, val-10, fold"):
        data.load(f"folder:{photos}/{end}")


def test_a_real_folder_of_such_a_name_is_itself(photos):
    _write_texts(photos / "train-90", {"cat": 2, "dog": 2})
    assert len(data.load(f"folder:{photos}/train-90")) == 4
    assert catalogue.find(f"folder:{photos}/train-90").part is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=60),
    st.sampled_from([(0.9, 0.1), (0.5, 0.5), (1 / 3,) * 3, (0.2,) * 5]),
)
def test_parts_divide_every_class_and_keep_equal_content_together(samples, fractions):
    labels, digests = torch.tensor([s[0] for s in samples]), tuple(f"{s[1]:02}" for s in samples)
    parts = stratified(labels, fractions, digests=digests)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(samples)))
    contents = [{digests[i] for i in part.tolist()} for part in parts]
    assert sum(map(len, contents)) == len(set(digests))
    for label in set(labels.tolist()):
        inside, outside = ({d for d, (other, _) in zip(digests, samples, strict=True) if (other == label) is same}
                           for same in (True, False))  # fmt: skip
        if len(inside) >= len(fractions) and not inside & outside:
            assert all((labels[part] == label).any() for part in parts)
