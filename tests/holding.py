"""A folder held by another live process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_by_another_process(folder: Path) -> Iterator[int]:
    """Hold `folder` in a second process; yields that process's id."""
    code = (
        "import sys, pathlib; from regmixup.storage import owning\n"
        f"with owning(pathlib.Path({str(folder)!r})):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield other.pid
        other.stdin.close()
