"""Every verb, as a user types it; and what happens when they mistype."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from regmixup import data
from regmixup.cli import VERBS, main
from regmixup.cli.flags import field_texts
from regmixup.cli import list as list_verb
from regmixup.cli.data import ACTIONS
from regmixup.evaluation.named_metrics import CLASSIFICATION
from regmixup.evaluation.scores import SCORES
from regmixup.evaluation.selective import SELECTIVE
from regmixup.networks.constraints import SpectralNorm, StableRank
from regmixup.networks.gp_head import GPHead
from regmixup.networks.rbf_head import RBFHead
from regmixup.objectives import OBJECTIVES
from regmixup.storage import read_rows
from tests.data.official import write_cifar
from tests.study.mini import MINI, write_mini


def run(*words: object) -> int:
    """Exit status of a command line. The CLI library itself leaves by SystemExit for --help and wrong flags."""
    try:
        return main([str(word) for word in words])
    except SystemExit as leaving:
        return int(leaving.code or 0)


@pytest.fixture(autouse=True)
def _keep_warnings_as_they_are(monkeypatch):
    """main() prints warnings plainly; put the hook back afterwards."""
    import warnings

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder, made by the train verb."""
    runs = tmp_path_factory.mktemp("runs")
    assert run("train", "--method", "mixup", "--epochs", 2, "--seed", 7, "--device", "cpu", "--runs", runs) == 0
    (folder,) = runs.iterdir()
    return folder


def logits_file(path, count=60, classes=4, seed=0, **extra):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    logits = rng.normal(size=(count, classes)) + 3 * np.eye(classes)[labels]
    np.savez(path, logits=logits, labels=labels, **extra)
    return path


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


def test_list_prints_methods_with_citations(capsys):
    assert run("list", "methods") == 0
    assert "regmixup" in (text := capsys.readouterr().out)
    assert "Pinto et al., 2022" in text


def test_list_names_our_networks_and_points_to_those_of_timm(capsys):
    assert run("list", "networks") == 0
    text = capsys.readouterr().out
    assert "  pyramidnet200 " in text
    assert "  timm/NAME " in text


def test_a_network_of_timm_trains_and_predicts(capsys, tmp_path):
    words = ("--epochs", 1, "--device", "cpu", "--runs", tmp_path)
    assert run("train", "--network", "timm/test_resnet.r160_in1k", *words) == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("regmixup-digits-train-timm-test_resnet.r160_in1k-s0-")
    assert run("predict", folder, "digits/val", "--device", "cpu") == 0
    assert run("train", "--network", "timm/test_vit", *words) == 2
    assert "image_size=(8, 8)" in capsys.readouterr().err


def test_train_dry_run_prints_the_resolved_configuration_and_writes_nothing(capsys, tmp_path):
    words = ("--alpha", 7, "--eta", 0.5, "--lr", 0.02, "--seed", 3, "--device", "cpu", "--runs", tmp_path, "--dry-run")
    assert run("train", "--method", "regmixup", *words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objective"]["alpha"] == 7
    assert shown["objective"]["eta"] == 0.5
    assert (shown["lr"], shown["seed"], shown["precision"]) == (0.02, 3, "float32")
    assert not list(tmp_path.iterdir())


def test_of_a_choice_that_is_made_twice_the_last_counts(capsys):
    assert run("train", "--method", "dnn", "--seed", 1, "--method=mixup", "--seed", 2, "--dry-run") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["objective"]["kind"], shown["seed"]) == ("Mixup", 2)


def test_the_engines_flags_reach_training_and_its_provenance(capsys, tmp_path):
    flags = ("--deterministic", "--compile", "off", "--checkpoint-minutes", 1.5, "--checkpoint-epochs", 2)
    assert run("train", "--epochs", 1, "--device", "cpu", "--runs", tmp_path / "runs", *flags) == 0
    assert capsys.readouterr().out.startswith("cpu: float32, not compiled\n")
    study = write_mini(tmp_path, MINI.replace(', "regmixup"]', "]").replace("[0, 1]", "[0]").replace("= 5", "= 1"))
    assert run("study", study, "--runs", tmp_path / "study", "--device", "cpu", *flags) == 0
    assert capsys.readouterr().out.count("cpu: float32, not compiled\n") == 1
    found = [json.loads(path.read_text()) for path in tmp_path.glob("*/*/provenance.json")]
    asked = {"compile": "off", "graphs": "auto", "deterministic": True, "checkpoint_minutes": 1.5}
    assert [record["engine"] for record in found] == [{"kind": "Engine", **asked, "checkpoint_epochs": 2}] * 2
    assert [record["execution"] for record in found] == ["cpu: float32, not compiled"] * 2


