"""Image folders: `folder:PATH`, decoding, parts, fingerprints."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder

from regmixup import data
from regmixup.data import folders
from regmixup.data.decode import open_rgb
from regmixup.data.folders import FolderSet, hash_file
from regmixup.data.reading import describe_classes
from regmixup.storage import digest

from .official import decode, smooth_image, write_image, write_image_folder


def test_agrees_with_torchvision(tmp_path: Path) -> None:
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


def test_formats_nested_folders_and_links(tmp_path: Path) -> None:
    pixels = smooth_image(1, 40, 40)
    for suffix in ("png", "bmp", "webp", "ppm", "jpg", "JPG", "jpeg"):
        write_image(tmp_path / "set" / "a" / f"image-{suffix}.{suffix}", pixels)
    write_image(tmp_path / "elsewhere" / "one.png", pixels)
    (tmp_path / "set" / "a").mkdir(parents=True, exist_ok=True)
    (tmp_path / "set" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "set" / "a" / ".hidden.png").write_text("no image")
    write_image(tmp_path / "set" / "a" / ".ipynb_checkpoints" / "a-checkpoint.png", pixels)
    (tmp_path / "set" / ".git").mkdir()
    found = data.load(f"folder:{tmp_path / 'set'}")
    assert len(found) == 8
    assert found.classes == ("a",)
    lossless = found.select(
        torch.tensor([i for i, p in enumerate(found.paths) if p.endswith((".png", ".bmp", ".ppm"))])
    )
    for image in decode(lossless, resize=40, crop=40).images:
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), pixels)


def test_modes_become_rgb(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    for mode in ("L", "RGBA", "P", "CMYK", "1", "I;16"):
        picture = Image.fromarray(smooth_image(1)[:, :, 0]) if mode == "I;16" else Image.fromarray(smooth_image(1))
        picture.convert(mode).save(folder / f"{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}")
    assert decode(data.load(f"folder:{tmp_path / 'set'}"), resize=32, crop=32).images.shape == (6, 3, 32, 32)
    with pytest.raises(ValueError, match="expected 8 or 16 bits per channel, found Pillow's mode F"):
        open_rgb(Image.fromarray(np.zeros((4, 4), np.float32)))


def test_fingerprint_is_of_paths_and_sizes(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "set", {"a": 2, "b": 1})
    found = data.load(f"folder:{tmp_path / 'set'}")
    lines = sorted(f"{Path(p).relative_to(tmp_path / 'set').as_posix()}\t{Path(p).stat().st_size}" for p in found.paths)
    assert found.fingerprint == hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert found.select(torch.tensor([2, 1, 0])).fingerprint == found.fingerprint
    assert found.select(torch.tensor([0, 1])).fingerprint != found.fingerprint
    with Path(found.paths[0]).open("ab") as file:
        file.write(b"x")
    assert data.load(f"folder:{tmp_path / 'set'}").fingerprint != found.fingerprint


def test_a_relative_path_is_that_of_the_working_directory_or_else_of_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, here = tmp_path / "root", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match=rf"^folder:mine: expected a folder .* in {here} or in {root} \(a part"):
        data.load("folder:mine", root=root)
    write_image_folder(root / "mine", {"a": 1})
    assert len(data.load("folder:mine", root=root)) == 1
    write_image_folder(here / "mine", {"a": 2})
    assert len(data.load("folder:mine", root=root)) == 2


def test_damaged_images_are_named(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "set", {"a": 2})
    found = data.load(f"folder:{tmp_path / 'set'}")
    damaged = Path(found.paths[1])
    damaged.write_bytes(damaged.read_bytes()[:300])
    with pytest.raises(ValueError, match=rf"cannot read {damaged} as an image"):
        decode(found)
    damaged.write_bytes(b"<svg/>")
    with pytest.raises(ValueError, match=rf"cannot read {damaged} as an image: expected a file of JPEG, PNG"):
        decode(found)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # Pillow's own limit comes later
def test_an_image_that_claims_to_be_enormous_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "bomb.ppm").write_bytes(b"P6 10001 10000 255\n" + b"\x00" * 100)
    with pytest.raises(ValueError, match="expected at most 100000000 pixels, found 10001x10000"):
        open_rgb(tmp_path / "bomb.ppm")


def test_folders_without_images(tmp_path: Path) -> None:
    path = tmp_path / "set"
    path.mkdir()
    with pytest.raises(ValueError, match="expected one subfolder of images per class"):
        data.load(f"folder:{path}")
    (path / "a").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        data.load(f"folder:{path}")


@pytest.mark.parametrize("parts", [("train", "val"), ("Train", "TEST", "notes")])
def test_the_parent_of_parts_is_refused_with_the_names_to_use(tmp_path: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        write_image_folder(tmp_path / "set" / part, {"cat": 1, "dog": 1})
    splits = [part for part in sorted(parts) if part != "notes"]
    names = " or ".join(f"folder:{tmp_path}/set/{part}" for part in splits)
    message = f"holds {', '.join(splits)}, which are parts and not classes: name {names}$"
    for name in (f"folder:{tmp_path}/set", f"folder:{tmp_path}/set/"):
        with pytest.raises(ValueError, match=message):
            data.load(name)


def test_classes_may_be_called_like_parts(tmp_path: Path) -> None:
    """A train on rails, with its images in it or in folders of their own, and tests without classes."""
    write_image_folder(tmp_path / "vehicles", {"bus": 1, "train": 2})
    assert data.load(f"folder:{tmp_path}/vehicles").classes == ("bus", "train")
    write_image_folder(tmp_path / "vehicles" / "train", {"freight": 1})
    assert data.load(f"folder:{tmp_path}/vehicles").labels.tolist() == [0, 1, 1, 1]
    write_image_folder(tmp_path / "flat", {"train": 1, "test": 2})
    assert data.load(f"folder:{tmp_path}/flat").classes == ("test", "train")


def test_empty_subfolders_are_no_classes(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "set", {"b": 2, "d": 1})
    for name in ("a", "c", "e\x1b[2J"):
        (tmp_path / "set" / name / "deeper").mkdir(parents=True)
    (tmp_path / "set" / "c" / "notes.txt").write_text("no image")
    write_image(tmp_path / "set" / "loose.png", smooth_image(1))
    with (
        pytest.warns(UserWarning, match=r"no classes and were left out: a, c, e\\x1b\[2J$"),
        pytest.warns(UserWarning, match=r"left out 1 image outside of class folders, such as loose\.png$"),
    ):
        found = data.load(f"folder:{tmp_path}/set")
    assert (found.classes, found.labels.tolist()) == (("b", "d"), [0, 0, 1])


def test_classes_are_described_with_their_counts(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "set", {"cat": 2, "dog\n": 1})
    described = describe_classes("folder:set", tmp_path)
    assert described == "folder:set: 3 images of 2 classes: cat 2, dog  1"
    for n in range(60):
        write_image(tmp_path / "many" / f"c{n:02}" / "a.png", smooth_image(n, 8, 8))
    described = describe_classes(f"folder:{tmp_path / 'many'}")
    assert "60 images of 60 classes: c00 1, c01 1, " in described
    assert described.endswith("c49 1 and 10 more")
    assert describe_classes("digits/train") == ""


@pytest.mark.real_data
def test_real_folder(real_root: Path) -> None:
    found = data.load("folder:imagenette-mini/val", root=real_root)
    assert (len(found), len(found.classes)) == (100, 10)
    assert decode(found).images.shape == (100, 3, 224, 224)


def test_a_checksum_is_of_the_content_even_where_the_time_of_files_steps_and_an_older_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "rows.csv.gz", []
    for content in (b"before", b"behind") * 50:
        file.write_bytes(content)
        assert hash_file(file) == hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(folders, "digest", lambda path: read.append(path) or digest(path))
    later = time.time_ns() + 10**10
    monkeypatch.setattr(folders.time, "time_ns", lambda: later)
    assert hash_file(file) == hash_file(file)
    assert read == [file]
