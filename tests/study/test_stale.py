"""What is stored is not what a study asks for now: edited files, other trainings, half copies, other processes."""

import gzip
import json
import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import filelock
import pytest
import torch

from regmixup.cli import main
from regmixup.config import fingerprint
from regmixup.report.results import Results
from regmixup.run_folder import check_archive
from regmixup.storage import is_held, read_rows, read_table, write_json, write_rows, write_table
from regmixup.study import runner, tasks
from regmixup.study.archive import NOTE, archived_rows, find_archive, write_archive
from regmixup.study.plan import load_study
from regmixup.study.runner import collect_archived, run_study
from regmixup.study.select import take_selected, write_selected
from regmixup.study.tasks import TaskOutcome, dispatch
from regmixup.training.config import resolve
from regmixup.training.run import Run
from regmixup.types import Row
from tests.failing import unreadable
from tests.holding import held_by_another_process
from tests.study.mini import MINI, write_mini
from tests.study.test_tasks import Recorder, plan

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


def test_an_evaluation_is_known_by_its_posthoc_map_and_by_the_companion_of_all_seeds(tmp_path):
    """Rows of other settings of the map, or with T of another companion, are those of another evaluation."""
    text = MINI.replace('"dnn", "regmixup"', '"dnn", "kfac-llla"')

    def stems(text: str) -> dict[str, str]:
        return {planned.name: planned.stem for planned in load_study(str(write_mini(tmp_path, text))).runs()}

    plain, other = stems(text), stems(text + "[grid.kfac-llla]\nposthoc.samples = 20\n")
    assert {name for name in plain if plain[name] != other[name]} == {"kfac-llla seed 0", "kfac-llla seed 1"}
    assert len({*plain.values(), *other.values()}) == 3
    text = 'title = "C"\nrecipe = "cifar10-resnet18"\nmethods = ["dnn"]\nseeds = [0, 1]\n[evaluate]\n'
    text += 'validation = "cifar10/val-10"\ntest = "cifar10/test"\ncalibration = "companion"\n'
    first, second = stems(text), stems(text.replace("[0, 1]", "[1, 0]"))
    assert first.keys() == second.keys()
    assert not {*first.values()} & {*second.values()}
    alone = text.replace("companion", "companion-per-seed")
    assert stems(alone) == stems(alone.replace("[0, 1]", "[1, 0]"))


@pytest.mark.filterwarnings("default")
def test_a_table_from_before_an_edit_is_not_shown_as_that_of_the_file(here, capsys):
    assert main(words(here)) == 0
    (here / "mini.toml").write_text(MINI.replace("[0, 1]", "[7]"))
    capsys.readouterr()
    assert main(words(here, "--minutes", "0")) == 2
    assert "accuracy" not in capsys.readouterr().out
    assert main(["report", str(here / "mini.toml"), "--runs", str(here / "runs")]) == 0
    assert (
        f"study-mini has results from before {here / 'mini.toml'}, or a plugin that it uses, was edited: "
        in capsys.readouterr().err
    )


def test_a_choice_from_a_shorter_grid_does_not_stay(tmp_path):
    """Nor do rows from before an edit choose anything: they may be of other epochs, under the same label."""
    text = MINI.replace("[train]", "[grid.regmixup]\nobjective.alpha = [1, 20]\n[train]").partition("test =")[0]
    text = text.replace('"dnn", ', "").replace("seeds", "select = true\nseeds")
    study, chosen = load_study(str(write_mini(tmp_path, text))), tmp_path / "selected.json"
    chosen.write_text("[]")
    place = {"network": "small", "train_set": "digits/train", "dataset": "digits/val", "metric": "accuracy"}
    rows = [Row(method=planned.label, seed=planned.config.seed, value=0.5, **place) for planned in study.runs()]
    for content, own, found in (("other", rows, True), (study.content, rows[1:], False), (study.content, rows, True)):
        write_json(tmp_path / "study.json", {"content": content})
        write_rows(tmp_path / "rows.csv", own)
        write_selected(study, tmp_path)
        assert chosen.exists() == found
        assert content == study.content or chosen.read_text() == "[]"
    assert json.loads(chosen.read_text())[0]["study"] == "mini"


