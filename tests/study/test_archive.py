"""Archived runs: small, complete for tables and figures, checked, and as good as the run for a study."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from regmixup.study.cost import Paces

from regmixup import predictions, run_folder
from regmixup.cli import main
from regmixup.metrics import scores
from regmixup.report.output import write_report
from regmixup.report.results import Results
from regmixup.run_folder import check_archive, rows_path
from regmixup.storage import digest, read_rows, read_table, write_table
from regmixup.study import runner, tasks
from regmixup.study.archive import NOTE, archived_rows, find_archive, is_of, write_archive
from regmixup.study.plan import load_study
from regmixup.study.runner import FailedRunsError, run_study
from regmixup.study.status import Budget, run_status
from regmixup.study.tasks import find_tasks
from regmixup.training.config import resolve
from regmixup.training.run import Run
from tests.failing import unreadable

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def kept(finished_study, tmp_path_factory):
    """The archives of the mini study's runs, with logits."""
    folder = tmp_path_factory.mktemp("kept")
    run_study(finished_study.study, finished_study.runs, device="cpu", archive=folder, logits=True)
    return folder


def test_an_archive_holds_everything_but_weights_and_predictions(finished_study, kept):
    for entry in read_table(finished_study.folder / "study.json")["runs"]:
        folder, stem = kept / entry["folder"], entry["stem"]
        names = {"config.json", "provenance.json", "history.jsonl", f"logits-{stem}.npz", NOTE}
        names |= {f"rows-{stem}.csv.gz", f"figures-{stem}.json.gz", f"outcomes-{stem}.npz"}
        assert {path.name for path in folder.iterdir()} == names
        run = Run.open(finished_study.runs / entry["folder"])
        assert archived_rows(folder, stem) == read_rows(run.folder / f"rows-{stem}.csv")
        figures = run_folder.read_figures(run.folder, stem)
        assert figures.pop("examples")["sets"]  # images of a dataset, which an archive does not pass on
        assert run_folder.read_figures(folder, stem) == figures
        note = json.loads((folder / NOTE).read_text())
        assert note["fingerprint"] == run.fingerprint
        assert note["numerics"] == run.provenance()["versions"]["numerics"]
        assert note["commit"] == run.provenance()["commit"]
        assert "predictions/digits-c__contrast__5.safetensors" in note["predictions"]


def test_outcomes_and_logits_say_what_the_predictions_do(finished_study, kept):
    entry = read_table(finished_study.folder / "study.json")["runs"][-1]
    folder, stem = kept / entry["folder"], entry["stem"]
    run = Run.open(finished_study.runs / entry["folder"])
    outcomes, logits = np.load(folder / f"outcomes-{stem}.npz"), np.load(folder / f"logits-{stem}.npz")
    for name in ("digits/test", "photographs/test"):
        stored = predictions.load(run.predictions_path(name))
        probs = stored.logits.double().softmax(1)
        assert outcomes[f"{name}:correct"].tolist() == (probs.argmax(1) == stored.labels).tolist()
        uncertainty = torch.from_numpy(outcomes[f"{name}:uncertainty"]).double()
        torch.testing.assert_close(uncertainty, 1 - probs.amax(1), rtol=1e-3, atol=1e-7)
        score = torch.from_numpy(outcomes[f"{name}:dempster_shafer"]).double()
        torch.testing.assert_close(score, scores.dempster_shafer(stored.logits).double(), rtol=1e-3, atol=1e-7)
        assert (logits[f"{name}:labels"] == stored.labels.numpy()).all()
        np.testing.assert_allclose(logits[f"{name}:logits"], stored.logits.numpy(), rtol=1e-3, atol=1e-4)


def test_archives_repeat_byte_by_byte(finished_study, kept, tmp_path):
    run_study(finished_study.study, finished_study.runs, device="cpu", archive=tmp_path, logits=True)
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert (tmp_path / path.relative_to(kept)).read_bytes() == path.read_bytes(), path


