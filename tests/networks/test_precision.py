"""The precision of float32 products is set for a while and put back, whichever of torch's two ways a user has taken."""

import pytest
import torch

from regmixup.networks.precision import cudnn, float32_products

BACKENDS = torch.backends


def settings():
    return BACKENDS.cuda.matmul.fp32_precision, BACKENDS.cudnn.conv.fp32_precision


def set_everywhere(precision):
    BACKENDS.fp32_precision = precision


def set_products(precision):
    BACKENDS.cuda.matmul.fp32_precision = precision


@pytest.fixture(params=["nothing", "new everywhere", "new products", "old products", "old convolutions"])
def user(request):
    """What the user has set before; torch's defaults are back at the end."""
    before = settings()
    changes = {
        "nothing": lambda: None,
        "new everywhere": lambda: set_everywhere("tf32"),
        "new products": lambda: set_products("tf32"),
        "old products": lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True),
        "old convolutions": lambda: setattr(BACKENDS.cudnn, "allow_tf32", False),
    }
    changes[request.param]()
    yield request.param
    set_everywhere("none")
    if request.param.startswith("old"):
        BACKENDS.cuda.matmul.allow_tf32, BACKENDS.cudnn.allow_tf32 = False, True
    BACKENDS.cuda.matmul.fp32_precision, BACKENDS.cudnn.conv.fp32_precision = before
    assert (BACKENDS.cuda.matmul.allow_tf32, BACKENDS.cudnn.allow_tf32) == (False, True)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("float32", ("ieee", "ieee")), ("tf32", ("tf32", "tf32")), ("bfloat16", ("ieee", "tf32"))],
)
def test_products_and_convolutions_are_rounded_as_the_precision_says(user, precision, expected):
    before = settings()
    with cudnn(benchmark=True), float32_products(precision), cudnn(benchmark=False):
        assert settings() == expected
    assert settings() == before
    if user.startswith("old"):  # who uses the old names reads them again
        assert BACKENDS.cuda.matmul.allow_tf32 is (user == "old products")
        assert BACKENDS.cudnn.allow_tf32 is (user == "old products")
