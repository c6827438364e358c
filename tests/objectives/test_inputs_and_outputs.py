"""Models whose output holds the logits beside other things, and inputs that are not images."""

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torchvision.models import GoogLeNetOutputs, InceptionOutputs
from transformers.modeling_outputs import ImageClassifierOutput

import regmixup as rm
from regmixup.mixing import check_boxes
from regmixup.types import RESERVED
from tests.objectives.cases import CLASSES, DEFAULTS, batch, gradients, net_for, seeded


@dataclass
class Output:
    """An output of one's own."""

    features: torch.Tensor
    logits: torch.Tensor


FORMS = {
    "Hugging Face": lambda logits: ImageClassifierOutput(logits=logits, hidden_states=(logits,)),
    "object": lambda logits: Output(logits.repeat(1, 3), logits),
    "dict": lambda logits: {"features": logits.repeat(1, 3), "logits": logits},
    "GoogLeNet": lambda logits: GoogLeNetOutputs(logits, -logits, 2 * logits),
    "Inception": lambda logits: InceptionOutputs(logits, None),
    "logits and features": lambda logits: (logits, logits.repeat(1, 3)),
    "logits and confidence": lambda logits: (logits, logits[:, :1]),
    "logits and loss": lambda logits: [logits, logits.mean(), None],
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
WITHOUT_IMAGES = {name: case for name, case in DEFAULTS.items() if name not in ("cutmix", "regcutmix", "augmix")}


class Answering(nn.Module):
    """A network with another form of output."""

    def __init__(self, net, form):
        super().__init__()
        self.net, self.form = net, form

    def forward(self, x):
        return self.form(self.net(x))


@each_form
def test_every_output_gives_the_loss_and_the_gradient_of_its_logits(form):
    for objective in (rm.ERM(), rm.RegMixup()):
        plain, other = net_for(objective), Answering(net_for(objective), form)
        expected, out = (objective(model, *batch(), seeded()) for model in (plain, other))
        assert torch.equal(out.loss, expected.loss)
        assert (out.logits is None) == (expected.logits is None)
        assert out.logits is None or torch.equal(out.logits, expected.logits)
        assert all(map(torch.equal, gradients(other, out.loss), gradients(plain, expected.loss)))


@pytest.mark.parametrize(
    ("form", "described"),
    [
        (lambda logits: {"out": logits, "aux": logits}, "dict"),
        (lambda logits: SimpleNamespace(logits=logits[0]), r"\(5,\)"),
        (lambda logits: (logits.mean(), logits), r"\(\)"),
        (lambda logits: (logits.repeat(1, 4), logits), "tuple"),
        (lambda logits: [], "list"),
        (lambda logits: logits[1:], r"\(6, 5\)"),
    ],
)
def test_a_model_of_anything_but_logits_is_refused(form, described):
    contract = r"^the model must return logits \(N, K\), N = 7 here, .* got "
    with pytest.raises(ValueError, match=contract + described + ": pass"):
        rm.ERM()(Answering(net_for(rm.ERM()), form), *batch())


def test_a_tuple_of_features_and_logits_gets_advice_for_a_tuple():
    with pytest.raises(ValueError, match=r"lambda x: model\(x\)\[1\]$"):
        rm.ERM()(Answering(net_for(rm.ERM()), lambda logits: (logits.repeat(1, 4), logits)), *batch())


# ------------------------------------------------------------------------------------------------------ inputs


@pytest.mark.parametrize("step", [partial(rm.RegMixup(), torch.neg), rm.BatchTransform(rm.RegMixup(), num_classes=3)])
def test_lists_and_arrays_are_refused(step):
    x, y = torch.rand(4, 3), torch.tensor([0, 1, 2, 0])
    for name, type_name, batch_of in [
        ("x", "ndarray", (x.numpy(), y)),
        ("y", "list", (x, y.tolist())),
        ("y", "ndarray", (x, y.numpy())),
    ]:
        with pytest.raises(ValueError, match=rf"^{name} must be a torch\.Tensor, got {type_name}$"):
            step(*batch_of)


@pytest.mark.parametrize("image_size", [0, (3, 8, 0), (8.5, 8)])
def test_boxes_are_drawn_in_images_that_have_pixels(image_size):
    with pytest.raises(ValueError, match=r"^each side of image_size must be an integer >= 1, got (0|8\.5)$"):
        rm.CutMix().draw(8, image_size)


def linear():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(144, CLASSES), nn.LogSigmoid())


@pytest.mark.parametrize("shape", [(144,), (3, 2, 6, 4)])
@pytest.mark.parametrize("objective", WITHOUT_IMAGES.values(), ids=WITHOUT_IMAGES.keys())
def test_the_same_numbers_in_another_shape_give_the_same_loss(objective, shape):
    """Mixing and noise work number by number, and the draw depends on their count alone."""
    (x, y), model = batch(dtype=torch.float64), linear().double()
    expected = objective(model, x, y, seeded(3)).loss
    other = x.reshape(-1, *shape)
    torch.testing.assert_close(objective(model, other, y, seeded(3)).loss, expected)
    draw = objective.draw(len(x), other.shape[1:], seeded(3))
    torch.testing.assert_close(objective(model, other, y, draw=draw).loss, expected)


