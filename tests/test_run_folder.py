"""The files of a run folder, read and written without a model."""

import pytest

from regmixup import run_folder
from regmixup.storage import digest, write_json, write_table


def test_what_is_written_is_read_back(tmp_path):
    write_json(tmp_path / run_folder.CONFIG, {"seed": 3})
    run_folder.write_provenance(tmp_path, {"classes": ["a"]})
    history = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    run_folder.write_history(tmp_path, history)
    assert run_folder.read_config(tmp_path) == {"seed": 3}
    assert run_folder.read_provenance(tmp_path) == {"classes": ["a"]}
    assert run_folder.read_history(tmp_path) == history


def test_what_is_missing_is_empty(tmp_path):
    assert run_folder.read_history(tmp_path) == []
    assert run_folder.read_figures(tmp_path, "dnn-1") == {}


LINES = [b'{"epoch": 1, "seconds": 2.0}', b'{"epoch": 2, "seconds": 2.0}', b'{"epoch": 3, "seconds": 2.0}']


ODD = [b'{"epoch": "1", "seconds": 2.0}', b'{"epoch": null}', b'{"epoch": 1, "seconds": "2.0"}']
"""JSON all the same."""


@pytest.mark.parametrize(
    "damage", [b'{"epoch": 1, "lo', b"", b"\xff\xfe", b"5", b'{"seconds": 2.0}', b"[" * 100_000, *ODD]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_damaged_line_is_named_and_the_others_are_read(tmp_path, damage, place):
    lines = [*LINES[:place], damage, *LINES[place + 1 :]]
    (tmp_path / run_folder.HISTORY).write_bytes(b"\n".join(lines) + b"\n")
    with pytest.warns(UserWarning, match=rf"history.jsonl is damaged in line {place + 1} of 3: these epochs"):
        records = run_folder.read_history(tmp_path)
    assert [record["epoch"] for record in records] == [epoch for epoch in (1, 2, 3) if epoch != place + 1]


def test_a_failure_is_noted_where_the_folder_can_be_written_to(tmp_path):
    run_folder.write_failure(tmp_path, "Traceback\nValueError: no\n")
    assert (tmp_path / run_folder.FAILURE).read_text() == "Traceback\nValueError: no\n"
    (tmp_path / "file").touch()
    run_folder.write_failure(tmp_path / "file", "the folder is a file: nothing is raised")


def test_deleting_predictions_leaves_everything_else_and_follows_no_link(tmp_path):
    run = tmp_path / "run"
    kept = [run / run_folder.CHECKPOINT, run / "predictions" / "notes.txt", tmp_path / "other" / "a.safetensors"]
    stored = [run_folder.predictions_folder(run, kind) / "a.safetensors" for kind in ("trained", "refreshed")]
    for path in (*kept, *stored):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (run / "predictions-old").symlink_to(tmp_path / "other")
    run_folder.delete_predictions(run)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in stored)


class TestArchive:
    def written(self, tmp_path):
        (tmp_path / "rows.csv").write_text("a")
        write_table(tmp_path / run_folder.ARCHIVED, {"files": {"rows.csv": digest(tmp_path / "rows.csv")}})
        return tmp_path

    def test_one_that_is_whole_and_a_folder_that_is_none_pass(self, tmp_path):
        run_folder.check_archive(tmp_path)
        run_folder.check_archive(self.written(tmp_path))

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda folder: (folder / "rows.csv").unlink(), "rows.csv has changed .*, or is missing"),
            (lambda folder: (folder / "rows.csv").write_text("b"), "rows.csv has changed since it was archived"),
            (lambda folder: (folder / run_folder.ARCHIVED).write_text("{"), "cannot read .*archive.json"),
        ],
    )
    def test_a_file_that_is_missing_or_changed_is_named_with_a_remedy(self, tmp_path, damage, message):
        damage(self.written(tmp_path))
        with pytest.raises(ValueError, match=f"{message}.*: take the folder {tmp_path} from .* again, or delete it"):
            run_folder.check_archive(tmp_path)


def test_the_last_record_is_told_in_a_line():
    assert run_folder.describe_last([]) == "finished, without a history"
    record = {"epoch": 3, "loss": 0.5, "train_accuracy": 0.98, "images_per_second": 1234.5}
    assert run_folder.describe_last([record]) == "loss 0.500, train accuracy 98.0 %, 1,234 images/s"
