"""What every network of the registry promises, whatever its layers."""

import copy
import functools

import pytest
import torch
from torch import nn

from regmixup.networks import NETWORKS, build

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
NOT_NORMALIZED = r"^normalize must be finite \(mean, std\) for 3 channels with std > 0, got "
PARAMETERS = {
    ("small", 10): 24_346,
    ("resnet18", 100): 11_220_132,
    ("resnet50", 10): 23_520_842,
    ("wrn28-10", 100): 36_536_884,
    ("wrn28-10-sngp", 10): 36_479_194,
    ("densenet121", 10): 6_956_298,
    ("pyramidnet200", 10): 26_752_702,
    ("timm/resnet50", 1000): 25_557_032,
}
# All tests of one, then of the next. wrn28-10-sngp is the backbone of wrn28-10 with a head that has tests of its own.
NAMES = [pytest.param(name, marks=pytest.mark.soak if name == "wrn28-10-sngp" else ()) for name in NETWORKS]
each_network = pytest.mark.parametrize("name", NAMES, scope="module")
# What `Classifier` does before the backbone does not depend on the backbone.
two_networks = pytest.mark.parametrize("name", ["small", "resnet18"])


@functools.cache
def _built(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(name, num_classes=10, normalize=(MEAN, STD)).eval()


@functools.cache
def _logits(name):
    """The network's answer to `images()`; shared, too."""
    return _built(name)(images())


@pytest.fixture
def network(name):
    """A network in eval mode with normalisation inside, shared by the tests: they must leave it as it is."""
    return _built(name)


@pytest.fixture
def trainable(name):
    """A copy that a test may change."""
    return copy.deepcopy(_built(name))


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def images(size=8, channels=3, batch_size=2):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(batch_size, channels, size, size, generator=generator)


def dropouts(model):
    return [module for module in model.modules() if isinstance(module, (nn.Dropout, nn.Dropout2d))]


# ------------------------------------------------------------------------------------------------ the contract


@each_network
def test_forward_is_head_of_features(name, network):
    x = images()
    features = network.features(x)
    assert features.shape == (2, network.feature_dim)
    assert f"{network.feature_dim}-d features" in NETWORKS[name].description
    logits = network(x)
    assert not torch.allclose(logits[0], logits[1])
    assert logits.shape == (2, 10)
    assert torch.equal(logits, network.head(features))


@pytest.mark.parametrize(("name", "num_classes"), PARAMETERS)
def test_parameter_count(name, num_classes):
    """On the meta device, where a network has shapes but no values."""
    with torch.device("meta"):
        model = build(name, num_classes=num_classes)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name, num_classes]


@each_network
def test_every_parameter_gets_a_gradient(trainable):
    trainable.train()
    with torch.enable_grad():
        nn.functional.cross_entropy(trainable(images(9)), torch.tensor([3, 7])).backward()
    for parameter_name, parameter in trainable.named_parameters():
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@each_network
def test_state_dict_restores_the_logits(name, network, trainable):
    """Every tensor of it: all of another network's are set to 2 first."""
    for tensor in trainable.state_dict().values():
        tensor.fill_(2)
    assert not any(name.startswith("normalize") for name in network.state_dict()), "normalisation is configuration"
    trainable.load_state_dict(network.state_dict())
    assert torch.equal(trainable(images()), _logits(name))


# ------------------------------------------------------------------------------------------------------ inputs


@each_network
@pytest.mark.parametrize("size", [5, 8])
def test_a_batch_of_one_equals_its_row_in_a_larger_batch(network, size):
    torch.testing.assert_close(network(images(size)[:1]), network(images(size))[:1], rtol=1e-4, atol=1e-5)


@two_networks
def test_uint8_images_equal_floats_divided_by_255(network):
    pixels = (255 * images()).round().to(torch.uint8)
    assert torch.equal(network(pixels), network(pixels.float() / 255))


@two_networks
def test_normalising_inside_equals_normalising_outside(trainable):
    x = images()
    outside = (x - torch.tensor(MEAN).reshape(1, 3, 1, 1)) / torch.tensor(STD).reshape(1, 3, 1, 1)
    inside = trainable(x)
    trainable.normalize = None
    torch.testing.assert_close(trainable(outside), inside)
    assert not torch.allclose(trainable(x), inside)


@each_network
def test_inputs_are_not_changed_where_the_backbone_gets_them_as_they_are(trainable):
    x = images()
    trainable.normalize = None
    trainable.train()(x)
    assert torch.equal(x, images())


@each_network
def test_float64_works_and_agrees_with_float32(name, trainable):
    double = trainable.double()(images().double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(_logits(name).double(), double, rtol=1e-3, atol=1e-4)


@each_network
def test_one_channel_images(name):
    with torch.device("meta"):
        model = build(name, num_classes=4, in_channels=1, normalize=((0.5,), (0.25,)))
        assert model(images(channels=1).to("meta")).shape == (2, 4)


# ----------------------------------------------------------------------------------------------------- dropout


@each_network
def test_the_networks_own_dropout_rate_is_the_default_and_a_given_one_replaces_it(name):
    assert {module.p for module in dropouts(_built(name))} == {0.1 if name.startswith("wrn28-10") else 0.0}
    with torch.device("meta"):
        model = build(name, num_classes=10, dropout=0.3)
    assert {module.p for module in dropouts(model)} == {0.3}


@each_network
def test_dropout_acts_in_training_only(name, trainable):
    x = images()
    for module in dropouts(trainable):
        module.p = 0.5
    assert torch.equal(trainable(x), _logits(name))
    trainable.train()
    assert not torch.allclose(trainable(x), trainable(x))
    for module in dropouts(trainable):
        module.p = 0.0
    assert torch.equal(trainable(x), trainable(x))


# ------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet51"}, r"^unknown network 'resnet51': did you mean 'resnet50'\? Available: dense.*timm/"),
        ({"num_classes": 0}, r"^num_classes must be an integer >= 1, got 0$"),
        ({"dropout": 1}, r"^dropout must be a finite number >= 0 and < 1, got 1$"),
        ({"normalize": (MEAN[:2], STD[:2])}, NOT_NORMALIZED),
        ({"normalize": (MEAN, (1, 0, 1))}, NOT_NORMALIZED),
        ({"normalize": (1, 1)}, r"^normalize must be .* got \(1, 1\)$"),
        ({"head": "liner"}, r"^unknown head 'liner': did you mean 'linear'\? Available: .*linear"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**{"name": "small", "num_classes": 10, **options})
