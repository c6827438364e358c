"""Files that are whole or absent, rows that come back bit for bit, and folders with one owner."""

import csv
import os
import resource
import signal
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.storage import (
    check_writable,
    owning,
    read_json,
    read_rows,
    replacing,
    save_tensors,
    write_json,
    write_rows,
    write_text,
)
from regmixup.types import Row


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def full_disk(size=1000):
    """Writing beyond `size` bytes of a file fails as on a full disk, in whatever language the writer is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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

    def test_an_exception_leaves_the_old_file_and_nothing_else(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")

        def interrupted(temporary):
            temporary.write_text("half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
            interrupted(temporary)
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    def test_an_exception_leaves_an_absent_file_absent(self, tmp_path):
        with pytest.raises(RuntimeError), replacing(tmp_path / "new" / "a.txt"):
            raise RuntimeError
        assert names(tmp_path / "new") == []

    def test_missing_folders_are_made(self, tmp_path):
        write_text(tmp_path / "a" / "b" / "c.txt", "text")
        assert (tmp_path / "a" / "b" / "c.txt").read_text() == "text"

    @pytest.mark.parametrize("kind", ["pipe", "folder", "link", "dangling link"])
    def test_what_is_not_a_regular_file_is_not_replaced(self, tmp_path, kind):
        path, target = tmp_path / "out.txt", tmp_path / "target.txt"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(target)
        if kind == "link":
            target.write_text("old")
        before = path.lstat()
        with pytest.raises(OSError, match=f"cannot write {path}: it is there and is not a regular file"):
            write_text(path, "new")
        assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
        assert names(tmp_path) == (["out.txt", "target.txt"] if kind == "link" else ["out.txt"])
        assert kind != "link" or target.read_text() == "old"

    def test_a_device_is_not_replaced(self):
        with (
            pytest.raises(OSError, match="cannot write /dev/null: it is there and is not a regular file"),
            replacing(Path("/dev/null")),
        ):
            pytest.fail("the block must not run")
        assert Path("/dev/null").is_char_device()

    def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_the_old_one(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")
        with full_disk(), pytest.raises(OSError, match=f"^cannot write {path}: File too large$"):
            write_text(path, "x" * 2000)
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_file(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match=f"^cannot write {tmp_path / 'file' / 'a.txt'}: "):
            write_text(tmp_path / "file" / "a.txt", "text")

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

    def test_the_error_is_that_of_writing(self, tmp_path):
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        for path in (tmp_path / "file" / "rows.csv", tmp_path / "folder", Path("/proc/nowhere/rows.csv")):
            messages = []
            for attempt in (check_writable, lambda path: write_text(path, "")):
                with pytest.raises(OSError, match="cannot write") as error:
                    attempt(path)
                messages.append(str(error.value))
            assert messages[0] == messages[1]


class TestTensors:
    def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_the_old_one(self, tmp_path):
        path = tmp_path / "a.safetensors"
        path.write_text("old")
        with full_disk(), pytest.raises(OSError, match=f"^cannot write {path}: .*File too large"):
            save_tensors(path, {"a": torch.zeros(1000)}, {})
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.safetensors"]

    @pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_others_may_read_it_as_the_umask_says(self, tmp_path, mask, mode):
        before = os.umask(mask)
        try:
            save_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(3)}, {})
        finally:
            os.umask(before)
        assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == mode


class TestJson:
    def test_round_trip(self, tmp_path):
        value = {"a": [1, 2.5, None, True], "λ": {"x": "y"}, "tiny": 5e-324}
        write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == value

    def test_a_value_that_is_not_json_leaves_the_old_file(self, tmp_path):
        write_json(tmp_path / "a.json", 1)
        with pytest.raises(TypeError):
            write_json(tmp_path / "a.json", object())
        assert read_json(tmp_path / "a.json") == 1

    @pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe", b"[" * 9999])
    def test_damaged_json_is_an_error_that_names_the_file(self, tmp_path, content):
        path = tmp_path / "a.json"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot read") as error:
            read_json(path)
        assert str(path) in str(error.value)

    def test_missing_json_is_an_error_that_names_the_file(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot read .*nowhere.json"):
            read_json(tmp_path / "nowhere.json")


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
    @settings(max_examples=100, deadline=None)
    @given(rows=st.lists(ROWS, max_size=5))
    def test_rows_come_back_bit_for_bit(self, tmp_path_factory, rows):
        path = tmp_path_factory.mktemp("rows") / "rows.csv"
        write_rows(path, rows)
        assert [bits(row) for row in read_rows(path)] == [bits(row) for row in rows]

    @pytest.mark.parametrize("text", ["a,b", 'say "x"', "two\nlines", " spaces ", "None", "nan", "#", "'", "=1", "'=1"])
    def test_awkward_text_comes_back(self, tmp_path, text):
        write_rows(tmp_path / "rows.csv", [Row(study=text, metric=text, value=1.0), Row(study="next")])
        assert [row.study for row in read_rows(tmp_path / "rows.csv")] == [text, "next"]

    @pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@a", "\t=1"])
    def test_no_text_is_a_formula(self, tmp_path, text):
        write_rows(tmp_path / "rows.csv", [Row(dataset=text, method=text, value=-1.0)])
        (line,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
        assert (line["dataset"], line["method"], line["value"]) == (f"'{text}", f"'{text}", "-1.0")
        assert read_rows(tmp_path / "rows.csv")[0].dataset == text

    def test_the_file_is_plain_csv_with_one_column_per_field(self, tmp_path):
        write_rows(tmp_path / "rows.csv", [Row(method="dnn", seed=0, metric="ece", value=0.1, n=3)])
        header, line = (tmp_path / "rows.csv").read_text().splitlines()
        assert header.split(",") == [f.name for f in fields(Row)]
        assert line == ",,dnn,,,0,,,,none,,ece,0.1,,,3"

    @pytest.mark.parametrize("header", ["", "study,run", "run,study", "a,b,c"])
    def test_other_columns_are_refused(self, tmp_path, header):
        path = tmp_path / "rows.csv"
        path.write_text(f"{header}\n1,2\n")
        with pytest.raises(ValueError, match="expected the columns study, run, method") as error:
            read_rows(path)
        assert str(path) in str(error.value)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda line: line.replace("0.25", "a quarter"),
            lambda line: line.replace("12345", "12.5"),
            lambda line: line + ",more",
            lambda line: line[: len(line) // 2],  # a file cut off in the middle of its last line
        ],
        ids=["no number", "no integer", "too long", "cut off"],
    )
    def test_a_damaged_line_is_refused_with_file_and_line(self, tmp_path, damage):
        path = tmp_path / "rows.csv"
        write_rows(path, [Row(), Row(study="s", metric="ece", value=0.25, n=12345)])
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:2], damage(lines[2])]))
        with pytest.raises(ValueError, match=r"line 3|:3") as error:
            read_rows(path)
        assert str(path) in str(error.value)

    def test_a_field_that_is_too_long_for_csv_is_refused_with_the_file(self, tmp_path):
        path = tmp_path / "rows.csv"
        write_rows(path, [Row(study="x" * 200_000)])
        with pytest.raises(ValueError, match="cannot read rows"):
            read_rows(path)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot read rows from .*nowhere.csv"):
            read_rows(tmp_path / "nowhere.csv")


HOLD = """
import sys, time
from pathlib import Path
from regmixup.storage import owning
folder = Path(sys.argv[1])
with owning(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / ".partial-1-a.txt").write_text("half")
    (folder / ".partial-1-b.txt").write_text("half")
    (folder / "whole.txt").write_text("whole")
    print("holding", flush=True)
    time.sleep(120)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that owns tmp_path / "run"."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


