"""What every posthoc method promises, over the registry."""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch

from regmixup.config import decode, encode
from regmixup.posthoc import POSTHOCS, Posthoc, as_given, build, probabilities
from tests.posthoc.made_up import linear_head

# Small and quick settings; a method without an entry here runs with its defaults.
SETTINGS = {"laplace": {"prior_variance": 1.0, "samples": 20}}


def subject(count=30, dtype=torch.float64):
    p = linear_head(count, seed=1, dataset="toy/test")
    variance = torch.rand(p.logits.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return replace(p, logits=p.logits.to(dtype), logit_variance=variance.to(dtype))


@pytest.fixture(params=POSTHOCS)
def name(request):
    return request.param


@pytest.fixture
def fitted(name):
    return build(name, **SETTINGS.get(name, {})).fit(train=linear_head())


@pytest.mark.parametrize(("temperature", "count"), [(1.0, 1), (4.0, 17)])
def test_probabilities_are_probabilities(fitted, temperature, count):
    probs = probabilities(fitted(subject(count), temperature))
    assert probs.shape == (count, 3)
    assert probs.dtype == torch.float64
    assert float(probs.min()) >= 0
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(count, dtype=torch.float64), rtol=0, atol=1e-6)


def test_predictions_are_not_changed(fitted):
    p = subject()
    before = {f.name: getattr(p, f.name) for f in fields(p)}
    copies = {key: v.clone() for key, v in before.items() if isinstance(v, torch.Tensor)}
    fitted(p, 2.0)
    assert all(torch.equal(before[key], copy) for key, copy in copies.items())


def test_the_same_call_gives_the_same_bits_whatever_the_global_generator(fitted):
    torch.manual_seed(1)
    first = probabilities(fitted(subject()))
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first, probabilities(fitted(subject())))
    assert torch.equal(state, torch.get_rng_state())


def test_logits_do_not_depend_on_the_temperature(fitted):
    assert torch.equal(fitted(subject()).logits, fitted(subject(), 5.0).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_precisions(fitted, dtype):
    coarse = probabilities(fitted(subject(dtype=dtype)))
    assert coarse.dtype == torch.float64
    wide = replace(subject(dtype=dtype), logits=subject(dtype=dtype).logits.float())
    torch.testing.assert_close(coarse, probabilities(fitted(wide)), rtol=0, atol=0.02)


@pytest.mark.parametrize("temperature", [0.0, float("nan")])
def test_a_temperature_that_makes_no_sense_is_refused(fitted, temperature):
    with pytest.raises(ValueError, match="temperature must be a finite number > 0"):
        fitted(subject(), temperature)


def test_it_is_a_configuration(name):
    method = build(name, **SETTINGS.get(name, {}))
    assert is_dataclass(method)
    assert decode(Posthoc, encode(method)) == method
    assert hash(method) == hash(build(name, **SETTINGS.get(name, {})))


def test_a_wrong_name_gets_a_hint():
    with pytest.raises(ValueError, match="unknown posthoc 'laplase': did you mean 'laplace'"):
        build("laplase")


def test_as_given_scales_and_nothing_else():
    p = subject()
    assert as_given(p) is p
    assert torch.equal(as_given(p, 2.0).probs, (p.logits / 2).softmax(dim=1))
    assert as_given(p, 2.0).logits is p.logits
    with pytest.raises(ValueError, match="temperature must be a finite number > 0, got 0"):
        as_given(p, 0)
