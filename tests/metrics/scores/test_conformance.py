"""What every fitted score of the registry promises: one float64 per row, whatever the type and the pieces."""

from dataclasses import replace

import pytest
import torch

from regmixup.metrics.detection import auroc
from regmixup.metrics.scores import KNN, REGISTRY, Mahalanobis, RelativeMahalanobis, ViM, energy, fit_scores
from tests.metrics.scores.made_up import WIDTH, mixture, predictions

FITTED = [name for name, score in REGISTRY.items() if score.reads == "features"]
TRAIN, TEST = predictions(90, 0, dataset="toy/train"), predictions(40, 1)


def fit(name, train):
    return REGISTRY[name].function(train)


@pytest.fixture(scope="module")
def fitted():
    return fit_scores(TRAIN)


@pytest.mark.parametrize("name", FITTED)
def test_one_finite_float64_per_row(fitted, name):
    for rows in (0, 1, 40):
        score = fitted[name](TEST.features[:rows])
        assert score.shape == (rows,)
        assert score.dtype == torch.float64
        assert torch.isfinite(score).all()
    assert torch.equal(fitted[name](TEST.features.numpy()), fitted[name](TEST.features))


@pytest.mark.parametrize("name", FITTED)
def test_features_of_any_type_score_like_the_same_numbers_in_float64(name):
    """kNN and NNGuide keep their banks and ReAct takes its percentile in float32; all else is float64 throughout."""

    def scored(dtype, kind):
        train, test = (replace(p, features=p.features.to(dtype).to(kind)) for p in (TRAIN, TEST))
        return fit(name, train)(test.features)

    tolerance = 1e-5 if name in ("knn", "react", "nnguide") else 1e-12
    for dtype in (torch.float16, torch.float32):
        expected = scored(dtype, torch.float64)
        torch.testing.assert_close(scored(dtype, dtype), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FITTED)
def test_pieces_do_not_show_and_inputs_are_left_alone(fitted, name, monkeypatch):
    before = TRAIN.features.clone(), TEST.features.clone()
    whole = fitted[name](TEST.features)
    monkeypatch.setattr("regmixup.metrics.scores.features._PIECE", 7 * WIDTH)
    monkeypatch.setattr("regmixup.metrics.scores.features._DISTANCES", 300)
    torch.testing.assert_close(fitted[name](TEST.features), whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(fit(name, TRAIN)(TEST.features), whole, rtol=1e-8, atol=1e-8)
    assert torch.equal(before[0], TRAIN.features)
    assert torch.equal(before[1], TEST.features)


@pytest.mark.parametrize(
    "score",
    [Mahalanobis(), Mahalanobis(covariance="tied"), RelativeMahalanobis(), KNN(k=5)],
)
def test_samples_far_from_every_class_score_higher(score):
    train, test, far = mixture(90, 0), mixture(40, 1), mixture(40, 2, far=12.0)
    fitted = score.fit(*train)
    assert auroc(fitted(test.features), fitted(far.features)) > 0.99


def test_samples_off_the_principal_space_score_higher():
    """The logits, and so the energies, are the same: only the residual of ViM sees the difference."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.eye(2, 4, dtype=torch.float64)
    train = torch.randn(200, 4, generator=generator).double() * torch.tensor([5.0, 5.0, 0.1, 0.1])
    off = train + torch.tensor([0.0, 0.0, 1.0, -1.0])
    fitted = ViM(dim=2).fit(train, weight)
    assert auroc(energy(train @ weight.T), energy(off @ weight.T)) == 0.5
    assert bool((fitted(off) > fitted(train)).all())


@pytest.mark.parametrize("name", FITTED)
def test_features_must_be_floating_point(fitted, name):
    with pytest.raises(ValueError, match="features must be floating point of shape"):
        fitted[name](torch.zeros(4, 6, dtype=torch.int64))


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("width", [1, WIDTH + 1])
def test_features_must_be_as_wide_as_those_of_the_fit(fitted, name, width):
    with pytest.raises(ValueError, match=rf"features must be \(N, {WIDTH}\), .* got \(2, {width}\)"):
        fitted[name](torch.ones(2, width))


@pytest.mark.parametrize("name", [name for name in FITTED if name not in ("ash", "scale")])
def test_a_fit_needs_finite_features(name):
    features = TRAIN.features.clone()
    features[3, 3] = torch.nan
    with pytest.raises(ValueError, match="features must be finite"):
        fit(name, replace(TRAIN, features=features))


@pytest.mark.parametrize("name", [name for name in FITTED if name not in ("ash", "scale")])
def test_a_fit_needs_samples(name):
    tensors = {field: getattr(TRAIN, field)[:0] for field in ("logits", "labels", "features")}
    with pytest.raises(ValueError, match=r"^features must be those of some train samples, got none"):
        fit(name, replace(TRAIN, **tensors))


@pytest.mark.parametrize("name", ["vim", "react", "ash", "scale", "fdbd", "nnguide"])
def test_a_head_without_bias_has_a_bias_of_zeros(name):
    without, zeros = (fit(name, replace(TRAIN, head_bias=bias)) for bias in (None, torch.zeros(3)))
    assert torch.equal(without(TEST.features), zeros(TEST.features))


@pytest.mark.parametrize("name", ["vim", "react", "ash", "scale", "fdbd", "nnguide"])
def test_a_head_of_another_shape_is_refused_by_name(name):
    """Weights (D, K), as some programs store them, and a number."""
    contract = r"^head_weight must be \(K, .+\) for features \(N, .+\) and head_bias \(K,\), got "
    with pytest.raises(ValueError, match=contract + r"\(6, 3\) and \(3,\)$"):
        fit(name, replace(TRAIN, head_weight=TRAIN.head_weight.T))
    with pytest.raises(ValueError, match=contract + r"\(\) and \(\)$"):
        fit(name, replace(TRAIN, head_weight=torch.tensor(1.0), head_bias=None))
