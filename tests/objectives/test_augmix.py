"""AugMix against its slow twin, the divergence against SciPy, the draw against its distributions."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from regmixup.augmentations._operations import NAMES
from regmixup.mixing import Draw
from regmixup.objectives.augmix import AugMix, jensen_shannon
from tests.objectives.cases import CLASSES, batch, conv_net, seeded
from tests.references import augmix as slow
from tests.references.mixing import one_hot, soft_cross_entropy

FIELDS = ("operation", "level", "sign", "weight", "blend")


def exact_batch(batch_size=4, size=(20, 18), seed=0):
    """Pixels (uint8) and labels."""
    x, y = batch(batch_size, size=size, seed=seed)
    return (255 * x).round().to(torch.uint8), y


def sensitive_net(images):
    """Linear in the pixels, with weights large enough for an augmentation to change the classes."""
    weight = 0.3 * torch.randn(3 * 20 * 18, CLASSES, dtype=torch.float64, generator=seeded())
    return (images - 0.5).flatten(1) @ weight


def versions_by_hand(pixels, draw):
    """Both versions, (2, N, C, H, W), one image at a time; the draw has the first versions, then the second."""
    images, count = pixels.numpy(), len(pixels)
    rows = [[slow.augment(image, draw, v * count + i) for i, image in enumerate(images)] for v in (0, 1)]
    return torch.from_numpy(np.array(rows))


# ---------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize(
    "objective", [AugMix(), AugMix(width=1, depth=4, severity=10, jsd_weight=2)], ids=["default", "long"]
)
def test_the_loss_is_that_of_the_slow_twin(objective):
    pixels, y = exact_batch()
    draw = objective.draw(len(pixels), (20, 18), seeded(2))
    model, x = sensitive_net, pixels.double() / 255
    logits = [model(images).tolist() for images in (x, *versions_by_hand(pixels, draw))]
    probs = torch.tensor(logits, dtype=torch.float64).softmax(dim=-1).tolist()
    clean = soft_cross_entropy(logits[0], one_hot(y, CLASSES)).mean()
    jsd = np.mean([slow.jensen_shannon([version[i] for version in probs]) for i in range(len(y))])
    out = objective(model, x, y, draw=draw)
    assert jsd > 0.01
    assert out.loss.item() == pytest.approx(clean + objective.jsd_weight * jsd, rel=1e-4)
    assert out.parts["clean"].item() == pytest.approx(clean, rel=1e-12)
    assert out.parts["jsd"].item() == pytest.approx(jsd, rel=1e-4)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 15, 22)], ids=str)
def test_the_versions_are_those_of_the_slow_twin(shape):
    """Exactly, but for pixels one grey level off at the centre of images with odd sides."""
    pixels = torch.randint(0, 256, (3, *shape), generator=seeded(), dtype=torch.uint8)
    draw = AugMix().draw(3, shape, seeded(1))
    ours = AugMix().chains.apply(torch.cat([pixels, pixels]).double() / 255, draw)
    difference = (ours - versions_by_hand(pixels, draw).flatten(0, 1)).abs()
    assert difference.max() <= 1.01 / 255
    assert (difference > 1e-12).double().mean() < 0.005


def test_saturated_logits_have_finite_gradients():
    """Probabilities that underflow to zero must not turn 0 log 0 into NaN."""
    logits = torch.tensor([[[500.0, 0.0, -500.0]], [[0.0, 500.0, -500.0]], [[500.0, 0.0, 0.0]]], requires_grad=True)
    divergence = jensen_shannon(logits)
    divergence.backward()
    assert math.isfinite(divergence.item())
    assert torch.isfinite(logits.grad).all()


# ---------------------------------------------------------------------------------------- the Jensen-Shannon term


@pytest.mark.parametrize("scale", [0.1, 4.0])
def test_the_divergence_is_the_entropy_of_the_mean_minus_the_mean_entropy(scale):
    logits = scale * torch.randn(3, 6, CLASSES, dtype=torch.float64, generator=seeded())
    probs = logits.softmax(dim=-1).numpy()
    expected = stats.entropy(probs.mean(axis=0), axis=-1) - stats.entropy(probs, axis=-1).mean(axis=0)
    assert jensen_shannon(logits).item() == pytest.approx(expected.mean(), rel=1e-4)


def test_the_mean_is_clamped_as_in_the_released_code():
    """Three certain predictions of class 0: M is (1, 1e-7), and KL is exactly 0 where p is (1, 0)."""
    certain = torch.tensor([[60.0, 0.0]], dtype=torch.float64).expand(3, 1, 2)
    rest = math.exp(-60)
    expected = rest * math.log(rest / 1e-7)
    assert jensen_shannon(certain).item() == pytest.approx(expected, rel=1e-3)
    assert expected < 0


def test_a_weight_of_zero_draws_nothing_and_takes_normalised_images():
    x, y = batch()
    assert AugMix(jsd_weight=0).draw(4, 8, seeded()) == Draw()
    AugMix(jsd_weight=0)(conv_net(), 4 * x - 2, y)


# ---------------------------------------------------------------------------------------------------- the draw


@pytest.fixture(scope="module")
def many():
    """18,000 operations, 6,000 chains, 2,000 versions."""
    return AugMix().draw(1000, 32, seeded())


def test_the_draw_has_the_documented_shapes(many):
    assert [tuple(getattr(many, name).shape) for name in FIELDS] == [(2000, 3, 3)] * 3 + [(2000, 3), (2000,)]
    assert [getattr(many, name).dtype for name in FIELDS] == [torch.int64] + [torch.float64] * 4
    longer = AugMix(width=2, depth=5).draw(4, 32, seeded())
    assert longer.operation.shape == (8, 2, 5)
    assert bool((longer.operation > 0).all())


def test_chains_have_one_two_or_three_operations_with_equal_chances(many):
    """Operations come first and the empty places after them. Three standard deviations of a share are 0.018."""
    present = many.operation > 0
    assert bool((present[..., :-1] >= present[..., 1:]).all())
    depth = present.sum(dim=-1).flatten()
    for count in (1, 2, 3):
        assert (depth == count).double().mean().item() == pytest.approx(1 / 3, abs=0.018)


def test_operations_are_drawn_uniformly():
    operation = AugMix(depth=3).draw(500, 32, seeded()).operation.flatten()
    counts = torch.bincount(operation, minlength=len(NAMES)).numpy()
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 0.01


@pytest.mark.parametrize("severity", [1, 10])
def test_levels_are_uniform_between_a_tenth_and_the_severity(severity):
    level = AugMix(severity=severity).draw(300, 32, seeded()).level.flatten()
    assert level.min() >= 0.1
    assert level.max() <= severity
    assert stats.kstest(level.numpy(), stats.uniform(0.1, severity - 0.1).cdf).pvalue > 0.01


# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 1.001)])
def test_images_that_are_not_pixels_are_refused(low, high):
    x, y = batch()
    x = low + (high - low) * (x - x.min()) / (x.max() - x.min())
    with pytest.raises(ValueError, match=rf"x must hold pixels.* not on normalised images.* from {low} to {high}"):
        AugMix()(conv_net(), x, y, seeded())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width must be an integer >= 1, got 0"),
        ({"depth": -2}, "depth must be an integer >= -1, got -2"),
        ({"severity": 11}, "severity must be a finite number >= 0.1 and <= 10, got 11"),
        ({"jsd_weight": -1}, "jsd_weight must be a finite number >= 0, got -1"),
    ],
)
def test_wrong_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        AugMix(**fields)
