"""The field `loss`, which every objective but DUQ has, the method `compute`, and how flat the classes are."""

import dataclasses
import json
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.config import decode, encode, fingerprint
from regmixup.losses import CrossEntropy, Focal, Loss
from regmixup.objectives import OBJECTIVES, Objective
from regmixup.objectives.augmix import jensen_shannon
from tests.objectives.cases import CLASSES, DEFAULTS, OBJECTIVE_CASES, batch, conv_net, gradients, net_for, seeded

SIZE = (3, 6, 8)
WEIGHT = (1.0, 0.5, 2.0, 0.1, 3.0)
WITH_LOSS = {name: one for name, one in OBJECTIVE_CASES.items() if "loss" in {f.name for f in dataclasses.fields(one)}}
each_objective = pytest.mark.parametrize("objective", WITH_LOSS.values(), ids=WITH_LOSS.keys())
TWO_TERMS = {name: one for name, one in WITH_LOSS.items() if getattr(one, "eta", 0) > 0}
each_of_two_terms = pytest.mark.parametrize("objective", TWO_TERMS.values(), ids=TWO_TERMS.keys())


def exact(objective, seed=0):
    """What an objective computes in float64, without batch norm."""
    model = net_for(objective, batch_norm=False, dtype=torch.float64)
    return model, objective(model, *batch(dtype=torch.float64), seeded(seed))


def soft_focal(logits, targets):
    """Focal loss written in another way, as a plain function."""
    probs = logits.softmax(1)
    return -((1 - probs).square() * targets * probs.log()).sum(1)


# ---------------------------------------------------------------------------------------------- how flat it is


