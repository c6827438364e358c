"""The field `loss`, which every objective but DUQ has."""

import copy
import dataclasses
import json
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.config import decode, encode, fingerprint
from regmixup.losses import BinaryCrossEntropy, CrossEntropy, Focal, Loss
from regmixup.objectives import Objective
from tests.objectives.cases import CLASSES, DEFAULTS, OBJECTIVE_CASES, batch, conv_net, gradients, net_for, seeded

SIZE = (3, 6, 8)
WEIGHT = (1.0, 0.5, 2.0, 0.1, 3.0)
ALTERNATE = {"alternate/regmixup-cutmix": OBJECTIVE_CASES["alternate/regmixup-cutmix"]}
WITH_LOSS = {name: case for name, case in (DEFAULTS | ALTERNATE).items() if hasattr(case, "loss")}
each_objective = pytest.mark.parametrize("objective", WITH_LOSS.values(), ids=WITH_LOSS.keys())
TWO_TERMS = {name: case for name, case in WITH_LOSS.items() if hasattr(case, "eta")}
each_of_two_terms = pytest.mark.parametrize("objective", TWO_TERMS.values(), ids=TWO_TERMS.keys())


LOSSES = {"gamma": Focal(), "weighted": CrossEntropy(WEIGHT, 0.1), "multi-label": BinaryCrossEntropy()}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def labels_for(loss, y):
    """Labels that the loss takes: for yes-or-no questions, several classes per image."""
    if isinstance(loss, BinaryCrossEntropy):
        return torch.rand(len(y), CLASSES, generator=seeded(5)).round(decimals=1)
    return y


def exact(objective, seed=0):
    """What an objective computes in float64, without batch norm."""
    model, (x, y) = net_for(objective, batch_norm=False, dtype=torch.float64), batch(dtype=torch.float64)
    return model, objective(model, x, labels_for(getattr(objective, "loss", None), y), seeded(seed))


def soft_focal(logits, targets):
    """Focal loss written in another way, as a plain function."""
    probs = logits.softmax(1)
    return -((1 - probs).square() * targets * probs.log()).sum(1)


@each_objective
def test_cross_entropy_equals_none_with_its_gradient_and_parts(objective):
    model, plain = exact(objective)
    twin, out = exact(dataclasses.replace(objective, loss=CrossEntropy()))
    torch.testing.assert_close(out.loss, plain.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(twin, out.loss), gradients(model, plain.loss))
    assert out.parts.keys() == plain.parts.keys()
    for name, part in out.parts.items():
        torch.testing.assert_close(part, plain.parts[name], rtol=1e-12, atol=0)


@each_objective
def test_any_callable_is_a_loss(objective):
    ours = exact(dataclasses.replace(objective, loss=Focal(2.0)))[1]
    theirs = exact(dataclasses.replace(objective, loss=soft_focal))[1]
    torch.testing.assert_close(ours.loss, theirs.loss)
    assert abs(ours.loss - exact(objective)[1].loss) > 0.01


@each_of_two_terms
@each_loss
def test_eta_scale_and_passes_keep_their_meaning(objective, loss):
    """sum = clean + eta mixed = (1 + eta) mean; separate = joint without batch norm; eta = 0 is ERM with that loss."""
    change = dataclasses.replace
    total = exact(change(objective, loss=loss, scale="sum"))[1]
    mean = exact(change(objective, loss=loss, scale="mean"))[1]
    clean, vicinal = total.parts.values()
    torch.testing.assert_close(total.loss.detach(), clean + objective.eta * vicinal)
    torch.testing.assert_close(total.loss, (1 + objective.eta) * mean.loss)
    if hasattr(objective, "passes"):
        joint, separate = (exact(change(objective, loss=loss, passes=way))[1] for way in ("joint", "separate"))
        torch.testing.assert_close(joint.loss, separate.loss)
    off, erm = exact(change(objective, loss=loss, eta=0))[1], exact(rm.ERM(loss=loss))[1]
    assert torch.equal(off.loss, erm.loss)


