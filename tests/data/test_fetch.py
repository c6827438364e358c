"""Fetching, against a server on this machine that can cut connections, lie and fail."""

import hashlib
import io
import re
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regmixup import data
from regmixup.data.catalogue import DATASETS, members
from regmixup.data.fetch import FetchError, _datasets_of, fetch
from regmixup.data.records import Source

from .official import python2_batch, random_images, write_cifar


class Server(ThreadingHTTPServer):
    """files: what is served. cuts: after how many bytes the next answers for a path end. requests: what was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.cuts = {}
        self.requests = []
        self.ranges = True

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cuts = self.server.cuts.get(self.path)
        stop = start + cuts.pop(0) if cuts else len(content)
        self.wfile.write(content[start:stop])
        self.wfile.flush()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_of(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def cifar_archive():
    batches = {f"data_batch_{n}": python2_batch(random_images(2, seed=n), [1, 2]) for n in range(1, 6)}
    batches |= {"test_batch": python2_batch(random_images(2, seed=9), [3, 4]), "provenance.json": b'{"rebuilt": true}'}
    return tar_of({f"cifar-10-batches-py/{name}": content for name, content in batches.items()})


def offer(monkeypatch, content, *urls, **fields):
    """Replace what CIFAR-10 is fetched from."""
    source = Source(
        fields.pop("file", "cifar-10-python.tar.gz"),
        urls,
        fields.pop("checksum", f"md5:{hashlib.md5(content).hexdigest()}"),
    )
    for dataset in members("cifar10"):
        files = fields.get("files", dataset.files)
        monkeypatch.setitem(DATASETS, dataset.name, replace(dataset, sources=(source,), files=files))
    return source


@pytest.fixture
def archive(server, monkeypatch):
    """A small CIFAR-10, which the server offers."""
    content = cifar_archive()
    server.files["/a"] = content
    offer(monkeypatch, content, server.url("/a"))
    return content


def test_fetches_checks_and_unpacks(server, tmp_path, archive):
    steps = []
    assert fetch("cifar10/test", tmp_path, lambda *progress: steps.append(progress)) == tmp_path
    assert steps[-1] == ("cifar-10-python.tar.gz", len(archive), len(archive))
    assert data.load("cifar10/test", root=tmp_path).labels.tolist() == [3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]
    fetch("cifar10", tmp_path)
    assert len(server.requests) == 1


def test_the_next_mirror_begins_again_where_it_cannot_go_on(server, tmp_path, monkeypatch, archive):
    server.files["/b"], server.cuts["/a"], server.ranges = archive, [1000], False
    offer(monkeypatch, archive, server.url("/a"), server.url("/b"))
    fetch("cifar10", tmp_path)
    assert server.requests == [("/a", None), ("/b", "bytes=1000-")]
    assert len(data.load("cifar10/train", root=tmp_path)) == 10


def test_a_later_call_goes_on_where_an_earlier_one_ended(server, tmp_path, archive):
    server.cuts["/a"] = [700]
    with pytest.raises(FetchError, match="700 bytes are kept for the next call"):
        fetch("cifar10", tmp_path)
    assert (tmp_path / ".downloads" / "cifar-10-python.tar.gz.partial").read_bytes() == archive[:700]
    server.requests.clear()
    fetch("cifar10", tmp_path)
    assert server.requests == [("/a", "bytes=700-")]
    assert not (tmp_path / ".downloads").exists()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "damaged"])
def test_a_whole_leftover_is_used_and_a_damaged_one_is_thrown_away(server, tmp_path, monkeypatch, archive, whole):
    offer(monkeypatch, archive, server.url("/a"), server.url("/a"))
    partial = tmp_path / ".downloads" / "cifar-10-python.tar.gz.partial"
    partial.parent.mkdir()
    partial.write_bytes(archive if whole else archive[:-5] + b"wrong")
    fetch("cifar10", tmp_path)
    assert server.requests == ([] if whole else [("/a", f"bytes={len(archive)}-"), ("/a", None)])
    assert len(data.load("cifar10/test", root=tmp_path)) == 2


def test_mirrors_are_tried_in_turn(server, tmp_path, monkeypatch, archive):
    server.files |= {"/damaged": archive[:-5] + b"wrong", "/good": archive}
    offer(monkeypatch, archive, server.url("/absent"), server.url("/damaged"), server.url("/good"))
    fetch("cifar10", tmp_path)
    assert server.requests == [("/absent", None), ("/damaged", None), ("/good", None)]
    assert len(data.load("cifar10/test", root=tmp_path)) == 2


def test_a_wrong_checksum_unpacks_nothing(server, tmp_path, monkeypatch, archive):
    expected = "md5:" + "0" * 32
    offer(monkeypatch, archive, server.url("/a"), checksum=expected)
    with pytest.raises(FetchError, match=f"expected {expected}, found md5:{hashlib.md5(archive).hexdigest()}") as error:
        fetch("cifar10/test", tmp_path)
    assert f"put the files in {tmp_path} by hand" in str(error.value)
    assert "  cifar-10-batches-py/test_batch" in str(error.value)
    assert not (tmp_path / "cifar-10-batches-py").exists()
    assert not list((tmp_path / ".downloads").glob("*.partial"))


def test_plain_files_and_zip_archives(server, tmp_path, monkeypatch):
    zipped = zip_of({"folder/": b"", "folder/inside/a.txt": b"a"})
    for content, fields in (
        (b"plain", {"file": "b.npy", "files": ("b.npy",)}),
        (zipped, {"file": "c.zip", "files": ("folder/inside/",)}),
    ):
        server.files["/a"] = content
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        offer(monkeypatch, content, server.url("/a"), checksum=checksum, **fields)
        fetch("cifar10", tmp_path)
    assert (tmp_path / "b.npy").read_bytes() == b"plain"
    assert (tmp_path / "folder" / "inside" / "a.txt").read_bytes() == b"a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.npy", "folder"]


@pytest.mark.parametrize("member", ["../outside", "/tmp/outside-of-the-archive", "a/../../outside"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archives_cannot_write_outside(server, tmp_path, monkeypatch, member, kind):
    """A tar archive that tries to is refused, or loses its leading slash; of a zip archive the files stay inside."""
    archive = (tar_of if kind == "tar" else zip_of)({"fine": b"x", member: b"x"})
    server.files["/a"] = archive
    offer(monkeypatch, archive, server.url("/a"), file=f"archive.{kind}")
    root = tmp_path / "one" / "root"
    if kind == "tar" and ".." in member:
        with pytest.raises(FetchError, match="must hold files of its own folder, got"):
            fetch("cifar10", root)
        assert not (root / "fine").exists()
    else:
        fetch("cifar10", root)
    assert not Path("/tmp/outside-of-the-archive").exists()
    assert all(path.is_relative_to(root) for path in tmp_path.rglob("*outside*"))


@pytest.mark.parametrize(
    ("name", "datasets"),
    [
        ("cifar10", ["cifar10/train", "cifar10/test"]),
        ("cifar10/val-10", ["cifar10/train"]),
        ("path:cifar10/test", ["cifar10/test"]),
        ("cifar10/openood-val", ["cifar10/test"]),
        ("cifar10-c/fog/3", ["cifar10-c/fog/3"]),
    ],
)
def test_names(name, datasets):
    assert [dataset.name for dataset in _datasets_of(name)] == datasets


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar1", "unknown dataset 'cifar1'.* Available: the families"),
        ("cifar10/tests", "unknown dataset 'cifar10/tests'"),
        ("digits", "digits needs no files"),
        ("imagenet", r"imagenet cannot be fetched automatically.*account(.|\n)*imagenet/train/\n  imagenet/val/"),
    ],
)
def test_what_cannot_be_fetched_says_why(name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fetch(name, tmp_path)


def test_official_files_are_not_fetched_into_a_rebuilt_folder(tmp_path):
    write_cifar(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").unlink()
    with pytest.raises(FetchError, match="holds a rebuilt cifar10/train: move it away"):
        fetch("cifar10/train", tmp_path)
    fetch("cifar10/test", tmp_path)  # which is complete
