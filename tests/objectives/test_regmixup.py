"""RegMixup by hand: the loss, its two scales, its three kinds of passes, and what eta = 0 means."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regmixup.mixing import Draw
from regmixup.networks import layers
from regmixup.objectives.regmixup import RegMixup
from tests.objectives.cases import CLASSES, batch, conv_net, forwarded, gradients, seeded
from tests.objectives.expectations import exact_batch, plain_net
from tests.references import mixing as slow

SIZE = (6, 8)


def by_hand(model, x, y, draw):
    """(CE, CE_mix) from the slow twins."""
    lam, partner = draw.lam.expand(len(x)).tolist(), draw.partner.tolist()
    targets = slow.one_hot(y, CLASSES)
    mixed_x = torch.from_numpy(slow.mixup(x.numpy(), lam, partner))
    clean = slow.soft_cross_entropy(model(x).tolist(), targets).mean()
    mixed = slow.soft_cross_entropy(model(mixed_x).tolist(), slow.mixed_targets(targets, lam, partner)).mean()
    return clean, mixed


def close(value, expected):
    torch.testing.assert_close(value.item(), float(expected), rtol=1e-12, atol=0)


# -------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize(
    ("eta", "lam", "passes"), [(0.1, "batch", "joint"), (1, "sample", "separate"), (3, "sample", "joint")]
)
def test_both_scales_follow_equation_3(eta, lam, passes):
    model, (x, y) = plain_net(), exact_batch()
    draw = RegMixup(lam=lam).draw(5, SIZE, seeded())
    clean, mixed = by_hand(model, x, y, draw)
    total = RegMixup(eta=eta, lam=lam, passes=passes, scale="sum")(model, x, y, draw=draw)
    mean = RegMixup(eta=eta, lam=lam, passes=passes)(model, x, y, draw=draw)
    assert abs(clean - mixed) > 1e-3
    close(total.loss, clean + eta * mixed)
    close(mean.loss, (clean + eta * mixed) / (1 + eta))
    torch.testing.assert_close(mean.logits, model(x))
    close(mean.parts["clean"], clean)
    close(mean.parts["mixed"], mixed)


def test_the_default_equals_the_released_code():
    """One forward of clean and mixed images together, mean soft cross-entropy over all 2N rows, batch norm included."""
    model, (x, y) = conv_net(dtype=torch.float64), exact_batch()
    objective = RegMixup(pairing="permutation")
    draw = objective.draw(5, SIZE, seeded(4))
    lam, partner = draw.lam, draw.partner
    one_hot = F.one_hot(y, CLASSES).double()
    images = torch.cat([x, lam * x + (1 - lam) * x[partner]])
    targets = torch.cat([one_hot, lam * one_hot + (1 - lam) * one_hot[partner]])
    expected = F.cross_entropy(model(images), targets)
    loss = objective(model, x, y, draw=draw).loss
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(model, loss), gradients(model, expected))


@pytest.mark.parametrize("passes", ["joint", "separate"])
def test_several_samples_average_the_mixed_term_over_the_draws(passes):
    objective = RegMixup(alpha=1, samples=3, passes=passes)
    model, (x, y) = plain_net(), exact_batch()
    draw = objective.draw(5, SIZE, seeded())
    terms = [by_hand(model, x, y, Draw(draw.lam[i], draw.partner[i])) for i in range(3)]
    mixed = np.mean([term[1] for term in terms])
    close(objective(model, x, y, draw=draw).loss, (terms[0][0] + mixed) / 2)


# ------------------------------------------------------------------------------------------------- the passes


def test_joint_is_one_forward_and_separate_is_two():
    (x, y), samples = batch(5), 2
    sizes = {}
    for passes in ("joint", "separate"):
        model = conv_net()
        calls = forwarded(model)
        RegMixup(passes=passes, samples=samples)(model, x, y, seeded())
        sizes[passes] = [len(call) for call in calls]
        assert torch.equal(calls[0][:5], x)
    assert sizes == {"joint": [5 + 5 * samples], "separate": [5, 5 * samples]}


def test_joint_differs_from_separate_with_batch_norm():
    x, y = exact_batch()
    joint_model, separate_model = conv_net(dtype=torch.float64), conv_net(dtype=torch.float64)
    joint = RegMixup(passes="joint")(joint_model, x, y, seeded()).loss
    separate = RegMixup(passes="separate")(separate_model, x, y, seeded())
    assert abs(joint.item() - separate.loss.item()) > 1e-4
    assert (joint_model[1].num_batches_tracked, separate_model[1].num_batches_tracked) == (1, 2)
    torch.testing.assert_close(separate.logits, conv_net(dtype=torch.float64)(x))


def _layer(name, channels):
    if name == "timm":
        from timm.layers import BatchNormAct2d

        return BatchNormAct2d(channels)  # its forward is a copy of torch's
    if name == "ours":
        return layers.BatchNorm2d(channels)
    norm = torch.nn.BatchNorm2d(channels, momentum=None if name == "average of all batches" else 0.1)
    return norm.eval() if name == "frozen" else norm


@pytest.mark.parametrize("name", ["torch", "ours", "timm", "average of all batches", "frozen", "compiled"])
def test_separate_clean_learns_as_separate_and_keeps_the_statistics_of_clean_images(name):
    """Two steps: the statistics of the second must not depend on the mixed images of the first."""
    x, y = batch()
    stem, _, *head = conv_net()
    plain, separate, clean = (torch.nn.Sequential(stem, _layer(name, stem.out_channels), *head) for _ in range(3))
    draw = RegMixup().draw(len(x), SIZE, seeded())
    model = torch.compile(clean, backend="eager") if name == "compiled" else clean
    for _ in range(2):
        plain(x)
        expected = RegMixup(passes="separate")(separate, x, y, draw=draw).loss
        loss = RegMixup(passes="separate-clean")(model, x, y, draw=draw).loss
        assert torch.equal(loss, expected)
        assert all(map(torch.equal, gradients(clean, loss), gradients(separate, expected)))
    assert clean[1].track_running_stats
    assert all(map(torch.equal, clean[1].buffers(), plain[1].buffers()))
    assert torch.equal(separate[1].running_mean, plain[1].running_mean) == (name == "frozen")


def test_separate_clean_refuses_a_function_whose_batch_norm_nobody_finds():
    net, (x, y) = conv_net(), batch()
    with pytest.raises(ValueError, match=r"^model must be an nn.Module, .* got <function"):
        RegMixup(passes="separate-clean")(lambda x: net(x), x, y)
