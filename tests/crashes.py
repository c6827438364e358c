"""What a crash can leave on a disk, after every file operation of a program that is recorded while it runs."""

import os
import random
import stat
import warnings
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

Files = dict[Path, bytes]


class Disk:
    """The files under `root` as a disk may hold them: what was flushed, and any part of what was not.

    A file's content is there once the file was flushed, before that as much of it as has come (half). A name is there,
    or gone, once its folder was flushed; before that each renaming may have come alone, or none, or all.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.flushed: dict[Path, bytes] = {}  # content of files, whatever their names
        self.durable: Files = {}
        self.pending: list[tuple[Path | None, Path | None, bytes]] = []  # old name, new name, content
        self.states: list[Files] = []

    @contextmanager
    def recording(self):
        """Record what this process does to the files."""
        operations = {"fsync": self._fsync, "replace": self._replace, "unlink": self._unlink}
        with mock.patch.multiple(os, **{name: self._observed(name, note) for name, note in operations.items()}):
            yield
        self._look()

    def sample(self, count: int | None = None) -> list[Files]:
        """Return so many of the states, the same every time; default: all of them."""
        if count is None or len(self.states) <= count:
            return self.states
        return random.Random(0).sample(self.states, count)

    def make(self, state: Files, folder: Path) -> Path:
        for path, content in state.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        folder.mkdir(exist_ok=True)
        return folder

    def _observed(self, name, note):
        function = getattr(os, name)

        def call(*args, **kwargs):
            self._look()
            before = self._files()
            found = function(*args, **kwargs)
            note(before, *args)
            return found

        return call

    def _files(self) -> Files:
        return {path.relative_to(self.root): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def _look(self) -> None:
        files = self._files()
        torn = {path: self._on_disk(path, content) for path, content in files.items()}
        alone = [_renamed(self.durable, *operation) for operation in self.pending]
        for state in (files, torn, dict(self.durable), *alone):
            if state not in self.states:
                self.states.append(state)

    def _on_disk(self, path: Path, content: bytes) -> bytes:
        return content if self.flushed.get(path) == content else content[: len(content) // 2]

    def _fsync(self, before: Files, number: int) -> None:
        same = os.fstat(number)
        named = [p for p in (self.root, *self.root.rglob("*")) if os.path.samestat(p.stat(), same)]
        if not named:
            return
        path = named[0].relative_to(self.root)
        if stat.S_ISREG(same.st_mode):
            self.flushed[path] = named[0].read_bytes()
            return
        here = [op for op in self.pending if (op[0] or op[1]).parent == path]
        self.pending = [op for op in self.pending if op not in here]
        for operation in here:
            self.durable = _renamed(self.durable, *operation)

    def _replace(self, before: Files, old, new) -> None:
        old, new = (Path(name).relative_to(self.root) for name in (old, new))
        self.pending.append((old, new, self._on_disk(old, before[old])))
        if old in self.flushed:
            self.flushed[new] = self.flushed.pop(old)

    def _unlink(self, before: Files, name) -> None:
        path = Path(name).relative_to(self.root)
        if path in before:
            self.pending.append((path, None, b""))


def _renamed(files: Files, old: Path | None, new: Path | None, content: bytes) -> Files:
    found = {path: own for path, own in files.items() if path != old}
    return found if new is None else {**found, new: content}


@contextmanager
def no_warnings():
    """A crash may leave what is worth a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
