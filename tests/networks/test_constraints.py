"""What every constraint promises, whatever it bounds."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from regmixup.networks import bake, build
from regmixup.networks.constraints import SpectralNorm, StableRank, convolutions
from tests.networks.constrained import convolution, original, power, random_weight

CHOICES = {
    "spectral_norm": SpectralNorm(),
    "spectral_norm, convolution": SpectralNorm(norm="convolution"),
    "stable_rank": StableRank(),
}
each_constraint = pytest.mark.parametrize("constraint", CHOICES.values(), ids=CHOICES)


def network(constraint, seed=0, **options):
    torch.manual_seed(seed)
    return build("small", num_classes=10, constraint=constraint, image_size=8, **options)


def images(size=8, batch_size=4):
    return torch.rand(batch_size, 3, size, size, generator=torch.Generator().manual_seed(1))


def loss_of(model, x):
    return F.cross_entropy(model(x), torch.arange(len(x)))


def vectors(model):
    return [vector.clone() for conv in convolutions(model) for vector in (power(conv).u, power(conv).v)]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def gradients(model):
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("constraint", "name", "number"), [(SpectralNorm(), "wrn28-10", 1 + 24 + 3), (StableRank(), "resnet50", 1 + 48 + 4)]
)
def test_every_convolution_is_constrained_and_nothing_else(constraint, name, number):
    """The stem, those of the blocks and the projections; on the meta device, where a network has no values."""
    with torch.device("meta"):
        model = build(name, num_classes=10, constraint=dataclasses.replace(constraint, warmup=1))
    constrained = [module for module in model.modules() if parametrize.is_parametrized(module)]
    assert constrained == convolutions(model)
    assert len(constrained) == number
    assert all(list(module.parametrizations) == ["weight"] for module in constrained)


@each_constraint
def test_a_training_step_reads_no_values(constraint):
    """The meta device has none to read: .item() or a branch on a tensor, which would stall a GPU, fails here."""
    with torch.device("meta"):
        model = build("small", num_classes=10, constraint=constraint)
        loss_of(model, images().to("meta")).backward()
    assert all(grad.is_meta for grad in gradients(model))


@each_constraint
def test_a_constrained_network_keeps_the_contract(constraint):
    """Images may have other sizes than the constraint was made for."""
    model = network(constraint).eval()
    logits = model(images(5))
    assert torch.equal(logits, model.head(model.features(images(5))))
    assert not torch.allclose(logits[0], logits[1])
    loss_of(model.train(), images(9)).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


# --------------------------------------------------------------------------------------------------------- vectors


@each_constraint
def test_vectors_are_unit_vectors_drawn_from_the_global_seed(constraint):
    first, again, other = (vectors(network(constraint, seed=seed)) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    assert all(vector.norm().item() == pytest.approx(1, rel=1e-5) for vector in first)


@each_constraint
def test_vectors_stand_still_in_evaluation_mode(constraint):
    model = network(constraint).eval()
    before = vectors(model)
    assert torch.equal(model(images()), model(images()))
    assert same(vectors(model), before)


@each_constraint
def test_a_forward_pass_in_training_mode_makes_the_given_number_of_iterations(constraint):
    conv = convolution(dataclasses.replace(constraint, iterations=3, warmup=1), random_weight(4, 3, 3, 3), padding=1)
    iteration, weight = power(conv), original(conv).detach()
    u = iteration.u
    for _ in range(3):
        v = F.normalize(iteration.adjoint(weight, u).flatten(), dim=0).reshape(iteration.v.shape)
        u = F.normalize(iteration.times(weight, v).flatten(), dim=0).reshape(iteration.u.shape)
    conv(torch.zeros(2, 3, 7, 7, dtype=torch.float64))
    torch.testing.assert_close((iteration.u, iteration.v), (u, v))


# ----------------------------------------------------------------------------------------------------------- state


@each_constraint
def test_training_goes_on_from_a_state_dict_to_the_bit(constraint):
    def step(model):
        model.zero_grad()
        loss_of(model, images()).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad

    model, resumed = network(constraint), network(constraint, seed=1)
    step(model)
    resumed.load_state_dict(model.state_dict())
    for _ in range(2):
        step(model)
        step(resumed)
    assert same(model.state_dict().values(), resumed.state_dict().values())


@each_constraint
def test_baking_leaves_a_plain_network_with_the_same_logits(constraint):
    model = network(constraint).eval()
    parameters, logits = set(model.parameters()), model(images())
    assert bake(model.train()) is model
    assert all(type(conv) is nn.Conv2d and isinstance(conv.weight, nn.Parameter) for conv in convolutions(model))
    assert set(model.parameters()) == parameters
    plain = network(None)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain.eval()(images()), logits)


def test_baking_a_copy_leaves_the_original_and_other_copies_constrained():
    model = network("spectral_norm").eval()
    logits, other = model(images()), copy.deepcopy(model)
    for baked in (bake(copy.deepcopy(model)), bake(copy.deepcopy(model))):
        assert not any(parametrize.is_parametrized(module) for module in baked.modules())
        assert all(torch.equal(twin(images()), logits) for twin in (baked, model, other))
    assert all(parametrize.is_parametrized(conv, "weight") for conv in convolutions(model))


# ------------------------------------------------------------------------------------------------------- gradients


@each_constraint
def test_two_forward_passes_before_one_backward_pass(constraint):
    """The second pass moves the vectors; the gradient is still the sum of the gradients of the two."""
    model, twin = network(constraint), network(constraint)
    first, second = images(), images().flip(0) ** 2
    (loss_of(model, first) + loss_of(model, second)).backward()
    for x in (first, second):
        loss_of(twin, x).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))


@each_constraint
def test_a_training_pass_between_a_forward_pass_and_its_backward_pass(constraint):
    conv = convolution(constraint, random_weight(4, 3, 3, 3, sigma=3.0)).eval()
    twin = copy.deepcopy(conv)
    x = images(7).double()
    loss = conv(x).square().sum()
    conv.train()
    conv(x)
    loss.backward()
    twin(x).square().sum().backward()
    assert torch.equal(original(conv).grad, original(twin).grad)


@each_constraint
@pytest.mark.parametrize("sigma", [0.1, 3.0])
def test_derivatives_of_first_and_second_order_are_those_of_finite_differences(constraint, sigma):
    """In evaluation mode the vectors are constants, and the effective weight a function of the weight alone."""
    conv = convolution(constraint, random_weight(5, 2, 2, 2, sigma=sigma), size=(4, 5)).eval()
    normalise = conv.parametrizations.weight[0]
    assert torch.autograd.gradcheck(normalise, original(conv))
    assert torch.autograd.gradgradcheck(normalise, original(conv))


# ------------------------------------------------------------------------------------------------ types, compilers


@each_constraint
def test_autocast_does_not_touch_the_normalisation(constraint):
    model, twin = network(constraint), network(constraint)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = [conv.weight for conv in convolutions(model)]
    assert same(weights, [conv.weight for conv in convolutions(twin)])


@each_constraint
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_types(constraint, dtype):
    """bfloat16 keeps 8 bits; normalising in float32 loses none beyond those of the weight and the vectors."""
    model, twin = network(constraint).eval(), network(constraint).eval().to(dtype)
    for ours, theirs in zip(convolutions(model), convolutions(twin), strict=True):
        assert theirs.weight.dtype == dtype
        tolerance = 1e-5 if dtype == torch.float64 else 2e-2
        torch.testing.assert_close(theirs.weight.to(torch.float32), ours.weight, rtol=tolerance, atol=tolerance / 10)
    assert twin.train()(images().to(dtype)).dtype == dtype


@each_constraint
def test_a_training_step_compiles_into_one_graph(constraint):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Flatten())
    constraint.apply(model, images(5))
    twin, x = copy.deepcopy(model), images(5)

    def loss(network):
        return network(x).square().mean()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        compiled(model).backward()
        loss(twin).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))
    assert same(model.state_dict().values(), twin.state_dict().values())


# ---------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (SpectralNorm, {"iterations": 0}, r"^iterations must be an integer >= 1, got 0$"),
        (SpectralNorm, {"c": 0}, r"^c must be a finite number > 0, got 0$"),
        (StableRank, {"ratio": 1.01}, r"^ratio must be a finite number > 0 and <= 1, got 1.01$"),
    ],
)
def test_settings_that_make_no_sense_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields)


def test_a_network_without_convolutions_cannot_be_constrained():
    with pytest.raises(ValueError, match="constraint must be None for a network without convolutions"):
        SpectralNorm().apply(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(1, 1, 2, 2))
