"""Losses of soft targets against slow twins, torch, torchvision and closed forms."""

import dataclasses
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torchvision.ops import sigmoid_focal_loss

import regmixup as rm
from regmixup.config import decode, encode
from regmixup.losses import CrossEntropy, Focal, Loss, cross_entropy, image_losses, mixed_losses
from regmixup.mixing import sample_beta, sample_partners
from tests.references import mixing as slow

quick = settings(deadline=None, derandomize=True, max_examples=50)
seeds = st.integers(0, 10_000)
WEIGHT = (1.0, 0.0, 2.5, 0.3)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def case(seed=0, size=6, dtype=torch.float64):
    """Logits (N, 4) and soft targets (N, 4)."""
    generator = seeded(seed)
    logits = 3 * torch.randn(size, 4, dtype=dtype, generator=generator)
    return logits, torch.rand(size, 4, dtype=dtype, generator=generator).softmax(1)


# ----------------------------------------------------------------------------------------------- cross-entropy


@quick
@given(batch_size=st.integers(1, 6), per_sample=st.booleans(), seed=seeds)
def test_the_mixed_loss_equals_the_cross_entropy_of_the_explicit_soft_label(batch_size, per_sample, seed):
    generator = seeded(seed)
    logits = 5 * torch.randn(batch_size, 4, dtype=torch.float64, generator=generator)
    y = torch.randint(4, (batch_size,), generator=generator)
    lam = sample_beta(1.0, (batch_size,) if per_sample else (), generator)
    partner = sample_partners(batch_size, "permutation", generator)
    targets = slow.mixed_targets(slow.one_hot(y, 4), lam.expand(batch_size).tolist(), partner.tolist())
    by_torch = F.cross_entropy(logits, torch.from_numpy(targets), reduction="none")
    by_hand = slow.soft_cross_entropy(logits.tolist(), targets)
    for loss in (None, CrossEntropy()):
        losses = mixed_losses(logits, y, y[partner], lam, loss)
        torch.testing.assert_close(losses, by_torch, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(losses, torch.from_numpy(by_hand), rtol=1e-12, atol=1e-12)


def test_the_mixed_loss_is_the_weighted_sum_of_two_cross_entropies():
    logits, y, partner = torch.randn(3, 5, generator=seeded()), torch.tensor([0, 4, 2]), torch.tensor([1, 2, 0])
    own, other = (F.cross_entropy(logits, label, reduction="none") for label in (y, y[partner]))
    losses = mixed_losses(logits, y, y[partner], torch.tensor(0.3, dtype=torch.float64))
    torch.testing.assert_close(losses, 0.3 * own + 0.7 * other)


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_number_of_classes():
    losses = cross_entropy(torch.zeros(3, 7), torch.tensor([0, 3, 6]))
    torch.testing.assert_close(losses, torch.full((3,), math.log(7)))


@pytest.mark.parametrize("loss", [None, CrossEntropy(WEIGHT), Focal()])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_summed_in_float32(dtype, loss):
    logits, y = torch.randn(4, 4, generator=seeded()).to(dtype), torch.tensor([0, 1, 2, 3])
    losses = image_losses(logits, y, loss)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, image_losses(logits.float(), y, loss))


@pytest.mark.parametrize("loss", [None, CrossEntropy()])
def test_soft_labels_of_another_float_type_are_accepted(loss):
    logits = torch.randn(2, 3, generator=seeded())
    soft = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(image_losses(logits, soft, loss), -(soft.float() * logits.log_softmax(1)).sum(1))


