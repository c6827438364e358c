"""`regmixup study` and `regmixup report`, and the flags that choose a launcher."""

import re

import pytest

from regmixup.cli import study
from regmixup.cli.parsing import parse
from regmixup.study.launchers import InTurn, Processes, RayTasks
from tests.cli.running import run
from tests.study.mini import FEW_SETS, write_mini


def launcher(*words):
    return study.choose_launcher(parse(study.StudyVerb, "study", ("digits", *words)))


def test_without_flags_the_runs_go_one_after_the_other(monkeypatch):
    assert isinstance(launcher(), InTurn)
    assert launcher("--device", "cuda:1").device.index == 1
    assert isinstance(launcher("--devices", "cpu"), InTurn)


def test_several_devices_are_several_processes(monkeypatch):
    assert [str(device) for device in launcher("--devices", "cuda:0", "cuda:2").devices] == ["cuda:0", "cuda:2"]
    monkeypatch.setattr(study, "all_devices", lambda: ("cuda:0", "cuda:1"))
    assert isinstance(found := launcher("--devices", "all"), Processes)
    assert len(found.devices) == 2
    monkeypatch.setattr(study, "all_devices", lambda: ("cuda:0",))
    assert isinstance(launcher("--devices", "all"), InTurn)


def test_ray_gets_its_address_and_shares():
    assert launcher("--launcher", "ray") == RayTasks(address=None, gpus_per_run=1, cpus_per_run=1)
    words = ("--ray-address", "auto", "--gpus-per-run", "0.5", "--cpus-per-run", "4")
    assert launcher("--launcher", "ray", *words) == RayTasks(address="auto", gpus_per_run=0.5, cpus_per_run=4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gpus-per-run 0", "--gpus-per-run must be given with --launcher ray"),
        ("--ray-address auto", "--ray-address must be given with --launcher ray"),
        ("--launcher ray --devices cpu cpu", "must not be given with --launcher ray"),
        ("--device cpu --devices cpu cpu", "give --device or --devices, got cpu and cpu cpu"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        launcher(*words.split())


def test_a_study_runs_reports_and_is_not_repeated(capsys, tmp_path):
    text = FEW_SETS.replace("seeds = [0, 1]", "seeds = [0]").replace("epochs = 5", "epochs = 1")
    file = write_mini(tmp_path, text)
    words = ("study", file, "--runs", tmp_path / "runs", "--device", "cpu")
    assert run(*words, "--dry-run") == 0
    text = capsys.readouterr().out
    assert text.count("\nto do ") == 2
    assert not (tmp_path / "runs").exists()
    assert run(*words) == 0
    text = capsys.readouterr().out
    assert "[2/2] regmixup seed 0" in text
    assert "AUROC photographs" in text
    assert (tmp_path / "runs" / "study-mini" / "report.html").is_file()
    assert run(*words, "--dry-run") == 0
    text = capsys.readouterr().out
    assert text.count("\ndone ") == 2
    (tmp_path / "runs" / "study-mini" / "report.html").unlink()
    assert run("report", tmp_path / "runs" / "study-mini") == 0
    assert (tmp_path / "runs" / "study-mini" / "report.html").is_file()
    assert run("report", file, "--runs", tmp_path / "runs", "--out", tmp_path / "elsewhere") == 0
    written = {path.name: path.read_text() for path in (tmp_path / "elsewhere").iterdir()}
    assert {"report.csv", "report.html", "report.md", "report.tex"} < {*written}
    same = (tmp_path / "runs" / "study-mini" / "report.html").read_text()
    assert written["report.html"] == same


def test_a_dry_run_says_which_data_the_runs_that_are_left_need(capsys, tmp_path):
    file = write_mini(tmp_path, FEW_SETS.replace("photographs/test", "folder:ood"))
    assert run("study", file, "--runs", tmp_path / "runs", "--root", tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.endswith("the study needs data that is missing:\n  folder: folder:ood\n")


def test_a_dry_run_says_first_what_the_study_is_about_and_what_to_expect(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    asked = 'expected = """\nRegMixup is ahead, which\nto do so takes 5 epochs."""\nabout = "Small images\\nalone."\n'
    words = ("study", write_mini(tmp_path, asked + FEW_SETS), "--runs", tmp_path / "runs", "--dry-run")
    assert run(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    title = re.search(r'title = "(.*)"', FEW_SETS)[1]
    assert lines[:4] == [
        f"study  {title}",
        "expect RegMixup is ahead, which to do so",
        "       takes 5 epochs.",
        "about  Small images alone.",
    ]
    assert all(line.startswith("to do") for line in lines[4:8])
    assert run(*words, "--scale", "smoke") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"study  {title} (smoke scale)\nabout  ")
    assert "expect" not in text
