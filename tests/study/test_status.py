"""The state of a study: its runs, read from their folders and printed, and the data that it lacks."""

import json
import shutil

import pytest
import torch

from regmixup.data.files import MissingDataError
from regmixup.study.cost import Budget, estimate, evaluation_minutes
from regmixup.study.plan import load_study
from regmixup.study.runner import run_study
from regmixup.study.status import missing_data, state_of, status_lines
from regmixup.study.tasks import find_tasks
from tests.data.official import write_cifar
from tests.holding import held_by_another_process
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR

CPU = torch.device("cpu")


@pytest.fixture
def half_done(finished_study, tmp_path):
    """The mini study with its first run finished, its second interrupted and the others not begun."""
    plan = list(finished_study.study.runs())
    entries = json.loads((finished_study.folder / "study.json").read_text())["runs"]
    for entry in entries[:2]:
        shutil.copytree(finished_study.runs / entry["folder"], tmp_path / entry["folder"])
    stopped = tmp_path / entries[1]["folder"]
    (stopped / "provenance.json").unlink()
    lines = (stopped / "history.jsonl").read_text().splitlines()[:2]
    records = [{**json.loads(line), "loss": 0.5, "seconds": 10.0} for line in lines]
    (stopped / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return plan, tmp_path, stopped


def look(plan, runs):
    return find_tasks(plan, runs, CPU, [runs])


def test_done_interrupted_and_waiting_runs(half_done):
    plan, runs, _ = half_done
    tasks = look(plan, runs)
    assert [state_of(task) for task in tasks] == ["done", "to do", "to do", "to do"]
    evaluation = evaluation_minutes(plan[1])
    assert estimate([tasks[1]]).minutes == pytest.approx(30 / 60 + evaluation)  # three epochs at ten seconds
    assert estimate([tasks[3]]).minutes == pytest.approx(50 / 60 + evaluation)  # by the pace of the other seed
    (fresh,) = look([plan[1]], runs / "none")
    assert estimate([fresh]).device == "2 CPU cores"  # by the table
    assert str(estimate([tasks[0]])) == "0 networks to train, no time"
    assert "epoch 0/5, " in next(status_lines([fresh]))
    lines = list(status_lines(tasks))
    assert lines[0] == f"done    dnn seed 0       {tasks[0].run.folder}"
    assert lines[1].startswith("to do   regmixup seed 0  epoch 2/5, loss 0.500, 0.5 min left  ")
    assert lines[4] == "runs    1 done, 3 to do"


def test_a_run_is_running_while_a_living_process_holds_its_folder_and_failed_after_an_error(half_done):
    plan, runs, stopped = half_done
    (stopped / "failure.txt").write_text("Traceback ...\nDivergedError: the loss became nan\n")
    with held_by_another_process(stopped):
        assert state_of(look(plan, runs)[1]) == "running"
    (stopped / ".owner").write_text("1")  # as a killed process leaves it
    line = list(status_lines(look(plan, runs)))[1]
    assert line.startswith("failed  regmixup seed 0")
    assert "DivergedError: the loss became nan  " in line


@pytest.mark.parametrize("lost", ["rows-*.csv", "checkpoint.safetensors"])
def test_what_lacks_rows_or_weights_is_not_done(half_done, lost):
    plan, runs, _ = half_done
    (task,) = look([plan[0]], runs)
    assert (state_of(task), task.done, Budget(0).fits(task)) == ("done", True, True)
    (path,) = task.run.folder.glob(lost)
    path.unlink()
    assert (state_of(task), task.done, Budget(0).fits(task)) == ("to do", False, False)


def planned(folder, text):
    return list(load_study(str(write_mini(folder, text))).runs())


def test_missing_files_are_found_for_trained_companion_and_evaluated_sets(tmp_path):
    plan = planned(tmp_path, CIFAR)
    _, *lines = missing_data(plan, tmp_path).splitlines()  # one per family, not per set
    assert [line.partition(":")[0].strip() for line in lines] == ["cifar10", "cifar10-c", "svhn", "cifar100"]
    assert "  svhn: test_32x32.mat" in lines
    assert "  cifar100: cifar-100-python/train and 1 more" in lines
    write_cifar(tmp_path, "cifar10")
    assert "cifar10:" not in missing_data(plan, tmp_path)


def test_a_study_without_its_data_trains_nothing(tmp_path):
    study = load_study(str(write_mini(tmp_path, CIFAR)))
    with pytest.raises(MissingDataError, match="the study needs data that is missing"):
        run_study(study, tmp_path / "runs", root=tmp_path, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_images_must_be_there(tmp_path):
    text = MINI.replace('"photographs/test"', f'"folder:{tmp_path}/ood"')
    assert missing_data(planned(tmp_path, text)).endswith(f": folder:{tmp_path}/ood")
    (tmp_path / "ood").mkdir()
    assert missing_data(planned(tmp_path, text)) == ""
    assert missing_data(planned(tmp_path, MINI.replace("photographs/test", "folder:ood")), tmp_path) == ""
