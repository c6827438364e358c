"""Stratified splits: disjoint, complete, proportional, and the same on every machine."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.data.splits import stratified

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(torch.tensor)
FRACTIONS = st.sampled_from([(1.0,), (0.5, 0.5), (0.9, 0.1), (0.25, 0.25, 0.5), (0.1,) * 10])


@settings(max_examples=100, deadline=None)
@given(labels=LABELS, fractions=FRACTIONS, seed=st.integers(0, 5))
def test_parts_are_sorted_disjoint_and_complete(labels, fractions, seed):
    parts = [part.tolist() for part in stratified(labels, fractions, seed=seed)]
    assert len(parts) == len(fractions)
    assert all(part == sorted(part) for part in parts)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))


@settings(max_examples=100, deadline=None)
@given(labels=LABELS, fractions=FRACTIONS)
def test_every_class_is_divided_in_the_given_fractions(labels, fractions):
    parts = stratified(labels, fractions)
    for label in labels.unique():
        size = int((labels == label).sum())
        for part, fraction in zip(parts, fractions, strict=True):
            # Cutting at two rounded positions is off by less than one sample in all.
            assert abs(int((labels[part.long()] == label).sum()) - fraction * size) <= 1


def test_a_known_split():
    """The SHA-256 of "0:0", ..., "0:5" begin ac72, ef13, 9328, 76d3 (class 0) and 48f0, cc0c (class 1)."""
    parts = stratified(torch.tensor([0, 0, 0, 0, 1, 1]), (0.5, 0.5))
    assert [part.tolist() for part in parts] == [[2, 3, 4], [0, 1, 5]]


def test_the_split_depends_on_the_seed_and_on_nothing_random():
    labels = torch.arange(200) % 4
    torch.manual_seed(1)
    first = stratified(labels, (0.5, 0.5), seed=0)[0]
    torch.manual_seed(2)
    assert torch.equal(first, stratified(labels, (0.5, 0.5), seed=0)[0])
    assert not torch.equal(first, stratified(labels, (0.5, 0.5), seed=1)[0])


def test_a_class_keeps_its_split_when_others_change():
    labels = torch.tensor([0] * 50 + [1] * 50)
    relabelled = torch.tensor([0] * 50 + [2] * 25 + [3] * 25)
    first, second = (stratified(y, (0.5, 0.5))[0] for y in (labels, relabelled))
    assert first[first < 50].tolist() == second[second < 50].tolist()


def test_an_empty_part_is_still_an_index():
    few = torch.tensor([0, 1])
    empty, rest = stratified(few, (0.25, 0.75))
    assert few[empty].tolist() == []
    assert few[rest].tolist() == [0, 1]


@pytest.mark.parametrize("fractions", [(0.5, 0.4), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), ()])
def test_fractions_must_be_positive_and_sum_to_one(fractions):
    with pytest.raises(ValueError, match="fractions must be positive and sum to 1, got"):
        stratified(torch.tensor([0, 1]), fractions)