def test_what_a_device_cannot_do_is_said(capsys, tmp_path):
    assert run("train", "--graphs", "on", "--device", "cpu", "--runs", tmp_path) == 2
    assert "graphs must be auto or off here, got 'on': there are no CUDA graphs on cpu" in capsys.readouterr().err


def test_evaluate_needs_no_labels_of_an_ood_table(capsys, tmp_path):
    (tmp_path / "ood.csv").write_text("a,b,c,d\n" + "0,0,0,0\n" * 9)
    assert run("evaluate", "--predictions", logits_file(tmp_path / "mine.npz"), "--ood", tmp_path / "ood.csv") == 0
    assert "100.00 %" in capsys.readouterr().out
    assert run("evaluate", "--predictions", tmp_path / "ood.csv") == 2
    assert "label for every sample" in capsys.readouterr().err


def test_a_tilde_in_a_path_is_the_home_folder_however_it_is_given(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run("train", "--runs=~/mine", "--device", "cpu", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["folder"].startswith(f"{tmp_path}/mine/")
    logits_file(tmp_path / "mine.npz"), logits_file(tmp_path / "dark.npz")
    assert run("evaluate", "--predictions=~/mine.npz", "--shift", "~/dark.npz", "--out=~/rows.csv") == 0
    assert {row.dataset for row in read_rows(tmp_path / "rows.csv")} == {"mine", "dark"}


def test_the_method_decides_which_flags_exist(capsys):
    assert run("train", "--method", "dnn", "--alpha", 1) == 2
    assert "--alpha" in capsys.readouterr().err
    assert run("train", "--method=regmixup+cutmix", "--first.alpha", 5, "--dry-run", "--device", "cpu") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objective"]["first"]["alpha"] == 5
    assert shown["objective"]["second"]["kind"] == "CutMix"


def test_train_then_predict_then_evaluate(trained, capsys, tmp_path):
    assert run("predict", trained, "digits/test", "digits/val", "photographs/test", "--device", "cpu") == 0
    stored = trained / "predictions"
    assert "899 x 10" in capsys.readouterr().out
    out = tmp_path / "rows.csv"
    words = (
        "--ood",
        stored / "photographs__test.safetensors",
        "--val",
        stored / "digits__val.safetensors",
        "--out",
        out,
    )
    assert run("evaluate", "--predictions", stored / "digits__test.safetensors", *words) == 0
    assert "auroc" in capsys.readouterr().out
    rows = read_rows(out)
    assert {row.dataset for row in rows} == {"digits/test", "photographs/test"}
    assert {row.posthoc for row in rows} == {"none", "temperature"}


def test_predict_with_refreshed_batch_norm_stores_a_second_file(trained, capsys):
    assert run("predict", trained, "digits/test", "--device", "cpu", "--refresh-batch-norm") == 0
    assert str(trained / "predictions-refreshed" / "digits__test.safetensors") in capsys.readouterr().out
    assert (trained / "predictions-refreshed" / "digits__test.safetensors").is_file()


def test_a_laplace_approximation_is_evaluated_from_stored_files_on_shifted_sets_too(trained, capsys, tmp_path):
    names = ("digits/train", "digits/val", "digits/test", "digits-c/contrast/5")
    files = {name: trained / "predictions" / f"{name.replace('/', '__')}.safetensors" for name in names}
    words = ("--predictions", files["digits/test"], "--shift", files["digits-c/contrast/5"], "--method", "kfac-llla")
    fitting = ("--recipe", "cifar10-wrn28-10", "--train", files["digits/train"])
    assert run("predict", trained, *names, "--device", "cpu") == 0
    assert run("evaluate", *words, *fitting) == 2
    assert "needs features, which the predictions for 'digits-c/contrast/5' do not hold" in capsys.readouterr().err
    assert run("predict", trained, *names, "--features", "--device", "cpu") == 0
    assert run("evaluate", *words, *fitting, "--out", tmp_path / "rows.csv") == 0
    rows = read_rows(tmp_path / "rows.csv")
    assert any(row.corruption == "contrast" for row in rows)
    (prior,) = (row.value for row in rows if row.metric == "prior_variance")
    (shown,) = (line.split() for line in capsys.readouterr().out.splitlines() if "prior_variance" in line)
    assert shown[-1] == f"{prior:.4f}"  # it is no share of anything


def test_evaluate_scores_logits_of_any_model(capsys, tmp_path):
    mine, other = logits_file(tmp_path / "mine.npz"), tmp_path / "other.npy"
    np.save(other, np.zeros((30, 4)))
    assert run("evaluate", "--predictions", mine, "--ood", other, "--shift", logits_file(tmp_path / "dark.npz")) == 0
    text = capsys.readouterr().out
    assert "100.00 %" in text  # constant logits have the largest entropy: every score detects all of them
    assert "dark" in text
    assert "not the population's error, which is smaller; debiased_ece" in text
    assert (
        sum(line.split()[:1] == ["dark"] and "debiased_ece" in line for line in text.splitlines()) == 2
    )  # and their mean
    assert run("evaluate", "--predictions", mine, "--resamples", "0") == 0
    assert "population" not in capsys.readouterr().out


def test_evaluate_says_how_a_file_was_read(capsys, tmp_path):
    (tmp_path / "mine.csv").write_text("id;cat;dog;label\n1;0,5;-2;dog\n2;3;4,5;cat\n")
    np.savez(tmp_path / "svhn.npz", probs=np.array([[0.5, 0.5]]))
    (tmp_path / "far.csv").write_text("0.5,0.7\n")
    words = ("--predictions", tmp_path / "mine.csv", "--ood", tmp_path / "svhn.npz", tmp_path / "far.csv")
    assert run("evaluate", *words) == 0
    told = [line.removeprefix(str(tmp_path)) for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "/mine.csv: separated by semicolons; column 'id' is left out; labels are in the last column; "
        "numbers have decimal commas; labels are names of classes",
        "/svhn.npz: probs alone: no score that needs the scale of logits, such as dempster_shafer",
        "/far.csv: no line of names",
    ]


def test_evaluate_is_told_where_the_labels_are(capsys, tmp_path):
    (tmp_path / "mine.csv").write_text("1,0.5,-2\n0,3,4\n")
    assert run("evaluate", "--predictions", tmp_path / "mine.csv") == 2
    assert "(--labels first, last or a file of them)" in capsys.readouterr().err
    assert run("evaluate", "--predictions", tmp_path / "mine.csv", "--labels", "first") == 0
    np.save(tmp_path / "logits.npy", np.array([[0.5, -2], [3, 4]]))
    np.save(tmp_path / "labels.npy", np.array([1, 0]))
    first = capsys.readouterr().out
    assert run("evaluate", "--predictions", tmp_path / "logits.npy", "--labels", tmp_path / "labels.npy") == 0
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()[2:]] == [
        line.split()[1:] for line in first.splitlines()[2:]
    ]


def test_evaluate_refuses_probabilities_given_as_logits(capsys, tmp_path):
    np.savez(tmp_path / "mine.npz", logits=np.full((4, 4), 0.25), labels=np.arange(4))
    assert run("evaluate", "--predictions", tmp_path / "mine.npz") == 2
    assert "the logits of mine look like probabilities" in capsys.readouterr().err


def test_evaluate_refuses_the_test_set_in_other_roles(capsys, tmp_path):
    mine = logits_file(tmp_path / "mine.npz")
    assert run("evaluate", "--predictions", mine, "--ood", mine) == 2
    assert "an OOD set must hold other samples than the test set, got mine" in capsys.readouterr().err
    assert run("evaluate", "--predictions", mine, "--val", mine) == 2
    assert '(fit_on or --fit-on "a test set, knowingly" overrides)' in capsys.readouterr().err
    words = ("--fit-on", "a test set, knowingly", "--resamples", 0)
    assert run("evaluate", "--predictions", mine, "--val", mine, *words) == 0


def test_shifted_files_are_averaged_by_the_family_in_their_names(tmp_path):
    files = [logits_file(tmp_path / f"toy-c__fog__{severity}.npz", seed=severity) for severity in (1, 2)]
    words = ("--predictions", logits_file(tmp_path / "mine.npz"), "--resamples", 0, "--out", tmp_path / "rows.csv")
    assert run("evaluate", *words, "--shift", *files) == 0
    rows = [row for row in read_rows(tmp_path / "rows.csv") if row.metric == "accuracy" and row.dataset == "toy-c"]
    found = {(row.corruption, row.severity): row.value for row in rows}
    assert list(found) == [("fog", 1), ("fog", 2), ("mean", None)]
    assert found["mean", None] == (found["fog", 1] + found["fog", 2]) / 2


LONG = "a-name-[bold]that-is-" + "far-" * 20 + "too-long"


def test_evaluate_writes_whole_names_into_a_pipe(capsys, tmp_path):
    """One line per row; square brackets in a name are no markup."""
    assert run("evaluate", "--predictions", logits_file(tmp_path / f"{LONG}.npz")) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if LONG in line]
    expected = [[LONG, "none", metric] for metric in CLASSIFICATION]
    expected += [[LONG, score, metric] for score in SCORES for metric in SELECTIVE]
    assert [line[:3] for line in lines] == expected


