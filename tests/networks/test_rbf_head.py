"""The radial-basis head: kernels around running centroids."""

import math

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.contract import Classifier
from regmixup.networks.rbf_head import RBFHead


def head(feature_dim=4, num_classes=3, **fields):
    torch.manual_seed(0)
    return RBFHead(**fields).build(feature_dim, num_classes).double()


def features(count=5, dim=4, seed=1):
    return torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_logits_are_the_formula_written_out():
    rbf = head(embedding_dim=2, length_scale=0.3)
    z = features()
    logits = rbf(z)
    for n in range(5):
        for c in range(3):
            embedded = rbf.weight[:, c] @ z[n]
            centroid = rbf.sums[:, c] / rbf.counts[c]
            kernel = math.exp(-((embedded - centroid) ** 2).mean().item() / (2 * 0.3**2))
            assert logits[n, c].exp().item() == pytest.approx(kernel, rel=1e-9)


def test_centroids_after_one_step_by_hand():
    """One feature, one embedding dimension, W = 2 for both classes, g = 0.9, n = 10, m = (10, -10)."""
    rbf = head(feature_dim=1, num_classes=2, embedding_dim=1, momentum=0.9, initial_count=10.0)
    rbf.weight.data.fill_(2.0)
    rbf.sums.copy_(torch.tensor([[10.0, -10.0]]))
    rbf.after_step(torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.float64), torch.tensor([0, 0, 1]))
    # counts: 0.9 * 10 + 0.1 * (2, 1);  sums: 0.9 * (10, -10) + 0.1 * (2 + 6, 10)
    assert rbf.counts.tolist() == pytest.approx([9.2, 9.1])
    assert rbf.sums[0].tolist() == pytest.approx([9.8, -8.0])
    assert rbf.centroids[0].tolist() == pytest.approx([9.8 / 9.2, -8.0 / 9.1])


def test_soft_labels_count_in_part_and_agree_with_hard_ones():
    hard, soft, half = head(), head(), head()
    z, y = features(), torch.tensor([0, 1, 2, 1, 0])
    hard.after_step(z, y)
    soft.after_step(z, torch.nn.functional.one_hot(y, 3).double())
    torch.testing.assert_close(hard.centroids, soft.centroids)
    half.after_step(z, torch.full((5, 3), 1 / 3, dtype=torch.float64))
    torch.testing.assert_close(half.counts, 0.999 * 13 + 0.001 * torch.full((3,), 5 / 3, dtype=torch.float64))


def test_the_initial_state_is_the_published_one():
    torch.manual_seed(0)
    rbf = RBFHead().build(200, 10)
    assert rbf.weight.shape == (200, 10, 200)
    assert rbf.counts.tolist() == [13.0] * 10
    assert (rbf.sums / 13).std().item() == pytest.approx(0.05, rel=0.1)
    assert rbf.weight.std().item() == pytest.approx(math.sqrt(2 / (10 * 200)), rel=0.02)


def test_a_network_moves_its_centroids_by_evaluation_features_of_the_clean_images():
    torch.manual_seed(0)
    model = build("small", num_classes=3, in_channels=1, head=RBFHead(embedding_dim=5), dropout=0.5)
    twin = build("small", num_classes=3, in_channels=1, head=RBFHead(embedding_dim=5), dropout=0.5)
    twin.load_state_dict(model.state_dict())
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    model.train()
    model.after_step(x, y)
    with torch.no_grad():
        twin.head.after_step(twin.eval().features(x), y)
    assert torch.equal(model.head.sums, twin.head.sums)
    assert torch.equal(model.backbone[1].running_mean, twin.backbone[1].running_mean)
    assert not model.finalize(pytest.fail("must not look at the images") for _ in range(1))


def test_layers_that_a_user_has_put_in_evaluation_mode_stay_there():
    model = build("small", num_classes=3, in_channels=1, head=RBFHead())
    frozen = model.backbone[1].eval()
    model.after_step(torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2]))
    assert model.backbone.training
    assert not frozen.training


class Adapted(nn.Linear):
    """A layer with an update of low rank, which `eval` adds to its weight and `train` takes out again."""

    folded = False

    def train(self, mode=True):
        if self.folded is mode:
            self.weight.data += -1.0 if mode else 1.0
            self.folded = not mode
        return super().train(mode)


def test_layers_that_fold_weights_for_evaluation_have_them_as_they_were():
    inner, outer = Adapted(64, 64), Adapted(64, 3)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Sequential(inner), outer), RBFHead().build(3, 3), feature_dim=3)
    inner.eval()
    before = [inner.weight.clone(), outer.weight.clone()]
    model.after_step(torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2]))
    assert (inner.training, inner.folded, outer.training, outer.folded) == (False, True, True, False)
    torch.testing.assert_close([inner.weight, outer.weight], before)


def test_a_layer_in_two_places_has_the_mode_that_a_user_gave_it():
    shared, last = nn.Linear(64, 64), nn.Linear(64, 3)
    backbone = nn.Sequential(nn.Flatten(), nn.Sequential(shared), nn.Sequential(shared, last))
    model = Classifier(backbone, RBFHead().build(3, 3), feature_dim=3).eval()
    backbone[2].train()
    shared.eval()
    model.after_step(torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2]))
    assert [part for part in model.modules() if part.training] == [backbone[2], last]


def test_autocast_leaves_the_kernels_in_float32():
    torch.manual_seed(0)
    rbf, z = RBFHead().build(16, 3), torch.randn(4, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = rbf(z)
    assert torch.equal(inside, rbf(z))


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match=r"momentum must be a finite number >= 0 and < 1, got 1.0"):
        RBFHead(momentum=1.0)
    with pytest.raises(ValueError, match=r"length_scale must be a finite number > 0, got 0"):
        RBFHead(length_scale=0)
    with pytest.raises(ValueError, match=r"initial_count must be a finite number > 0, got 0"):
        RBFHead(initial_count=0)
    with pytest.raises(ValueError, match=r"embedding_dim must be an integer >= 1, got 0"):
        RBFHead(embedding_dim=0)
