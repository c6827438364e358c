"""Conformal label sets: the formula against a slow twin, and the promise by simulation."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import regmixup as rm
from regmixup.config import decode, encode
from regmixup.posthoc import Conformal, FittedConformal
from regmixup.types import look_like_probabilities
from tests.references import conformal as slow

METHODS = ("lac", "aps", "raps")


def draw(count, generator, classes=6):
    """Return logits of which the softmax, at temperature 2, is the distribution of the labels: a model too sure."""
    logits = 3 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(dim=1), 1, generator=generator).squeeze(1)
    return logits, labels


@given(
    data=st.data(),
    method=st.sampled_from(METHODS),
    level=st.sampled_from([0.1, 0.5, 0.75, 0.8, 0.9]),
    classes=st.integers(1, 5),
    lam=st.sampled_from([0.0, 0.25]),
    k_reg=st.integers(0, 3),
    empty=st.sampled_from(["allowed", "never"]),
)
@settings(max_examples=150, deadline=None)
@pytest.mark.filterwarnings("ignore:a level of")
def test_it_is_what_the_slow_twin_says_ties_included(data, method, level, classes, lam, k_reg, empty):
    """Quarters of logits make ties likely. A class as close as 1e-12 to the quantile may fall on either side."""
    row = st.lists(st.integers(-8, 8).map(lambda v: v / 4), min_size=classes, max_size=classes)
    logits = data.draw(st.lists(row, min_size=1, max_size=12))
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=len(logits), max_size=len(logits)))
    new = data.draw(st.lists(row, min_size=1, max_size=4))
    assume(classes == 1 or not look_like_probabilities(torch.tensor(logits)))
    conformal = Conformal(method=method, level=level, lam=lam, k_reg=k_reg, empty=empty)
    fitted = conformal.fit(torch.tensor(logits), torch.tensor(labels))
    of = {"method": method, "lam": lam, "k_reg": k_reg}
    q = slow.quantile([slow.score(slow.softmax(s), y, **of) for s, y in zip(logits, labels, strict=True)], level)
    assert fitted.quantile == pytest.approx(q, abs=1e-6)
    sets = fitted(torch.tensor(new))
    assert sets.dtype == torch.bool
    assert sets.shape == (len(new), classes)
    for one, found in zip(new, sets.tolist(), strict=True):
        probs = slow.softmax(one)
        for k in range(classes):
            score = slow.score(probs, k, **of)
            first = empty == "never" and k == one.index(max(one))
            if abs(score - q) > 1e-6:
                assert found[k] == (score <= q or first)
            elif first:
                assert found[k]


@pytest.mark.parametrize("method", ["lac", "raps"])
def test_the_true_class_is_covered_as_often_as_promised_and_hardly_more(method):
    """The mean over calibration sets lies in [level, level + 1 / (n + 1)], up to Monte-Carlo error, for a wrong model.

    The coverage given a calibration set of n is a Beta variable with a standard deviation of sqrt(level (1 - level) /
    (n + 2)); the mean of 300 of them, of 200 images each, is known to within 0.003 at n = 49 (three standard errors).
    """
    generator = torch.Generator().manual_seed(0)
    level, n, conformal = 0.8, 49, Conformal(method=method, level=0.8)
    covered = 0.0
    for _ in range(300):
        fitted = conformal.fit(*draw(n, generator))
        logits, labels = draw(200, generator)
        covered += float(fitted(logits).gather(1, labels[:, None]).double().mean()) / 300
    slack = 3 * math.sqrt(level * (1 - level) * (1 / (n + 2) + 1 / 200) / 300)
    assert level - slack < covered < level + 1 / (n + 1) + slack


def test_the_quantile_is_that_of_n_plus_one():
    """19 images at level 0.95 need the largest score, ceil(20 * 0.95) = 19; the plain quantile would be smaller."""
    p = torch.linspace(0.5, 0.95, 19, dtype=torch.float64)
    logits, labels = torch.stack([p, 1 - p], dim=1).log(), torch.zeros(19, dtype=torch.long)
    assert Conformal(level=0.95).fit(logits, labels).quantile == pytest.approx(0.5)
    assert Conformal(level=0.90).fit(logits, labels).quantile == pytest.approx(1 - 0.525)
    with pytest.warns(UserWarning, match=r"a level of 0\.96 needs at least 24 images, got 19: every set holds all"):
        fitted = Conformal(level=0.96).fit(logits, labels)
    assert bool(fitted(logits).all())
    with pytest.warns(UserWarning, match="needs at least 9 images, got 8"):
        Conformal(level=0.9).fit(logits[:8], labels[:8])
    assert Conformal(level=0.9).fit(logits[:9], labels[:9]).quantile < math.inf


def test_large_tables_in_pieces_give_the_same_sets(monkeypatch):
    logits, labels = draw(100, torch.Generator().manual_seed(0))
    whole = Conformal(method="raps").fit(logits, labels)
    sets = whole(logits)
    monkeypatch.setattr("regmixup.posthoc.conformal._PIECE", 50)
    assert Conformal(method="raps").fit(logits, labels) == whole
    assert torch.equal(whole(logits), sets)


def test_it_is_a_configuration_before_and_after_fitting():
    fitted = rm.posthoc.Conformal(method="raps", level=0.8).fit(*draw(50, torch.Generator().manual_seed(0)))
    assert decode(FittedConformal, encode(fitted)) == fitted


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="unknown method 'asp': did you mean 'aps'"):
        Conformal(method="asp")
    with pytest.raises(ValueError, match="level must be a finite number > 0 and < 1"):
        Conformal(level=1)
    with pytest.raises(ValueError, match=r"k_reg must be an integer >= 0, got 1\.5"):
        Conformal(method="raps", k_reg=1.5)
    with pytest.raises(ValueError, match="lam must be a finite number >= 0, got nan"):
        Conformal(method="raps", lam=float("nan"))
    with pytest.raises(ValueError, match=r"logits and labels must be \(N, K\) and \(N,\)"):
        Conformal().fit(torch.zeros(3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"logits look like probabilities, .* before the softmax"):
        Conformal().fit(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([0, 1]))
    fitted = Conformal().fit(*draw(50, torch.Generator().manual_seed(0)))
    for row in ([torch.nan] * 6, [torch.inf] + [0.0] * 5, [-torch.inf] * 6):  # whose set would hold no class
        with pytest.raises(ValueError, match="logits must be numbers, got NaN"):
            fitted(torch.tensor([[0.0] * 6, row]))
    with pytest.raises(ValueError, match="probs must be >= 0 and sum to 1 in every row"):
        Conformal().fit_probs(*draw(50, torch.Generator().manual_seed(0)))
    masked = torch.tensor([[9.0, 0.0, 0.0, 0.0, 0.0, -torch.inf]])
    assert not fitted(masked)[0, 5]
    for table, got in ((torch.zeros(2, 4), r"\(2, 4\)"), (torch.zeros(6), r"\(6,\)")):
        with pytest.raises(ValueError, match=rf"logits or probs must be \(N, 6\), got {got}"):
            fitted(table)
    stored = {key: value for key, value in encode(fitted).items() if key != "num_classes"}  # as older files have it
    assert decode(FittedConformal, stored)(torch.zeros(2, 4)).shape == (2, 4)
