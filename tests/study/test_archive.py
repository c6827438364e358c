"""Archived runs: small, complete for tables and figures, checked, and as good as the run for a study."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regmixup import predictions, run_folder
from regmixup.cli import main
from regmixup.metrics import scores
from regmixup.report.output import write_report
from regmixup.report.results import load_results
from regmixup.run_folder import ARCHIVED, check_archive, rows_path
from regmixup.storage import read_rows, read_table
from regmixup.study.archive import archived_rows, find_archive, write_archive
from regmixup.study.plan import load_study
from regmixup.study.runner import FailedRunsError, run_study
from regmixup.study.status import state_of
from regmixup.study.tasks import find_tasks
from regmixup.training.config import resolve
from regmixup.training.run import Run
from tests.failing import unreadable
from tests.holding import held_by_another_process
from tests.study.mini import MINI, load_mini, write_mini

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def kept(finished_study, tmp_path_factory):
    """The archives of the mini study's runs."""
    folder = tmp_path_factory.mktemp("kept")
    run_study(finished_study.study, finished_study.runs, device="cpu", archive=folder)
    return folder


@pytest.fixture
def here(finished_study, kept, tmp_path):
    """A copy of the study file, of its runs, and of the archives: mini.toml, runs, results."""
    write_mini(tmp_path)
    shutil.copytree(finished_study.runs, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "study-mini")
    shutil.copytree(kept, tmp_path / "results")
    return tmp_path


def words(here: Path, *more: str) -> list[str]:
    return ["study", str(here / "mini.toml"), "--runs", str(here / "runs"), "--device", "cpu", *more]


def report(here: Path) -> list[str]:
    return ["report", str(here / "mini.toml"), "--runs", str(here / "results")]


def test_an_archive_holds_everything_but_weights_and_predictions(finished_study, kept):
    for entry in read_table(finished_study.folder / "study.json")["runs"]:
        folder, stem = kept / entry["folder"], entry["stem"]
        names = {"config.json", "provenance.json", "history.jsonl", ARCHIVED}
        names |= {f"rows-{stem}.csv.gz", f"figures-{stem}.json.gz", f"outcomes-{stem}.npz"}
        assert {path.name for path in folder.iterdir()} == names
        run = Run.open(finished_study.runs / entry["folder"])
        assert archived_rows(folder, stem) == read_rows(run.folder / f"rows-{stem}.csv")
        figures = run_folder.read_figures(run.folder, stem)
        assert figures.pop("examples")["sets"]  # images of a dataset, which an archive does not pass on
        assert run_folder.read_figures(folder, stem) == figures
        note = json.loads((folder / ARCHIVED).read_text())
        assert note["evaluations"] == [stem]
        assert {*note["files"], ARCHIVED} == names


def test_outcomes_say_what_the_predictions_do(finished_study, kept):
    entry = read_table(finished_study.folder / "study.json")["runs"][-1]
    folder, stem = kept / entry["folder"], entry["stem"]
    run = Run.open(finished_study.runs / entry["folder"])
    outcomes = np.load(folder / f"outcomes-{stem}.npz")
    for name in ("digits/test", "photographs/test"):
        stored = predictions.load(run.predictions_path(name))
        probs = stored.logits.double().softmax(1)
        assert outcomes[f"{name}:correct"].tolist() == (probs.argmax(1) == stored.labels).tolist()
        uncertainty = torch.from_numpy(outcomes[f"{name}:uncertainty"]).double()
        torch.testing.assert_close(uncertainty, 1 - probs.amax(1), rtol=1e-3, atol=1e-7)
        score = torch.from_numpy(outcomes[f"{name}:dempster_shafer"]).double()
        torch.testing.assert_close(score, scores.dempster_shafer(stored.logits).double(), rtol=1e-3, atol=1e-7)


def test_archives_repeat_byte_by_byte(finished_study, kept, tmp_path):
    run_study(finished_study.study, finished_study.runs, device="cpu", archive=tmp_path)
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert (tmp_path / path.relative_to(kept)).read_bytes() == path.read_bytes(), path


def test_a_study_counts_archived_runs_as_done_and_mixes_them_with_fresh_ones(finished_study, kept, tmp_path):
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
    assert [state_of(task) for task in found] == ["done"] * 3 + ["to do"]
    folder = run_study(study, tmp_path / "runs", device="cpu", archive=here)
    assert (folder / "rows.csv").read_bytes() == (finished_study.folder / "rows.csv").read_bytes()
    assert [path.name for path in (tmp_path / "runs").glob("*-s*")] == [gone.name]  # nothing else was needed
    assert check_archive(here / gone.name) is None
    for one in write_report(load_results(folder)):
        assert one.stat().st_size > 0