@pytest.mark.parametrize("cls", OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_an_objective_has_at_most_one_class_between_itself_and_the_base(cls):
    own = [base.__name__ for base in cls.__mro__ if base.__module__.startswith("regmixup")]
    assert own[-1] == "Objective"
    assert len(own) <= 3


def test_every_objective_of_the_package_but_duq_has_a_loss():
    names = "alternate augmix bimodal cutmix erm gaussian_noise half_regmixup label_smoothing mixup reg_gaussian_noise"
    assert {type(one) for one in WITH_LOSS.values()} == {OBJECTIVES[n] for n in f"{names} regcutmix regmixup".split()}
    with pytest.raises(TypeError, match="loss"):
        rm.DUQ(loss=Focal())


@pytest.mark.parametrize("name", [name for name, one in DEFAULTS.items() if hasattr(one, "alpha")])
def test_alpha_may_be_positional_and_nothing_else(name):
    cls = OBJECTIVES[name]
    assert cls(7) == cls(alpha=7.0)
    assert hash(cls(7)) == hash(cls(alpha=7.0))
    with pytest.raises(TypeError, match="positional argument"):
        cls(7, 1.0)


# ------------------------------------------------------------------------------------------------- identities


@each_objective
def test_cross_entropy_equals_none_with_its_gradient_and_parts(objective):
    model, plain = exact(objective)
    _, out = exact(dataclasses.replace(objective, loss=CrossEntropy()))
    twin, same = exact(dataclasses.replace(objective, loss=CrossEntropy()))
    torch.testing.assert_close(out.loss, plain.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(twin, same.loss), gradients(model, plain.loss))
    assert out.parts.keys() == plain.parts.keys()
    for name, part in out.parts.items():
        torch.testing.assert_close(part, plain.parts[name], rtol=1e-12, atol=0)


@each_objective
def test_any_callable_is_a_loss(objective):
    ours = exact(dataclasses.replace(objective, loss=Focal(2.0)))[1]
    theirs = exact(dataclasses.replace(objective, loss=soft_focal))[1]
    torch.testing.assert_close(ours.loss, theirs.loss)
    assert abs(ours.loss - exact(objective)[1].loss) > 0.01


@each_objective
def test_the_loss_is_a_function_of_soft_targets_that_are_probabilities(objective):
    seen = []

    def spy(logits, targets):
        seen.append(targets)
        return CrossEntropy()(logits, targets)

    _, out = exact(dataclasses.replace(objective, loss=spy))
    torch.testing.assert_close(out.loss, exact(objective)[1].loss, rtol=1e-12, atol=0)
    assert all(targets.shape[1] == CLASSES and targets.dtype == torch.float64 for targets in seen)
    assert all(bool((targets >= 0).all()) for targets in seen)
    for targets in seen:
        torch.testing.assert_close(targets.sum(1), torch.ones(len(targets), dtype=torch.float64))


@each_of_two_terms
@pytest.mark.parametrize("loss", [Focal(), CrossEntropy(WEIGHT, 0.1)], ids=["gamma", "weighted"])
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


def test_smoothing_in_the_loss_is_label_smoothing():
    expected = exact(rm.LabelSmoothing(smoothing=0.2))[1].loss
    torch.testing.assert_close(exact(rm.ERM(loss=CrossEntropy(smoothing=0.2)))[1].loss, expected)
    torch.testing.assert_close(exact(rm.LabelSmoothing(smoothing=0.2, loss=CrossEntropy()))[1].loss, expected)
    torch.testing.assert_close(exact(rm.RegMixup(eta=0, loss=CrossEntropy(smoothing=0.2)))[1].loss, expected)


def test_label_smoothing_hands_smoothed_targets_to_its_loss():
    (x, y), model = batch(dtype=torch.float64), conv_net(batch_norm=False, dtype=torch.float64)
    targets = 0.8 * F.one_hot(y, CLASSES).double() + 0.2 / CLASSES
    loss = rm.LabelSmoothing(smoothing=0.2, loss=Focal())(model, x, y).loss
    torch.testing.assert_close(loss, Focal()(model(x), targets).mean())


def test_erm_and_regmixup_with_class_weights_equal_torchs_soft_target_mean():
    (x, y), weight = batch(dtype=torch.float64), torch.tensor(WEIGHT, dtype=torch.float64)
    model, one_hot = conv_net(dtype=torch.float64), F.one_hot(y, CLASSES).double()
    loss = rm.ERM(loss=CrossEntropy(WEIGHT))(model, x, y).loss
    torch.testing.assert_close(loss, F.cross_entropy(model(x), one_hot, weight))

    objective = rm.RegMixup(loss=CrossEntropy(WEIGHT))
    draw = objective.draw(len(x), SIZE, seeded())
    lam, partner = draw.lam, draw.partner
    images = torch.cat([x, lam * x + (1 - lam) * x[partner]])
    targets = torch.cat([one_hot, lam * one_hot + (1 - lam) * one_hot[partner]])
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss, F.cross_entropy(model(images), targets, weight))


def test_the_loss_of_augmix_replaces_the_cross_entropy_and_not_the_divergence():
    plain, focal = (exact(rm.AugMix(loss=loss))[1] for loss in (None, Focal()))
    assert torch.equal(plain.parts["jsd"], focal.parts["jsd"])
    model, (x, y) = conv_net(batch_norm=False, dtype=torch.float64), batch(dtype=torch.float64)
    clean = Focal()(model(x), F.one_hot(y, CLASSES).double()).mean()
    torch.testing.assert_close(focal.loss, clean + 12 * focal.parts["jsd"])
    assert jensen_shannon(torch.zeros(3, 2, 4)) == 0


def test_alternate_hands_its_loss_to_the_sides_that_have_none():
    sides = rm.RegMixup(loss=CrossEntropy(smoothing=0.1)), rm.CutMix()
    for probability, expected in ((1, sides[0]), (0, rm.CutMix(loss=Focal()))):
        both = rm.Alternate(*sides, probability=probability, loss=Focal())
        draw = both.draw(7, SIZE, seeded())
        model, (x, y) = conv_net(batch_norm=False), batch()
        assert torch.equal(both(model, x, y, draw=draw).loss, expected(model, x, y, draw=draw).loss)
    with pytest.raises(ValueError, match=r"loss must be None beside DUQ\(.*which has a loss of its own"):
        rm.Alternate(rm.DUQ(), rm.ERM(), loss=Focal())


