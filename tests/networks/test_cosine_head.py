"""The cosine head gives scaled cosines, in float32 at least, and is part of the methods that need it."""

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.networks.cosine_head import CosineHead


def test_logits_are_scaled_cosines_whatever_the_length_of_features():
    torch.manual_seed(0)
    head, z = CosineHead(scale=5.0).build(16, 3).double(), torch.randn(4, 16).double()
    expected = torch.stack([5 * F.cosine_similarity(z, row[None]) for row in head.weight], dim=1)
    torch.testing.assert_close(head(z), expected)
    torch.testing.assert_close(head(7 * z), expected)
    assert head(z.bfloat16()).dtype == torch.float64


def test_the_scale_must_be_positive():
    with pytest.raises(ValueError, match=r"^scale must be .* got 0"):
        CosineHead(scale=0)


def test_published_values_of_the_methods_with_flat_minima():
    sure = {dataset: rm.configure(f"{dataset}-resnet18", "sure") for dataset in ("cifar10", "cifar100")}
    assert [config.objective.eta for config in sure.values()] == [0.5, 1.0]
    for config in (*sure.values(), rm.configure("cifar10-resnet18", "fmfp")):
        assert (config.sharpness, config.rho, config.average, config.average_from) == ("sam", 0.05, "swa", 0.6)
        assert (config.nesterov, config.lr_at(0.6 * config.epochs)) == (False, 0.05)
    assert sure["cifar10"].head == CosineHead(scale=8.0)
