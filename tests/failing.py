"""A file system that fails for one file, as a file server may for a moment."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def unreadable(path: Path, call: str = "open") -> Iterator[str]:
    """Let opening a file fail, or with call="stat" looking at it; yield a pattern of the error that names it."""
    module = os if call == "stat" else io
    real = getattr(module, call)

    def fail(file, *args, **kwargs):
        if str(file) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))
        return real(file, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, call, fail)
        yield rf"^\[Errno 5\] Input/output error: '{path}'$"
