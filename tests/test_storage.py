"""Files that are whole or absent, rows that come back bit for bit, and folders with one owner."""

import csv
import gzip
import os
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import regmixup.storage
from regmixup.storage import (
    InUseError,
    check_writable,
    digest,
    is_held,
    load_tensors,
    owning,
    read_json,
    read_rows,
    read_table,
    read_text,
    replacing,
    save_tensors,
    write_rows,
    write_table,
    write_text,
)
from regmixup.types import Row
from tests.holding import held_by_another_process


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("real_flushes")
class TestReplacing:
    def test_the_new_file_appears_only_when_it_is_complete(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")
        with replacing(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # a rename is atomic only within one file system
        assert path.read_text() == "new"
        assert names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
    def test_an_exception_leaves_the_old_file_and_nothing_else(self, tmp_path, error):
        path = tmp_path / "a.txt"
        path.write_text("old")
        writing = replacing(path)
        writing.__enter__().write_text("half")
        message = f"^cannot write {path}: No space left on device$" if isinstance(error, OSError) else "^$"
        with pytest.raises(type(error), match=message):
            writing.gen.throw(error)
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("kind", ["folder", "link"])
    def test_what_is_not_a_regular_file_is_not_replaced(self, tmp_path, kind):
        path, target = tmp_path / "out.txt", tmp_path / "target.txt"
        target.write_text("old")
        path.mkdir() if kind == "folder" else path.symlink_to(target)
        with pytest.raises(OSError, match=f"^cannot write {path}: it is there and is not a regular file"):
            write_text(path, "new")
        assert names(tmp_path) == ["out.txt", "target.txt"]
        assert target.read_text() == "old"

    def test_text_is_utf8_with_newlines_as_given(self, tmp_path):
        write_text(tmp_path / "a.txt", "é\r\nλ\n")
        assert (tmp_path / "a.txt").read_bytes() == "é\r\nλ\n".encode()


class TestCheckWritable:
    def test_nothing_changes_where_writing_would_succeed(self, tmp_path):
        (tmp_path / "old.csv").write_text("old")
        check_writable(tmp_path / "old.csv")
        check_writable(tmp_path / "deep" / "er" / "new.csv")
        assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
        assert (tmp_path / "old.csv").read_text() == "old"

    def test_what_cannot_be_written_is_an_error_now(self, tmp_path):
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        for path in (tmp_path / "file" / "rows.csv", tmp_path / "folder"):
            with pytest.raises(OSError, match=f"^cannot write {path}: "):
                check_writable(path)


CONTENT = {
    "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
    "logits": torch.tensor([[1.5, -0.0], [float("nan"), 3.0]]),
    "flags": torch.tensor([True, False, True]),
    "count": torch.tensor(7),
    "none": torch.zeros(0, 3, dtype=torch.float64),
    "turned": torch.arange(6, dtype=torch.int16).reshape(2, 3).T,
}


class TestTensors:
    def test_equal_content_gives_equal_bytes_in_any_order(self, tmp_path):
        metadata = {letter: letter * 3 for letter in "abcdefgh"}
        save_tensors(tmp_path / "one", CONTENT, metadata)
        save_tensors(tmp_path / "two", dict(reversed(CONTENT.items())), dict(reversed(metadata.items())))
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_safetensors_reads_what_was_written(self, tmp_path):
        save_tensors(tmp_path / "a.safetensors", CONTENT, {"λ": 'say "x"\n'})
        found = load_file(tmp_path / "a.safetensors")
        assert found.keys() == CONTENT.keys()
        for name, tensor in CONTENT.items():
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(found[name].nan_to_num(9), tensor.nan_to_num(9))
        with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
            assert file.metadata()["λ"] == 'say "x"\n'

    def test_a_changed_byte_is_noticed_where_a_checksum_was_recorded_and_only_there(self, tmp_path):
        ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
        save_tensors(ours, {"a": torch.zeros(100)}, {"dataset": "x"})
        save_file({"a": torch.zeros(100)}, theirs, metadata={"dataset": "x"})
        assert load_tensors(ours)[1] == {"dataset": "x"}
        for path in (ours, theirs):
            content = bytearray(path.read_bytes())
            content[-100] ^= 1
            path.write_bytes(content)
        with pytest.raises(ValueError, match="its content has changed since it was written"):
            load_tensors(ours)
        assert load_tensors(theirs)[0]["a"].count_nonzero() == 1


def test_another_programs_checksum_is_not_taken_for_ours(tmp_path):
    save_file({"a": torch.zeros(3)}, tmp_path / "theirs", metadata={"checksum": "f" * 64})
    assert load_tensors(tmp_path / "theirs")[0]["a"].tolist() == [0, 0, 0]


def test_the_digest_is_that_of_sha256sum(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert digest(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


TABLE = {"b": [1, 2.5, float("inf")], "a": {1: "λ", "x": None}}


class TestTables:
    @pytest.mark.parametrize("indent", [None, 2])
    def test_round_trip(self, tmp_path, indent):
        write_table(tmp_path / "a.json", TABLE, indent=indent)
        assert read_table(tmp_path / "a.json") == {"b": [1, 2.5, float("inf")], "a": {"1": "λ", "x": None}}

    def test_a_changed_digit_is_an_error_that_names_the_file(self, tmp_path):
        path = tmp_path / "a.json"
        write_table(path, TABLE)
        path.write_text(path.read_text().replace("2.5", "2.6"))
        with pytest.raises(ValueError, match=r"cannot read .*a\.json: its content has changed"):
            read_table(path)


def test_a_compressed_text_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(regmixup.storage, "_MOST_UNPACKED", 1000)
    for size in (1000, 1001):
        (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b" " * size))
        if size == 1000:
            assert read_text(tmp_path / "rows.csv") == " " * size
    with pytest.raises(ValueError, match=r"rows\.csv\.gz must hold at most 1000 bytes of text, it unpacks to more"):
        read_rows(tmp_path / "rows.csv")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b" " * 900)[:-9])
    with pytest.raises(ValueError, match=r"rows\.csv\.gz is damaged"):
        read_rows(tmp_path / "rows.csv")


class TestJson:
    def test_a_file_that_cannot_be_read_is_no_damage(self, tmp_path):
        for read in (read_json, read_table, read_rows):
            with pytest.raises(FileNotFoundError):
                read(tmp_path / "absent.json")

    @pytest.mark.parametrize("content", [b'{"a": 1', b"\xff\xfe", b"[" * 9999])
    def test_damaged_json_is_an_error_that_names_the_file(self, tmp_path, content):
        path = tmp_path / "a.json"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read {path}: "):
            read_json(path)


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
COUNTS = st.none() | st.integers(0, 10**12)
ROWS = st.builds(
    Row,
    **dict.fromkeys(
        ["study", "run", "method", "network", "train_set", "dataset", "corruption", "posthoc", "score", "metric"], TEXT
    ),
    **dict.fromkeys(["seed", "severity", "n"], COUNTS),
    value=FLOATS,
    low=st.none() | FLOATS,
    high=st.none() | FLOATS,
)


def bits(row):
    """A row's values with floats as their bits, so that nan equals nan and 0.0 differs from -0.0."""
    values = [getattr(row, f.name) for f in fields(Row)]
    return [("nan" if v != v else struct.pack("d", v)) if isinstance(v, float) else v for v in values]


class TestRows:
    @settings(max_examples=30, deadline=None)
    @given(rows=st.lists(ROWS, max_size=10))
    def test_rows_come_back_bit_for_bit(self, tmp_path_factory, rows):
        path = tmp_path_factory.mktemp("rows") / "rows.csv"
        write_rows(path, rows)
        assert [bits(row) for row in read_rows(path)] == [bits(row) for row in rows]

    @pytest.mark.parametrize("text", ["=cmd()", "-1", "\t=1", "'=1"])
    def test_no_text_is_a_formula(self, tmp_path, text):
        write_rows(tmp_path / "rows.csv", [Row(dataset=text, method=text, value=-1.0)])
        (line,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
        assert (line["dataset"], line["method"], line["value"]) == (f"'{text}", f"'{text}", "-1.0")
        assert read_rows(tmp_path / "rows.csv")[0].dataset == text

    def test_a_name_from_the_file_system_is_one_cell_of_one_line(self, tmp_path):
        write_rows(tmp_path / "rows.csv", [Row(dataset="a\r\n=1\x1b\x9b\udce9\ud800")])
        assert (tmp_path / "rows.csv").read_text().count("\n") == 2
        assert read_rows(tmp_path / "rows.csv")[0].dataset == r"a\r\n=1\x1b\x9b\xe9\ud800"

    def test_the_file_is_plain_csv_with_one_column_per_field(self, tmp_path):
        write_rows(tmp_path / "rows.csv", [Row(method="dnn", seed=0, metric="ece", value=0.1, n=3)])
        header, line = (tmp_path / "rows.csv").read_text().splitlines()
        assert header.split(",") == [f.name for f in fields(Row)]
        assert line == ",,dnn,,,0,,,,none,,ece,0.1,,,3"

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda text: text.replace("0.25", "a quarter"), "line 3: could not convert"),
            (lambda text: text[:-25], "line 3: "),  # a file cut off in the middle of its last line
            (lambda text: text.replace("study", "run"), "line 1: expected the columns study, run, method"),
        ],
        ids=["no number", "cut off", "other columns"],
    )
    def test_a_damaged_line_is_refused_with_file_and_line(self, tmp_path, damage, message):
        path = tmp_path / "rows.csv"
        write_rows(path, [Row(), Row(study="s", metric="ece", value=0.25, n=12345)])
        path.write_text(damage(path.read_text()))
        with pytest.raises(ValueError, match=f"{path}, {message}"):
            read_rows(path)

    def test_a_dropped_line_is_noticed_where_the_digest_is_known(self, tmp_path):
        path = tmp_path / "rows.csv"
        write_rows(path, [Row(study="a"), Row(study="b")])
        known = digest(path)
        assert len(read_rows(path, expected=known)) == 2
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        assert len(read_rows(path)) == 1
        with pytest.raises(ValueError, match=r"rows\.csv: its content has changed"):
            read_rows(path, expected=known)