def test_a_study_counts_archived_runs_as_done_and_mixes_them_with_fresh_ones(
    finished_study, kept, tmp_path, monkeypatch
):
    tables, write = [], runner._collect
    monkeypatch.setattr(runner, "_collect", lambda *given: (tables.append(len(given[2])), write(*given)))
    study = finished_study.study
    here = tmp_path / "results"
    shutil.copytree(kept, here)
    plan = list(study.runs())
    missing = plan[-1]
    gone = find_archive([here], resolve(missing.config, CPU), missing.stem)
    shutil.rmtree(gone)
    shutil.copytree(finished_study.runs / gone.name, tmp_path / "runs" / gone.name)
    rows_path(tmp_path / "runs" / gone.name, missing.stem).unlink()
    found = find_tasks(plan, tmp_path / "runs", CPU, [here])
    assert [run_status(task, Paces()).state for task in found] == ["done"] * 3 + ["waiting"]
    folder = run_study(study, tmp_path / "runs", device="cpu", archive=here)
    assert (folder / "rows.csv").read_bytes() == (finished_study.folder / "rows.csv").read_bytes()
    assert [path.name for path in (tmp_path / "runs").glob("*-s*")] == [gone.name]  # nothing else was needed
    assert tables == [3, 4, 4]  # before the fresh run, after it, and at the end; not between archived ones
    assert check_archive(here / gone.name) is None
    for one in write_report(Results.open(folder)):
        assert one.stat().st_size > 0


def test_an_archive_that_has_the_whole_path_of_its_images_in_its_name_is_found_and_added_to(
    finished_study, tmp_path, monkeypatch
):
    """As earlier versions called runs on folders with an absolute path."""
    planned = next(iter(finished_study.study.runs()))
    images = f"folder:{tmp_path}/photos"
    config = replace(resolve(planned.config, CPU), train_set=images)
    earlier = tmp_path / "archive" / config.name.replace("photos", images.replace("/", "-").replace(":", "-"))
    assert earlier.name != config.name
    earlier.mkdir(parents=True)
    write_table(earlier / NOTE, {"evaluations": [planned.stem]})
    assert find_archive([tmp_path / "archive"], config, planned.stem) == earlier
    run = Run.of(resolve(planned.config, CPU), finished_study.runs)
    record = run.provenance()
    monkeypatch.setattr(Run, "provenance", lambda _: record)
    assert write_archive(replace(run, config=config), planned, tmp_path / "archive") == earlier


def test_outcomes_and_rows_are_kept_of_every_seed(finished_study, kept, tmp_path):
    run_study(finished_study.study, finished_study.runs, device="cpu", archive=tmp_path)
    for entry in read_table(finished_study.folder / "study.json")["runs"]:
        folder, stem = tmp_path / entry["folder"], entry["stem"]
        assert (folder / f"outcomes-{stem}.npz").is_file()
        assert archived_rows(folder, stem) == archived_rows(kept / entry["folder"], stem)
        assert not list(folder.glob("logits-*"))


def test_a_study_takes_what_lies_in_the_folder_of_one_that_it_reuses(finished_study, kept, tmp_path, capsys):
    """Not without the key; with it, dry run, study and report find the archives beside their own folder."""
    text = Path(finished_study.study.source).read_text()
    for keys, done in (("", 0), ('reuses = ["other"]\n', 4)):
        place = tmp_path / f"{done}"
        shutil.copytree(kept, place / "results" / "other")
        source, here = place / "mini.toml", place / "results" / "mini"
        source.write_text(keys + text)
        words = ["--runs", str(place / "runs"), "--archive", str(here), "--device", "cpu"]
        main(["study", str(source), *words, "--dry-run"])
        shown = capsys.readouterr().out
        assert shown.count("done ") == shown.count(f"  {place / 'results' / 'other'}/") == done  # where each lies
        main(["study", str(source), *words, "--minutes", "0"])
        assert (place / "runs" / "study-mini" / "rows.csv").is_file() == bool(done)
    assert (place / "runs" / "study-mini" / "rows.csv").read_bytes() == (
        finished_study.folder / "rows.csv"
    ).read_bytes()
    assert not here.exists()
    here.mkdir()
    capsys.readouterr()
    main(["report", str(source), "--runs", str(here)])
    assert len({row.run for row in read_rows(here / "study-mini" / "rows.csv")}) == 4
    capsys.readouterr()
    main(["study", str(source), "--runs", str(here), "--device", "cpu", "--dry-run"])
    assert capsys.readouterr().out.count("done ") == 4


@pytest.mark.filterwarnings("default")
def test_a_report_needs_nothing_but_archives(finished_study, kept, tmp_path, capsys):
    """Merging two people's runs is copying folders; the table of a study that is not complete is made all the same."""
    some = sorted(kept.iterdir())[:3]
    for one in some:
        shutil.copytree(one, tmp_path / "results" / one.name)
    main(["report", str(finished_study.study.source), "--runs", str(tmp_path / "results")])
    shown = capsys.readouterr()
    assert "report.html" in shown.out
    assert shown.err.endswith(f"neither archived nor measured in {tmp_path / 'results'}: regmixup seed 1\n")
    folder = tmp_path / "results" / "study-mini"
    whole = {row for row in read_rows(finished_study.folder / "rows.csv") if "relative" not in row.metric}
    rows = [row for row in read_rows(folder / "rows.csv") if "relative" not in row.metric]
    assert len({row.run for row in rows}) == 3
    assert set(rows) < whole
    assert "reliability" in (folder / "report.html").read_text()
    main(["report", *map(str, some), "--out", str(tmp_path / "bare")])
    assert (tmp_path / "bare" / "report.md").is_file()


