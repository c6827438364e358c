"""What every objective of the registry promises, whatever it computes."""

import copy
import dataclasses
import json
import math

import pytest
import torch

from regmixup import objectives
from regmixup.augmentations import AUGMENTATIONS
from regmixup.config import decode, encode
from regmixup.mixing import Draw
from regmixup.objectives import OBJECTIVES, Objective
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.duq import DUQ
from regmixup.objectives.erm import ERM
from regmixup.objectives.rotation import Rotation
from tests.objectives.cases import (
    CLASSES,
    DEFAULTS,
    OBJECTIVE_CASES,
    batch,
    batch_for,
    forwarded,
    gradients,
    net_for,
    seeded,
    with_rotation,
)

SIZE = (3, 6, 8)
# One case of every class, with other fields than the defaults where that is a harder case; the golden traces run all.
ONE_OF_A_CLASS = [
    "label_smoothing/0.3", "mixup/samples=2", "cutmix/sample", "regmixup", "regmixup/eta=0", "regcutmix/all",
    "half_regmixup/all", "bimodal/all", "vicinal/all", "vicinal/pixmix", "augmix/width=2", "alternate/regmixup-cutmix",
    "rotation/regmixup",
]  # fmt: skip
TRACED_BACKWARD = {"erm", "regmixup", "cutmix/sample", "augmix/width=2", "duq/penalty=0"}
COMPILED = TRACED_BACKWARD | {"vicinal/pixmix", "rotation/coin", "regmixup/samples=2", "regmixup/separate"}


def is_random(objective):
    return objective.draw(7, SIZE, seeded()) != Draw()


def over(cases):
    return pytest.mark.parametrize("objective", cases.values(), ids=cases.keys())


CASES = {name: OBJECTIVE_CASES[name] for name in ONE_OF_A_CLASS}
CLASSES_WITH_A_CASE = {type(case) for case in CASES.values()}
CASES |= {name: case for name, case in DEFAULTS.items() if type(case) not in CLASSES_WITH_A_CASE}
# A penalty on a gradient needs a double backward, which torch.compile does not have.
GRAPHS = [name for name in CASES if name != "duq"] + [
    "duq/penalty=0",
    "regmixup/samples=2",
    "regmixup/separate",
    "rotation/coin",
]
each_objective = over(CASES)
each_random_objective = over({name: case for name, case in CASES.items() if is_random(case)})


def draws_of(objective, batch_size=7, seed=0):
    """One draw; for `Alternate` one of each branch."""
    if not isinstance(getattr(objective, "objective", objective), Alternate):
        return [objective.draw(batch_size, SIZE, seeded(seed))]
    draws = [objective.draw(batch_size, SIZE, seeded(seed + i)) for i in range(20)]
    return list({draw.branch: draw for draw in draws}.values())


def with_field(name):
    """The objectives, one per class, that have a field of this name."""
    return over({key: case for key, case in DEFAULTS.items() if name in {f.name for f in dataclasses.fields(case)}})


def test_every_registered_objective_has_a_case_and_at_most_one_class_below_the_base():
    assert {type(objective) for objective in CASES.values()} == set(OBJECTIVES.values())
    for cls in OBJECTIVES.values():
        assert [base.__name__ for base in cls.__mro__].index("Objective") <= 2


def test_an_objective_is_built_by_name_and_a_typing_error_is_corrected():
    assert objectives.build("regmixup", alpha=10) == OBJECTIVES["regmixup"](alpha=10)
    with pytest.raises(ValueError, match="unknown objective 'regmixpu': did you mean 'regmixup'"):
        objectives.build("regmixpu")


# ------------------------------------------------------------------------------------------ loss and gradient


@each_objective
def test_loss_is_a_finite_positive_scalar_for_any_batch_size(objective):
    for batch_size in (1, 2, 3, 7):
        out = objective(net_for(objective), *batch_for(objective, batch_size), seeded())
        assert out.loss.shape == ()
        assert 0 < out.loss.item() < math.inf
        assert out.logits is None or out.logits.shape == (batch_size, CLASSES)


@each_objective
def test_every_trainable_parameter_gets_a_gradient(objective):
    model = net_for(objective)
    model[5].bias.requires_grad_(False)
    objective(model, *batch_for(objective), seeded()).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert torch.isfinite(parameter.grad).all(), name
            assert parameter.grad.abs().max() > 1e-6, name
        else:
            assert parameter.grad is None, name


