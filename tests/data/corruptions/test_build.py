"""Building a folder in the format of CIFAR-10-C."""

import json

import numpy as np
import pytest
import torch

from regmixup.data.corruptions import build
from regmixup.data.corruptions.build import build_corrupted
from regmixup.data.images import ImageSet
from tests.data.corruptions.photographs import pieces

NAMES = ("contrast", "gaussian_noise")


@pytest.fixture(scope="module")
def source():
    return ImageSet(pieces(12), torch.arange(12) % 4, tuple("abcd"), "toy/test")


def test_the_folder_has_the_format_of_cifar_10_c(source, tmp_path):
    seen = []
    folder = build_corrupted(source, tmp_path / "c", names=NAMES, on_progress=lambda *done: seen.append(done))
    images, labels = np.load(folder / "gaussian_noise.npy"), np.load(folder / "labels.npy")
    assert (images.dtype, images.shape) == (np.uint8, (60, 32, 32, 3))
    assert labels.tolist() == source.labels.tolist() * 5
    clean = source.images.permute(0, 2, 3, 1).numpy().astype(float)
    changes = [np.abs(block - clean).mean() for block in images.reshape(5, 12, 32, 32, 3)]
    assert changes == sorted(changes)
    assert changes[0] > 5
    assert seen == [(name, severity) for name in NAMES for severity in range(1, 6)]
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["rebuilt"] is True
    assert provenance["source_fingerprint"] == source.fingerprint
    assert {path.name for path in folder.iterdir()} - {".lock"} == {
        "contrast.npy", "gaussian_noise.npy", "labels.npy", "provenance.json",
    }  # fmt: skip


def test_a_file_depends_on_the_seed_and_its_own_name_alone(source, tmp_path):
    both = build_corrupted(source, tmp_path / "both", names=NAMES)
    one = build_corrupted(source, tmp_path / "one", names=NAMES[1:])
    other = build_corrupted(source, tmp_path / "other", names=NAMES[1:], seed=1)
    first, second, third = (np.load(folder / "gaussian_noise.npy") for folder in (both, one, other))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


def test_an_interrupted_build_is_resumed_without_redoing_what_is_done(source, tmp_path, monkeypatch):
    calls = []

    def dying(images, name, **options):
        calls.append(name)
        if calls.count("gaussian_noise") == 3:
            raise KeyboardInterrupt
        return corrupt(images, name, **options)

    corrupt = build.corrupt
    monkeypatch.setattr(build, "corrupt", dying)
    with pytest.raises(KeyboardInterrupt):
        build_corrupted(source, tmp_path / "killed", names=NAMES)
    assert {path.suffix for path in (tmp_path / "killed").glob("*")} == {"", ".npy", ".json"}
    assert not (tmp_path / "killed" / "gaussian_noise.npy").exists()
    calls.clear()
    monkeypatch.setattr(build, "corrupt", corrupt)
    resumed = build_corrupted(source, tmp_path / "killed", names=NAMES, on_progress=lambda name, _: calls.append(name))
    assert set(calls) == {"gaussian_noise"}
    straight = build_corrupted(source, tmp_path / "straight", names=NAMES)
    for name in NAMES:
        assert (resumed / f"{name}.npy").read_bytes() == (straight / f"{name}.npy").read_bytes()


def test_another_build_in_the_same_folder_is_refused(source, tmp_path):
    build_corrupted(source, tmp_path, names=["contrast"])
    with pytest.raises(ValueError, match=r"holds another build .*seed is 0, not 1"):
        build_corrupted(source, tmp_path, names=["contrast"], seed=1)
    fewer = ImageSet(source.images[:5], source.labels[:5], source.classes, "toy/test")
    with pytest.raises(ValueError, match=r"holds another build .*source_fingerprint"):
        build_corrupted(fewer, tmp_path, names=["contrast"])


def test_a_folder_of_somebody_elses_arrays_is_left_alone(source, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(3))
    with pytest.raises(ValueError, match="holds arrays that were not built here"):
        build_corrupted(source, tmp_path, names=["contrast"])
    assert np.load(tmp_path / "labels.npy").tolist() == [0, 1, 2]
    assert not (tmp_path / "provenance.json").exists()


def test_corruptions_without_strengths_for_the_size_are_refused_before_anything_is_written(source, tmp_path):
    tiny = ImageSet(source.images[..., :8, :8], source.labels, source.classes, "tiny/test")
    with pytest.raises(ValueError, match="did you mean 'contrast'"):
        build_corrupted(source, tmp_path / "new", names=["contrats"])
    with pytest.raises(ValueError, match=r"fog has no constants for digits \(8 x 8 images"):
        build_corrupted(tiny, tmp_path / "new", names=["contrast", "fog", "snow"])
    assert not (tmp_path / "new").exists()
    assert np.load(build_corrupted(tiny, tmp_path / "new", names=["contrast"]) / "contrast.npy").shape == (60, 8, 8, 3)
