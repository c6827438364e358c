"""Settings of the command line's tests."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def _keep_warnings_as_they_are(monkeypatch):
    """Put the hook back that main() replaces."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
