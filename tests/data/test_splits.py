"""Stratified splits: disjoint, complete, proportional, the same on every machine; and named random streams."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup import data
from regmixup.data.splits import generator_for, seed_for, stratified

from .official import write_cifar, write_svhn

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(torch.tensor)
FRACTIONS = st.sampled_from([(1.0,), (0.5, 0.5), (0.9, 0.1), (0.25, 0.25, 0.5), (0.1,) * 10])


@settings(max_examples=100, deadline=None)
@given(labels=LABELS, fractions=FRACTIONS)
def test_parts_are_sorted_disjoint_and_complete_and_every_class_is_divided_in_the_given_fractions(labels, fractions):
    parts = stratified(labels, fractions)
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(labels)))
    for label in labels.unique():
        size = int((labels == label).sum())
        for part, fraction in zip(parts, fractions, strict=True):
            # Cutting at two rounded positions is off by less than one sample in all.
            assert abs(int((labels[part.long()] == label).sum()) - fraction * size) <= 1


# The 45,000 / 5,000 split of 50,000 labels 0, 1, ..., 9, 0, 1, ...: a change of this hash is a change of every result.
PINNED = "5efa23c6d8c9abd798b74a7c4386cd7023b23f3bd8a53bd9ee857a9dc7f12090"


def test_the_split_of_cifar10_is_pinned():
    """By the SHA-256 of the indices, part by part, as little-endian 64-bit integers."""
    parts = stratified(torch.arange(50_000) % 10, (0.9, 0.1))
    assert [len(part) for part in parts] == [45_000, 5_000]
    assert hashlib.sha256(torch.cat(parts).numpy().astype("<i8").tobytes()).hexdigest() == PINNED


@pytest.mark.parametrize("family", ["cifar10", "svhn"])
def test_parts_by_name(tmp_path, family):
    if family == "cifar10":
        write_cifar(tmp_path, family, per_file=40)
    else:
        write_svhn(tmp_path, "train", count=100)
    whole = data.load(f"{family}/train", root=tmp_path)
    large, small = (data.load(f"{family}/{part}", root=tmp_path) for part in ("train-90", "val-10"))
    expected = stratified(whole.labels, (0.9, 0.1))
    for part, index in zip((large, small), expected, strict=True):
        assert torch.equal(part.images, whole.images[index])
        assert torch.equal(part.labels, whole.labels[index])
        assert part.info == {"rebuilt": "true", "part_of": whole.name, "whole": whole.fingerprint}
    assert (large.name, small.name) == (f"{family}/train-90", f"{family}/val-10")


def test_a_part_that_would_be_empty(tmp_path):
    write_cifar(tmp_path, "cifar100")
    with pytest.raises(ValueError, match="cifar100/val-10: the dataset is empty"):
        data.load("cifar100/val-10", root=tmp_path)


def test_a_seed_is_63_bits_of_the_hash_of_its_name():
    expected = int(hashlib.sha256(b"7/order/3").hexdigest()[:16], 16) // 2
    assert seed_for(7, "order", 3) == expected


def test_a_stream_is_the_same_again_and_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first, again, other = (torch.rand(5, generator=generator_for(0, "x", epoch)) for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.rand(3), expected)