@each_objective
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_lower_precision_gives_nearly_the_float64_loss(objective, dtype, rtol):
    for draw in draws_of(objective):
        exact = objective(
            net_for(objective, dtype=torch.float64), *batch_for(objective, dtype=torch.float64), draw=draw
        )
        out = objective(net_for(objective, dtype=dtype), *batch_for(objective, dtype=dtype), draw=draw)
        assert exact.loss.dtype == torch.float64
        assert out.loss.dtype == torch.float32
        assert out.logits is None or out.logits.dtype == dtype
        assert out.loss.item() == pytest.approx(exact.loss.item(), rel=rtol)


@each_objective
def test_autocast_gives_nearly_the_float32_loss_in_float32(objective):
    for draw in draws_of(objective):
        model, (x, y) = net_for(objective), batch_for(objective)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = objective(model, x, y, draw=draw)
        assert out.loss.dtype == torch.float32
        assert out.loss.item() == pytest.approx(objective(net_for(objective), x, y, draw=draw).loss.item(), rel=0.03)
        assert all(g.dtype == torch.float32 and g.abs().max() > 0 for g in gradients(model, out.loss))


@each_objective
def test_parts_are_detached_scalars_that_make_up_the_loss(objective):
    """The loss is the sum of the parts with the weights the fields give them, or 1; "mean" divides it by 1 + eta."""
    for draw in draws_of(objective):
        out = objective(net_for(objective), *batch_for(objective), draw=draw)
        chosen = getattr(objective, "objective", objective)
        chosen = (chosen.first, chosen.second)[draw.branch] if isinstance(chosen, Alternate) else chosen
        vicinal = getattr(chosen, "eta", 1)
        weights = {"clean": 1, "mixed": vicinal, "vicinal": vicinal}
        weights |= {"jsd": getattr(chosen, "jsd_weight", None), "penalty": getattr(chosen, "penalty", None)}
        parts = {name: part.item() for name, part in out.parts.items()}
        beside = objective.weight * parts.pop("rotation") if isinstance(objective, Rotation) else 0
        total = sum(weights.get(name, 1) * part for name, part in parts.items())
        share = 1 + chosen.eta if getattr(chosen, "scale", "sum") == "mean" else 1
        assert out.loss.item() == pytest.approx(total / share + beside, rel=1e-5)
        assert not any(part.requires_grad for part in out.parts.values())
        assert out.loss.requires_grad


@with_field("eta")
def test_eta_zero_is_erm_bit_for_bit_in_one_forward_and_draws_nothing(objective):
    off = dataclasses.replace(objective, eta=0)
    generator = seeded()
    before = generator.get_state()
    plain, regularised, (x, y) = net_for(objective), net_for(objective), batch_for(objective)
    calls = forwarded(regularised)
    expected, out = ERM()(plain, x, y), off(regularised, x, y, generator)
    assert off.draw(7, SIZE) == Draw()
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(out.loss, expected.loss)
    assert torch.equal(out.logits, expected.logits)
    assert all(map(torch.equal, gradients(plain, expected.loss), gradients(regularised, out.loss)))
    assert [len(call) for call in calls] == [len(x)]


# ------------------------------------------------------------------------------------------------- randomness


@each_objective
def test_the_same_seed_gives_the_same_bits_and_others_another_loss_where_the_objective_is_random(objective):
    first, second = net_for(objective), net_for(objective)
    loss_1 = objective(first, *batch_for(objective), seeded(3)).loss
    loss_2 = objective(second, *batch_for(objective), seeded(3)).loss
    assert torch.equal(loss_1, loss_2)
    assert all(map(torch.equal, gradients(first, loss_1), gradients(second, loss_2)))
    losses = {objective(net_for(objective), *batch_for(objective), seeded(seed)).loss.item() for seed in range(8)}
    assert (len(losses) > 1) == is_random(objective)


@each_objective
def test_calling_with_a_draw_equals_calling_with_its_generator_and_leaves_all_generators_untouched(objective):
    (x, y), generator = batch_for(objective), seeded(1)
    draw = objective.draw(len(x), SIZE, seeded(5))
    before, global_before = generator.get_state(), torch.get_rng_state()
    with_draw = objective(net_for(objective), x, y, generator, draw).loss
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(torch.get_rng_state(), global_before)
    assert torch.equal(with_draw, objective(net_for(objective), x, y, seeded(5)).loss)
    assert torch.equal(with_draw, objective(net_for(objective), x, y, draw=draw).loss)


