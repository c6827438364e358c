"""Scores of logits and of ensemble members: what all share, their twins, their closed forms, their limits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.detection import auroc
from regmixup.metrics.scores import (
    SCORES,
    dempster_shafer,
    energy,
    entropy,
    gen,
    max_logit_pnorm,
    max_probability,
    mutual_information,
    odin,
)
from tests.references import metrics as reference
from tests.references import scores as score_reference

CONFIDENT = torch.tensor([[12.0, 0.0, -1.0], [0.0, 9.0, 1.0]])
UNSURE = torch.tensor([[0.2, 0.1, 0.0], [-1.0, -1.0, -1.1]])


@st.composite
def logit_tables(draw):
    rows, classes = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    values = st.one_of(st.floats(-30, 30), st.sampled_from([0.0, 1.0, -1.0]))
    table = draw(st.lists(values, min_size=rows * classes, max_size=rows * classes))
    return torch.tensor(table, dtype=torch.float64).reshape(rows, classes)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_larger_for_unsure_samples_and_leaves_its_input_alone(name):
    logits = UNSURE.double()
    assert SCORES[name](logits).min() > SCORES[name](CONFIDENT).max()
    assert torch.equal(logits, UNSURE.double())
    assert torch.equal(SCORES[name](UNSURE.numpy()), SCORES[name](UNSURE))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_gives_one_finite_float64_per_row(name):
    huge = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, 1e4]], dtype=torch.float16)
    for logits in (torch.zeros(0, 3), torch.zeros(1, 1), torch.zeros(5, 2), huge):
        score = SCORES[name](logits)
        assert score.shape == (len(logits),)
        assert score.dtype == torch.float64
        assert torch.isfinite(score).all()


@pytest.mark.parametrize("name", SCORES)
def test_every_score_computes_in_float64_whatever_the_input_type(name):
    logits = 3 * torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(SCORES[name](logits.to(dtype)), SCORES[name](logits.to(dtype).double()))


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=20, deadline=None)
@given(logits=logit_tables())
def test_every_score_agrees_with_its_twin(name, logits):
    expected = [getattr(reference, name)(row.tolist()) for row in logits]
    np.testing.assert_allclose(SCORES[name](logits), expected, rtol=1e-12, atol=1e-13)


def test_dempster_shafer_keeps_its_digits_where_the_formula_overflows_or_cancels():
    logits = torch.tensor([[700.0, 0.0], [40.0, 40.0], [-40.0, -40.0]])
    expected = [reference.dempster_shafer(row.tolist()) for row in logits]
    np.testing.assert_allclose(dempster_shafer(logits), expected, rtol=1e-12)
    assert dempster_shafer(torch.tensor([[1000.0, 0.0]])).item() == 0.0  # exp(1000) alone would be infinite


@settings(max_examples=30, deadline=None)
@given(classes=st.integers(2, 8), seed=st.integers(0, 10**6), scale=st.floats(0.1, 6))
def test_dempster_shafer_and_energy_give_the_same_auroc(classes, seed, scale):
    logits = scale * torch.randn(60, classes, generator=torch.Generator().manual_seed(seed))
    inside, outside = logits[:30] + 0.5, logits[30:]
    by_energy = auroc(energy(inside), energy(outside))
    assert auroc(dempster_shafer(inside), dempster_shafer(outside)) == by_energy


def test_scores_keep_their_digits_where_one_minus_p_rounds_to_zero():
    logits = torch.tensor([[50.0, 0.0]], dtype=torch.float64)
    expected = math.exp(-50) / (1 + math.exp(-50))
    assert max_probability(logits).item() == pytest.approx(expected, rel=1e-12, abs=0)
    assert gen(logits).item() == pytest.approx(2 * math.exp(-5), rel=1e-12)


@pytest.mark.parametrize(("classes", "gamma", "num_top"), [(99, 0.1, 100), (101, 0.1, 100), (7, 0.5, 3), (7, 1.0, 1)])
def test_gen_counts_the_most_probable_classes(classes, gamma, num_top):
    logits = 3 * torch.randn(4, classes, generator=torch.Generator().manual_seed(classes), dtype=torch.float64)
    expected = [reference.gen(row.tolist(), str(gamma), num_top) for row in logits]
    np.testing.assert_allclose(gen(logits, gamma=gamma, num_top=num_top), expected, rtol=1e-12)


def test_odin_at_temperature_one_is_max_probability_and_at_a_high_one_a_gap_of_logits():
    logits = 4 * torch.randn(30, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(odin(logits, temperature=1.0), max_probability(logits), rtol=1e-12, atol=0)
    gap = logits.amax(dim=1) - logits.mean(dim=1)
    torch.testing.assert_close(odin(logits, temperature=1e6), 1 - (1 + gap / 1e6) / 5, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy(torch.zeros(3, 0)), r"logits must have shape \(N, K\), got \(3, 0\)"),
        (lambda: energy(torch.zeros(2, 3, 4)), r"logits must have shape \(N, K\), got \(2, 3, 4\)"),
        (lambda: mutual_information(torch.zeros(4, 3)), r"member_logits must have shape \(M, N, K\), got \(4, 3\)"),
        (lambda: mutual_information(torch.zeros(0, 4, 3)), "member_logits must have shape"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def member_table(*shape, scale=3.0, seed=0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=20, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 5)] * 3), scale=st.floats(0.1, 20), seed=st.integers(0, 10**6))
def test_mutual_information_agrees_with_its_twin_and_keeps_its_bounds(shape, scale, seed):
    logits = member_table(*shape, scale=scale, seed=seed)
    found = mutual_information(logits)
    np.testing.assert_allclose(found, score_reference.mutual_information(logits.numpy()), rtol=0, atol=1e-13)
    assert bool((found >= 0).all())
    assert bool((found <= math.log(min(shape[0], shape[2])) + 1e-12).all())


def test_identical_members_have_nothing_to_tell_and_a_small_disagreement_keeps_its_digits():
    """Two members p +- d of two classes: d^2 / 2 (1/p + 1/(1-p)) to second order, here 2 d^2 for p = 1/2."""
    same = mutual_information(member_table(1, 50, 6).expand(3, 50, 6))
    torch.testing.assert_close(same, torch.zeros(50, dtype=torch.float64), rtol=0, atol=1e-14)
    d = 1e-5
    logits = torch.tensor([[[0.5 + d, 0.5 - d]], [[0.5 - d, 0.5 + d]]], dtype=torch.float64).log()
    assert mutual_information(logits).item() == pytest.approx(2 * d**2, rel=1e-5)


def test_pieces_of_members_do_not_show_and_float16_is_computed_in_float64(monkeypatch):
    logits = member_table(3, 41, 5).half()
    whole = mutual_information(logits.double())
    monkeypatch.setattr("regmixup.metrics.scores.logit_scores._PIECE", 60)
    torch.testing.assert_close(mutual_information(logits), whole, rtol=0, atol=1e-15)
    assert mutual_information(torch.zeros(2, 0, 3)).shape == (0,)


class TestMaxLogitPNorm:
    @pytest.mark.parametrize("p", [1, 2.5, 5])
    def test_it_agrees_with_its_twin(self, p):
        logits = 3 * torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        expected = [reference.max_logit_pnorm(row.tolist(), p) for row in logits]
        np.testing.assert_allclose(max_logit_pnorm(logits, p=p), expected, rtol=1e-12)

    def test_an_infinite_p_divides_by_the_largest(self):
        score = max_logit_pnorm(torch.tensor([[3.0, 0.0, -6.0]]), p=math.inf)  # c = 4, 1, -5
        assert score.item() == pytest.approx(-4 / 5)

    def test_neither_scale_nor_shift_of_the_logits_counts(self):
        logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        torch.testing.assert_close(max_logit_pnorm(logits), max_logit_pnorm(100 * logits - 3))

    def test_equal_logits_score_highest_and_two_classes_say_nothing(self):
        assert max_logit_pnorm(torch.full((1, 3), 0.1)).item() == 0
        nothing = torch.full((2,), -(2**-0.2), dtype=torch.float64)
        torch.testing.assert_close(max_logit_pnorm(torch.tensor([[9.0, 0.0], [0.1, 0.0]])), nothing)
        few, many = (torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) * scale for scale in (1, 20))
        assert auroc(max_logit_pnorm(few), max_logit_pnorm(many)) == 0.5  # also in the last digits


@pytest.mark.parametrize(
    ("score", "option", "message"),
    [
        (gen, {"gamma": 0}, "gamma must be a finite number > 0, got 0"),
        (gen, {"gamma": math.nan}, "gamma must be a finite number > 0, got nan"),
        (gen, {"num_top": 0}, "num_top must be an integer >= 1, got 0"),
        (odin, {"temperature": 0.0}, "temperature must be a finite number > 0, got 0.0"),
        (odin, {"temperature": -1}, "temperature must be a finite number > 0, got -1"),
        (max_logit_pnorm, {"p": -1}, "p must be a finite number >= 0, got -1"),
        (max_logit_pnorm, {"p": None}, "p must be a finite number >= 0, got None"),
    ],
)
def test_options_out_of_range_are_refused(score, option, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        score(torch.tensor([[2.0, 1.0, 0.0]]), **option)
