"""The two t-tests against SciPy's."""

import math

import numpy as np
import pytest
from scipy import stats

from regmixup.report.significance import compare


def seeded(values, first=0):
    return dict(enumerate(map(float, values), start=first))


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_equal_seeds_are_paired(n):
    generator = np.random.default_rng(n)
    shared, own, other = generator.normal(size=(3, n))
    a, b = shared + 0.1 * own + 0.2, shared + 0.3 * other
    found = compare(seeded(a), dict(reversed(seeded(b).items())))
    assert found.test == "paired"
    assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 3), (3, 12)])
def test_other_seeds_are_not(n, m):
    generator = np.random.default_rng(n * m)
    a, b = generator.normal(0.5, 1, n), generator.normal(0, 3, m)
    found = compare(seeded(a), seeded(b, first=1))
    assert found.test == "welch"
    assert found.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)


def test_unknown_seeds_are_not_paired_and_one_value_is_not_compared():
    assert compare({None: 0.5}, {None: 0.4}) is None
    assert compare({0: 0.5}, seeded([0.4, 0.5])) is None
    assert compare(seeded([0.4, 0.5]), {}) is None


@pytest.mark.parametrize("first", [0, 7])
def test_values_that_do_not_spread(first):
    assert compare(seeded([0.5] * 3, first), seeded([0.5] * 3)).p == 1.0
    assert compare(seeded([0.75] * 3, first), seeded([0.5] * 3)).p == 0.0
    assert not math.isnan(compare(seeded([0.75, 0.5, 0.75], first), seeded([0.5] * 3)).p)