@each_objective
def test_the_global_seed_alone_makes_a_step_reproducible(objective):
    torch.manual_seed(11)
    loss = objective(net_for(objective), *batch_for(objective)).loss
    after = torch.get_rng_state()
    torch.manual_seed(11)
    assert torch.equal(loss, objective(net_for(objective), *batch_for(objective)).loss)
    assert torch.equal(loss, objective(net_for(objective), *batch_for(objective), seeded(11)).loss)
    torch.manual_seed(11)
    assert torch.equal(after, torch.get_rng_state()) != is_random(objective)


# ------------------------------------------------------------------------------------------------------ inputs


@each_objective
def test_inputs_are_not_changed(objective):
    for draw in draws_of(objective):
        x, y = batch_for(objective)
        draw_copy, x_copy, y_copy = copy.deepcopy(draw), x.clone(), y.clone()
        objective(net_for(objective), x, y, draw=draw)
        assert torch.equal(x, x_copy)
        assert torch.equal(y, y_copy)
        assert str(draw) == str(draw_copy)


@each_objective
@pytest.mark.parametrize("form", ["column", "integers", "booleans", "probabilities"])
def test_labels_in_other_forms_equal_class_indices(objective, form):
    for draw in draws_of(objective):
        x, y = batch_for(objective, dtype=torch.float64)
        one_hot = torch.nn.functional.one_hot(y, CLASSES)
        forms = {"column": y[:, None].int(), "integers": one_hot, "booleans": one_hot.bool()}
        labels = (forms | {"probabilities": one_hot.double()})[form]
        expected = objective(net_for(objective, dtype=torch.float64), x, y, draw=draw).loss
        loss = objective(net_for(objective, dtype=torch.float64), x, labels, draw=draw).loss
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@each_objective
def test_uint8_images_equal_floats_divided_by_255(objective):
    x, y = batch_for(objective)
    pixels = (255 * x).round().to(torch.uint8)
    for draw in draws_of(objective):
        model = net_for(objective)
        calls = forwarded(model)
        loss = objective(model, pixels, y, draw=draw).loss
        assert torch.equal(loss, objective(net_for(objective), pixels.float() / 255, y, draw=draw).loss)
        assert all(call.dtype == torch.float32 and call.max() < 3 for call in calls)


@each_objective
def test_channels_last_images_reach_the_model_channels_last(objective):
    x, y = batch_for(objective)
    for draw in draws_of(objective):
        model = net_for(objective)
        calls = forwarded(model)
        loss = objective(model, x.to(memory_format=torch.channels_last), y, draw=draw).loss
        torch.testing.assert_close(loss, objective(net_for(objective), x, y, draw=draw).loss)
        assert all(call.is_contiguous(memory_format=torch.channels_last) for call in calls)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in COMPILED else pytest.mark.soak) for name in GRAPHS]
)
def test_a_compiled_step_has_one_graph_and_equals_the_eager_one(name):
    """One of every family is also traced backward; for the others, finding the graph is the whole question.

    The objective is a fresh copy: nothing that an earlier call made may be needed.
    """
    objective = dataclasses.replace(OBJECTIVE_CASES[name])
    x, y = batch_for(objective)
    backend = "aot_eager" if name in TRACED_BACKWARD else "eager"
    if name == "augmix/width=2":
        objective = dataclasses.replace(objective, depth=1)  # longer chains repeat the same graph
    outputs = torch.nn.LogSigmoid() if isinstance(objective, DUQ) else torch.nn.Identity()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), CLASSES), outputs)
    if isinstance(objective, Rotation):
        model = with_rotation(model[:-1])
    for draw in draws_of(dataclasses.replace(objective)):
        torch.compiler.reset()
        step = torch.compile(lambda m, d: objective(m, x, y, draw=d), fullgraph=True, backend=backend)
        compiled, eager = step(model, draw), objective(model, x, y, draw=draw)
        torch.testing.assert_close(compiled.loss, eager.loss)
        torch.testing.assert_close(gradients(model, compiled.loss), gradients(model, eager.loss))


# --------------------------------------------------------------------------------------- an objective is a value