@pytest.mark.parametrize("objective", [rm.CutMix(), rm.RegCutMix(), rm.AugMix()], ids=repr)
def test_an_objective_on_pixels_says_that_it_needs_images(objective):
    x, y = batch()
    for inputs in (x.flatten(1), x.flatten(2)):
        with pytest.raises(ValueError, match=r"images \(N, C, H, W\)|image_size must be a side, \(height, width\)"):
            objective(linear(), inputs, y, seeded())


@pytest.mark.parametrize(
    "change",
    [
        lambda out: out.loss,
        lambda out: replace(out, loss=out.loss[None]),
        lambda out: replace(out, logits=torch.cat([out.logits] * 2)),
        lambda out: replace(out, parts={"clean": out.loss.item()}),
        lambda out: replace(out, parts={"clean": out.logits[:, 0]}),
        *(lambda out, name=name: replace(out, parts={name: out.loss}) for name in RESERVED),
    ],
    ids=["tensor", "loss", "logits", "number", "per image", *RESERVED],
)
def test_what_compute_returns_is_checked(change):
    class Own(rm.ERM):
        def compute(self, model, x, y, draw):
            return change(super().compute(model, x, y, draw))

    with pytest.raises(ValueError, match=r"^Own.compute must return a LossOutput .* other than loss, .*, got "):
        Own()(nn.Linear(2, 3), torch.rand(4, 2), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize(
    "objective",
    [rm.ERM(), rm.RegMixup(), rm.Mixup(), rm.CutMix(), rm.HalfRegMixup(), rm.Bimodal(), rm.ERM(loss=rm.losses.Focal())],
    ids=repr,
)
def test_a_model_that_ends_in_a_softmax_gets_one_warning_at_its_first_batch(objective):
    """Also where it has no layer that says so: the numbers are looked at. The suite fails by any other warning."""
    (x, y), net = batch(), net_for(objective)
    model = Answering(net, lambda logits: {"logits": logits.softmax(dim=1)})
    with pytest.warns(
        UserWarning, match="must give logits, got numbers >= 0 that sum to 1: leave out its softmax"
    ) as said:
        objective(model, x, y)
    assert [warning.filename for warning in said] == [__file__]
    objective(model, x, y)
    objective(net, x, y)
    replace(objective, loss=lambda probs, targets: -(targets * probs.log()).sum(dim=1))(
        Answering(net, lambda logits: logits.softmax(dim=1)), x, y
    )


@pytest.mark.parametrize("passing", [rm.Alternate(rm.Mixup(), rm.CutMix()), rm.Alternate(rm.ERM(), rm.RegMixup())])
def test_the_sides_of_an_alternate_warn_of_a_softmax_likewise(passing):
    (x, y), net = batch(), net_for(rm.ERM())
    with pytest.warns(UserWarning, match="must give logits"):
        passing(Answering(net, lambda logits: logits.softmax(dim=1)), x, y)
    own = replace(passing, loss=lambda probs, targets: -(targets * probs.log()).sum(dim=1))
    own(Answering(net, lambda logits: logits.softmax(dim=1)), x, y)


def test_numbers_that_are_not_there_are_not_looked_at():
    model = nn.Sequential(nn.Linear(4, 3, device="meta"), nn.Softmax(dim=1))
    out = rm.ERM()(model, torch.empty(2, 4, device="meta"), torch.empty(2, dtype=torch.int64, device="meta"))
    assert out.loss.is_meta
    (x, y), net = batch(), net_for(rm.ERM())
    moved = torch.func.vmap(lambda by: rm.ERM()(Answering(net, lambda logits: logits * by), x, y).loss)
    assert moved(torch.ones(3)).shape == (3,)
    with FakeTensorMode(), torch.device("cuda"):
        assert rm.ERM()(nn.Linear(4, 3), torch.rand(2, 4), torch.zeros(2, dtype=torch.int64)).loss.is_cuda


@pytest.mark.parametrize("objective", [rm.Mixup(), rm.RegMixup(), rm.HalfRegMixup(), rm.Bimodal()], ids=repr)
def test_a_draw_of_boxes_is_refused_where_none_are_pasted(objective):
    """Its lambda is a share of pixels, and of another distribution."""
    (x, y), model = batch(7), linear()
    with pytest.raises(ValueError, match=r"^draw\.box must be None for \w+\(alpha=.*: was it drawn by another"):
        objective(model, x, y, draw=rm.CutMix().draw(7, x.shape[1:], seeded(1)))


@pytest.mark.parametrize("objective", [rm.CutMix(), rm.CutMix(lam="sample"), rm.RegCutMix(samples=2)], ids=repr)
def test_a_draw_of_boxes_for_larger_images_is_refused(objective):
    """The box would be clipped, and labels would still weigh by its share of the other image."""
    (x, y), model = batch(7), linear()
    fitting = objective.draw(7, x.shape[1:], seeded(1))
    assert objective(model, x, y, draw=fitting).loss == objective(model, x, y, seeded(1)).loss
    outside = replace(fitting, box=fitting.box + 20)
    for wrong in (objective.draw(7, (3, 32, 32), seeded(1)), outside, replace(fitting, box=fitting.box - 20)):
        with pytest.raises(
            ValueError, match=r"^draw\.box must lie in images of 6 x 8 pixels, .* another image_size\?$"
        ):
            objective(model, x, y, draw=wrong)
    for own in (fitting.lam.clamp(min=0.5), fitting.lam.half()):  # a lambda of one's own is fine
        objective(model, x, y, draw=replace(fitting, lam=own))
    on_another_device = outside.to(torch.device("meta"))  # where looking would cost a wait
    check_boxes(on_another_device, x)
