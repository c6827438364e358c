"""Where datasets that are read from disk lie."""

from __future__ import annotations

import os
import tempfile
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
    return cache_folder()


def cache_folder() -> Path:
    """The user's cache folder for this package; one for temporary files where there is no home directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the XDG specification says that a relative path is to be ignored
        try:
            cache = Path.home() / ".cache"
        except RuntimeError:
            cache = Path(tempfile.gettempdir())
    return cache / "regmixup"


def existing_root(root: str | Path | None = None) -> Path:
    """`data_root`, for those who look at what is there: a folder that somebody named must exist."""
    found = data_root(root)
    named = "root" if root is not None else VARIABLE if os.environ.get(VARIABLE) else None
    if named and not found.is_dir():
        state = "is a file" if found.exists() else "does not exist"
        raise ValueError(f"{named} must name a folder, got {found}, which {state}")
    return found
