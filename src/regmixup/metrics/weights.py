"""Weights of samples: how often each one counts, as the counts of a bootstrap resample say.

Every metric is a function of weighted samples. With weights (R, N) it returns R values, (R,), each that of the samples
repeated so often; with weights (N,), or with None, where each sample counts once, it returns one value, a float.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

Value: TypeAlias = Any
"""A float; for weights (R, N) a tensor (R,)."""


def weight_rows(weights: Tensor | None, total: int, device: torch.device) -> Tensor:
    """Return weights as rows (R, N), one for each resample; None as one row of ones.

    >>> weight_rows(None, 3, torch.device("cpu"))
    tensor([[1, 1, 1]], dtype=torch.uint8)
    """
    if weights is None:
        return torch.ones(1, total, dtype=torch.uint8, device=device)
    if weights.ndim not in (1, 2) or weights.shape[-1] != total:
        raise ValueError(f"weights must be ({total},) or (R, {total}), one for each sample, got {tuple(weights.shape)}")
    return weights.reshape(-1, total).to(device)


def value_of(values: Tensor, weights: Tensor | None) -> Value:
    """Return values (R,) as the metric's result: a float unless the weights are (R, N)."""
    return values if weights is not None and weights.ndim == 2 else float(values)