def test_evaluate_folds_long_names_in_a_terminal(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    monkeypatch.setattr(Console, "is_terminal", True)
    assert run("evaluate", "--predictions", logits_file(tmp_path / f"{LONG}.npz"), "--resamples", "0") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "".join(line.split()[0] for line in text.rpartition("─")[2].splitlines() if line.strip()) == LONG * (
        len(CLASSIFICATION) + len(SCORES) * len(SELECTIVE)
    )
    assert "…" not in text
    monkeypatch.setattr("regmixup.cli.evaluate._MOST_ROWS", 3)  # a table too long for rich to draw in time
    assert run("evaluate", "--predictions", logits_file(tmp_path / f"{LONG}.npz")) == 0
    assert sum(LONG in line for line in capsys.readouterr().out.splitlines()) == len(CLASSIFICATION) + 3 * len(SCORES)


def test_a_study_runs_reports_and_is_not_repeated(capsys, tmp_path):
    study = write_mini(tmp_path, MINI.replace("seeds = [0, 1]", "seeds = [0]"))
    words = ("study", study, "--runs", tmp_path / "runs", "--device", "cpu")
    assert run(*words, "--dry-run") == 0
    assert capsys.readouterr().out.count("to do") == 2
    assert not (tmp_path / "runs").exists()
    assert run(*words) == 0
    text = capsys.readouterr().out
    assert "[2/2] regmixup seed 0" in text
    assert "AUROC photographs" in text
    assert (tmp_path / "runs" / "study-mini" / "report.html").is_file()
    assert run(*words, "--dry-run") == 0
    assert capsys.readouterr().out.count("done") == 2
    (tmp_path / "runs" / "study-mini" / "report.html").unlink()
    assert run("report", tmp_path / "runs" / "study-mini") == 0
    assert (tmp_path / "runs" / "study-mini" / "report.html").is_file()
    assert run("report", study, "--runs", tmp_path / "runs", "--out", tmp_path / "elsewhere") == 0
    written = {path.name: path.read_text() for path in (tmp_path / "elsewhere").iterdir()}
    assert sorted(written) == ["report.csv", "report.html", "report.md", "report.tex"]
    same = (tmp_path / "runs" / "study-mini" / "report.html").read_text()
    assert written["report.html"] == same


def test_a_report_of_run_folders(capsys, finished_study, tmp_path):
    folders = [path.parent for path in finished_study.runs.glob("*/rows-*.csv")]
    assert run("report", *folders, "--out", tmp_path) == 0
    assert "AUROC photographs" in capsys.readouterr().out
    assert (tmp_path / "report.md").read_text().count("| dnn |") == 2  # the main table, and calibration under shift
    assert run("report", folders[0], tmp_path) == 2
    assert "neither" in capsys.readouterr().err
    for mixed in ([folders[0], finished_study.folder], [finished_study.folder, folders[0]]):
        assert run("report", *mixed) == 2
        assert "report takes one study, or any number of run folders" in capsys.readouterr().err


def test_a_dry_run_knows_that_an_ensemble_is_done(capsys, tmp_path):
    text = MINI.replace(', "regmixup"]', "]").replace("[0, 1]", "[0]").replace("epochs = 5", "epochs = 1\nmembers = 2")
    words = ("study", write_mini(tmp_path, text), "--runs", tmp_path / "runs", "--device", "cpu")
    assert run(*words) == 0
    capsys.readouterr()
    assert run(*words, "--dry-run") == 0
    assert capsys.readouterr().out.startswith("done")


def test_data_lists_and_shows(capsys, tmp_path):
    assert run("data", "list", "--root", tmp_path) == 0
    assert "digits/train" in capsys.readouterr().out
    assert run("data", "show", "digits/test", "--out", tmp_path / "sheet.png") == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_data_actions_have_help_with_an_example(capsys):
    for action in ACTIONS:
        assert run("data", action, "--help") == 0
        assert f"regmixup data {action}" in capsys.readouterr().out


def test_data_corrupt_writes_a_folder_marked_rebuilt(capsys, tmp_path):
    write_cifar(tmp_path, "cifar10")
    assert run("data", "corrupt", "cifar10/test", "--root", tmp_path) == 0
    assert "rebuilt, not official" in capsys.readouterr().out
    assert run("data", "list", "--root", tmp_path) == 0
    assert "cifar10-c/fog" in capsys.readouterr().out
    assert data.load("cifar10-c/fog/3", root=tmp_path).info["rebuilt"] == "true"


def test_data_verify_names_what_differs(capsys, tmp_path):
    assert run("data", "verify", "cifar10/test", "--root", tmp_path) == 2
    assert "cifar-10-batches-py/test_batch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stduy"], "did you mean 'study'"),
        (["study", "digit"], "did you mean 'digits'"),
        (["train", "--method", "regmixpu"], "did you mean 'regmixup'"),
        (["train", "--recipe", "digit"], "did you mean 'digits'"),
        (["train", "--alpah", "3"], "--alpha"),
        (["train", "--alpha", "-1"], "alpha must be a finite number > 0, got -1"),
        (["train", "--eta", "-0.5"], "eta must be a finite number >= 0, got -0.5"),
        (["train", "--network", "smal"], "did you mean 'small'"),
        (["train", "--method", "duq", "--head", "gp"], "head must be 'rbf' for DUQ(penalty=0.1), got 'gp'"),
        (["train", "--members", "-1"], "members must be an integer >= 1, got -1"),
        (["train", "--epochs", "many"], "epochs"),
        (["train", "--precision", "on"], "'bfloat16')."),
        (["train", "--compile", "maybe"], "invalid choice 'maybe' for argument '--compile'"),
        (["train", "--compile", "on", "--deterministic"], "compile must be auto or off with deterministic=True"),
        (["study", "digits", "--checkpoint-minutes", "-1"], "checkpoint_minutes must be a finite number >= 0, got -1"),
        (["predict", "nowhere", "digits/test"], "nowhere is not a run folder"),
        (["evaluate", "--predictions", "missing.npz"], "missing.npz"),
        (["evaluate", "--predictions", "what.txt"], "what.txt"),
        (["evaluate", "--predictions", "a.npz", "--resamples", "-1"], "resamples must be an integer >= 0, got -1"),
        (["evaluate", "--predictions", "missing.npz", "--out", "new/folder/rows.csv"], "missing.npz"),
        (["evaluate", "--predictions", "missing.npz", "--out", "/dev/null/r.csv"], "cannot write /dev/null/r.csv"),
        (["evaluate", "--predictions", "a.npz", "--ood", "b.npz", "--ood=c.npz"], "--ood must be given once, with all"),
        (["report", "digtis"], "did you mean 'digits'"),
        (["report", "."], ". holds no results of a study"),
        (["data", "show", "digits/tset"], "did you mean 'digits/test'"),
        (["data", "lsit"], "did you mean 'list'"),
        (["data", "list", "--root", "no/where"], "root must name a folder, got no/where, which does not exist"),
        (["data", "verify", "--root", "no/where"], "root must name a folder, got no/where, which does not exist"),
        (["data", "verify", "digits/test", "--root", "no/where"], "root must name a folder, got no/where"),
        (["data", "corrupt", "digits/test"], "out must name a folder"),
        (["data", "corrupt", "digits/test", "--out", "c"], "strengths, not shot_noise"),
        (["data", "corrupt", "digits/test", "--out", "c", "--seed", "-1"], "seed must be an integer >= 0, got -1"),
    ],
)
def test_a_mistake_gets_status_2_one_clear_message_and_leaves_nothing(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.array([[np.nan, 0.0]] * 3), "labels": np.zeros(3, int)}, "finite"),
        ({"logits": np.zeros((3, 2)), "labels": np.array([0, 1, 2])}, "labels must lie in [0, 2)"),
        ({"logits": np.zeros((3, 2)), "labels": np.zeros(4, int)}, "3 rows"),
        ({"logits": np.zeros((0, 2)), "labels": np.zeros(0, int)}, "empty"),
        ({"logit": np.zeros((3, 2)), "labels": np.zeros(3, int)}, "did you mean 'logits'"),
        ({"logits": np.zeros((3, 2))}, "label for every sample"),
    ],
)
def test_evaluate_refuses_bad_predictions_and_names_the_file(change, message, capsys, tmp_path):
    np.savez(tmp_path / "bad.npz", **change)
    assert run("evaluate", "--predictions", tmp_path / "bad.npz", "--out", tmp_path / "rows.csv") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "bad.npz" in error
    assert not (tmp_path / "rows.csv").exists()


