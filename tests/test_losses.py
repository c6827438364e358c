"""Losses of soft targets against slow twins, torch, torchvision and closed forms."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F
from torchvision.ops import sigmoid_focal_loss

import regmixup as rm
from regmixup.config import decode, encode, fingerprint
from regmixup.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Focal,
    LogitNorm,
    Loss,
    balanced_weight,
    cross_entropy,
    image_losses,
    mixed_losses,
)
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


@pytest.mark.parametrize("loss", [None, CrossEntropy(WEIGHT), Focal(), LogitNorm()])
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
@given(seed=seeds, smoothing=st.floats(0, 0.99), weight=st.sampled_from([None, WEIGHT]))
def test_cross_entropy_follows_its_formula_one_class_at_a_time(seed, smoothing, weight):
    logits, targets = case(seed)
    expected = []
    for row, label in zip(logits.tolist(), targets.tolist(), strict=True):
        norm = math.log(math.fsum(math.exp(value) for value in row))
        smooth = [(1 - smoothing) * t + smoothing / 4 for t in label]
        expected.append(math.fsum(-w * t * (z - norm) for w, t, z in zip(weight or [1] * 4, smooth, row, strict=True)))
    losses = CrossEntropy(weight, smoothing)(logits, targets)
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))


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


def test_a_label_of_minus_100_is_not_silently_ignored_in_a_compiled_step():
    """torch skips such labels by default; where values are not looked at, they must still not vanish."""
    with pytest.raises(IndexError):
        cross_entropy(torch.zeros(2, 3), torch.tensor([-100, 1]))


# ------------------------------------------------------------------------------------------------------- focal


@pytest.mark.parametrize("gamma", [0.5, 2])
def test_two_classes_give_the_sigmoid_form_of_torchvision(gamma):
    z, y = torch.linspace(-3, 3, 6), torch.tensor([0, 1, 1, 0, 1, 0])
    logits = torch.stack([torch.zeros(6), z], dim=1)
    expected = sigmoid_focal_loss(z, y.float(), alpha=-1, gamma=gamma)
    torch.testing.assert_close(Focal(gamma)(logits, F.one_hot(y, 2).float()), expected)


@pytest.mark.parametrize(("gamma", "dtype"), [(0.3, torch.float32), (2, torch.float64)])
def test_focal_and_its_gradient_are_finite_for_certain_predictions(gamma, dtype):
    logits = torch.tensor([[900.0, 0, 0], [0, 900, 0], [20, 0, 0]], dtype=dtype, requires_grad=True)
    losses = Focal(gamma)(logits, torch.tensor([[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]], dtype=dtype))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()
    assert losses[0] == 0
    assert logits.grad[0].abs().max() == 0


@pytest.mark.parametrize("gamma", [0.5, 2])
def test_the_gradient_of_focal_is_that_of_its_formula(gamma):
    logits, targets = case(size=3)
    assert torch.autograd.gradcheck(lambda z: Focal(gamma)(z, targets), logits.requires_grad_())


# --------------------------------------------------------------------------------------------------- LogitNorm


def test_logitnorm_is_the_cross_entropy_of_unit_logits_over_tau():
    """By hand, image by image: log sum exp of u / tau minus the mean of u / tau under the target."""
    logits, targets = case()
    for tau in (0.04, 1.0):
        expected = []
        for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
            length = math.sqrt(sum(number**2 for number in row))
            unit = [number / length / tau for number in row]
            total = max(unit) + math.log(sum(math.exp(number - max(unit)) for number in unit))
            expected.append(total - sum(t * number for t, number in zip(target, unit, strict=True)))
        torch.testing.assert_close(LogitNorm(tau)(logits, targets).tolist(), expected, rtol=1e-6, atol=1e-6)


def test_logitnorm_does_not_depend_on_the_length_of_the_logits_and_has_a_floor():
    """With K classes the largest unit vector gives log(1 + (K - 1) exp(-K / (K - 1) ...)) > 0: here two classes."""
    logits, targets = case()
    torch.testing.assert_close(LogitNorm()(logits, targets), LogitNorm()(7 * logits, targets), rtol=1e-6, atol=0)
    best = LogitNorm(1.0)(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]])).item()
    assert best == pytest.approx(math.log1p(math.exp(-math.sqrt(2))), rel=1e-5)
    torch.testing.assert_close(targets.sum(1), torch.ones(6, dtype=torch.float64))


def test_logitnorm_has_finite_gradients_at_zero_and_right_ones_elsewhere():
    zero = torch.zeros(2, 4, requires_grad=True)
    LogitNorm()(zero, torch.eye(2, 4)).sum().backward()
    assert torch.isfinite(zero.grad).all()
    logits, targets = case(size=3)
    assert torch.autograd.gradcheck(lambda z: LogitNorm(0.5)(z, targets), logits.requires_grad_())


# ---------------------------------------------------------------------------------------- binary cross-entropy


def test_binary_cross_entropy_is_torchs_mean_over_the_classes():
    logits, targets = case()
    targets = (2.5 * targets).clamp(max=1)  # rows of any sum
    expected = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1) / 4
    torch.testing.assert_close(image_losses(logits, targets, BinaryCrossEntropy()), expected)


@pytest.mark.parametrize("number", [5.0, -0.5, math.nan])
def test_binary_cross_entropy_takes_targets_in_0_to_1(number):
    logits, targets = torch.zeros(2, 3), torch.tensor([[0.0, 1.0, 1.0], [0.0, number, 0.0]])
    message = r"y must hold numbers in \[0, 1\], got values from "
    with pytest.raises(ValueError, match=message):
        image_losses(logits, targets, BinaryCrossEntropy())
    with pytest.raises(ValueError, match=message):
        mixed_losses(logits, targets, targets.flip(0), torch.tensor(0.5), BinaryCrossEntropy())


def test_fingerprints_are_those_of_the_second_edition():
    expected = {
        CrossEntropy((1.0, 2.0), 0.1): "bf94e818b139093a3bd4fbf79a5993d8ecde3a491227c612165326c09ea4eece",
        Focal(3.0): "bb93f0fab62ca181c184ef2aa222d33da0e6f68401af5f1038af428fc2efbacf",
    }
    assert {loss: fingerprint(loss) for loss in expected} == expected


# ---------------------------------------------------------------------------------------------- class weights


def test_balanced_weights_are_those_of_scikit_learn():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 3, 3, 3])
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels.numpy())
    assert balanced_weight(labels, 4) == pytest.approx(tuple(expected))
    weight = torch.tensor(balanced_weight(labels))
    torch.testing.assert_close(weight[labels].mean(), torch.tensor(1.0))
    assert rm.losses.CrossEntropy(weight=balanced_weight(labels)).weight == balanced_weight(labels)


@pytest.mark.parametrize(
    "weight", [[0.5, 2.0], np.array([0.5, 2.0]), torch.tensor([0.5, 2.0])], ids=["list", "array", "tensor"]
)
def test_class_weights_of_any_sequence_are_kept_as_a_tuple_of_numbers(weight):
    loss, expected = CrossEntropy(weight=weight), CrossEntropy((0.5, 2.0))
    assert (loss, hash(loss), encode(loss)["weight"]) == (expected, hash(expected), [0.5, 2.0])


def test_labels_without_balanced_weights_are_refused():
    with pytest.raises(ValueError, match=r"an image of each class .* got the counts \[1, 1, 0\]"):
        balanced_weight(torch.tensor([0, 1]), 3)
    with pytest.raises(ValueError, match=r"an image of each class for balanced weights, got the counts \[0, 0\]"):
        balanced_weight(torch.tensor([], dtype=torch.int64), 2)
    for num_classes in (-1, 1, 2.0, "2"):
        with pytest.raises(ValueError, match=f"num_classes must be an integer >= 2, got {num_classes!r}"):
            balanced_weight([0, 1], num_classes)


def test_class_weights_first_used_in_inference_mode_train_afterwards():
    logits, targets = torch.zeros(1, 3, requires_grad=True), torch.eye(3)[:1]
    loss = CrossEntropy((1.0, 2.0, 0.125))  # weights of no other test: they are kept for the whole process
    with torch.inference_mode():
        loss(logits, targets)
    loss(logits, targets).sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-2 / 3, 1 / 3, 1 / 3]]))


# ---------------------------------------------------------------------------------------------- losses as values


@pytest.mark.parametrize(
    "loss",
    [CrossEntropy(), CrossEntropy(WEIGHT, 0.1), Focal(), Focal(3), LogitNorm(0.1), BinaryCrossEntropy()],
    ids=repr,
)
def test_a_loss_is_a_frozen_hashable_value_that_survives_json(loss):
    rebuilt = eval(repr(loss), {cls.__name__: cls for cls in rm.losses.LOSSES.values()})
    assert (rebuilt, hash(rebuilt)) == (loss, hash(loss))
    assert decode(Loss, json.loads(json.dumps(encode(loss)))) == loss
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.gamma = 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Focal(-1), "gamma must be a finite number >= 0, got -1"),
        (lambda: LogitNorm(0), "tau must be a finite number > 0, got 0"),
        (lambda: CrossEntropy(smoothing=1), "smoothing must be a finite number >= 0 and < 1, got 1"),
        (lambda: CrossEntropy((1.0, -2.0)), "each number of weight must be a finite number >= 0, got -2.0"),
        (lambda: CrossEntropy(2.0), "weight must be a tuple of numbers, got 2.0"),
        (lambda: CrossEntropy(torch.tensor(2.0)), "weight must be a tuple of numbers, got 2.0"),
    ],
)
def test_values_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
