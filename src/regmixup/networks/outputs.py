"""Take the logits from what models return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def logits_of(model: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """Return the model's logits (N, K) for a batch x (N, ...); raise if they cannot be told from what it returns.

    The model may return the tensor itself, a dict with "logits", an object with `.logits` (the outputs of Hugging Face
    models, torchvision's GoogLeNetOutputs and InceptionOutputs), or a tuple or list that begins with the logits. One
    that begins with (N, D) and holds a narrower (N, K), too, is rejected: these may be features and logits.

    >>> import torch
    >>> x = torch.eye(2)
    >>> [tuple(logits_of(model, x).shape) for model in (torch.neg, lambda x: {"logits": x}, lambda x: (x, x.sum()))]
    [(2, 2), (2, 2), (2, 2)]
    """
    output = model(x)
    if isinstance(output, Tensor):
        logits: Any = output
    elif isinstance(output, Mapping):
        logits = output.get("logits")
    elif hasattr(output, "logits"):  # before tuples: it may be a named one
        logits = output.logits
    else:
        logits = _first_of(output)
    # Not len(): it would fix the batch size of a program that is exported for any.
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[0] != x.shape[0]:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        place = "[1]" if isinstance(output, tuple | list) else '["name"]'
        raise ValueError(
            f"the model must return logits (N, K), N = {len(x)} here, or hold them as `logits` or as the first of "
            f"several, got {shape}: pass an nn.Module around it or lambda x: model(x){place}"
        )
    return logits


def _first_of(output: Any) -> Any:
    """Return the first entry of a tuple or list, unless it may be the features of the logits that follow."""
    if not isinstance(output, tuple | list) or not output or not isinstance(output[0], Tensor):
        return None
    first, *later = output
    tables = [entry for entry in later if isinstance(entry, Tensor) and first.ndim == entry.ndim == 2]
    return None if any(1 < table.shape[1] < first.shape[1] for table in tables) else first
