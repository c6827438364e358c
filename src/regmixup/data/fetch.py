"""Fetch datasets: resumable downloads from several mirrors, verified before anything is unpacked."""

from __future__ import annotations

import http.client
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

import filelock

from regmixup.data.catalogue import FAMILIES, Dataset, find, get
from regmixup.data.files import data_root, is_present, is_rebuilt, missing_files
from regmixup.data.inventory import file_sum
from regmixup.data.published import Source
from regmixup.names import unknown

OnProgress = Callable[[str, int, int | None], None]
ATTEMPTS = 5
CHUNK = 1 << 20
LEAST_RATE = 1 << 16
"""Bytes per second: the time limit of a mirror is that in which its file would arrive at this rate."""


class FetchError(RuntimeError):
    """A dataset could not be fetched."""


def fetch(
    name: str, root: str | Path | None = None, on_progress: OnProgress | None = None, *, timeout: float = 30.0
) -> Path:
    """Fetch a dataset's official files into the root, and return the root. Files that are there are not fetched again.

    name: a family ("cifar10") or a dataset ("cifar10/test"); an archive is always fetched whole. A file is downloaded
    to `.downloads/` under the root. If a connection breaks, the partial file is kept, and this or the next call resumes
    it. The checksum is compared before the file is put in place or unpacked. A mirror that sends more than the file can
    have, or that averages less than 64 KiB per second, is skipped.

    timeout: seconds without an answer after which a connection counts as broken. on_progress: called with the file's
    name, the bytes received, and the total where the server states it.
    """
    sources, datasets = sources_of(name), _datasets_of(name)
    root = data_root(root)
    downloads = root / ".downloads"
    for source in sources:
        if _is_there(source, datasets, root):
            continue
        for folder in {file.partition("/")[0] for file in source.provides if "/" in file}:
            if is_rebuilt(root / folder):
                raise FetchError(f"{root / folder} holds a rebuilt set: move it away before fetching the official one")
        downloads.mkdir(parents=True, exist_ok=True)
        lock = downloads / f"{source.file}.lock"
        with filelock.FileLock(lock):
            if not _is_there(source, datasets, root):  # another process may have fetched it while we waited
                hint = f"Without a network, put the files in {root} by hand.\n{_layout(datasets)}"
                arrived = _download(source, downloads, on_progress, timeout, hint=hint)
                _install(source, arrived, root)
        lock.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another download is kept there
            downloads.rmdir()
    return root


def sources_of(name: str) -> tuple[Source, ...]:
    """Return what must be fetched for a family or a dataset; raise for one that is not fetched, saying what to do."""
    datasets = _datasets_of(name)
    sources = tuple(dict.fromkeys(source for dataset in datasets for source in dataset.sources))
    if sources:
        return sources
    if by_hand := next((dataset.by_hand for dataset in datasets if dataset.by_hand), ""):
        raise ValueError(f"{name} cannot be fetched automatically: {by_hand}.\n{_layout(datasets)}")
    raise ValueError(f"{name} needs no files: it is embedded or made from what you have")


def _datasets_of(name: str) -> list[Dataset]:
    """Return the datasets whose files are meant by the name of a family or of a dataset."""
    if name in FAMILIES:
        return [own for own in map(find, FAMILIES[name].names) if not own.part and not own.optional]
    if get(name) is None and "/" not in name:
        raise unknown("dataset", name, FAMILIES)
    return [find(find(name).whole)]


def _is_there(source: Source, datasets: list[Dataset], root: Path) -> bool:
    """Return whether a source's files are there, and none that it would bring is missing from the datasets."""
    if not all(is_present(root, file) for file in source.provides):
        return False
    own = {file.partition("/")[0] for file in source.provides}
    missing = [file for dataset in datasets for file in missing_files(dataset, root)]
    return not any(file.partition("/")[0] in own for file in missing)


def _layout(datasets: list[Dataset]) -> str:
    files = dict.fromkeys(file for dataset in datasets for file in dataset.files)
    return "Expected under the root:\n" + "\n".join(f"  {file}" for file in files)


