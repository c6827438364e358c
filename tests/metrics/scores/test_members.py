"""Mutual information: its twin, its bounds and its limits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.scores import members, mutual_information
from tests.references import scores as reference


def table(*shape, scale=3.0, seed=0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 5)] * 3), scale=st.floats(0.1, 20), seed=st.integers(0, 10**6))
def test_it_agrees_with_its_twin_and_keeps_its_bounds(shape, scale, seed):
    logits = table(*shape, scale=scale, seed=seed)
    found = mutual_information(logits)
    np.testing.assert_allclose(found, reference.mutual_information(logits.numpy()), rtol=0, atol=1e-13)
    assert bool((found >= 0).all())
    assert bool((found <= math.log(min(shape[0], shape[2])) + 1e-12).all())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_identical_members_have_nothing_to_tell(count):
    found = mutual_information(table(1, 50, 6).expand(count, 50, 6))
    torch.testing.assert_close(found, torch.zeros(50, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("count", "classes"), [(2, 4), (4, 2), (5, 5)])
def test_members_that_are_sure_of_as_many_classes_as_can_be_reach_the_bound(count, classes):
    logits = torch.zeros(count, 1, classes)
    for member in range(count):
        logits[member, 0, member % classes] = 1000
    expected = {(2, 4): math.log(2), (4, 2): math.log(2), (5, 5): math.log(5)}[count, classes]
    assert mutual_information(logits).item() == pytest.approx(expected, abs=1e-12)


def test_small_disagreement_keeps_its_digits():
    """Two members p +- d of two classes: d^2 / 2 (1/p + 1/(1-p)) to second order, here 2 d^2 for p = 1/2."""
    d = 1e-5
    logits = torch.tensor([[[0.5 + d, 0.5 - d]], [[0.5 - d, 0.5 + d]]], dtype=torch.float64).log()
    assert mutual_information(logits).item() == pytest.approx(2 * d**2, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_it_computes_in_float64_whatever_the_input_type(dtype):
    logits = table(3, 20, 5).to(dtype)
    assert torch.equal(mutual_information(logits), mutual_information(logits.double()))


def test_pieces_do_not_show(monkeypatch):
    logits = table(3, 41, 5)
    whole = mutual_information(logits)
    monkeypatch.setattr(members, "_CHUNK", 60)
    torch.testing.assert_close(mutual_information(logits), whole, rtol=0, atol=1e-15)


def test_no_samples_give_no_scores():
    assert mutual_information(torch.zeros(2, 0, 3)).shape == (0,)


@pytest.mark.parametrize("shape", [(4, 3), (0, 4, 3), (2, 4, 0)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="member_logits must have shape"):
        mutual_information(torch.zeros(shape))
