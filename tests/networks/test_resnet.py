"""ResNet-18 and ResNet-50 with CIFAR stems, against torchvision's networks with the stem replaced."""

import pytest
import torch
import torchvision
from torch import nn

from regmixup.networks import build
from tests.networks.weights import copy_in_order, randomise_batch_norm


def torchvision_twin(name):
    """torchvision's network with a 3x3 stride-1 stem and no max-pool."""
    model = getattr(torchvision.models, name)(weights=None, num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_logits_equal_those_of_torchvision(name):
    torch.manual_seed(0)
    theirs = torchvision_twin(name).double()
    randomise_batch_norm(theirs)
    with torch.device("meta"):
        ours = build(name, num_classes=10).double()
    ours.to_empty(device="cpu")
    copy_in_order(theirs, ours)
    x = torch.rand(2, 3, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.train()(x), theirs.train()(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_stages_halve_the_image_three_times(name):
    """A 32x32 image reaches the pooling as 4x4."""
    with torch.device("meta"):
        model = build(name, num_classes=10)
        maps = model.backbone[:-2](torch.zeros(1, 3, 32, 32))
    assert maps.shape == (1, model.feature_dim, 4, 4)