def _download(source: Source, folder: Path, on_progress: OnProgress | None, timeout: float, *, hint: str) -> Path:
    """Return the complete file, with the right checksum, from the first mirror that delivers it."""
    partial = folder / f"{source.file}.partial"
    failures = []
    for url in source.urls:
        try:
            _download_from(url, partial, source, on_progress, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failures.append(f"  {url}: {error or type(error).__name__}")
            continue
        found = file_sum(partial, source.checksum)
        if found == source.checksum:
            return partial
        # The file is wrong somewhere, so there is nothing to resume.
        partial.unlink()
        failures.append(f"  {url}: the file is damaged: expected {source.checksum}, found {found}")
    kept = f"{partial.stat().st_size} bytes are kept; the next call goes on from there. " if partial.exists() else ""
    raise FetchError(f"cannot fetch {source.file}:\n" + "\n".join(failures) + f"\n{kept}{hint}")


def _download_from(url: str, partial: Path, source: Source, on_progress: OnProgress | None, timeout: float) -> None:
    """Append to `partial` until the file is complete; resume a broken connection a few times."""
    size, total = 0, None
    deadline = time.monotonic() + timeout + source.megabytes * 1e6 / LEAST_RATE
    for attempt in range(ATTEMPTS):
        try:
            total = _receive(url, partial, source, on_progress, timeout, deadline)
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            if attempt == ATTEMPTS - 1:
                raise
        size = partial.stat().st_size if partial.exists() else 0
        if total is not None and size >= total:
            return
    raise OSError(f"the connection broke {ATTEMPTS} times, at last after {size} of {total or 'unknown'} bytes")


def _receive(
    url: str, partial: Path, source: Source, on_progress: OnProgress | None, timeout: float, deadline: float
) -> int | None:
    """Make one request for what is missing; return the file's total size, where the server states it."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "regmixup", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # The server has nothing beyond what we have: the file is complete, or it is another one.
        total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if total is None or int(total[1]) != have:
            partial.unlink()
        return int(total[1]) if total else None
    with response:
        length = response.headers.get("Content-Length")
        resumed = re.fullmatch(rf"bytes {have}-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if response.status == 206 and resumed is None:
            raise ValueError(f"the server answers with another part, {response.headers.get('Content-Range')!r}")
        total_size = int(resumed[1]) if resumed else int(length) if length else None
        _check_size(total_size or 0, source)
        have = have if resumed else 0
        with partial.open("ab" if resumed else "wb") as out:
            while chunk := response.read1(CHUNK):
                have += len(chunk)
                if have > source.megabytes * 10**6:
                    out.truncate(0)  # it is another file: there is nothing to resume
                _check_size(have, source)
                out.write(chunk)
                if on_progress is not None:
                    on_progress(source.file, have, total_size)
                if time.monotonic() > deadline:
                    raise OSError(f"too slow: {have} of {total_size or 'unknown'} bytes when its time was up")
    return total_size if total_size is not None else have


def _check_size(size: int, source: Source) -> None:
    """Raise if a server sends more than the file can have."""
    if size > source.megabytes * 10**6:
        raise ValueError(f"{source.file} has at most {source.megabytes} MB, the server sends {size} bytes or more")


def _install(source: Source, arrived: Path, root: Path) -> None:
    """Put the file, or what it contains, in place. Every file appears by a rename, complete."""
    if source.unpack == "no":
        arrived.replace(root / source.file)
        return
    with tempfile.TemporaryDirectory(dir=arrived.parent) as temporary:
        members = _tar_members(arrived) if source.unpack == "tar" else _zip_members(arrived)
        for member, content in members:
            target = Path(temporary) / safe_path(member)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as out:
                shutil.copyfileobj(content, out, CHUNK)
        for path in sorted(Path(temporary).rglob("*")):
            if path.is_file():
                target = root / path.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    arrived.unlink()


def safe_path(member: str) -> PurePosixPath:
    """Return an archive member's path; raise if it leads out of the folder it is unpacked to.

    >>> safe_path("../../etc/passwd")
    Traceback (most recent call last):
    ValueError: the archive wants to write to '../../etc/passwd', outside its folder
    """
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member or not path.parts:
        raise ValueError(f"the archive wants to write to {member!r}, outside its folder")
    return path


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular files of a tar archive. Links and devices are skipped."""
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as zipped:
        for member in zipped.infolist():
            if not member.is_dir():
                yield member.filename, zipped.open(member)