@pytest.mark.parametrize("pattern", ["rows-*", "history.jsonl", "outcomes-*"])
def test_damage_to_an_archive_is_found(kept, tmp_path, pattern):
    one = next(kept.iterdir())
    shutil.copytree(one, tmp_path / one.name)
    (path,) = (tmp_path / one.name).glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    stem = json.loads((one / NOTE).read_text())["evaluations"][0]
    with pytest.raises(ValueError, match="has changed since it was archived"):
        archived_rows(tmp_path / one.name, stem)
    path.unlink()
    with pytest.raises(ValueError, match="is missing"):
        archived_rows(tmp_path / one.name, stem)


@pytest.mark.parametrize("pattern", ["rows-*", "provenance.json", NOTE])
def test_a_damaged_archive_is_shown_as_damaged_and_not_as_done(finished_study, kept, tmp_path, capsys, pattern):
    """Nor as left to do: the study refuses it, and a queue that looks for work would begin again for ever."""
    shutil.copytree(kept, tmp_path / "kept")
    (path, *_) = sorted(tmp_path.glob(f"kept/*/{pattern}"))
    path.write_bytes(path.read_bytes()[:-9])
    words = ["--runs", str(tmp_path / "runs"), "--archive", str(tmp_path / "kept"), "--device", "cpu"]
    said = f"cannot read {path}: " if pattern == NOTE else f"{path} has changed since it was archived: take the folder"
    left = "0 networks to train, no time; 1 archive damaged"
    for flag, counted in (("--status", "3 done, 1 damaged of 4 runs"), ("--dry-run", f"left   {left}\n")):
        assert main(["study", str(finished_study.study.source), *words, flag]) == 0
        shown = capsys.readouterr().out
        assert counted in shown
        assert "".join(said.split()) in "".join(shown.split())  # a narrow column folds it
        starts = [re.match(r"(\w+) +", line) for line in shown.splitlines() if " seed " in line]
        assert sorted(start[1] for start in starts) == ["damaged", "done", "done", "done"]
        assert len({start.end() for start in starts}) == 1  # so that names line up
    assert main(["study", str(finished_study.study.source), *words]) == 1
    assert said in (error := capsys.readouterr().err)
    assert "1 of 4 runs failed\n" in error  # the same command would fail again
    assert error.endswith("or delete it to run it again\n")
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["study-mini"]


@pytest.mark.parametrize(
    ("name", "junk"),
    {
        "fingerprint": ([], {}, 3, True, None),
        "evaluations": ([1], [None], [{}], [[]], {}, 3, True, None, "text"),
        "files": ([], ["config.json"], [{}], 3, True, None, "text"),
        "predictions": ([], [["a", "b"]], 3, True, None, "text"),
    }.items(),
)
def test_a_note_of_other_types_is_damaged(finished_study, kept, tmp_path, name, junk):
    """As one written by hand."""
    planned = next(finished_study.study.runs())
    run = Run.of(resolve(planned.config, CPU), finished_study.runs)
    folder = shutil.copytree(kept / run.folder.name, tmp_path / run.folder.name)
    whole = read_table(folder / NOTE)
    for value in junk:
        write_table(folder / NOTE, {**whole, name: value})
        said = re.escape(f"{folder / NOTE} is damaged: {name} must be ")
        with pytest.raises(ValueError, match=f"{said}.*: take the folder .* again, or delete it"):
            check_archive(folder)
        with pytest.raises(ValueError, match=said):
            write_archive(run, planned, tmp_path)
        assert find_archive([tmp_path], run.config, planned.stem) == folder
        assert not is_of(folder, run)