def test_predicting_with_a_truncated_checkpoint_is_an_error_and_writes_no_predictions(trained, capsys, tmp_path):
    import shutil

    folder = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(folder / "predictions", ignore_errors=True)
    checkpoint = folder / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert run("predict", folder, "digits/test") == 2
    assert "cannot use checkpoint" in capsys.readouterr().err
    assert not (folder / "predictions").exists()


def test_an_edited_run_configuration_is_refused(trained, capsys, tmp_path):
    import shutil

    folder = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(folder / "predictions", ignore_errors=True)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"alpha": 0.3', '"alpha": 0.4'))
    assert run("predict", folder, "digits/test") == 2
    assert "belongs to configuration" in capsys.readouterr().err


def test_interruption_is_answered_with_how_to_go_on(capsys, monkeypatch):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(list_verb, "main", interrupt)
    assert run("list") == 130
    assert "goes on from here" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_the_program_quietly(words):
    code = "import sys; from regmixup.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    "cls", [*OBJECTIVES.values(), GPHead, RBFHead, SpectralNorm, StableRank], ids=lambda c: c.__name__
)
def test_every_hyper_parameter_has_a_help_text(cls):
    texts = field_texts(cls)
    nested = {"first", "second"}  # the sides of an `Alternate` have flags of their own
    assert {f.name for f in dataclasses.fields(cls)} - nested <= texts.keys()
    assert all(">>>" not in text and len(text) < 400 for text in texts.values())