def test_choices_of_smoke_scale_or_of_another_study_are_not_taken(tmp_path):
    path, study = tmp_path / "selected.json", load_study("fast-confirm")
    own = [{"recipe": "cifar10-resnet18", "method": name, "fields": {"lr": 0.2}} for name in study.methods]
    path.write_text(json.dumps([{**one, "study": "fast-search", "scale": "full"} for one in own]))
    assert take_selected(study, path).name == "fast-confirm-selected"
    path.write_text(json.dumps([{**one, "study": "fast-search-smoke", "scale": "smoke"} for one in own]))
    with pytest.raises(ValueError, match="chosen at smoke scale"):
        take_selected(study, path)
    path.write_text(json.dumps([{**one, "study": "mine"} for one in own]))
    with pytest.raises(ValueError, match="choices of fast-search, which fast-confirm confirms, got those of mine"):
        take_selected(study, path)
    path.write_text(json.dumps([{**one, "fields": 3} for one in own]))
    with pytest.raises(ValueError, match="a list of its choices"):
        take_selected(study, path)


def test_rows_that_were_unpacked_beside_the_archived_ones_are_not_read(here):
    folder = next((here / "results").glob("erm-*"))
    (packed,) = folder.glob("rows-*.csv.gz")
    stem = packed.name.removeprefix("rows-").removesuffix(".csv.gz")
    expected = archived_rows(folder, stem)
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()).replace(b"0.", b"0.1"))
    assert archived_rows(folder, stem) == expected != read_rows(packed.with_suffix(""))


def test_an_archive_under_the_name_of_another_run_is_refused(here):
    first, second = sorted((here / "results").glob("erm-*"))
    shutil.rmtree(first)
    second.rename(first)
    for verb in (words(here, "--archive", str(here / "results"), "--dry-run"), report(here)):
        assert main(verb) == 2


def report(here: Path) -> list[str]:
    return ["report", str(here / "mini.toml"), "--runs", str(here / "results")]


@pytest.mark.filterwarnings("default")
def test_a_report_says_which_note_of_an_archive_is_damaged_and_which_is_missing(here, capsys):
    """Not that of the study's folder, which may hold an older table."""
    note = next((here / "results").glob("erm-*")) / NOTE
    note.write_bytes(note.read_bytes()[:100])
    assert main(report(here)) == 2
    assert f"cannot read {note}" in capsys.readouterr().err
    note.unlink()
    assert main(report(here)) == 0
    (rows,) = note.parent.glob("rows-*")
    assert f"{rows} is there but does not count, as {NOTE} is missing" in capsys.readouterr().err
    record = {"evaluations": ["another line"]}  # of somebody else, who archived that alone
    write_table(note, record)
    assert main(report(here)) == 0
    said = capsys.readouterr().err
    assert f"{rows} is there but does not count, as {NOTE} does not name it" in said
    assert f"take the folder {rows.parent} from where it was copied from again, with {NOTE}" in said


def test_a_report_notices_an_edited_number_in_a_run_folder(here, capsys):
    archived = next((here / "results").glob("erm-*"))  # which makes the report collect rows
    shutil.copytree(archived, here / "runs" / archived.name, dirs_exist_ok=True)
    (table,) = next((here / "runs").glob("regmixup-*-s0-*")).glob("rows-*.csv")
    table.write_text(table.read_text().replace("0.", "0.1"))
    assert main(["report", str(here / "mini.toml"), "--runs", str(here / "runs")]) == 2
    assert "its content has changed since it was written" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["edited", "unpacked beside", "unnamed", "without its note"])
def test_a_report_of_archived_run_folders_reads_what_was_archived_alone(here, capsys, damage):
    folder = next((here / "results").glob("erm-*"))
    (table,) = folder.glob("rows-*.csv.gz")
    edited = gzip.decompress(table.read_bytes()).replace(b"accuracy,0.", b"accuracy,0.1")
    whole = Results.of_runs([folder], here).rows
    if damage == "unpacked beside":
        table.with_suffix("").write_bytes(edited)
        assert Results.of_runs([folder], here).rows == whole
        return
    if damage == "edited":
        table.write_bytes(gzip.compress(edited))
    elif damage == "unnamed":
        write_table(folder / NOTE, {"evaluations": ["another line"], "files": {}})
    else:
        (folder / NOTE).unlink()
    assert main(["report", str(folder), "--out", str(here / "out")]) == 2
    said = {"edited": "has changed since it was archived", "unnamed": "which does not"}.get(damage, "which is missing")
    error = capsys.readouterr().err
    assert f"{table} " in error
    assert said in error


