"""Images as a network takes them."""

import torch

from regmixup.training.loading import match_channels


def test_colour_becomes_grey_and_keeps_its_type():
    images = torch.tensor([[[[10]], [[20]], [[31]]]], dtype=torch.uint8)
    assert match_channels(images, 1).tolist() == [[[[18]]]]
    assert match_channels(images, 1).dtype == torch.uint8
    torch.testing.assert_close(
        match_channels(images / 255, 1), torch.full((1, 1, 1, 1), (10 * 0.299 + 20 * 0.587 + 31 * 0.114) / 255)
    )
    assert match_channels(images, 3) is images
