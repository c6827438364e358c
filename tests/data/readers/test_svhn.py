"""SVHN."""

import numpy as np
import pytest
from scipy.io import savemat

from regmixup import data
from tests.data.official import random_images, write_svhn


@pytest.mark.parametrize("split", ["train", "test"])
def test_reads_what_was_written(tmp_path, split):
    images, digits = write_svhn(tmp_path, split, count=12)
    dataset = data.load(f"svhn/{split}", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.images.is_contiguous()
    assert dataset.labels.tolist() == digits
    assert dataset.classes == tuple("0123456789")


def _content(**changes):
    images = random_images(4, seed=1).transpose(1, 2, 3, 0)
    return {"X": images, "y": np.array([[1], [10], [3], [4]], np.uint8), **changes}


WRONG = {
    "no X": ({"y": np.ones((4, 1))}, "a MAT-file with X and y: 'X'"),
    "X of float": (_content(X=np.zeros((32, 32, 3, 4))), r"X of type uint8 .* found float64"),
    "X in another order": (_content(X=np.zeros((4, 32, 32, 3), np.uint8)), r"found uint8 \(4, 32, 32, 3\)"),
    "a label too few": (_content(y=np.ones((3, 1))), r"shape \(32, 32, 3, 3\), found uint8 \(32, 32, 3, 4\)"),
    "label 11": (_content(y=np.array([[1], [11], [3], [4]])), "labels from 1 to 10"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_names_the_file_and_the_difference(tmp_path, case):
    write_svhn(tmp_path)
    content, message = WRONG[case]
    savemat(tmp_path / "test_32x32.mat", content)
    with pytest.raises(ValueError, match=message) as error:
        data.load("svhn/test", root=tmp_path)
    assert str(tmp_path / "test_32x32.mat") in str(error.value)


@pytest.mark.real_data
def test_real_svhn(real_root):
    dataset = data.load("svhn/test", root=real_root)
    assert dataset.images.shape == (26_032, 3, 32, 32)
    assert dataset.labels.bincount().tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