def test_a_run_that_cannot_be_read_now_is_not_left_out_of_the_table(here):
    """Nor called damaged."""
    for pattern in ("rows-*.csv", "rows-*.json", "provenance.json", "config.json", "checkpoint.safetensors"):
        path = next((here / "runs").glob(f"erm-*/{pattern}"))
        for call in ("open", "stat")[: 1 if pattern.startswith("checkpoint") else 2]:  # it is opened without a look
            with unreadable(path, call) as error, pytest.raises(OSError, match=error):
                collect_archived(load_study(str(here / "mini.toml")), here / "runs")


def test_runs_of_another_precision_are_not_left_out_in_silence(here):
    study = load_study(str(here / "mini.toml"))
    planned = next(study.runs())
    config = replace(resolve(planned.config, CPU), precision="bfloat16")
    other = config.folder_in(here / "results")
    write_table(other / NOTE, {"fingerprint": fingerprint(config), "evaluations": [planned.stem], "files": {}})
    source = find_archive([here / "results"], resolve(planned.config, CPU), planned.stem)
    shutil.copy(source / f"rows-{planned.stem}.csv.gz", other)
    found = resolve(planned.config, torch.device("cuda")).name
    assert found == config.name
    with pytest.warns(UserWarning, match=r"left out of the table, .* dnn seed 0 \(bfloat16\)"):
        collect_archived(study, here / "results")


def test_logits_are_added_to_an_archive_while_the_weights_are_there_and_else_missed_aloud(here):
    study, results = load_study(str(here / "mini.toml")), here / "results"
    gone = next((here / "runs").glob("erm-*-s1-*"))
    shutil.rmtree(gone)
    record = next((here / "runs").glob("erm-*-s0-*")) / "provenance.json"
    write_table(record, {**read_table(record), "seconds": 1.0})  # another training of the same run
    before = {path: path.read_bytes() for path in results.rglob("rows-*")}
    with pytest.warns(UserWarning, match="no logits are archived of dnn seed 0, dnn seed 1: "):
        run_study(study, here / "runs", device="cpu", archive=results, logits=True)
    assert {path.parent.name.partition("-")[0] for path in results.rglob("logits-*")} == {"regmixup"}
    assert len(list(results.rglob("logits-*"))) == 2
    assert before == {path: path.read_bytes() for path in results.rglob("rows-*")}
    for folder in results.iterdir():
        check_archive(folder)


def test_lines_of_two_trainings_in_one_archive_are_pointed_out(here):
    planned = next(load_study(str(here / "mini.toml")).runs())
    run = Run.of(resolve(planned.config, CPU), here / "runs")
    twin = replace(planned, label="other")
    for path in run.folder.glob(f"*-{planned.stem}.*"):
        shutil.copy(path, path.with_name(path.name.replace(planned.stem, twin.stem)))
    write_archive(run, twin, here / "results")  # of the same training: nothing to say
    record = run.folder / "provenance.json"
    write_table(record, {**read_table(record), "seconds": 1.0})
    write_archive(run, twin, here / "results")  # of another one, but with the same predictions
    path = run.predictions_path("digits/test")
    path.write_bytes(run.predictions_path("photographs/test").read_bytes())
    write_table(record, {**read_table(record), "seconds": 2.0})
    with pytest.warns(UserWarning, match=rf"lines of two trainings .* {planned.stem} of an earlier one"):
        write_archive(run, twin, here / "results")


def test_an_archived_member_of_an_ensemble_is_not_trained_over(here):
    text = MINI.replace('"dnn", "regmixup"', '"deep-ensemble"') + "[grid.deep-ensemble]\nmembers = 2\n"
    study = load_study(str(write_mini(here, text)))
    with pytest.raises(ValueError, match=r"erm-.*-s0-\w+ is an archived run without weights"):
        run_study(study, here / "results", device="cpu")
    for folder in (here / "results").iterdir():
        check_archive(folder)


def test_an_archive_that_cannot_be_written_is_an_error_before_anything_is_trained(here, kept):
    (here / "file").write_text("")
    study = load_study(str(write_mini(here, MINI.replace("[0, 1]", "[7]"))))
    with pytest.raises(OSError, match=r"cannot write .*file"):
        run_study(study, here / "runs", device="cpu", archive=here / "file")
    assert not list((here / "runs").glob("*-s7-*"))


class Plenty:
    """A time limit that leaves time for everything."""

    def fits(self, task):
        return True

    def learn(self, outcome, seconds): ...


