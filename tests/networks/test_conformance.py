"""What every network of the registry promises, whatever its layers."""

import copy
import functools
import math

import pytest
import torch
from torch import nn

from regmixup.networks import HEADS, NETWORKS, build

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
PARAMETERS = {
    ("small", 10): 24_346,
    ("small", 100): 30_196,
    ("resnet18", 10): 11_173_962,
    ("resnet18", 100): 11_220_132,
    ("resnet50", 10): 23_520_842,
    ("resnet50", 100): 23_705_252,
    ("wrn28-10", 10): 36_479_194,
    ("wrn28-10", 100): 36_536_884,
    ("wrn28-10-sngp", 10): 36_479_194,
    ("wrn28-10-sngp", 100): 36_536_884,
    ("densenet121", 10): 6_956_298,
    ("densenet121", 100): 7_048_548,
    ("pyramidnet200", 10): 26_752_702,
    ("pyramidnet200", 100): 26_844_952,
    ("timm/resnet50", 1000): 25_557_032,
}
DIMENSIONS = {
    "small": 64,
    "resnet18": 512,
    "resnet50": 2048,
    "wrn28-10": 640,
    "wrn28-10-sngp": 640,
    "densenet121": 1024,
    "pyramidnet200": 1024,
}
each_network = pytest.mark.parametrize("name", NETWORKS, scope="module")  # all tests of one, then of the next
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
def own_network(name):
    """A copy that a test may change."""
    return copy.deepcopy(_built(name))


@pytest.fixture
def trainable(name):
    """A copy with layers, buffers and gradients of its own, which shares the values of the parameters."""
    twin = _built(name)
    yield copy.deepcopy(twin, {id(parameter): parameter for parameter in twin.parameters()})
    twin.zero_grad()


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
def test_forward_is_head_of_features(network):
    x = images()
    features = network.features(x)
    assert features.shape == (2, network.feature_dim)
    logits = network(x)
    assert logits.shape == (2, 10)
    assert torch.equal(logits, network.head(features))
    assert network.head.weight.shape == (10, network.feature_dim)


@each_network
def test_feature_dimension_is_the_documented_one(name, network):
    assert network.feature_dim == DIMENSIONS[name]
    assert f"{DIMENSIONS[name]}-d features" in NETWORKS[name].description


@each_network
def test_different_images_give_different_logits(name):
    logits = _logits(name)
    assert not torch.allclose(logits[0], logits[1])


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
def test_state_dict_restores_the_logits(name, network, own_network):
    """Every tensor of it: all of another network's are set to 2 first."""
    for tensor in own_network.state_dict().values():
        tensor.fill_(2)
    own_network.load_state_dict(network.state_dict())
    assert torch.equal(own_network(images()), _logits(name))


@each_network
def test_normalisation_is_configuration_and_not_part_of_the_state(name, network):
    with torch.device("meta"):
        keys = build(name, num_classes=10).state_dict().keys()
    assert network.state_dict().keys() == keys


# ------------------------------------------------------------------------------------------------------ inputs


@each_network
def test_a_batch_of_one_equals_its_row_in_a_larger_batch(name, network):
    torch.testing.assert_close(network(images()[:1]), _logits(name)[:1], rtol=1e-4, atol=1e-5)


@each_network
@pytest.mark.parametrize("size", [5, 9])
def test_odd_image_sizes_work(network, size):
    logits = network(images(size))
    assert logits.shape == (2, 10)
    assert torch.isfinite(logits).all()


@two_networks
def test_uint8_images_equal_floats_divided_by_255(network):
    pixels = (255 * images()).round().to(torch.uint8)
    assert torch.equal(network(pixels), network(pixels.float() / 255))


@two_networks
def test_uint8_images_are_scaled_without_normalisation_too(trainable):
    trainable.normalize = None
    pixels = (255 * images()).round().to(torch.uint8)
    assert torch.equal(trainable(pixels), trainable(pixels.float() / 255))