def test_a_study_takes_what_lies_in_the_folder_of_one_that_it_reuses(finished_study, kept, tmp_path, capsys):
    """Not without the key; with it, dry run, study and report find the archives beside their own folder."""
    shutil.copytree(kept, tmp_path / "results" / "other")
    here = tmp_path / "results" / "mini"
    for keys, done in (("", 0), ('reuses = ["other"]\n', 4)):
        source = str(write_mini(tmp_path, keys + MINI))
        words = ["--runs", str(tmp_path / "runs"), "--archive", str(here), "--device", "cpu"]
        main(["study", source, *words, "--dry-run"])
        shown = capsys.readouterr().out
        assert shown.count("done ") == shown.count(f"  {tmp_path / 'results' / 'other'}/") == done  # where each lies
        assert main(["study", source, *words, "--minutes", "0"]) == (0 if done else 2)
    table = tmp_path / "runs" / "study-mini" / "rows.csv"
    assert table.read_bytes() == (finished_study.folder / "rows.csv").read_bytes()
    assert not here.exists()
    main(["report", source, "--runs", str(here)])
    assert len({row.run for row in read_rows(here / "study-mini" / "rows.csv")}) == 4


def test_a_folder_to_reuse_that_is_not_there_is_named_before_everything_is_trained_again(tmp_path):
    study = load_mini(tmp_path, 'reuses = ["othre"]\n' + MINI)
    with (
        pytest.warns(UserWarning, match=r"nothing is reused from .*results/othre: no such folder"),
        pytest.raises(ValueError, match="minutes must be enough"),
    ):
        run_study(study, tmp_path / "runs", device="cpu", archive=tmp_path / "results" / "mini", minutes=0)


def test_an_ensemble_says_before_anything_is_trained_that_the_weights_of_its_members_are_gone(kept, tmp_path, capsys):
    ensemble = "\n[seeds_of]\ndeep-ensemble = [0]\n\n[grid.deep-ensemble]\nmembers = 2\n"
    text = MINI.replace('"regmixup"]', '"regmixup", "deep-ensemble"]') + ensemble
    study = load_mini(tmp_path, text)
    with (
        pytest.warns(UserWarning, match="^2 archived networks must be trained again, .*: for deep-ensemble seed 0$"),
        pytest.raises(ValueError, match="minutes must be enough"),
    ):
        run_study(study, tmp_path / "runs", device="cpu", archive=kept, minutes=0)
    words = ["--runs", str(tmp_path / "runs"), "--archive", str(kept), "--device", "cpu"]
    assert main(["study", str(tmp_path / "mini.toml"), *words, "--dry-run"]) == 0
    assert "\nagain  2 archived networks must be trained again, " in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_a_report_needs_nothing_but_archives(finished_study, kept, tmp_path, capsys):
    """Merging two people's runs is copying folders; the table of a study that is not complete is made all the same."""
    some = sorted(kept.iterdir())[:3]
    for one in some:
        shutil.copytree(one, tmp_path / "results" / one.name)
    main(["report", str(finished_study.study.source), "--runs", str(tmp_path / "results")])
    shown = capsys.readouterr()
    assert "report.html" in shown.out
    assert f"neither archived nor measured in {tmp_path / 'results'} with precision float32" in shown.err
    assert shown.err.endswith(": regmixup seed 1\n")
    folder = tmp_path / "results" / "study-mini"
    whole = {row for row in read_rows(finished_study.folder / "rows.csv") if "relative" not in row.metric}
    rows = [row for row in read_rows(folder / "rows.csv") if "relative" not in row.metric]
    assert len({row.run for row in rows}) == 3
    assert set(rows) < whole
    assert "reliability" in (folder / "report.html").read_text()


def test_a_damaged_archive_is_refused_and_not_trained_again(here, capsys):
    """Nor is it left to do: a queue that looks for work would begin again for ever."""
    (path, *_) = sorted(here.glob("results/*/provenance.json"))
    path.write_bytes(path.read_bytes()[:-9])
    study = words(here, "--archive", str(here / "results"))
    shutil.rmtree(here / "runs")
    assert main([*study, "--dry-run"]) == 0
    assert "to do" not in capsys.readouterr().out
    assert main(study) == 1
    shown = capsys.readouterr().err
    assert "1 of 4 runs failed" in shown
    assert f"{path} has changed since it was archived, or is missing: take the folder" in shown
    assert len({row.run for row in read_rows(here / "runs" / "study-mini" / "rows.csv")}) == 3
    assert not list((here / "runs").glob("*-s*"))


