"""The command line itself: help, mistakes, interruptions, output that cannot be written; and `regmixup list`."""

import io
import json
import subprocess
import sys
import warnings

import pytest

from regmixup.cli import VERBS
from regmixup.cli import data as data_verb
from regmixup.cli import list as list_verb
from regmixup.storage import read_rows
from tests.cli.running import logits_file, run


def test_help_names_every_verb_and_every_verb_has_help(capsys):
    assert run("--help") == 0
    overview = capsys.readouterr().out
    assert "\n  --version " in overview
    for verb in VERBS:
        assert f"\n  {verb} " in overview
        assert run(verb, "--help") == 0
        text = capsys.readouterr().out
        assert f"regmixup {verb}" in text
        assert "Example" in text, f"{verb} --help shows no example"
        assert "%%" not in text


def test_a_warning_is_printed_once(monkeypatch, capsys):
    def verb(_):
        for text in ("left out: a", "left out: b", "left out: a"):
            with warnings.catch_warnings():  # leaving this makes Python forget what it has shown
                warnings.simplefilter("default")
                warnings.warn(text, stacklevel=1)

    monkeypatch.setattr("regmixup.cli._find_verb", lambda _: verb)
    assert run("list") == 0
    assert capsys.readouterr().err == "warning: left out: a\nwarning: left out: b\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stduy"], "did you mean 'study'"),
        (["study", "digit"], "did you mean 'digits'"),
        (["train", "--method", "regmixpu"], "did you mean 'regmixup'"),
        (["train", "--alpah", "3"], "--alpha"),
        (["train", "--alpha", "-1"], "alpha must be a finite number > 0, got -1"),
        (["train", "--network", "smal"], "did you mean 'small'"),
        (["train", "--method", "duq", "--head", "gp"], "head must be 'rbf' for DUQ(penalty=0.1), got 'gp'"),
        (["train", "--epochs", "many"], "epochs"),
        (["finetune"], " PHOTOS "),
        (["finetune", "nowhere", "--epochs", "-1"], "error: epochs must be an integer >= 0, got -1"),
        (["predict"], " RUN "),
        (["publish", "runs/mine"], " FOLDER "),
        (["evaluate"], " PREDICTIONS "),
        (["study"], " STUDY "),
        (["data", "fetch"], " NAME "),
        (
            ["train", "--compile", "on", "--deterministic"],
            "got 'on': it would not be deterministic",
        ),
        (["study", "constrained", "--device", "cpu"], "precision tf32 needs a CUDA device (--device cuda), got cpu"),
        (["predict", "nowhere", "digits/test"], "nowhere is not a run folder"),
        (
            ["predict", "nowhere", "photos", "--out", "a.csv"],
            "there is no file, folder or dataset photos: unknown dataset",
        ),
        (["predict", "nowhere", "--out", "a.jpg", "b.jpg"], "ends in .csv, the only format it writes, got a.jpg"),
        (["evaluate", "--predictions", "missing.npz"], "missing.npz"),
        (["evaluate", "--predictions", "a.npz", "--resamples", "-1"], "resamples must be an integer >= 0, got -1"),
        (["evaluate", "--predictions", "missing.npz", "--out", "/dev/null/r.csv"], "cannot write /dev/null/r.csv"),
        (["evaluate", "a.npz", "--out", "a.npz"], "--out must name a file that ends in .csv"),
        (["evaluate", "a.csv", "--ood", "b.csv", "--out", "b.csv"], "another file than those that are read, got b.csv"),
        (["evaluate", "a.npz", "--html", "page.pdf"], "--html must name a file that ends in .html"),
        (["evaluate", "--predictions", "a.npz", "--ood", "b.npz", "--ood=c.npz"], "--ood must be given once, with all"),
        (["evaluate", "a.npz", "--against_ood", "b.npz", "--against_ood", "c.npz"], "--against-ood must be given once"),
        (["train", "--schedule", "step", "--milestones", "2", "--milestones", "4"], "--milestones must be given once"),
        (
            ["train", "--loss", "cross_entropy", "--loss.weight", "1", "2", "--loss.weight", "3", "4"],
            "--loss.weight must be given once",
        ),
        (["train", "--epochs", "350", "--milestones", "150", "250"], "milestones must be () with schedule cosine"),
        (["report", "digtis"], "did you mean 'digits'"),
        (["report", "."], ". holds no results of a study"),
        (["report", "digits", "--runs", "."], "runs must hold results of the study digits, got ."),
        (["data", "corrupt", "digits/tset", "--out", "c"], "did you mean 'digits/test'"),
        (["data", "lsit"], "did you mean 'list'"),
        (["data", "list", "--root", "no/where"], "root must name a folder, got no/where"),
        (["data", "corrupt", "digits/test"], "out must name a folder"),
        (["data", "corrupt", "digits/test", "--out", "c"], "shot_noise has no constants for digits"),
    ],
)
def test_a_mistake_gets_status_2_one_clear_message_and_leaves_nothing(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flag", "kind"), [("--shards", "INT"), ("--clip-norm", "FLOAT")])
def test_a_number_that_may_be_none_is_asked_for_in_no_words_of_pythons_types(flag, kind, capsys, tmp_path):
    assert run("train", "--runs", str(tmp_path), "--dry-run", flag, "2") == 0
    assert run("train", "--runs", str(tmp_path), "--dry-run", flag, "None") == 0
    assert run("train", flag, "many") == 2
    said = capsys.readouterr().err
    assert f"{flag} {{None}}|{kind}" in said
    assert "typing" not in said
    assert "<class" not in said


def test_interruption_is_answered_with_what_the_same_command_does(capsys, monkeypatch):
    def interrupt(args):
        raise KeyboardInterrupt

    for verb, answer in ((list_verb, "begins anew"), (data_verb, "goes on from here")):
        monkeypatch.setattr(verb, "main", interrupt)
        assert run(verb.__name__.rpartition(".")[2]) == 130
        assert capsys.readouterr().err == f"interrupted; the same command {answer}\n"


def test_ctrl_c_finds_main_ready_for_it_as_soon_as_python_is():
    """What is imported before `main` is called: nothing that takes time. Within it, every import may be interrupted."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from regmixup.cli import main\n"
        "print(sorted(set(sys.modules) - before - {'__future__'}))\n"
        "class Finder:\n"
        "    def find_spec(self, *args): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(main(['train']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['regmixup', 'regmixup.cli']"], done.stderr
    assert (done.returncode, done.stderr) == (130, "interrupted; the same command goes on from here\n")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_the_program_quietly(words):
    code = "import sys; from regmixup.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_the_package_can_be_run_as_a_module():
    found = subprocess.run([sys.executable, "-m", "regmixup", "--version"], check=True, capture_output=True, text=True)
    assert found.stdout.startswith("regmixup ")


def test_characters_that_the_output_does_not_have_are_escaped(tmp_path, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    assert run("evaluate", "--predictions", logits_file(tmp_path / "mïne.npz"), "--resamples", 0) == 0
    assert rb"m\xefne: 60 test images" in output.getvalue()


def test_escapes_of_a_file_do_not_reach_the_terminal(capsys, tmp_path):
    name = logits_file(tmp_path / "a\x1b]0;b\x07.npz")
    assert run("evaluate", "--predictions", name) == 0
    assert run("evaluate", "--predictions", tmp_path / "c\x1b[2J.npz") == 2
    found = capsys.readouterr()
    assert "\x1b" not in found.out + found.err
    assert r"a\x1b]0;b\x07" in found.out
    assert r"c\x1b[2J" in found.err


def test_a_tilde_in_a_path_is_the_home_folder_however_it_is_given(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run("train", "--runs=~/mine", "--device", "cpu", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["folder"].startswith(f"{tmp_path}/mine/")
    logits_file(tmp_path / "mine.npz"), logits_file(tmp_path / "dark.npz")
    assert run("evaluate", "--predictions=~/mine.npz", "--shift", "~/dark.npz", "--out=~/rows.csv") == 0
    assert {row.dataset for row in read_rows(tmp_path / "rows.csv")} == {"mine", "dark"}


def test_list_prints_methods_with_citations(capsys):
    assert run("list", "methods") == 0
    assert "regmixup" in (text := capsys.readouterr().out)
    assert "Pinto et al., 2022" in text


def test_list_names_our_networks_and_points_to_those_of_timm(capsys):
    assert run("list", "networks") == 0
    text = capsys.readouterr().out
    assert "  pyramidnet200 " in text
    assert "  timm/NAME " in text
