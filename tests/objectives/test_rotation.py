"""Rotation by hand: the objective's loss, and cross-entropy of four rotations from the same features."""

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.config import fingerprint
from regmixup.losses import LogitNorm
from tests.objectives.cases import batch, batch_for, conv_net, forwarded, gradients, net_for, seeded

ROTATION = rm.Rotation(rm.ERM())


def rotated_by_hand(image, quarters):
    """An image (C, H, H) turned counter-clockwise, a pixel at a time."""
    turned = image.clone()
    side = image.shape[1]
    for row in range(side):
        for column in range(side):
            places = [(row, column), (column, side - 1 - row), (side - 1 - row, side - 1 - column),
                      (side - 1 - column, row)]  # fmt: skip
            turned[:, row, column] = image[:, places[quarters][0], places[quarters][1]]
    return turned


def test_for_erm_it_is_the_loss_of_openoods_trainer():
    """With batch norm, because all four rotations are forwarded together there, too."""
    (x, y), model, other = (
        batch_for(ROTATION, dtype=torch.float64),
        *(net_for(ROTATION, dtype=torch.float64) for _ in range(2)),
    )
    x_rot = torch.cat([torch.stack([rotated_by_hand(image, quarters) for image in x]) for quarters in range(4)])
    features = other.features(x_rot)
    y_rot = torch.tensor([0] * 7 + [1] * 7 + [2] * 7 + [3] * 7)
    clean, rotation = (
        F.cross_entropy(other.head(features[:7]), y),
        F.cross_entropy(other.head.rotation(features), y_rot),
    )
    out = rm.Rotation(rm.ERM(), weight=0.5)(model, x, y)
    torch.testing.assert_close(out.loss, clean + 0.5 * rotation)
    torch.testing.assert_close(gradients(model, out.loss), gradients(other, clean + 0.5 * rotation))
    torch.testing.assert_close(out.parts, {"clean": clean.detach(), "rotation": rotation.detach()})
    assert torch.equal(out.logits.argmax(1), other.head(features[:7]).argmax(1))


@pytest.mark.parametrize(
    "objective",
    [
        rm.RegMixup(),
        rm.RegMixup(passes="separate"),
        rm.Mixup(),
        rm.AugMix(),
        rm.HalfRegMixup(),
        rm.Alternate(rm.Mixup(), rm.RegCutMix()),
    ],
    ids=repr,
)
def test_the_objectives_own_loss_stays_and_the_first_images_it_forwards_are_rotated(objective):
    """Without batch norm, so that images do not depend on their neighbours."""
    wrapped = rm.Rotation(objective)
    (x, y), model = batch_for(wrapped, dtype=torch.float64), net_for(wrapped, batch_norm=False, dtype=torch.float64)
    draw = wrapped.draw(7, (8, 8), seeded(2))
    assert str(draw) == str(objective.draw(7, (8, 8), seeded(2)))
    calls = forwarded(model)
    alone = objective(model, x, y, draw=draw)
    upright = calls[0][:7]
    x_rot = torch.cat([torch.rot90(upright, quarters, (2, 3)) for quarters in range(4)])
    y_rot = torch.arange(4).repeat_interleave(len(upright))
    rotation = F.cross_entropy(model.head.rotation(model.features(x_rot)), y_rot)
    out = wrapped(model, x, y, draw=draw)
    torch.testing.assert_close(out.loss, alone.loss + rotation)
    assert (out.logits is None) == (alone.logits is None)
    if not isinstance(objective, rm.Mixup | rm.HalfRegMixup | rm.Alternate):
        assert torch.equal(upright, x)


def test_passes_that_leave_statistics_alone_still_do():
    objective = rm.RegMixup(passes="separate-clean")
    (x, y), model, other = batch_for(ROTATION), net_for(ROTATION), net_for(ROTATION)
    rm.Rotation(objective)(model, x, y, seeded())
    ROTATION(other, x, y)
    assert torch.equal(model[1].running_mean, other[1].running_mean)
    assert model[1].track_running_stats


def test_a_weight_of_zero_is_the_objective_exactly_on_any_network_and_any_images():
    x, y = batch()
    plain, other = conv_net(), conv_net()
    expected, out = rm.RegMixup()(plain, x, y, seeded()), rm.Rotation(rm.RegMixup(), weight=0)(other, x, y, seeded())
    assert torch.equal(out.loss, expected.loss)
    assert out.parts.keys() == expected.parts.keys()


@pytest.mark.parametrize("weight", [0.5, 0])
def test_its_loss_is_that_of_an_objective_without_one_and_rotations_keep_cross_entropy(weight):
    x, y = batch_for(ROTATION)
    inside, own = rm.RegMixup(5, loss=LogitNorm()), rm.Rotation(rm.RegMixup(5), weight=weight, loss=LogitNorm())
    losses = [
        objective(net_for(ROTATION), x, y, seeded()).loss for objective in (own, rm.Rotation(inside, weight=weight))
    ]
    assert torch.equal(*losses)
    assert not torch.equal(
        losses[0], rm.Rotation(rm.RegMixup(5), weight=weight)(net_for(ROTATION), x, y, seeded()).loss
    )
    kept = rm.Rotation(inside, weight=weight, loss=rm.losses.Focal())(net_for(ROTATION), x, y, seeded()).loss
    assert torch.equal(kept, losses[0])
    assert fingerprint(rm.Rotation(inside)) == "97346d403981c5912b4872a913ec0c76a7cd4cbce848b2a76ce3eab2f429d2d7"


def test_the_layer_for_rotations_begins_beside_the_same_linear_head_and_stays_out_of_the_logits():
    models = []
    for head in ("linear", "rotation"):
        torch.manual_seed(0)
        models.append(rm.networks.build("small", num_classes=10, in_channels=1, head=head).eval())
    x = torch.rand(4, 1, 8, 8, generator=seeded())
    assert torch.equal(models[0](x), models[1](x))
    assert models[1].state_dict().keys() - models[0].state_dict().keys() == {
        "head.rotation.weight",
        "head.rotation.bias",
    }


def test_wrong_images_networks_and_objectives_are_refused():
    x, y = batch_for(ROTATION)
    with pytest.raises(
        ValueError, match=r'^model must be built with head="rotation" to predict rotations, got Sequential'
    ):
        ROTATION(conv_net(), x, y)
    with pytest.raises(ValueError, match=r"^x must be square images .*, got shape \(7, 3, 6, 8\)$"):
        ROTATION(net_for(ROTATION), *batch())
    for wrong in (rm.DUQ(), ROTATION, "regmixup"):
        with pytest.raises(
            ValueError, match=r"^objective must be an objective for any head, such as RegMixup\(\), got "
        ):
            rm.Rotation(wrong)
    with pytest.raises(ValueError, match=r"^weight must be a finite number >= 0, got -1$"):
        rm.Rotation(rm.ERM(), weight=-1)
    with pytest.raises(ValueError, match=r"^rotation must be a finite number >= 0, got -1$"):
        rm.configure("digits", rotation=-1)
    with pytest.raises(ValueError, match=r"^head must be 'rotation' for Rotation\(.*, got 'linear'$"):
        rm.configure("digits", objective=ROTATION)