@two_networks
def test_normalising_inside_equals_normalising_outside(trainable):
    x = images()
    outside = (x - torch.tensor(MEAN).reshape(1, 3, 1, 1)) / torch.tensor(STD).reshape(1, 3, 1, 1)
    inside = trainable(x)
    trainable.normalize = None
    torch.testing.assert_close(trainable(outside), inside)
    assert not torch.allclose(trainable(x), inside)


@two_networks
def test_inputs_are_not_changed(trainable):
    x = images()
    trainable.train()(x)
    assert torch.equal(x, images())


@each_network
def test_inputs_are_not_changed_where_the_backbone_gets_them_as_they_are(trainable):
    x = images()
    trainable.normalize = None
    trainable.train()(x)
    assert torch.equal(x, images())


@each_network
def test_float64_works_and_agrees_with_float32(name, own_network):
    double = own_network.double()(images().double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(_logits(name).double(), double, rtol=1e-3, atol=1e-4)


@each_network
def test_channels_last_gives_the_same_logits(name, own_network):
    last = own_network.to(memory_format=torch.channels_last)(images().to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, _logits(name), rtol=1e-4, atol=1e-5)


@each_network
def test_one_channel_images(name):
    with torch.device("meta"):
        model = build(name, num_classes=4, in_channels=1, normalize=((0.5,), (0.25,)))
    assert model.backbone[0](model.normalize(images(channels=1).to("meta"))).shape[0] == 2  # the stem
    assert next(model.backbone.parameters()).shape[1] == 1
    assert model.head.out_features == 4


# ----------------------------------------------------------------------------------------------------- dropout


@each_network
def test_the_networks_own_dropout_rate_is_the_default(name):
    rates = {module.p for module in dropouts(_built(name))}
    assert rates == {NETWORKS[name].dropout}
    assert NETWORKS[name].dropout == (0.1 if name.startswith("wrn28-10") else 0.0)


@each_network
@pytest.mark.parametrize("rate", [0, 0.3])
def test_a_given_dropout_rate_replaces_it(name, rate):
    with torch.device("meta"):
        model = build(name, num_classes=10, dropout=rate)
    assert {module.p for module in dropouts(model)} == {rate}


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
    ("name", "nearest"),
    [("wrn28_10", "wrn28-10"), ("resnet51", "resnet50"), ("smal", "small"), ("ResNet18", "resnet18")],
)
def test_an_unknown_name_is_corrected_and_all_names_are_listed(name, nearest):
    with pytest.raises(
        ValueError, match=rf"^unknown network '{name}': did you mean '{nearest}'\? Available: "
    ) as error:
        build(name, num_classes=10)
    assert all(known in str(error.value) for known in NETWORKS)


@pytest.mark.parametrize("field", ["num_classes", "in_channels"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "10", None, True])
def test_counts_must_be_positive_integers(field, value):
    with pytest.raises(ValueError, match=rf"^{field} must be an integer >= 1, got {value!r}$"):
        build("small", **{"num_classes": 10, field: value})


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, math.nan])
def test_dropout_must_lie_in_the_half_open_unit_interval(value):
    with pytest.raises(ValueError, match=rf"^dropout must be a finite number >= 0 and < 1, got {value!r}$"):
        build("small", num_classes=10, dropout=value)


@pytest.mark.parametrize(
    "normalize",
    [((0.5,), (0.5,)), (MEAN, STD[:2]), (MEAN[:2], STD), (MEAN,), (1, 1), *((MEAN, (1, s, 1)) for s in (0, math.nan))],
)
def test_normalize_must_have_one_mean_and_std_per_channel(normalize):
    with pytest.raises(
        ValueError, match=r"^normalize must be \(mean, std\) for 3 channels with std > 0, got "
    ) as error:
        build("small", num_classes=10, normalize=normalize)
    assert repr(normalize) in str(error.value)


def test_an_unknown_head_is_corrected():
    assert "linear" in HEADS
    with pytest.raises(ValueError, match=r"^unknown head 'liner': did you mean 'linear'\? Available: .*linear"):
        build("small", num_classes=10, head="liner")


def test_arguments_after_the_name_are_given_by_name():
    with pytest.raises(TypeError, match="positional argument"):
        build("small", 10)
