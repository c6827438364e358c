"""The status of runs, from their folders alone."""

import gzip
import io
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from regmixup.study.cost import Paces, estimate, evaluation_minutes
from rich.console import Console

from regmixup.run_folder import rows_path
from regmixup.storage import is_held
from regmixup.study import status
from regmixup.study.plan import load_study
from regmixup.study.status import Budget, run_status, show_status, status_table
from regmixup.study.tasks import find_tasks
from tests.holding import held_by_another_process
from tests.study.mini import MINI, write_mini

CPU = torch.device("cpu")


@pytest.fixture
def half_done(finished_study, tmp_path):
    """The mini study with its first run finished, its second interrupted and the others not begun."""
    plan = list(finished_study.study.runs())
    folders = [finished_study.runs / entry["folder"] for entry in _entries(finished_study)]
    for folder in folders[:2]:
        shutil.copytree(folder, tmp_path / folder.name)
    stopped = tmp_path / folders[1].name
    (stopped / "provenance.json").unlink()
    lines = (stopped / "history.jsonl").read_text().splitlines()[:2]
    records = [{**json.loads(line), "seconds": 10.0} for line in lines]
    (stopped / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return plan, tmp_path, stopped


def _entries(finished_study):
    return json.loads((finished_study.folder / "study.json").read_text())["runs"]


def states(plan, runs):
    return [run_status(task, Paces([runs], CPU)) for task in find_tasks(plan, runs, CPU, [runs])]


def test_done_interrupted_and_waiting_runs(half_done):
    plan, runs, _ = half_done
    found = states(plan, runs)
    assert [s.state for s in found] == ["done", "waiting", "waiting", "waiting"]
    assert [(s.epoch, s.epochs) for s in found] == [(5, 5), (2, 5), (0, 5), (0, 5)]
    assert found[0].seconds_left is None
    evaluation = 60 * evaluation_minutes(plan[1])
    assert found[1].seconds_left == pytest.approx(30 + evaluation)  # three epochs at ten seconds
    assert found[3].seconds_left == pytest.approx(50 + evaluation)  # by the pace of the other seed
    assert found[1].loss == json.loads((half_done[2] / "history.jsonl").read_text().splitlines()[-1])["loss"]
    assert 0 < found[2].seconds_left < 60
    (fresh,) = states([plan[1]], runs / "none")
    assert fresh.seconds_left == pytest.approx(60 * estimate([plan[1]]).minutes)


def test_a_run_is_running_while_a_living_process_holds_its_folder(half_done):
    plan, runs, stopped = half_done
    with held_by_another_process(stopped):
        assert is_held(stopped)
        assert states(plan, runs)[1].state == "running"
    (stopped / ".owner").write_text("1")  # as a killed process leaves it
    assert not is_held(stopped)
    assert states(plan, runs)[1].state == "waiting"


def test_a_failed_run_says_why_until_it_is_tried_again(half_done):
    plan, runs, stopped = half_done
    (stopped / "failure.txt").write_text("Traceback ...\nDivergedError: the loss became nan\n")
    found = states(plan, runs)[1]
    assert (found.state, found.note) == ("failed", "DivergedError: the loss became nan")
    with held_by_another_process(stopped):
        assert states(plan, runs)[1].state == "running"


def test_a_trained_run_without_rows_is_not_done(half_done):
    plan, runs, _ = half_done
    for rows in runs.glob("*/rows-*.csv"):
        rows.unlink()
    assert states(plan, runs)[0].state == "waiting"


@pytest.mark.parametrize("packed", [False, True])
def test_a_status_and_a_time_limit_agree_about_what_is_done(half_done, packed):
    """Packed rows are an archive's: without its note they do not count, and the run is measured again."""
    plan, runs, _ = half_done
    if packed:
        rows = rows_path(states(plan, runs)[0].task.run.folder, plan[0].stem)
        rows.with_name(f"{rows.name}.gz").write_bytes(gzip.compress(rows.read_bytes()))
        rows.unlink()
    with pytest.warns(UserWarning, match="does not count") if packed else nullcontext():
        (found,) = states([plan[0]], runs)
    fits = Budget(0, [runs], CPU).fits(found.task)
    assert [found.state == "done", found.task.done, fits] == [not packed] * 3


def test_the_table_is_printed_once_where_there_is_no_terminal(half_done, capsys):
    plan, runs, _ = half_done
    show_status(lambda: states(plan, runs), "[Mini]", Console(width=100))
    text = capsys.readouterr().out
    assert "[Mini]" in text
    assert "1 done, 3 waiting of 4 runs" in text
    assert text.index("regmixup seed 0") < text.index("dnn seed 0")  # what is done comes last


def test_in_a_terminal_it_is_kept_up_to_date_until_all_is_done(half_done, finished_study, monkeypatch):
    plan, runs, _ = half_done
    looks = []

    def finish(seconds):
        looks.append(seconds)
        shutil.copytree(finished_study.runs, runs, dirs_exist_ok=True)

    monkeypatch.setattr(status.time, "sleep", finish)
    console = Console(width=100, force_terminal=True, record=True, file=io.StringIO())
    show_status(lambda: states(plan, runs), "Mini", console)
    assert len(looks) == 1
    assert "4 done of 4 runs" in console.export_text()


def test_an_ensemble_counts_the_epochs_of_its_members(tmp_path):
    text = MINI.replace("epochs = 5", "epochs = 5\nmembers = 3")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    assert states(plan, tmp_path)[0].epochs == 15


def test_recipes_are_named_where_there_are_several(half_done):
    plan, runs, _ = half_done
    found = states(plan, runs)
    planned = replace(plan[0], recipe="cifar10-resnet50")
    other = replace(found[0], task=replace(found[0].task, planned=planned))
    for lines, named in ((found, False), ([*found, other], True)):
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(status_table(lines, "Mini"))
        assert ("cifar10-resnet50" in console.export_text()) == named
