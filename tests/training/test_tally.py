"""Means over an epoch, exact where they are interrupted."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.training.tally import Tally, combine, means

CPU = torch.device("cpu")
BRANCHES = [("loss", "clean"), ("loss",), ("loss", "mixed", "train_accuracy")]
STEPS = st.lists(
    st.tuples(st.sampled_from(BRANCHES), st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)


def add(tally, steps):
    for names, values, count in steps:
        tally.add(names, torch.tensor(values[: len(names)], dtype=torch.float64), count)


@settings(deadline=None, max_examples=60)
@given(steps=STEPS)
def test_a_mean_is_over_the_images_of_the_steps_that_report_it(steps):
    tally = Tally(CPU)
    add(tally, steps)
    found = means(tally.totals())
    for name in {name for names, _, _ in steps for name in names}:
        having = [(values[names.index(name)], count) for names, values, count in steps if name in names]
        mean = sum(value for value, _ in having) / sum(count for _, count in having)
        assert found.pop(name) == pytest.approx(mean, rel=1e-12, abs=1e-9)
    assert not found


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, cut=st.integers(0, 12))
def test_going_on_from_stored_totals_gives_the_same_bits(steps, cut):
    """Sums of floats depend on their order; a resumed run adds in the same one."""
    whole, before, after = Tally(CPU), Tally(CPU), Tally(CPU)
    add(whole, steps)
    add(before, steps[:cut])
    stored = json.loads(json.dumps(list(before.totals().items())))
    after.restore({tuple(names): values for names, values in stored})
    add(after, steps[cut:])
    assert means(after.totals()) == means(whole.totals())


def test_restoring_forgets_what_was_there_and_keeps_the_tensors():
    """A captured step adds to the tensors that it was captured with."""
    tally = Tally(CPU)
    add(tally, [(("loss",), [3.0], 1), (("loss", "clean"), [4.0, 5.0], 2)])
    tensors = {names: tensor.data_ptr() for names, tensor in tally._sums.items()}
    tally.restore({("loss",): [8.0, 4.0]})
    assert tally.totals() == {("loss",): [8.0, 4.0]}
    assert {names: tensor.data_ptr() for names, tensor in tally._sums.items()} == tensors
    tally.restore({})
    assert tally.totals() == {}
    assert means(tally.totals()) == {}


def test_totals_of_several_processes_are_added():
    first = {("loss",): [1.0, 2.0], ("loss", "clean"): [1.0, 2.0, 3.0]}
    second = {("loss", "clean"): [10.0, 20.0, 30.0]}
    assert combine([first, second]) == {("loss",): [1.0, 2.0], ("loss", "clean"): [11.0, 22.0, 33.0]}
    assert means(combine([first, second])) == {"loss": 12 / 35, "clean": 22 / 33}


def test_a_step_that_reports_nothing_counts_for_nothing():
    tally = Tally(CPU)
    tally.add((), torch.tensor(0.0), 0)
    assert tally.totals() == {}