class TestOwning:
    def test_the_folder_is_made_and_the_owner_leaves_when_done(self, tmp_path):
        with owning(tmp_path / "run"):
            assert (tmp_path / "run" / ".owner").read_text() == str(os.getpid())
        assert not (tmp_path / "run" / ".owner").exists()
        with owning(tmp_path / "run"):
            pass

    def test_an_exception_frees_the_folder(self, tmp_path):
        with pytest.raises(ZeroDivisionError), owning(tmp_path):
            raise ZeroDivisionError
        with owning(tmp_path):
            pass

    def test_two_folders_are_independent(self, tmp_path):
        with owning(tmp_path / "a"), owning(tmp_path / "b"):
            pass

    def test_a_second_process_is_told_who_owns_the_folder(self, tmp_path, holder):
        folder = tmp_path / "run"
        with pytest.raises(RuntimeError, match=rf"in use by another process \(pid {holder.pid}\)") as error:
            owning(folder).__enter__()
        assert str(folder) in str(error.value)
        assert (folder / ".partial-1-b.txt").exists()  # the live owner's unfinished files are not touched
        assert (folder / ".owner").read_text() == str(holder.pid)

    def test_a_killed_owner_frees_the_folder_and_its_leftovers_are_removed(self, tmp_path, holder):
        folder = tmp_path / "run"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with owning(folder):
            assert (folder / ".owner").read_text() == str(os.getpid())
            assert not list(folder.rglob(".partial-*"))
            assert (folder / "whole.txt").read_text() == "whole"


def _save_much(folder):
    save_tensors(folder / "a.safetensors", {"a": torch.zeros(20_000_000)}, {})


def test_what_a_kill_within_safetensors_leaves_is_removed(tmp_path, processes):
    """It writes under a name of its own choice; gigabytes would gather in a folder whose owner is killed often."""
    child = processes.Process(target=_save_much, args=(tmp_path,))
    child.start()
    while not (leftovers := [name for name in names(tmp_path) if not name.startswith(".partial-")]):
        assert child.is_alive()
    child.kill()
    child.join()
    assert leftovers != ["a.safetensors"]
    assert set(leftovers) <= set(names(tmp_path))
    with owning(tmp_path):
        assert names(tmp_path) == [".lock", ".owner"]


def test_a_process_may_own_a_folder_twice_and_keeps_it_until_the_outer_end(tmp_path):
    with owning(tmp_path):
        with owning(tmp_path):
            pass
        assert (tmp_path / ".owner").exists()
        code = (
            f"from pathlib import Path; from regmixup.storage import owning\nwith owning(Path({str(tmp_path)!r})): pass"
        )
        assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode != 0
    assert not (tmp_path / ".owner").exists()