@pytest.mark.parametrize("call", ["stat", "open"])
@pytest.mark.parametrize("pattern", ["rows-*", "provenance.json", "history.jsonl", NOTE])
def test_an_archive_that_cannot_be_read_now_is_not_damaged_and_is_not_trained_again(
    finished_study, kept, tmp_path, capsys, pattern, call
):
    """A file server that stumbles costs no training, nor the archive, which people delete if it is damaged."""
    kept = shutil.copytree(kept, tmp_path / "kept")  # of which no checksum is known
    (path, *_) = sorted(kept.glob(f"*/{pattern}"))
    study, where = str(finished_study.study.source), ["--runs", str(tmp_path / "runs"), "--archive", str(kept)]
    words = ["study", study, *where, "--device", "cpu"]
    (earlier := tmp_path / "runs" / path.parent.name / "failure.txt").parent.mkdir(parents=True)
    earlier.write_text("no luck")
    with unreadable(path, call):
        for flag, counted in (("--status", "3 done, 1 unread of 4 runs"), ("--dry-run", "no time; 1 archive unread\n")):
            assert main([*words, flag]) == 0
            shown = capsys.readouterr().out
            assert counted in shown
            assert "".join(f"Input/output error: {str(path)!r}".split()) in "".join(shown.split())
        assert main(words) == 1
        error = capsys.readouterr().err
        assert f"OSError: [Errno 5] Input/output error: {str(path)!r}\n" in error
        assert "1 of 4 runs failed; the same command tries them again\n" in error
        assert "delete" not in error
        assert "failure.txt" not in error
        assert not any(earlier.parent.iterdir())
        assert main(["report", str(path.parent), "--out", str(tmp_path / "report")]) == 2
        assert capsys.readouterr().err == f"error: [Errno 5] Input/output error: {str(path)!r}\n"
    assert main(words) == 0