@pytest.mark.parametrize("pattern", ["rows-*", ARCHIVED])
def test_an_archive_that_cannot_be_read_now_is_not_trained_again(here, pattern):
    """A file server that stumbles costs no training."""
    shutil.rmtree(here / "runs")
    (path, *_) = sorted((here / "results").glob(f"*/{pattern}"))
    study = load_study(str(here / "mini.toml"))
    with unreadable(path), pytest.raises(FailedRunsError, match=r"1 of 4 runs failed(.|\n)*Input/output error"):
        run_study(study, here / "runs", device="cpu", archive=here / "results")
    assert not list((here / "runs").glob("*-s*"))
    run_study(study, here / "runs", device="cpu", archive=here / "results")


def test_minutes_too_few_for_any_run_are_an_error_so_that_a_queue_does_not_begin_again_for_ever(here, capsys):
    shutil.rmtree(here / "runs")
    (lost, *_) = sorted((here / "results").iterdir())
    shutil.rmtree(lost)
    limited = words(here, "--archive", str(here / "results"), "--minutes", "0")
    assert main(limited) == 2
    said = r"enough for one of the 1 runs that are left, got 0; the shortest, dnn seed \d, takes about \d+ s"
    assert re.search(said, capsys.readouterr().err)
    assert not list((here / "runs").glob("*-s*"))  # what was archived is collected, nothing is begun
    assert len({row.run for row in read_rows(here / "runs" / "study-mini" / "rows.csv")}) == 3
    with held_by_another_process(here / "runs" / lost.name):
        assert main(limited) == 0  # another process is at it
    assert "left   1 network to train" in capsys.readouterr().out


@pytest.mark.parametrize("methods", ['"dnn", "regmixup"', '"deep-ensemble"'])
def test_an_archive_is_not_trained_over(here, methods):
    """Nor is an archived member of an ensemble."""
    text = MINI.replace('"dnn", "regmixup"', methods).replace('ood = ["photographs/test"]', "")
    text += "[grid.deep-ensemble]\nmembers = 2\n" if "ensemble" in methods else ""
    with pytest.raises(ValueError, match=r"erm-.*-s0-\w+ is an archived run without weights, which was not evaluated"):
        run_study(load_mini(here, text), here / "results", device="cpu")
    for folder in (here / "results").iterdir():
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


def test_a_report_notices_an_edited_number_in_a_run_folder(here, capsys):
    archived = next((here / "results").glob("erm-*"))  # which makes the report collect rows
    shutil.copytree(archived, here / "runs" / archived.name, dirs_exist_ok=True)
    (table,) = next((here / "runs").glob("regmixup-*-s0-*")).glob("rows-*.csv")
    table.write_text(table.read_text().replace("0.", "0.1"))
    assert main(["report", str(here / "mini.toml"), "--runs", str(here / "runs")]) == 2
    assert "its content has changed since it was written" in capsys.readouterr().err


def test_an_archive_that_cannot_be_written_is_an_error_before_anything_is_trained(here):
    (here / "file").write_text("")
    study = load_mini(here, MINI.replace("[0, 1]", "[7]"))
    with pytest.raises(OSError, match=r"cannot write .*file"):
        run_study(study, here / "runs", device="cpu", archive=here / "file")
    assert not list((here / "runs").glob("*-s7-*"))


def test_what_is_archived_needs_neither_its_data_nor_its_device(tmp_path, capsys):
    """Networks of an H200, predicted in TF32: their table is made on a CPU, without CIFAR."""
    archive = Path(__file__).parents[2] / "results" / "precision"
    places = ["--archive", str(archive), "--runs", str(tmp_path), "--root", str(tmp_path), "--device", "cpu"]
    assert main(["study", "precision", *places, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("done ") == 10
    assert shown.rstrip().endswith("left   0 networks to train, no time")  # and no word of missing data
    folder = run_study(load_study("precision"), tmp_path, root=tmp_path, device="cpu", archive=archive)
    assert len({row.run for row in read_rows(folder / "rows.csv")}) == 10
