"""Fixtures of the tests of training."""

import pytest

from regmixup import data
from tests.training.short import load_few


@pytest.fixture
def few_digits(monkeypatch):
    """Train on the first digits alone; other sets are whole."""
    monkeypatch.setattr(data, "load", load_few)
