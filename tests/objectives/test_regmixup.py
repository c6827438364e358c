"""RegMixup by hand: the loss, its two scales, its three kinds of passes, and what eta = 0 means."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.mixing import Draw
from regmixup.networks import layers
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.erm import ERM
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.regmixup import RegMixup
from tests.objectives.cases import CLASSES, batch, conv_net, forwarded, gradients, seeded
from tests.references import mixing as slow

SIZE = (6, 8)


def plain_net():
    """Without batch norm an image's logits do not depend on its neighbours."""
    return conv_net(batch_norm=False, dtype=torch.float64)


def exact_batch(batch_size=5):
    return batch(batch_size, dtype=torch.float64)


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


def test_the_mixed_term_is_the_loss_of_mixup():
    model, (x, y) = plain_net(), exact_batch()
    draw = RegMixup().draw(5, SIZE, seeded())
    mixup = Mixup()(model, x, y, draw=draw).loss
    torch.testing.assert_close(RegMixup()(model, x, y, draw=draw).parts["mixed"], mixup.detach())


def test_the_draw_is_that_of_mixup_with_the_same_alpha():
    ours, theirs = RegMixup(alpha=3).draw(5, SIZE, seeded()), Mixup(alpha=3).draw(5, SIZE, seeded())
    assert torch.equal(ours.lam, theirs.lam)
    assert torch.equal(ours.partner, theirs.partner)


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


@pytest.mark.parametrize("objective", [RegMixup(), rm.RegCutMix()])
@pytest.mark.parametrize("written_for_compiling", [False, True])
def test_separate_clean_learns_as_separate_and_keeps_the_statistics_of_clean_images(
    objective, written_for_compiling, monkeypatch
):
    if written_for_compiling:
        monkeypatch.setattr(layers, "_pays", lambda x: True)
    x, y = batch()
    nets = {name: _with_our_batch_norm() for name in ("plain", "separate", "separate-clean")}
    ERM()(nets["plain"], x, y)
    outs = {name: replace(objective, passes=name)(nets[name], x, y, seeded()) for name in nets if name != "plain"}
    assert torch.equal(outs["separate"].loss, outs["separate-clean"].loss)
    assert all(map(torch.equal, *(gradients(nets[name], out.loss) for name, out in outs.items())))
    norms = {name: net[1] for name, net in nets.items()}
    for buffer in ("running_mean", "running_var", "num_batches_tracked"):
        clean, both, kept = (getattr(norms[name], buffer) for name in ("plain", "separate", "separate-clean"))
        assert torch.equal(kept, clean), buffer
        assert not torch.equal(both, clean), buffer
    assert norms["separate-clean"].track_running_stats


def _with_our_batch_norm():
    net = conv_net()
    norm = layers.BatchNorm2d(net[1].num_features)
    norm.load_state_dict(net[1].state_dict())
    net[1] = norm
    return net


def _layer(name, channels):
    if name == "timm":
        from timm.layers import BatchNormAct2d

        return BatchNormAct2d(channels)  # its forward is a copy of torch's
    norm = torch.nn.BatchNorm2d(channels, momentum=None if name == "average of all batches" else 0.1)
    return norm.eval() if name == "frozen" else norm


@pytest.mark.parametrize("name", ["timm", "average of all batches", "frozen", "compiled"])
def test_separate_clean_finds_every_kind_of_batch_norm(name):
    """Two steps: the statistics of the second must not depend on the mixed images of the first."""
    x, y = batch()
    stem, _, *rest = conv_net()
    nets = [torch.nn.Sequential(stem, _layer(name, stem.out_channels), *rest) for _ in range(2)]
    objective, draw = RegMixup(passes="separate-clean"), RegMixup().draw(len(x), SIZE, seeded())
    model = torch.compile(nets[1], backend="eager") if name == "compiled" else nets[1]
    for _ in range(2):
        nets[0](x)
        objective(model, x, y, draw=draw)
    assert nets[1][1].track_running_stats
    assert all(map(torch.equal, *(net[1].buffers() for net in nets)))
    assert bool(nets[1][1].running_mean.any()) == (name != "frozen")


def test_separate_clean_compiles_into_one_graph():
    (x, y), eager, compiled = batch(), conv_net(), conv_net()
    objective = RegMixup(passes="separate-clean")
    draw = objective.draw(len(x), SIZE, seeded())
    step = torch.compile(lambda: objective.compute(compiled, x, y, draw).loss, fullgraph=True, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(step(), objective.compute(eager, x, y, draw).loss)
    torch.testing.assert_close(compiled[1].running_mean, eager[1].running_mean)
    assert compiled[1].track_running_stats


# ----------------------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize(
    ("objective", "drawn_by", "message"),
    [
        (RegMixup(samples=2), RegMixup(samples=3), r"draw\.lam must have shape \(2,\)"),
        (RegMixup(lam="sample"), RegMixup(), r"draw\.lam must have shape \(4,\)"),
    ],
)
def test_a_draw_made_for_other_fields_is_refused(objective, drawn_by, message):
    model, x, y = torch.nn.Flatten(), torch.rand(4, 1, 2, 2), torch.arange(4)
    with pytest.raises(ValueError, match=message):
        objective(model, x, y, draw=drawn_by.draw(4, 2))


def test_a_box_drawn_for_another_image_size_is_refused():
    with pytest.raises(ValueError, match=r"made for images of \(2, 2\)"):
        CutMix()(torch.nn.Flatten(), torch.rand(4, 1, 2, 2), torch.arange(4), draw=CutMix().draw(4, 32))


def test_a_label_of_minus_100_is_not_silently_ignored_in_a_compiled_step():
    """torch skips such labels by default; where values are not looked at, they must still not vanish."""
    from regmixup.losses import cross_entropy

    with pytest.raises(IndexError):
        cross_entropy(torch.zeros(2, 3), torch.tensor([-100, 1]))
