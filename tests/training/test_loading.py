"""Images as a network takes them."""

import pytest
import torch

from regmixup.data.images import ImageSet
from regmixup.training.loading import match_channels, warn_of_empty_classes


def test_colour_becomes_grey_and_keeps_its_type():
    images = torch.tensor([[[[10]], [[20]], [[31]]]], dtype=torch.uint8)
    assert match_channels(images, 1).tolist() == [[[[18]]]]
    assert match_channels(images, 1).dtype == torch.uint8
    torch.testing.assert_close(
        match_channels(images / 255, 1), torch.full((1, 1, 1, 1), (10 * 0.299 + 20 * 0.587 + 31 * 0.114) / 255)
    )
    assert match_channels(images, 3) is images


def test_a_class_without_images_is_named_as_where_labels_count_from_one():
    images = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)
    with pytest.warns(UserWarning, match=r"mine: no image is of class a, of 3 classes; labels must count from 0$"):
        warn_of_empty_classes(ImageSet(images, torch.tensor([1, 2]), ("a", "b", "c"), "mine"))
    warn_of_empty_classes(ImageSet(images, torch.tensor([1, 0]), ("a", "b"), "mine"))
