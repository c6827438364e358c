"""The precision of a forward pass: true float32, TF32 or bfloat16; cuDNN's algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch

from regmixup.names import check_name
from regmixup.types import Precision


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Set how CUDA multiplies float32 numbers, for the whole process, and put the setting back at the end.

    By default cuDNN rounds the factors of float32 convolutions to TF32. Under "float32" neither convolutions nor
    matrix products are rounded, under "tf32" both are; "bfloat16" leaves torch's defaults for what autocast leaves.

    torch raises an error where somebody reads `allow_tf32` after somebody else has set `fp32_precision`. So we use the
    second alone, which works whichever of the two a user has set before.
    """
    convolutions, matrices = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    before = convolutions.fp32_precision, matrices.fp32_precision
    convolutions.fp32_precision = "ieee" if precision == "float32" else "tf32"
    matrices.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision, matrices.fp32_precision = before


@contextmanager
def cudnn(*, benchmark: bool, deterministic: bool = False) -> Iterator[None]:
    """Set cuDNN's search for the fastest algorithms, or its restriction to deterministic ones, and restore it."""
    flags = torch.backends.cudnn  # not its function `flags`, which reads and sets `allow_tf32`
    before = flags.enabled, flags.benchmark, flags.deterministic
    flags.enabled, flags.benchmark, flags.deterministic = True, benchmark, deterministic
    try:
        yield
    finally:
        flags.enabled, flags.benchmark, flags.deterministic = before


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a forward pass runs: bfloat16 autocast, or one that changes nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def memory_format(precision: str, device: torch.device) -> torch.memory_format:
    """Return the layout of images and kernels that is fastest: tensor cores, which float32 does not use, want NHWC."""
    tensor_cores = device.type == "cuda" and precision != "float32"
    return torch.channels_last if tensor_cores else torch.contiguous_format


def check_precision(precision: str, device: torch.device) -> None:
    """Raise unless the device computes in this precision."""
    check_name("precision", precision, get_args(Precision))
    if precision == "tf32" and device.type != "cuda":
        raise ValueError(f"precision tf32 needs a CUDA device (--device cuda), got {device.type}")