class TestOwning:
    def test_the_folder_is_made_and_the_owner_leaves_when_done(self, tmp_path):
        with owning(tmp_path / "run"):
            assert (tmp_path / "run" / ".owner").read_text().startswith(f"pid {os.getpid()} on ")
        assert not (tmp_path / "run" / ".owner").exists()

    def test_a_second_process_is_told_who_owns_the_folder(self, tmp_path):
        assert not is_held(tmp_path)
        with held_by_another_process(tmp_path) as pid:
            (tmp_path / ".partial-1-b.txt").write_text("half")
            since = rf"on {socket.gethostname()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
            expected = rf"^{tmp_path} is in use by another process \(pid {pid} {since}\); wait for it to end, or choose"
            with pytest.raises(InUseError, match=expected), owning(tmp_path):
                pass
            assert is_held(tmp_path)
            assert (tmp_path / ".partial-1-b.txt").exists()  # the live owner's unfinished files are not touched
        assert not is_held(tmp_path)

    def test_a_killed_owner_frees_the_folder_and_its_leftovers_are_removed(self, tmp_path):
        with held_by_another_process(tmp_path) as pid:
            os.kill(pid, signal.SIGKILL)
        assert (tmp_path / ".owner").exists()
        assert not is_held(tmp_path)
        (tmp_path / ".partial-1-b.txt").write_text("half")
        with owning(tmp_path):
            assert (tmp_path / ".owner").read_text().startswith(f"pid {os.getpid()} ")
            assert names(tmp_path) == [".lock", ".owner"]

    def test_nothing_but_our_unfinished_files_is_removed_and_nothing_behind_a_link(self, tmp_path):
        folder, other = tmp_path / "run", tmp_path / "other"
        for place in (folder, folder / "deep", other):
            place.mkdir()
            for name in (".tmpx", ".partial-mine", ".partial-1-a.txt"):
                (place / name).touch()
        (folder / "link").symlink_to(other)
        (folder / ".partial-3-folder").mkdir()
        with owning(folder):
            assert not list(folder.glob("**/.partial-1-a.txt"))
        assert names(other) == [".partial-1-a.txt", ".partial-mine", ".tmpx"]
        assert names(folder / "deep") == [".partial-mine", ".tmpx"]
        assert {".tmpx", ".partial-mine", ".partial-3-folder"} <= set(names(folder))

    def test_a_thread_may_own_a_folder_twice_and_keeps_it_until_the_outer_end(self, tmp_path):
        def ask():
            with owning(tmp_path):
                pass

        with owning(tmp_path), ThreadPoolExecutor() as pool:
            ask()
            assert (tmp_path / ".owner").exists()
            with pytest.raises(InUseError):
                pool.submit(ask).result()
        assert not (tmp_path / ".owner").exists()
