"""Heads that know the variance of their logits: it is stored beside them."""

import pytest
import torch
from torch import nn

from regmixup.posthoc import MonteCarlo
from regmixup.predictions.forward import HasVariance
from regmixup.predictions.forward import predict_images as predict
from regmixup.predictions.store import join, load, save


class UncertainHead(nn.Linear):
    """Variance of a logit: the squared length of the features, times 1, 2, 3 for the classes where they differ."""

    def __init__(self, shape):
        super().__init__(4, 3)
        self.shape = shape

    def variance(self, features):
        shared = features.square().sum(dim=1)
        return {"(N,)": shared, "(N, 1)": shared[:, None], "(N, K)": shared[:, None] * torch.arange(1, 4)}[self.shape]


class Network(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body, self.head = nn.Linear(12, 4), head

    def features(self, x):
        return self.body(x.flatten(1))

    def forward(self, x):
        return self.head(self.features(x))


def network(head):
    torch.manual_seed(0)
    return Network(head)


IMAGES = torch.rand(10, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(10) % 3


@pytest.mark.parametrize(("shape", "features"), [("(N,)", True), ("(N, 1)", False), ("(N, K)", True)])
def test_the_variance_is_stored_for_every_class(shape, features):
    model = network(UncertainHead(shape)).double()
    found = predict(model, IMAGES.double(), LABELS, batch_size=4, features=features)
    with torch.no_grad():
        length = model.features(IMAGES.double()).square().sum(dim=1)[:, None]
    expected = length * (torch.arange(1, 4) if shape == "(N, K)" else torch.ones(3))
    torch.testing.assert_close(found.logit_variance, expected.float())
    assert found.logit_variance.is_contiguous()
    assert (found.features is not None) == features
    assert (found.head_weight is not None) == features


def test_other_heads_have_none():
    linear = nn.Linear(4, 3)
    assert not isinstance(linear, HasVariance)
    for features in (True, False):
        assert predict(network(linear), IMAGES, LABELS, features=features).logit_variance is None


def test_the_hook_is_gone_afterwards():
    model = network(UncertainHead("(N,)"))
    predict(model, IMAGES, LABELS)
    assert not model.head._forward_pre_hooks


def test_parts_of_a_dataset_are_joined_with_their_variance_and_probabilities(tmp_path):
    model = network(UncertainHead("(N, 1)"))
    whole = predict(model, IMAGES, LABELS)
    parts = [predict(model, IMAGES[rows], LABELS[rows]) for rows in (slice(0, 3), slice(3, 10))]
    joined = join(parts)
    for name in ("logits", "labels", "features", "logit_variance"):
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
    assert joined.probs is None
    said = [MonteCarlo()(part) for part in parts]
    assert torch.equal(join(said).probs, torch.cat([said[0].probs, said[1].probs]))
    save(joined, tmp_path / "p.safetensors")
    assert torch.equal(load(tmp_path / "p.safetensors").logit_variance, joined.logit_variance)
