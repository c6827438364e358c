"""Where datasets that are read from disk lie."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REGMIXUP_DATA"


def data_root(root: str | Path | None = None) -> Path:
    """The given folder, or the environment variable REGMIXUP_DATA, or the user's cache folder for this package.

    The cache folder is `$XDG_CACHE_HOME/regmixup`, by default `~/.cache/regmixup`. Nothing is created here.

    >>> str(data_root("somewhere"))
    'somewhere'
    """
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that a relative path is to be ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "regmixup"


def existing_root(root: str | Path | None = None) -> Path:
    """`data_root`, for those who look at what is there: a folder that somebody named must exist."""
    found = data_root(root)
    named = "root" if root is not None else VARIABLE if os.environ.get(VARIABLE) else None
    if named and not found.is_dir():
        state = "is a file" if found.exists() else "does not exist"
        raise ValueError(f"{named} must name a folder, got {found}, which {state}")
    return found