def test_multi_label_training_is_torchs():
    (x, y), model = batch(dtype=torch.float64), conv_net(dtype=torch.float64)
    objective = rm.RegMixup(loss=BinaryCrossEntropy())
    y, draw = labels_for(objective.loss, y).round().double(), objective.draw(len(x), SIZE, seeded())
    lam, partner = draw.lam, draw.partner
    images = torch.cat([x, lam * x + (1 - lam) * x[partner]])
    targets = torch.cat([y, lam * y + (1 - lam) * y[partner]])
    expected = F.binary_cross_entropy_with_logits(model(images), targets)
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss, expected)
    assert torch.equal(objective(model, x, y.bool(), draw=draw).loss, objective(model, x, y.long(), draw=draw).loss)


def test_one_yes_or_no_question_has_float_targets_of_one_column():
    x, y = torch.randn(6, 4, generator=seeded()), torch.tensor([[0.0], [1], [1], [0], [1], [0]])
    model, objective = torch.nn.Linear(4, 1), rm.RegMixup(eta=0, loss=BinaryCrossEntropy())
    torch.testing.assert_close(objective(model, x, y).loss, F.binary_cross_entropy_with_logits(model(x), y))
    with pytest.raises(ValueError, match=r"two classes or more, got one, .* floats \(N, 1\) .*CrossEntropy\(\)$"):
        objective(model, x, y.long())
    with pytest.raises(ValueError, match="two classes or more, got one"):
        rm.ERM()(model, x, y.long())


def test_smoothing_in_the_loss_is_label_smoothing_and_that_hands_smoothed_targets_to_its_loss():
    expected = exact(rm.LabelSmoothing(smoothing=0.2))[1].loss
    torch.testing.assert_close(exact(rm.RegMixup(eta=0, loss=CrossEntropy(smoothing=0.2)))[1].loss, expected)
    (x, y), model = batch(dtype=torch.float64), conv_net(batch_norm=False, dtype=torch.float64)
    targets = 0.8 * F.one_hot(y, CLASSES).double() + 0.2 / CLASSES
    loss = rm.LabelSmoothing(smoothing=0.2, loss=Focal())(model, x, y).loss
    torch.testing.assert_close(loss, Focal()(model(x), targets).mean())


