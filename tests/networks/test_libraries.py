"""The names of our networks' tensors in torchvision and timm, whose networks have the same shapes under them."""

import pytest
import timm
import torch
import torchvision

from regmixup.networks import build, library_names, library_state_dict


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "densenet121"])
@pytest.mark.parametrize("counters", [True, False])
def test_tensors_of_our_networks_have_torchvisions_names_and_shapes(name, counters):
    """Apart from the stem; a training run's batch norms count no batches."""
    with torch.device("meta"):
        theirs = torchvision.models.get_model(name, num_classes=10).state_dict()
        model = build(name, num_classes=10)
    for module in model.modules():
        if not counters and hasattr(module, "num_batches_tracked"):
            module.num_batches_tracked = None
    stem = {"conv1.weight", "features.conv0.weight"}
    expected = {key: tensor.shape for key, tensor in theirs.items() if ".norm0." not in key and key not in stem}
    if not counters:
        expected = {key: shape for key, shape in expected.items() if not key.endswith("num_batches_tracked")}
    ours = library_state_dict(name, model)
    assert {key: tensor.shape for key, tensor in ours.items() if key not in stem} == expected
    assert len(stem & ours.keys()) == 1


def test_tensors_of_timms_networks_have_its_names():
    with torch.device("meta"):
        model = build("timm/test_convnext", num_classes=10)
    assert (
        library_state_dict("timm/test_convnext", model).keys() == timm.create_model("test_convnext").state_dict().keys()
    )


def test_other_heads_and_the_state_of_constraints_keep_our_names():
    with torch.device("meta"):
        names = library_names("resnet18", build("resnet18", num_classes=10, constraint="spectral_norm", head="rbf"))
    assert names["backbone.0.parametrizations.weight.original"] == "conv1.weight"
    ours = {name for name, theirs in names.items() if name == theirs}
    assert ours == {name for name in names if name.startswith("head.") or ".parametrizations.weight.0." in name}
    with torch.device("meta"):
        assert set(library_names("small", build("small", num_classes=10)).values()) >= {
            "backbone.0.weight",
            "head.bias",
        }