@pytest.mark.parametrize("name", ["regmixup", "bimodal", "label_smoothing", "alternate/mixup-cutmix"])
@pytest.mark.parametrize("loss", [Focal(), CrossEntropy(WEIGHT, 0.1)], ids=["gamma", "weighted"])
def test_a_compiled_step_with_a_loss_has_one_graph_and_equals_the_eager_one(name, loss):
    objective, (x, y) = dataclasses.replace(OBJECTIVE_CASES[name], loss=loss), batch()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, CLASSES))
    draw = objective.draw(len(x), SIZE, seeded())
    torch.compiler.reset()
    step = torch.compile(lambda m, d: objective(m, x, y, draw=d), fullgraph=True, backend="eager")
    compiled, eager = step(model, draw), objective(model, x, y, draw=draw)
    torch.testing.assert_close(compiled.loss, eager.loss)
    torch.testing.assert_close(gradients(model, compiled.loss), gradients(model, eager.loss))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # float32 on purpose
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("loss", [None, Focal(), CrossEntropy(WEIGHT, 0.1)], ids=["none", "gamma", "weighted"])
def test_a_step_with_a_loss_is_captured_as_a_cuda_graph(loss, compiled):
    objective, (x, y) = rm.RegMixup(loss=loss), (part.cuda() for part in batch())
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, CLASSES)).cuda()
    draw = objective.draw(7, SIZE, seeded()).to(x.device)

    def step(x, y, draw):
        return objective(model, x, y, draw=draw).loss

    run = torch.compile(step, fullgraph=True) if compiled else step
    for _ in range(3):
        run(x, y, draw).backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(x, y, draw)
        captured.backward()
    graph.replay()
    torch.testing.assert_close(captured, step(x, y, draw))


# --------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("loss", ["focal", 3, Focal, {"kind": "Focal"}], ids=["name", "number", "class", "table"])
def test_what_is_no_loss_is_refused(loss):
    with pytest.raises(ValueError, match="loss must be None or a callable from logits and soft targets"):
        rm.RegMixup(loss=loss)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.nn.CrossEntropyLoss(), r"loss must return one value per image, \(7,\), .* got shape \(\)"),
        (lambda logits, targets: 0.0, r"loss must return one value per image, \(7,\), .* got 0.0"),
        (lambda logits, targets: targets, r"loss must return one value per image, \(7,\), .* got shape \(7, 5\)"),
    ],
)
def test_a_loss_must_return_one_value_per_image(loss, message):
    for objective in (rm.ERM(loss=loss), rm.Mixup(loss=loss)):
        with pytest.raises(ValueError, match=message):
            objective(conv_net(), *batch(), seeded())
    rm.ERM(loss=torch.nn.CrossEntropyLoss(reduction="none"))(conv_net(), *batch())


@each_objective
def test_wrong_labels_are_refused_before_the_loss_sees_them(objective):
    objective = dataclasses.replace(objective, loss=Focal())
    with pytest.raises(ValueError, match=r"y must hold labels in \[0, 5\), got values from 0 to 5"):
        objective(conv_net(), batch(3)[0], torch.tensor([0, 1, 5]), seeded())


# --------------------------------------------------------------------------------------------- configurations


@each_objective
def test_a_named_loss_survives_json_and_none_does_not_enter_the_fingerprint(objective):
    with_loss = dataclasses.replace(objective, loss=CrossEntropy(WEIGHT))
    assert decode(Objective, json.loads(json.dumps(encode(with_loss)))) == with_loss
    assert hash(with_loss) == hash(dataclasses.replace(objective, loss=CrossEntropy(WEIGHT)))
    stored = json.loads(json.dumps(encode(objective)))
    del stored["loss"]  # as written before there was such a field
    assert decode(Objective, stored) == objective
    prints = {fingerprint(dataclasses.replace(objective, loss=one)) for one in (None, Focal(), Focal(3))}
    assert len(prints) == 3


