"""OpenOODNet keeps the contract of OpenOOD's networks, as its evaluator, postprocessors and wrapper nets use it."""

import numpy as np
import pytest
import torch
from torch import nn

import regmixup as rm
from tests.frameworks import example

MEAN, STD = (0.2, 0.3, 0.4), (0.5, 0.6, 0.7)


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    network = rm.networks.build("small", num_classes=7, normalize=((0.1, 0.1, 0.1), (0.3, 0.3, 0.3))).eval()
    return network, rm.networks.OpenOODNet(network, normalized=(MEAN, STD)).eval()


def images():
    """Pixels in [0, 1], and as a preprocessor of OpenOOD passes them on."""
    pixels = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return pixels, (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def test_logits_and_features_are_the_networks_own(pair):
    network, net = pair
    pixels, given = images()
    logits, features = net(given, return_feature=True)
    torch.testing.assert_close(features, network.features(pixels))
    torch.testing.assert_close(logits, network(pixels))
    assert torch.equal(net(given), logits)
    assert torch.equal(net.forward(given, True, False)[1], features)  # by position, as its wrapper nets call it
    assert torch.equal(rm.networks.OpenOODNet(network)(pixels), network(pixels))


def test_the_head_as_arrays_gives_the_logits(pair):
    """As ViM, residual and the like compute them."""
    _, net = pair
    logits, features = (value.detach().numpy() for value in net(images()[1], return_feature=True))
    weight, bias = net.get_fc()
    assert weight.shape == (7, net.feature_size)
    np.testing.assert_allclose(features @ weight.T + bias, logits, rtol=1e-5, atol=1e-6)
    assert net.get_fc_layer() is net.fc
    assert isinstance(net.fc, nn.Linear)


def test_features_can_be_clipped_by_its_wrapper_nets_and_by_itself(pair):
    network, net = pair
    pixels, given = images()
    threshold = network.features(pixels).median().item()
    expected = network.head(network.features(pixels).clip(max=threshold))
    _, maps = net(given, return_feature_list=True)  # as its ReAct, ASH and SCALE nets call it
    assert maps[-1].dim() == 4
    torch.testing.assert_close(net.fc(maps[-1].clip(max=threshold).view(len(given), -1)), expected)
    torch.testing.assert_close(net.forward_threshold(given, threshold), expected)
    assert not torch.allclose(expected, network(pixels))


def test_its_loaders_and_networks_give_predictions_with_features_and_head(pair):
    """Their contents are enough for scores of features."""
    _, net = pair
    loader = [{"data": images()[1], "label": torch.tensor([0, 1, 2, 3, -1])}]
    found = example("in_openood")["predictions_of"](net, loader, "far/ood")
    assert torch.equal(found.logits, net(loader[0]["data"]))
    torch.testing.assert_close(found.features @ found.head_weight.T + found.head_bias, found.logits)
    assert found.labels.tolist() == [0, 1, 2, 3, -1]


def test_a_head_that_is_not_linear_is_refused():
    network = rm.networks.build("small", num_classes=7, head="rbf")
    with pytest.raises(ValueError, match=r"network must have a linear head, .* got RadialBasis"):
        rm.networks.OpenOODNet(network)
