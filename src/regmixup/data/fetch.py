"""Fetch datasets: resumable downloads from several mirrors, verified before anything is unpacked."""

from __future__ import annotations

import http.client
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from regmixup.data.catalogue import FAMILIES, find, members
from regmixup.data.files import data_root, file_sum, is_rebuilt, missing_files
from regmixup.data.records import Dataset, Source

OnProgress = Callable[[str, int, int | None], None]
CHUNK = 1 << 20
TIMEOUT = 30.0
"""Seconds without an answer after which a connection counts as broken."""


class FetchError(RuntimeError):
    """A dataset could not be fetched."""


def fetch(name: str, root: str | Path | None = None, on_progress: OnProgress = lambda *_: None) -> Path:
    """Fetch a dataset's official files into the root, and return the root. Files that are there are not fetched again.

    name: a family ("cifar10") or a dataset ("cifar10/test"); an archive is always fetched whole. A file is downloaded
    to `.downloads/` under the root. If a connection breaks, the partial file is kept, and the next mirror or the next
    call resumes it. The checksum is compared before the file is put in place or unpacked.

    on_progress: called with the file's name, the bytes received, and the total where the server states it.
    """
    root, datasets = data_root(root), _datasets_of(name)
    incomplete = [dataset for dataset in datasets if missing_files(dataset, root)]
    if rebuilt := [dataset.name for dataset in incomplete if is_rebuilt(dataset, root)]:
        raise FetchError(f"{root} holds a rebuilt {rebuilt[0]}: move it away before fetching the official one")
    for source in dict.fromkeys(source for dataset in incomplete for source in dataset.sources):
        partial = root / ".downloads" / f"{source.file}.partial"
        partial.parent.mkdir(parents=True, exist_ok=True)
        if problems := _download(source, partial, on_progress):
            kept = f"{_size(partial)} bytes are kept for the next call. " if _size(partial) else ""
            hint = f"Without a network, put the files in {root} by hand.\n{_layout(datasets)}"
            raise FetchError(f"cannot fetch {source.file}:\n{problems}\n{kept}{hint}")
        _install(source, partial, root)
        with suppress(OSError):  # not empty: another download is kept there
            partial.parent.rmdir()
    return root


def _datasets_of(name: str) -> list[Dataset]:
    """Return the datasets that the name of a family or a dataset means; raise if they cannot be fetched."""
    if name in FAMILIES:
        datasets = [dataset for dataset in members(name) if not (dataset.part or dataset.listed)]
    else:
        datasets = [find(find(name).whole)]
    if any(dataset.sources for dataset in datasets):
        return datasets
    if by_hand := next((dataset.by_hand for dataset in datasets if dataset.by_hand), ""):
        raise ValueError(f"{name} cannot be fetched automatically: {by_hand}.\n{_layout(datasets)}")
    raise ValueError(f"{name} needs no files: it is embedded or made from what you have")


def _layout(datasets: list[Dataset]) -> str:
    files = dict.fromkeys(file for dataset in datasets for file in dataset.files)
    return "Expected under the root:\n" + "\n".join(f"  {file}" for file in files)


def _download(source: Source, partial: Path, on_progress: OnProgress) -> str:
    """Complete a partial file from the first mirror that delivers it; return what went wrong, "" for nothing."""
    if _size(partial) and file_sum(partial, source.checksum) == source.checksum:
        return ""
    problems = []
    for url in source.urls:
        try:
            _receive(url, partial, source.file, on_progress)
            checksum = file_sum(partial, source.checksum)
            if checksum == source.checksum:
                return ""
            problem = f"the file is damaged: expected {source.checksum}, found {checksum}"
            partial.unlink()  # it is wrong somewhere, so there is nothing to resume
        except (OSError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__
            if getattr(error, "code", None) == 416:  # there is nothing beyond what we have, which is wrong
                partial.unlink()
        problems.append(f"  {url}: {problem}")
    return "\n".join(problems)


def _receive(url: str, partial: Path, file: str, on_progress: OnProgress) -> None:
    """Request what is missing of a file, and append it; raise if the connection breaks before the end."""
    received = _size(partial)
    request = urllib.request.Request(url, headers={"User-Agent": "regmixup"})
    if received:
        request.add_header("Range", f"bytes={received}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != 206:  # the server sends the whole file
            received = 0
        length = response.headers.get("Content-Length")
        total = received + int(length) if length else None
        with partial.open("ab" if received else "wb") as out:
            while chunk := response.read1(CHUNK):
                out.write(chunk)
                received += len(chunk)
                on_progress(file, received, total)
    if total is not None and received < total:
        raise ConnectionError(f"the connection broke after {received} of {total} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _install(source: Source, arrived: Path, root: Path) -> None:
    """Put the file, or what it contains, in place. Every file appears by a rename, complete."""
    suffixes = Path(source.file).suffixes
    if {".tar", ".zip"}.isdisjoint(suffixes):
        arrived.replace(root / source.file)
        return
    with tempfile.TemporaryDirectory(dir=arrived.parent) as temporary:
        if ".tar" in suffixes:
            _unpack_tar(arrived, Path(temporary))
        else:
            with zipfile.ZipFile(arrived) as zipped:
                zipped.extractall(temporary)  # which removes .. and leading slashes
        for path in Path(temporary).rglob("*"):
            if path.is_file():
                target = root / path.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    arrived.unlink()


def _unpack_tar(archive: Path, folder: Path) -> None:
    """Write the regular files of an archive into a folder. `extractall` is safe only from Python 3.11.4 on."""
    with tarfile.open(archive) as tar:
        for member in filter(tarfile.TarInfo.isfile, tar):
            path = folder / member.name.lstrip("/")
            if ".." in path.parts:
                raise FetchError(f"{archive.name} must hold files of its own folder, got {member.name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with content, path.open("wb") as out:
                shutil.copyfileobj(content, out)
