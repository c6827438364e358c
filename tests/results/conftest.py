"""The generated pages, made once for all tests."""

import make_results
import pytest


@pytest.fixture(scope="session")
def pages():
    return make_results.pages()
