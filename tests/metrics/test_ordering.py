"""Sorting through NumPy gives what torch gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.ordering import ascending_order, positions, sorted_values, take_columns

VALUES = st.lists(st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, 1e-40]), min_size=1, max_size=40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=40, deadline=None)
@given(values=VALUES)
def test_the_order_is_stable(dtype, values):
    values = torch.tensor(values, dtype=dtype)
    assert torch.equal(ascending_order(values), values.argsort(stable=True))


def test_values_columns_and_positions():
    values = torch.tensor([3.0, 1.0, 2.0, 2.0])
    assert sorted_values(values).tolist() == [1, 2, 2, 3]
    assert values.tolist() == [3, 1, 2, 2]
    assert take_columns(torch.tensor([[1, 2, 3]]), torch.tensor([2, 0])).tolist() == [[3, 1]]
    below, below_or_tied = positions(sorted_values(values), torch.tensor([2.0, 9.0]))
    assert (below.tolist(), below_or_tied.tolist()) == ([1, 4], [3, 4])