def test_the_fingerprint_is_that_of_the_first_edition():
    expected = {
        rm.RegMixup(20): "c05275fe02a1206f60c42b9752954f66fcc147b88f5cfeaf62290bf7cc3a6b25",
        rm.Alternate(rm.Mixup(), rm.CutMix()): "120c631c2014ab449a059ea81d66d5900112cf0c31f908ae1def7ca77de1200b",
    }
    assert {objective: fingerprint(objective) for objective in expected} == expected


def test_a_loss_that_cannot_be_recorded_is_refused_in_a_configuration():
    @dataclass(frozen=True)
    class Foreign:
        def __call__(self, logits, targets):
            return soft_focal(logits, targets)

    for loss in (soft_focal, torch.nn.CrossEntropyLoss(reduction="none"), Foreign()):
        with pytest.raises(ValueError, match=r"^loss must be a Loss to be recorded in a configuration, got "):
            rm.configure("digits", objective=rm.RegMixup(loss=loss))
        with pytest.raises(ValueError, match=r"^loss must be a Loss to be recorded in a configuration, got "):
            rm.configure("digits", objective=rm.Alternate(rm.Mixup(loss=loss), rm.CutMix()))


def test_a_loss_of_ones_own_is_recorded():
    @dataclass(frozen=True)
    class Squared(Loss):
        power: float = 2.0

        def __call__(self, logits, targets):
            return (logits.softmax(1) - targets).abs().pow(self.power).sum(1)

    config = rm.configure("digits", objective=rm.RegMixup(loss=Squared(3)))
    assert decode(rm.TrainConfig, json.loads(json.dumps(encode(config)))) == config


# --------------------------------------------------------------------- compute, which was called loss until 0.1


def old_style(base, body):
    with pytest.warns(DeprecationWarning, match=r"^rename the method Old\.loss to compute") as caught:
        cls = dataclass(frozen=True, kw_only=True)(type("Old", (base,), {"loss": body, "__module__": __name__}))
    assert len(caught) == 1
    return cls


def test_a_subclass_that_defines_loss_works_and_is_told_to_rename_it():
    def loss(self, model, x, y, draw):
        return rm.LossOutput(F.cross_entropy(model(x), y) / 2)

    (x, y), model = batch(), conv_net()
    old = old_style(Objective, loss)
    expected = F.cross_entropy(model(x), y) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(old()(model, x, y).loss, expected)
        torch.testing.assert_close(old().loss(model, x, y, rm.Draw()).loss, expected)
        torch.testing.assert_close(rm.Alternate(old(), old())(model, x, y).loss, expected)


def test_an_old_subclass_of_an_objective_with_a_field_loss_works_with_its_super_call():
    holder = {}

    def loss(self, model, x, y, draw):
        out = super(holder["class"], self).loss(model, x, y, draw)
        return dataclasses.replace(out, loss=3 * out.loss)

    holder["class"] = old = old_style(rm.RegMixup, loss)
    (x, y), model = batch(), conv_net(batch_norm=False)
    for fields in ({}, {"loss": Focal()}):
        tripled, plain = old(alpha=3, **fields), rm.RegMixup(3, **fields)
        assert tripled.loss is plain.loss
        assert torch.equal(tripled(model, x, y, seeded()).loss, 3 * plain(model, x, y, seeded()).loss)


def test_the_warning_points_at_the_class():
    with pytest.warns(DeprecationWarning, match="Old") as caught:

        class Old(Objective):
            def loss(self, model, x, y, draw):
                return None

    assert caught[0].filename == __file__


def test_the_old_import_of_check_labels_works_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"import check_labels from regmixup\.losses"):
        from regmixup.objectives._base import check_labels
    assert check_labels is rm.losses.check_labels


def test_compute_must_be_implemented():
    with pytest.raises(TypeError, match=r"abstract method '?compute"):
        type("Nothing", (Objective,), {})()