@quick
@given(seed=seeds, smoothing=st.floats(0, 0.99), weighted=st.booleans())
def test_cross_entropy_follows_its_formula_one_class_at_a_time(seed, smoothing, weighted):
    logits, targets = case(seed)
    weight = WEIGHT if weighted else None
    expected = []
    for row, label in zip(logits.tolist(), targets.tolist(), strict=True):
        norm = math.log(math.fsum(math.exp(value) for value in row))
        smooth = [(1 - smoothing) * t + smoothing / 4 for t in label]
        terms = [-w * t * (z - norm) for w, t, z in zip(weight or [1] * 4, smooth, row, strict=True)]
        expected.append(math.fsum(terms))
    torch.testing.assert_close(
        CrossEntropy(weight, smoothing)(logits, targets), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_mean_divides_by_n_where_torch_with_class_indices_divides_by_the_labels_weights(smoothing):
    """Both facts: torch's hard-label mean is N / sum(w_y) times ours, its soft-target mean is ours."""
    logits, _ = case()
    y, weight = torch.tensor([0, 2, 2, 3, 0, 2]), torch.tensor(WEIGHT, dtype=torch.float64)
    ours = image_losses(logits, y, CrossEntropy(WEIGHT, smoothing)).mean()
    hard = F.cross_entropy(logits, y, weight, label_smoothing=smoothing)
    soft = F.cross_entropy(logits, F.one_hot(y, 4).double(), weight, label_smoothing=smoothing)
    torch.testing.assert_close(ours, soft)
    torch.testing.assert_close(ours * len(y), hard * weight[y].sum())
    assert abs(ours - hard) > 0.1


# ------------------------------------------------------------------------------------------------------- focal


@pytest.mark.parametrize("gamma", [0.5, 1, 2, 3.5])
def test_two_classes_give_the_sigmoid_form_of_torchvision(gamma):
    z, y = torch.linspace(-3, 3, 6), torch.tensor([0, 1, 1, 0, 1, 0])
    logits = torch.stack([torch.zeros(6), z], dim=1)
    expected = sigmoid_focal_loss(z, y.float(), alpha=-1, gamma=gamma)
    torch.testing.assert_close(Focal(gamma)(logits, F.one_hot(y, 2).float()), expected)


def test_equal_logits_give_log_k_times_the_weight_of_chance():
    losses = Focal(2)(torch.zeros(3, 4), torch.eye(4)[:3])
    torch.testing.assert_close(losses, torch.full((3,), (3 / 4) ** 2 * math.log(4)))


def test_focal_with_gamma_zero_is_cross_entropy():
    logits, targets = case()
    torch.testing.assert_close(Focal(0)(logits, targets), CrossEntropy()(logits, targets))


@pytest.mark.parametrize("gamma", [0, 0.3, 1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_and_its_gradient_are_finite_for_certain_predictions(gamma, dtype):
    logits = torch.tensor([[900.0, 0, 0], [0, 900, 0], [20, 0, 0]], dtype=dtype, requires_grad=True)
    losses = Focal(gamma)(logits, torch.tensor([[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]], dtype=dtype))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()
    assert losses[0] == 0
    assert logits.grad[0].abs().max() == 0


@pytest.mark.parametrize("gamma", [0.5, 1, 2, 3])
def test_the_gradient_of_focal_is_that_of_its_formula(gamma):
    logits, targets = case(size=3)
    assert torch.autograd.gradcheck(lambda z: Focal(gamma)(z, targets), logits.requires_grad_())


# ---------------------------------------------------------------------------------------------- losses as values


@pytest.mark.parametrize("loss", [CrossEntropy(), CrossEntropy(WEIGHT, 0.1), Focal(), Focal(3)], ids=repr)
def test_a_loss_is_a_frozen_hashable_value_that_survives_json(loss):
    rebuilt = eval(repr(loss), {"CrossEntropy": CrossEntropy, "Focal": Focal})
    assert (rebuilt, hash(rebuilt)) == (loss, hash(loss))
    assert decode(Loss, json.loads(json.dumps(encode(loss)))) == loss
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.gamma = 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Focal(-1), "gamma must be a finite number >= 0, got -1"),
        (lambda: Focal(math.nan), "gamma must be a finite number >= 0, got nan"),
        (lambda: CrossEntropy(smoothing=1), "smoothing must be a finite number >= 0 and < 1, got 1"),
        (lambda: CrossEntropy([1.0, 2.0]), r"weight must be a tuple of one number per class, got \[1.0, 2.0\]"),
        (lambda: CrossEntropy(2.0), "weight must be a tuple of one number per class, got 2.0"),
        (lambda: CrossEntropy((1.0, -2.0)), "weight must be a finite number >= 0, got -2.0"),
        (lambda: CrossEntropy((1.0, 2.0))(*case()), "weight must hold one number per class, 4, got 2"),
    ],
)
def test_values_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()


def test_the_public_names():
    assert (rm.losses.CrossEntropy, rm.losses.Focal) == (CrossEntropy, Focal)
    assert set(rm.losses.__all__) >= {"CrossEntropy", "Focal"}


@pytest.mark.parametrize("loss", [CrossEntropy(WEIGHT, 0.1), Focal(1.5)], ids=repr)
def test_a_compiled_loss_has_one_graph_and_equals_the_eager_one(loss):
    logits, targets = case(dtype=torch.float32)
    logits.requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, targets)
    torch.testing.assert_close(compiled, loss(logits, targets))
    (gradient,) = torch.autograd.grad(compiled.sum(), logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss(logits, targets).sum(), logits)[0])
