"""DenseNet-121 with a CIFAR stem, against torchvision's network with the stem replaced."""

import torch
import torchvision
from torch import nn

from regmixup.networks import build
from tests.networks.weights import copy_in_order, randomise_batch_norm


def torchvision_twin():
    """torchvision's network with a bare 3x3 stride-1 convolution for a stem."""
    model = torchvision.models.DenseNet(
        growth_rate=32, block_config=(6, 12, 24, 16), num_init_features=64, bn_size=4, num_classes=10
    )
    model.features.conv0 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    for name in ("norm0", "relu0", "pool0"):
        setattr(model.features, name, nn.Identity())
    return model


def test_logits_equal_those_of_torchvision():
    """At 16x16, which halves evenly: torchvision rounds odd sides down, we round them up."""
    torch.manual_seed(0)
    theirs = torchvision_twin().double()
    randomise_batch_norm(theirs)
    with torch.device("meta"):
        ours = build("densenet121", num_classes=10).double()
    ours.to_empty(device="cpu")
    copy_in_order(theirs, ours)
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.train()(x), theirs.train()(x), rtol=1e-9, atol=1e-9)


def test_the_transitions_halve_the_image_three_times():
    """A 32x32 image reaches the pooling as 4x4, a 33x33 image as 5x5."""
    with torch.device("meta"):
        model = build("densenet121", num_classes=10)
        for size, left in ((32, 4), (33, 5)):
            assert model.backbone[:-2](torch.zeros(1, 3, size, size)).shape == (1, 1024, left, left)