def test_the_help_of_train_explains_flags_without_examples_in_python(capsys):
    assert run("train", "--method", "sngp", "--help") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "noise variance of the regression" in text
    assert ">>>" not in text


def test_flags_of_objective_head_and_constraint_reach_the_configuration(capsys):
    flags = [
        "--eta",
        "0.5",
        "--head",
        "gp",
        "--head.ridge",
        "2",
        "--constraint",
        "stable_rank",
        "--constraint.ratio",
        "0.5",
    ]
    assert run("train", "--method", "regmixup", *flags, "--dry-run") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["objective"]["kind"], found["objective"]["eta"]) == ("RegMixup", 0.5)
    assert (found["head"]["kind"], found["head"]["ridge"]) == ("GPHead", 2.0)
    assert (found["constraint"]["kind"], found["constraint"]["ratio"]) == ("StableRank", 0.5)


def test_the_package_can_be_run_as_a_module():
    found = subprocess.run([sys.executable, "-m", "regmixup", "--version"], check=True, capture_output=True, text=True)
    assert found.stdout.startswith("regmixup ")


def test_escapes_of_a_file_do_not_reach_the_terminal(capsys, tmp_path):
    name = logits_file(tmp_path / "a\x1b]0;b\x07.npz")
    assert run("evaluate", "--predictions", name) == 0
    assert run("evaluate", "--predictions", tmp_path / "c\x1b[2J.npz") == 2
    found = capsys.readouterr()
    assert "\x1b" not in found.out + found.err
    assert r"a\x1b]0;b\x07" in found.out
    assert r"c\x1b[2J" in found.err