def test_failed_runs_are_tried_again_unless_their_archive_is_damaged(finished_study, kept, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr(tasks, "complete_run", fail)
    damaged, absent, *_ = sorted(shutil.copytree(kept, tmp_path / "kept").iterdir())
    (damaged / NOTE).write_text("{")
    shutil.rmtree(absent)
    with pytest.raises(FailedRunsError, match="2 of 4 runs failed; the same command tries 1 of them again") as error:
        run_study(finished_study.study, tmp_path / "runs", device="cpu", archive=tmp_path / "kept")
    (failure,) = (tmp_path / "runs").glob("*/failure.txt")
    assert failure.parent.name == absent.name
    assert str(error.value).count("failure.txt") == 1


def test_an_archive_whose_note_is_damaged_is_of_no_training(finished_study, kept, tmp_path):
    """Else logits could not be asked for without an error for the whole study."""
    run = Run.of(resolve(next(finished_study.study.runs()).config, torch.device("cpu")), finished_study.runs)
    folder = shutil.copytree(kept / run.folder.name, tmp_path / run.folder.name)
    assert is_of(folder, run)
    (folder / NOTE).write_text("{")
    assert not is_of(folder, run)


def test_reports_refuse_to_mix_numerics_versions(kept, tmp_path):
    folders = []
    for index, one in enumerate(sorted(kept.iterdir())[:2]):
        folders.append(shutil.copytree(one, tmp_path / one.name))
        record = read_table(folders[-1] / "provenance.json")
        record["versions"]["numerics"] += index
        write_table(folders[-1] / "provenance.json", record)
        note = read_table(folders[-1] / NOTE)
        note["files"]["provenance.json"] = digest(folders[-1] / "provenance.json")
        write_table(folders[-1] / NOTE, note)
    with pytest.raises(ValueError, match=r"one numerics version, got 2 .* 3 "):
        Results.of_runs(folders, tmp_path / "out")


def test_minutes_begin_no_run_that_would_not_end_in_time(finished_study, kept, tmp_path, capsys):
    source = finished_study.study.source
    here = tmp_path / "results"
    shutil.copytree(sorted(kept.iterdir())[0], here / sorted(kept.iterdir())[0].name)
    words = [source, "--runs", str(tmp_path / "runs"), "--archive", str(here), "--device", "cpu"]
    main(["study", *words, "--minutes", "0"])
    assert "left   3 networks to train" in capsys.readouterr().out
    assert not list((tmp_path / "runs").glob("*-s*"))  # what was archived is collected, nothing is begun
    assert len({row.run for row in read_rows(tmp_path / "runs" / "study-mini" / "rows.csv")}) == 1
    assert load_study(source).name == "mini"


def test_minutes_too_few_for_any_run_are_an_error_so_that_a_queue_does_not_begin_again_for_ever(
    finished_study, kept, tmp_path, capsys, monkeypatch
):
    source, made, begin = finished_study.study.source, [], Budget.__init__
    monkeypatch.setattr(Budget, "__init__", lambda self, *more: (made.append(self), begin(self, *more))[1])
    words = [source, "--runs", str(tmp_path / "runs"), "--device", "cpu", "--minutes", "0"]
    assert main(["study", *words]) == 2
    assert len(made) == 1  # what is said at the end is judged by what the runs were
    said = r"enough for one of the 4 runs .* got 0; the shortest takes about \d+ s: \w+ seed \d, 5 epochs of \S+ s "
    assert re.search(said, capsys.readouterr().err)
    assert main(["study", *words, "--archive", str(kept)]) == 0  # nothing is left


def test_the_job_of_the_page_on_launchers_comes_back_until_the_study_is_done(finished_study, kept, tmp_path, capsys):
    """Stand-ins for regmixup and scontrol: the first answers what the real one does, before and after."""
    page = (Path(__file__).parents[2] / "docs" / "launchers.md").read_text()
    (tmp_path / "job.sh").write_text(re.search(r"```sh\n(#!/bin/sh.*?)```", page, flags=re.DOTALL)[1])
    (tmp_path / "regmixup").write_text('#!/bin/sh\necho "$@" >> asked\ncase "$*" in *--dry-run) cat answer;; esac\n')
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" >> requeued\n')
    for name in ("regmixup", "scontrol"):
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/me", "SLURM_JOB_ID": "7"}
    for archive, times in ((tmp_path / "none", 1), (kept, 1)):
        where = ["--runs", str(tmp_path / "runs"), "--archive", str(archive), "--device", "cpu"]
        assert main(["study", finished_study.study.source, *where, "--dry-run"]) == 0
        (tmp_path / "answer").write_text(capsys.readouterr().out)
        subprocess.run(["/bin/sh", "job.sh"], cwd=tmp_path, env=variables, check=True)
        assert (tmp_path / "requeued").read_text() == "requeue 7\n" * times
    first, second = (tmp_path / "asked").read_text().splitlines()[:2]
    assert first == "study length --root /home/me/data --runs runs --archive results/length --minutes 55"
    assert second.removesuffix("--dry-run") == first.removesuffix("--minutes 55")
    (tmp_path / "regmixup").write_text("#!/bin/sh\nexit 2\n")
    assert subprocess.run(["/bin/sh", "job.sh"], cwd=tmp_path, env=variables).returncode == 2
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"  # a job that can do nothing does not come back


def test_a_report_keeps_measured_runs_beside_archived_ones_and_writes_where_it_is_told(finished_study, kept, tmp_path):
    """Copying a colleague's archives among one's own runs must not make the table smaller."""
    runs = shutil.copytree(finished_study.runs, tmp_path / "runs")
    first = sorted(kept.iterdir())[0]
    shutil.rmtree(runs / first.name)
    shutil.copytree(first, runs / first.name)
    shutil.rmtree(runs / "study-mini")
    main(["report", str(finished_study.study.source), "--runs", str(runs), "--out", str(tmp_path / "out")])
    assert not (runs / "study-mini").exists()
    assert (tmp_path / "out" / "rows.csv").read_bytes() == (finished_study.folder / "rows.csv").read_bytes()


def test_an_archive_is_not_trained_over(finished_study, kept, tmp_path):
    shutil.copytree(kept, tmp_path / "runs")
    text = Path(finished_study.study.source).read_text().replace('ood = ["photographs/test"]', "")
    (tmp_path / "mini.toml").write_text(text)
    with pytest.raises(ValueError, match="is an archived run without weights, which was not evaluated as this study"):
        run_study(load_study(str(tmp_path / "mini.toml")), tmp_path / "runs", device="cpu")
    for folder in (tmp_path / "runs").iterdir():
        check_archive(folder)


def test_archiving_another_line_does_not_bless_damage(finished_study, kept, tmp_path):
    (planned,) = [planned for planned in finished_study.study.runs() if planned.name == "dnn seed 0"]
    (run,) = [Run.open(p) for p in finished_study.runs.glob("erm-*-s0-*")]
    folder = write_archive(run, planned, tmp_path)
    (folder / f"outcomes-{planned.stem}.npz").write_bytes(b"damaged")
    twin = replace(planned, label="dnn(bn=refreshed)")
    copy = Run(shutil.copytree(run.folder, tmp_path / "copy" / run.folder.name), run.config)
    for name in (f"rows-{planned.stem}.csv", f"figures-{planned.stem}.json"):
        shutil.copy(run.folder / name, copy.folder / name.replace(planned.stem, twin.stem))
    write_archive(copy, twin, tmp_path)
    with pytest.raises(ValueError, match="has changed since it was archived"):
        check_archive(folder)


def test_the_archive_is_another_folder_than_the_runs(finished_study, tmp_path):
    with pytest.raises(ValueError, match="archive must be another folder than that of the runs"):
        run_study(finished_study.study, tmp_path, device="cpu", archive=tmp_path)