def test_alternate_hands_its_loss_to_the_sides_that_have_none():
    sides = rm.RegMixup(loss=CrossEntropy(smoothing=0.1)), rm.CutMix()
    for probability, expected in ((1, sides[0]), (0, rm.CutMix(loss=Focal()))):
        both = rm.Alternate(*sides, probability=probability, loss=Focal())
        draw = both.draw(7, SIZE, seeded())
        model, (x, y) = conv_net(batch_norm=False), batch()
        assert torch.equal(both(model, x, y, draw=draw).loss, expected(model, x, y, draw=draw).loss)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("regmixup", LOSSES["gamma"]),
        ("bimodal", LOSSES["weighted"]),
        ("label_smoothing", LOSSES["weighted"]),
        ("alternate/mixup-cutmix", LOSSES["multi-label"]),
    ],
)
def test_a_compiled_step_with_a_loss_has_one_graph_and_equals_the_eager_one(name, loss):
    objective, (x, y) = dataclasses.replace(OBJECTIVE_CASES[name], loss=loss), batch()
    y = labels_for(loss, y)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, CLASSES))
    draw = objective.draw(len(x), SIZE, seeded())
    torch.compiler.reset()
    step = torch.compile(lambda m, d: objective(m, x, y, draw=d), fullgraph=True, backend="eager")
    compiled, eager = step(model, draw), objective(model, x, y, draw=draw)
    torch.testing.assert_close(compiled.loss, eager.loss)
    torch.testing.assert_close(gradients(model, compiled.loss), gradients(model, eager.loss))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # float32 on purpose
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled")  # inductor, of a batch as small as this
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("loss", [None, *LOSSES.values()], ids=["none", *LOSSES.keys()])
def test_a_step_with_a_loss_is_captured_as_a_cuda_graph(loss, compiled):
    objective, (x, y) = rm.RegMixup(loss=loss), batch()
    x, y = x.cuda(), labels_for(loss, y).cuda()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, CLASSES)).cuda()
    draw = objective.draw(7, SIZE, seeded()).to(x.device)

    def step(x, y, draw):
        return objective(model, x, y, draw=draw).loss

    torch.compiler.reset()  # each loss is a further version of the same code, and those are limited
    run = torch.compile(step, fullgraph=True, dynamic=False) if compiled else step
    stream = torch.cuda.Stream()  # gradients of a warm-up on the default stream would have to be waited for
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(x, y, draw).backward()
    torch.cuda.current_stream().wait_stream(stream)
    model.zero_grad(set_to_none=True)  # so that gradients are allocated inside the graph, and replaced by each replay
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(x, y, draw)
        captured.backward()
    graph.replay()
    replayed = [captured.detach().clone(), *(parameter.grad.clone() for parameter in model.parameters())]
    model = copy.deepcopy(model)  # whose gradients no other stream has accumulated
    model.zero_grad(set_to_none=True)
    eager = step(x, y, draw)
    eager.backward()
    expected = [eager.detach(), *(parameter.grad for parameter in model.parameters())]
    torch.testing.assert_close(replayed, expected, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------------------------- refusals


def test_a_loss_must_return_one_value_per_image():
    for objective in (rm.ERM(loss=torch.nn.CrossEntropyLoss()), rm.Mixup(loss=torch.nn.CrossEntropyLoss())):
        with pytest.raises(ValueError, match=r"^loss must return one value per image, \(7,\), .* got shape \(\) from"):
            objective(conv_net(), *batch(), seeded())
    rm.ERM(loss=torch.nn.CrossEntropyLoss(reduction="none"))(conv_net(), *batch())


# --------------------------------------------------------------------------------------------- configurations


@each_objective
def test_a_named_loss_survives_json_and_none_does_not_enter_the_fingerprint(objective):
    with_loss = dataclasses.replace(objective, loss=CrossEntropy(WEIGHT))
    assert decode(Objective, json.loads(json.dumps(encode(with_loss)))) == with_loss
    assert hash(with_loss) == hash(dataclasses.replace(objective, loss=CrossEntropy(WEIGHT)))
    stored = json.loads(json.dumps(encode(objective)))
    del stored["loss"]  # as written before there was such a field
    assert decode(Objective, stored) == objective
    prints = {fingerprint(dataclasses.replace(objective, loss=loss)) for loss in (None, Focal(), Focal(3))}
    assert len(prints) == 3


def test_the_fingerprint_is_that_of_the_first_edition():
    expected = {
        rm.RegMixup(20): "c05275fe02a1206f60c42b9752954f66fcc147b88f5cfeaf62290bf7cc3a6b25",
        rm.Alternate(rm.Mixup(), rm.CutMix()): "120c631c2014ab449a059ea81d66d5900112cf0c31f908ae1def7ca77de1200b",
    }
    assert {objective: fingerprint(objective) for objective in expected} == expected


def test_a_loss_that_cannot_be_recorded_is_refused_in_a_configuration():
    for loss in (soft_focal, torch.nn.CrossEntropyLoss(reduction="none")):
        for objective in (rm.RegMixup(loss=loss), rm.Alternate(rm.Mixup(loss=loss), rm.CutMix())):
            with pytest.raises(ValueError, match=r"^loss must be a .*, Loss or None to be recorded in a conf"):
                rm.configure("digits", objective=objective)


def test_a_loss_of_ones_own_is_recorded():
    @dataclass(frozen=True)
    class Squared(Loss):
        power: float = 2.0

        def __call__(self, logits, targets):
            return (logits.softmax(1) - targets).abs().pow(self.power).sum(1)

    config = rm.configure("digits", objective=rm.RegMixup(loss=Squared(3)))
    assert decode(rm.TrainConfig, json.loads(json.dumps(encode(config)))) == config


def test_a_loss_that_is_no_function_is_refused_when_the_objective_is_made():
    for loss in ("ce", 3, rm.losses.Focal):
        for make in (rm.ERM, rm.RegMixup, rm.CutMix, rm.AugMix, partial(rm.Alternate, rm.ERM(), rm.ERM())):
            with pytest.raises(ValueError, match=r"^loss must be None or a callable .* such as rm\.losses\.Focal"):
                make(loss=loss)
