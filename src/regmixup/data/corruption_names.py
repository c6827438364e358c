"""Deprecated: `BENCHMARK` and `EXTRA` are in `regmixup.data.catalogue`. Version 0.3 removes this module."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("BENCHMARK", "EXTRA"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from regmixup.data import catalogue

    message = f"import {name} from regmixup.data.catalogue; version 0.3 removes this module"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(catalogue, name)
