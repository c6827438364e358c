"""Deprecated: `BENCHMARK` and `EXTRA` are in `regmixup.data.catalogue`. This module leaves with the next version."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("BENCHMARK", "EXTRA"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from regmixup.data import catalogue

    warnings.warn(f"import {name} from regmixup.data.catalogue", DeprecationWarning, stacklevel=2)
    return getattr(catalogue, name)
