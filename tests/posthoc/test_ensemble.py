"""Ensembles: what is averaged, what is kept, and who may be averaged with whom."""

from dataclasses import replace

import pytest
import torch

from regmixup.posthoc import MonteCarlo, as_given, ensemble
from regmixup.types import Predictions

LABELS = torch.tensor([0, 1, 2, 0])


def member(seed, **fields):
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    return replace(Predictions(logits, LABELS, dataset="toy/test", info={"run": str(seed), "data": "d"}), **fields)


MEMBERS = [member(seed) for seed in range(3)]


def test_logits_are_averaged_and_members_kept():
    found = ensemble(MEMBERS)
    by_hand = (MEMBERS[0].logits.double() + MEMBERS[1].logits + MEMBERS[2].logits) / 3
    torch.testing.assert_close(found.logits, by_hand.float(), rtol=0, atol=1e-7)
    assert found.logits.dtype == torch.float32
    assert torch.equal(found.member_logits, torch.stack([m.logits for m in MEMBERS]))
    assert found.probs is None
    assert torch.equal(found.labels, LABELS)
    assert found.dataset == "toy/test"


def test_an_ensemble_of_one_is_itself():
    alone = ensemble(MEMBERS[:1])
    assert torch.equal(alone.logits, MEMBERS[0].logits)
    assert alone.info == MEMBERS[0].info


def test_the_members_own_probabilities_are_averaged():
    own = [replace(m, probs=m.logits.div(3).softmax(dim=1)) for m in MEMBERS[:2]]
    found = ensemble([*own, MEMBERS[2]])
    by_hand = (own[0].probs.double() + own[1].probs + MEMBERS[2].logits.double().softmax(dim=1)) / 3
    torch.testing.assert_close(found.probs, by_hand, rtol=0, atol=1e-15)


def test_a_temperature_cannot_divide_the_logits_of_members_that_were_sampled():
    """Their probabilities are not the softmax of their logits, which a temperature would silently put in place."""
    sampled = [MonteCarlo()(replace(member, logit_variance=torch.full_like(member.logits, 9.0))) for member in MEMBERS]
    for predictions in (sampled[0], ensemble(sampled)):
        assert as_given(predictions) is predictions
        with pytest.raises(ValueError, match=r"temperature must be 1 .* whose probs are not the softmax .* got 2"):
            as_given(predictions, 2.0)


def test_what_belongs_to_one_member_is_left_out():
    rich = [
        replace(m, features=torch.zeros(4, 2), head_weight=torch.zeros(3, 2), logit_variance=torch.ones(4, 3))
        for m in MEMBERS
    ]
    found = ensemble(rich)
    assert found.features is found.head_weight is found.logit_variance is None
    assert found.info == {"data": "d"}


@pytest.mark.parametrize(
    "other",
    [{"labels": LABELS.roll(1)}, {"dataset": "toy/val"}, {"logits": torch.zeros(2, 3), "labels": LABELS[:2]}],
)
def test_members_must_have_predicted_the_same(other):
    with pytest.raises(ValueError, match=r"got Predictions\('toy/test', .* and, in position 1, Predictions\('toy/"):
        ensemble([MEMBERS[0], member(1, **other)])


def test_nobody_is_no_ensemble():
    with pytest.raises(ValueError, match="members must hold at least one Predictions, got none"):
        ensemble([])
    for members in (MEMBERS[0], [member.logits for member in MEMBERS]):
        with pytest.raises(ValueError, match="members must be a list of Predictions, got "):
            ensemble(members)
