"""timm's models behind our contract: what they compute, the sizes they take, and what is said when they do not."""

import re
import subprocess
import sys

import pytest
import timm
import torch
from torch import nn

from regmixup.networks import build, check_network
from regmixup.networks.timm_models import default_image_size, total_stride
from tests.networks.weights import randomise_batch_norm

TINY = ["timm/test_resnet.r160_in1k", "timm/test_vit.r160_in1k", "timm/test_convnext", "timm/test_efficientnet"]
each_tiny = pytest.mark.parametrize("name", TINY)


def images(size=32, channels=3):
    return torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(1))


# ---------------------------------------------------------------------------------------------- what is computed


@pytest.mark.parametrize(("name", "size"), [("resnet50", 33), ("test_vit", 160), ("test_convnext", 40)])
def test_features_and_logits_equal_those_of_timm(name, size):
    torch.manual_seed(0)
    theirs = timm.create_model(name, pretrained=False).eval()
    randomise_batch_norm(theirs)
    ours = build(f"timm/{name}", num_classes=1000).eval()
    ours.backbone[0].load_state_dict(
        {k: v for k, v in theirs.state_dict().items() if k in ours.backbone[0].state_dict()}
    )
    ours.head.load_state_dict(theirs.get_classifier().state_dict())
    x = images(size)
    with torch.no_grad():
        pooled = theirs.forward_head(theirs.forward_features(x), pre_logits=True)
        assert pooled.shape == (2, ours.feature_dim)
        torch.testing.assert_close(ours.features(x), pooled)
        torch.testing.assert_close(ours(x), theirs(x))


@each_tiny
def test_every_parameter_gets_a_gradient(name):
    """Once the batch norms have left their start: timm switches residual branches off by a scale of 0."""
    torch.manual_seed(0)
    model = build(name, num_classes=10, image_size=32)
    randomise_batch_norm(model)
    assert all(module.training for module in model.modules())
    nn.functional.cross_entropy(model(images()), torch.tensor([3, 7])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, parameter_name


@each_tiny
def test_one_channel_pixels_in_uint8_equal_floats_divided_by_255(name):
    model = build(name, num_classes=4, in_channels=1, normalize=((0.5,), (0.25,)), image_size=32).eval()
    pixels = (255 * images(channels=1)).round().to(torch.uint8)
    logits = model(pixels)
    assert logits.shape == (2, 4)
    assert not torch.allclose(logits[0], logits[1])
    assert torch.equal(logits, model(pixels.float() / 255))


def test_building_leaves_no_trace_of_its_trial():
    """The same seed gives timm's own initial weights, on the CPU, batch norm statistics untouched."""
    torch.manual_seed(0)
    theirs = timm.create_model("test_resnet", pretrained=False, num_classes=0).state_dict()
    torch.manual_seed(0)
    ours = build("timm/test_resnet", num_classes=10).backbone[0].state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)


# ------------------------------------------------------------------------------------------------------- dropout


def test_a_given_rate_acts_on_the_features_and_replaces_that_of_timm():
    """RepGhostNet is one of timm's few networks with a rate of their own."""
    with torch.device("meta"):
        own, given = (
            build("timm/repghostnet_050", num_classes=10),
            build("timm/repghostnet_050", num_classes=10, dropout=0.3),
        )
    assert (own.backbone[0].drop_rate, own.backbone[1].p) == (0.2, 0.0)
    assert (given.backbone[0].drop_rate, given.backbone[1].p) == (0.0, 0.3)


# --------------------------------------------------------------------------------------------------- image sizes


def test_a_transformer_is_made_for_the_given_image_size():
    """16x16 patches and one class token: 160x160 by default, or what is asked for."""
    for size, tokens in ((None, 101), (32, 5), ((32, 48), 7)):
        model = build("timm/test_vit", num_classes=10, image_size=size)
        assert model.backbone[0].pos_embed.shape[1] == tokens
    assert model(torch.rand(2, 3, 32, 48)).shape == (2, 10)
    assert default_image_size("timm/test_vit") == (160, 160)


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("timm/vit_tiny_patch16_224", (32, 40), "images must be divisible into its patches of 16x16 pixels"),
        ("timm/test_convnext", 8, "size"),
    ],
)
def test_an_image_size_that_does_not_suit_the_network_is_refused(name, size, reason):
    sides = size if isinstance(size, tuple) else (size, size)
    start = f"image_size and in_channels must suit {name}, got image_size={sides}, in_channels=3: "
    with torch.device("meta"), pytest.raises(ValueError, match=rf"^{re.escape(start)}.*{re.escape(reason)}"):
        build(name, num_classes=10, image_size=size)


def test_the_total_stride_is_that_of_the_last_features():
    """Beside what timm says, what it gives: of 64 pixels, 64 / stride positions. A ViT has its patches."""
    for name, stride in (("test_resnet", 32), ("test_convnext", 32), ("test_vit", 16)):
        assert total_stride(build(f"timm/{name}", num_classes=2, image_size=64)) == stride
    features = timm.create_model("test_resnet").forward_features(torch.zeros(1, 3, 64, 64))
    assert features.shape[2:] == (64 // 32, 64 // 32)
    assert total_stride(build("small", num_classes=2)) == 1


def test_a_size_of_timms_own_is_never_refused():
    """27 patches of 14 pixels leave 6 of the 384 over, and timm's weights were trained so."""
    with torch.device("meta"):
        assert build("timm/vit_so400m_patch14_siglip_384", num_classes=10).feature_dim == 1152


# --------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("timm/resent50", "timm/resnet50"),
    ],
)
def test_an_unknown_timm_name_is_corrected_without_listing_them_all(name, nearest):
    for refuse in (check_network, lambda name: build(name, num_classes=10)):
        with pytest.raises(
            ValueError,
            match=rf"^unknown network '{name}': did you mean '{nearest}'\? Available: those of timm.list_models\(\)$",
        ):
            refuse(name)


def test_the_names_of_our_own_networks_need_neither_torch_nor_timm():
    code = """
        import sys
        from regmixup.networks import check_network
        check_network("densenet121")
        try:
            check_network("densenet")
        except ValueError as error:
            assert str(error).endswith("write timm/densenet")
        assert not {"torch", "timm"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", re.sub(r"^ {8}", "", code, flags=re.MULTILINE)], check=True)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("name", "shape"), [("mobilenetv5_300m_enc", "(1, 2048, 16, 16)"), ("test_resnet", "(1, 0)")])
def test_a_network_without_a_feature_vector_is_refused(name, shape, monkeypatch):
    """An encoder that keeps its map; and one whose head leaves nothing, as inception_next_atto's before timm 1.0.31."""
    monkeypatch.setattr(timm.models.ResNet, "forward_head", lambda self, x, pre_logits=False: x.new_zeros(len(x), 0))
    message = f"network must give features (N, D), got {shape} from timm/{name} for one image"
    with torch.device("meta"), pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build(f"timm/{name}", num_classes=10)
