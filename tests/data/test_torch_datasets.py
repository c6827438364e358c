"""Any torch dataset in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from regmixup import data

from .official import random_images

PIXELS = random_images(3, seed=1, side=5)


class Pairs(list[tuple[Any, Any]]):
    """A dataset is anything with a length and items."""


def test_tensors() -> None:
    images = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
    found = data.from_dataset(TensorDataset(images, torch.tensor([2, 0, 1])), "mine")
    assert torch.equal(found.images, images)
    assert found.labels.tolist() == [2, 0, 1]
    assert (found.classes, found.name) == (("0", "1", "2"), "mine")


@pytest.mark.parametrize("convert", [Image.fromarray, lambda p: p, lambda p: torch.from_numpy(p).permute(2, 0, 1)])
@pytest.mark.parametrize("label", [1, np.int64(1), torch.tensor(1), torch.tensor([1])])
def test_kinds_of_images_and_labels(convert: Any, label: Any) -> None:
    found = data.from_dataset(Pairs((convert(p), label) for p in PIXELS), "mine")
    np.testing.assert_array_equal(found.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert found.labels.tolist() == [1, 1, 1]


def test_grey_and_class_names() -> None:
    pairs = Pairs((Image.fromarray(p[:, :, 0]), 0) for p in PIXELS)
    pairs.classes = ["cat", "dog"]  # type: ignore[attr-defined]
    found = data.from_dataset(pairs, "mine")
    assert found.images.shape == (3, 1, 5, 5)
    assert found.classes == ("cat", "dog")


def test_floats_stay_in_the_unit_interval() -> None:
    found = data.from_dataset(Pairs((torch.full((3, 2, 2), v, dtype=torch.float64), 0) for v in (0.0, 1.0)), "mine")
    assert found.images.dtype == torch.float32
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got -1 to 2; remove normalisation"):
        data.from_dataset(Pairs((torch.full((3, 2, 2), v), 0) for v in (-1.0, 2.0)), "mine")
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got nan"):
        data.from_dataset(Pairs([(torch.full((3, 2, 2), float("nan")), 0)]), "mine")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "mine: the dataset is empty"),
        ([("a path", 0)], r"mine\[0\]: an image must be a PIL image, an array or a tensor, got str"),
        ([(PIXELS[0], 0), (PIXELS[1][:4], 0)], "images must be of one size and type, .* at 1"),
        ([(PIXELS[0], 0.5)], r"mine\[0\]: a label must be an integer, got float"),
        ([(PIXELS[0], True)], "a label must be an integer, got bool"),
        ([(PIXELS[0], torch.tensor([1, 2]))], "a label must be an integer, got Tensor"),
        ([(PIXELS[0].astype(np.int64), 0)], "an image must be uint8 or float"),
        ([(torch.zeros(2, 3, 4, 5), 0)], "an image must be uint8 or float"),
        ([(PIXELS[0], -1)], r"labels must lie in \[0, 0\)|labels must lie"),
    ],
)
def test_wrong_items(pairs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.from_dataset(Pairs(pairs), "mine")