def test_with_a_time_limit_what_others_hold_is_left_to_them(tmp_path, monkeypatch):
    """Tried twice; a task that shares a folder with a held one is left, too."""
    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.05)
    pool = Recorder(room=1, in_use=["dnn 0"] * 1000)
    with pytest.warns(UserWarning, match="left to") as said:
        ended = list(dispatch(plan(tmp_path, "dnn 0", "kfac-llla 0", "dnn 1"), pool, budget=Plenty()))
    assert [outcome.task.label for outcome in ended] == ["dnn 1"]
    assert [str(warning.message) for warning in said] == [
        "left to other processes, which work on them or their companions: dnn 0 (pid 7 on lab (2)); "
        "kfac-llla 0 (sharing a folder with these)"
    ]
    pool = Recorder(room=1, in_use=["dnn 0"])  # as of a look at the lock, of which there is nothing to say
    assert len(list(dispatch(plan(tmp_path, "dnn 0"), pool, budget=Plenty()))) == 1


def test_with_a_time_limit_a_companion_in_use_is_named_once_for_all_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.05)

    class Training(Recorder):
        def wait(self, seconds):
            return [TaskOutcome(task=self.running.pop(0), held="in use", owner="pid 7")] if self.running else []

    with pytest.warns(UserWarning, match="left to") as said:
        assert not list(dispatch(plan(tmp_path, "dnn 0", "dnn 1"), Training(room=1), budget=Plenty()))
    assert [str(warning.message).partition(": ")[2] for warning in said] == ["dnn 0, dnn 1 (pid 7)"]


def test_all_that_is_left_to_others_is_said_in_one_sentence(here, monkeypatch):
    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.05)
    with ExitStack() as held:
        for folder in sorted((here / "runs").glob("*-s1-*")):
            for rows in folder.glob("rows-*"):
                rows.unlink()
            held.enter_context(held_by_another_process(folder))
        with pytest.warns(UserWarning, match="left to other processes") as said:
            run_study(load_study(str(here / "mini.toml")), here / "runs", device="cpu", minutes=60)
    owner = r"\(pid \d+ on [^)]* UTC\)"
    (once,) = said
    assert re.fullmatch(rf"left to other .*: dnn seed 1 {owner}; regmixup seed 1 {owner}", str(once.message))


def test_with_a_time_limit_no_process_waits_and_none_makes_the_table_smaller(here, finished_study, monkeypatch):
    """A run that another process finished after this one had left it to that belongs into the table."""
    study, table = load_study(str(here / "mini.toml")), here / "runs" / "study-mini" / "rows.csv"
    real = runner.dispatch
    monkeypatch.setattr(runner, "dispatch", lambda tasks, *more: real(tasks[1:], *more))
    run_study(study, here / "runs", device="cpu", minutes=60)
    assert table.read_bytes() == (finished_study.folder / "rows.csv").read_bytes()
    table.unlink()
    monkeypatch.setattr(runner.time, "sleep", None)
    with held_by_another_process(table.parent), pytest.warns(UserWarning, match="later with these runs") as said:
        run_study(study, here / "runs", device="cpu", minutes=60)
    (once,) = said
    assert str(once.message).startswith("the table is written by the other process, later with these runs: ")
    assert not table.exists()


def test_a_folder_that_one_may_only_read_counts_as_held_while_it_is_claimed(tmp_path, monkeypatch):
    (tmp_path / ".owner").write_text("pid 7")

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    assert is_held(tmp_path)


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


def test_a_dry_run_tells_what_others_work_on_and_what_is_not_archived_yet(here, capsys):
    """A queue's job that asks for `to do` does not come back for the former; a kill before archiving is the latter."""
    dnn, regmixup = next((here / "runs").glob("erm-*-s0-*")), next((here / "runs").glob("regmixup-*-s1-*"))
    next(dnn.glob("rows-*.csv")).unlink()
    shutil.rmtree(here / "results" / dnn.name)
    shutil.rmtree(here / "results" / regmixup.name)
    with held_by_another_process(dnn):
        assert main(words(here, "--archive", str(here / "results"), "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert [line[:6] for line in shown.splitlines()[1:5]] == ["in use", "done  ", "done  ", "done  "]
    assert f"not yet archived in {here / 'results'}" in shown
    assert "--dry-run does: regmixup seed 1\n" in shown
