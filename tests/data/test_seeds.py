"""Named random streams."""

import hashlib
import itertools

import torch

from regmixup.data.splits import generator_for, seed_for


def test_a_seed_is_63_bits_of_the_hash_of_its_name():
    expected = int(hashlib.sha256(b"7/order/3").hexdigest()[:16], 16) // 2
    assert seed_for(7, "order", 3) == expected


def test_seeds_fit_a_torch_generator():
    seeds = [seed_for(seed, "order") for seed in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62


def test_every_seed_purpose_and_epoch_has_its_own():
    names = list(itertools.product(range(20), ["order", "augment", "draw", "dropout"], range(20)))
    assert len({seed_for(*name) for name in names}) == len(names)


def test_digits_do_not_run_together():
    assert seed_for(1, 23) != seed_for(12, 3) != seed_for(123)


def test_asking_again_gives_the_same_stream():
    first, again, other = (torch.rand(5, generator=generator_for(0, "x", epoch)) for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_global_generator_is_not_touched():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(10, generator=generator_for(0, "x"))
    assert torch.equal(torch.rand(3), expected)