@each_objective
def test_an_objective_is_a_hashable_value_that_its_text_and_json_rebuild(objective):
    named = {cls.__name__: cls for cls in (*OBJECTIVES.values(), *AUGMENTATIONS.values())}
    rebuilt = eval(repr(objective), named)
    assert rebuilt == objective
    assert hash(rebuilt) == hash(objective)
    assert decode(Objective, json.loads(json.dumps(encode(objective)))) == objective


# ------------------------------------------------------------------------------------------------------ errors


def test_hyper_parameters_are_checked_by_name():
    for field, wrong, contract in (
        ("alpha", 0, "a finite number > 0"),
        ("alpha", math.nan, "a finite number > 0"),
        ("eta", -0.1, "a finite number >= 0"),
        ("samples", 1.0, "an integer >= 1"),
    ):
        for objective in DEFAULTS.values():
            if hasattr(objective, field):
                with pytest.raises(ValueError, match=rf"^{field} must be {contract}, got {wrong!r}$"):
                    dataclasses.replace(objective, **{field: wrong})
    with pytest.raises(ValueError, match=r"^unknown passes 'seperate': did you mean 'separate'\? Available: "):
        dataclasses.replace(DEFAULTS["regmixup"], passes="seperate")
    with pytest.raises(TypeError, match="positional argument"):
        OBJECTIVES["regmixup"](20, 1.0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, CLASSES], r"y must hold labels in \[0, 5\), got values from . to 5$"),
        ([0, -1, 1], r"y must hold labels in \[0, 5\), got values from -1 to "),
        ([0, 1], "x and y must hold one label per image, got 2 labels for 3 images"),
        ([0.0, 1.0, 2.0], r"y must be class indices .* got torch.float32 \(3,\)$"),
        ([True, False, True], r"y must be class indices .* got torch.bool \(3,\)$"),
        ([[1, 0, 2, 0, 0]] * 3, r"y must hold rows >= 0 that sum to 1 .*BinaryCrossEntropy\(\)\), .* from 3 to 3$"),
        ([[2.0, -1.0, 0, 0, 0]] * 3, r"y must hold rows >= 0 that sum to 1 .* from -1 to 2 and sums from 1 to 1$"),
        ([[0.5, 0.5]] * 3, r"y must have one probability per class, 5, got shape \(., 2\)"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    for objective in (OBJECTIVE_CASES["regmixup"], OBJECTIVE_CASES["duq"], OBJECTIVE_CASES["half_regmixup"]):
        with pytest.raises(ValueError, match=message):
            objective(net_for(objective), batch(3)[0], torch.tensor(labels), seeded())


def test_an_empty_batch_and_whole_numbers_as_images_are_refused():
    with pytest.raises(ValueError, match="one label per image, got 0 labels for 0 images"):
        ERM()(net_for(ERM()), torch.zeros(0, 3, 6, 8), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"x must be uint8 or .*, got torch.int64"):
        ERM()(net_for(ERM()), torch.zeros(3, 3, 6, 8, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))


def test_a_seed_in_place_of_a_generator_is_refused():
    with pytest.raises(ValueError, match=r"^generator must be a torch.Generator or None, got 42$"):
        OBJECTIVE_CASES["regmixup"](net_for(ERM()), *batch(), 42)


@each_random_objective
@pytest.mark.parametrize("batch_size", [-1, 2.5, "8"])
def test_a_batch_size_that_is_no_count_is_refused_by_its_name(objective, batch_size):
    with pytest.raises(ValueError, match=rf"^batch_size must be an integer >= 0, got {batch_size!r}$"):
        objective.draw(batch_size, SIZE, seeded())


@each_random_objective
def test_a_draw_for_another_batch_size_and_an_empty_one_are_refused(objective):
    drawn = [draw for draw in draws_of(objective, batch_size=3) if draw != Draw(branch=draw.branch)]
    assert drawn
    for draw in drawn:
        with pytest.raises(ValueError, match=r"draw\.\w+ must have shape \(.*(7|14).*\) for .*, got shape \(.*(3|6)"):
            objective(net_for(objective), *batch_for(objective, 7), draw=draw)
    with pytest.raises(ValueError, match=r"draw\.\w+ must have shape .*, got None|draw must name a branch"):
        objective(net_for(objective), *batch_for(objective), draw=Draw())
