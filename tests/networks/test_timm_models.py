"""timm's models behind our contract: what they compute, the sizes they take, and what is said when they do not."""

import re
import subprocess
import sys

import pytest
import timm
import torch
from torch import nn

from regmixup.networks import build, check_network
from tests.networks.weights import randomise_batch_norm


def images(size=32, channels=3):
    return torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(1))


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


@pytest.mark.parametrize("name", ["test_resnet.r160_in1k", "test_vit.r160_in1k", "test_efficientnet"])
def test_every_parameter_gets_a_gradient_from_pixels_of_one_channel(name):
    """Once the batch norms have left their start: timm switches residual branches off by a scale of 0."""
    torch.manual_seed(0)
    model = build(f"timm/{name}", num_classes=10, in_channels=1, normalize=((0.5,), (0.25,)), image_size=32)
    randomise_batch_norm(model)
    assert all(module.training for module in model.modules())
    pixels = (255 * images(channels=1)).round().to(torch.uint8)
    nn.functional.cross_entropy(model(pixels), torch.tensor([3, 7])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, parameter_name


def test_building_leaves_no_trace_of_its_trial():
    """The same seed gives timm's own initial weights, on the CPU, batch norm statistics untouched."""
    torch.manual_seed(0)
    theirs = timm.create_model("test_resnet", pretrained=False, num_classes=0).state_dict()
    torch.manual_seed(0)
    ours = build("timm/test_resnet", num_classes=10).backbone[0].state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)


def test_a_given_dropout_acts_on_the_features_and_replaces_that_of_timm():
    """RepGhostNet is one of timm's few networks with a rate of their own."""
    with torch.device("meta"):
        plain = build("timm/repghostnet_050", num_classes=10)
        changed = build("timm/repghostnet_050", num_classes=10, dropout=0.3)
    assert (plain.backbone[0].drop_rate, plain.backbone[1].p) == (0.2, 0.0)
    assert (changed.backbone[0].drop_rate, changed.backbone[1].p) == (0.0, 0.3)


def test_a_transformer_is_made_for_the_given_image_size():
    """16x16 patches and one class token: 160x160 by default, or what is asked for."""
    for size, tokens in ((None, 101), (32, 5), ((32, 48), 7)):
        model = build("timm/test_vit", num_classes=10, image_size=size)
        assert model.backbone[0].pos_embed.shape[1] == tokens
    assert model(torch.rand(2, 3, 32, 48)).shape == (2, 10)


def test_an_image_size_that_does_not_suit_the_network_is_refused():
    message = "image_size and in_channels must suit timm/test_convnext, got image_size=(8, 8), in_channels=3: "
    with torch.device("meta"), pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build("timm/test_convnext", num_classes=10, image_size=8)


def test_a_network_without_a_feature_vector_is_refused():
    with torch.device("meta"), pytest.raises(ValueError, match=r"^network must give features \(N, D\), which timm/mob"):
        build("timm/mobilenetv5_300m_enc", num_classes=10)


def test_an_unknown_timm_name_is_corrected_without_listing_them_all():
    message = "unknown network 'timm/resent50': did you mean 'timm/resnet50'? Available: those of timm.list_models()"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_network("timm/resent50")


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
