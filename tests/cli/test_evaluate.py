"""`regmixup evaluate` on files of logits."""

import shutil

import numpy as np
import torch

from regmixup.predictions.store import save
from regmixup.run_folder import read_provenance, write_provenance
from regmixup.storage import read_rows
from regmixup.types import Predictions
from tests.cli.running import logits_file, run


def test_evaluate_needs_no_labels_of_an_ood_table(capsys, tmp_path):
    (tmp_path / "ood.csv").write_text("logit_a,logit_b,logit_c,logit_d\n" + "0,0,0,0\n" * 9)
    assert run("evaluate", "--predictions", logits_file(tmp_path / "mine.npz"), "--ood", tmp_path / "ood.csv") == 0
    assert "100.00" in capsys.readouterr().out
    assert run("evaluate", "--predictions", tmp_path / "ood.csv") == 2
    assert "a label for every sample, a table in a column called one of label, labels, " in capsys.readouterr().err


def test_labels_of_an_ood_set_do_not_count(capsys, tmp_path):
    """They are of other classes than the model's: more of them, or other names."""
    mine, logits = logits_file(tmp_path / "mine.npz"), np.zeros((9, 4))
    for name, labels in {"none": None, "numbers": [99] * 9, "names": ["frog"] * 9}.items():
        np.savez(tmp_path / f"{name}.npz", logits=logits, **({} if labels is None else {"labels": labels}))
    files = [tmp_path / f"{name}.npz" for name in ("none", "numbers", "names")]
    said = []
    for file in files:
        assert run("evaluate", mine, "--ood", file, "--names", "mine", "ood", "--resamples", 0) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    assert run("evaluate", mine, "--shift", files[1]) == 2
    assert "labels must lie in [0, 4)" in capsys.readouterr().err


def test_evaluate_scores_logits_of_any_model(capsys, tmp_path):
    mine, other = logits_file(tmp_path / "mine.npz"), tmp_path / "other.npy"
    np.save(other, np.zeros((30, 4)))
    words = ("--predictions", mine, "--ood", other, "--shift", logits_file(tmp_path / "dark.npz"))
    assert run("evaluate", *words, "--resamples", 50, "--out", tmp_path / "rows.csv") == 0
    text = capsys.readouterr().out
    auroc = next(line for line in text.splitlines() if "AUROC by entropy, other" in line)
    assert "100.00" in auroc  # constant logits have the largest entropy: every score detects all of them
    rows = read_rows(tmp_path / "rows.csv")
    assert len([row for row in rows if (row.dataset, row.metric) == ("dark", "debiased_ece")]) == 2  # and their mean


def test_evaluate_says_how_a_file_was_read(capsys, tmp_path):
    (tmp_path / "mine.csv").write_text("id;logit_cat;logit_dog;label\n1;0.5;-2;dog\n2;3;4.5;cat\n")
    np.savez(tmp_path / "svhn.npz", probs=np.array([[0.5, 0.5]]))
    (tmp_path / "far.csv").write_text("0,1\n0.5,0.7\n")
    words = ("--predictions", tmp_path / "mine.csv", "--ood", tmp_path / "svhn.npz", tmp_path / "far.csv")
    assert run("evaluate", *words) == 0
    told = [line.removeprefix(str(tmp_path)) for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "/mine.csv: left out: 'id'; labels are names of classes",
        "/svhn.npz: probs alone: no score that needs the scale of logits, such as dempster_shafer",
    ]


def test_evaluate_is_told_which_columns_are_the_classes(capsys, tmp_path):
    (tmp_path / "mine.csv").write_text("label,cat,dog,any\ndog,0.5,-2,9\ncat,3,4,9\n")
    assert run("evaluate", tmp_path / "mine.csv") == 2
    assert "--columns" in capsys.readouterr().err
    assert run("evaluate", tmp_path / "mine.csv", "--columns", "cat", "dog") == 0
    assert "left out: 'any'" in capsys.readouterr().err


def test_evaluate_is_told_where_the_labels_are(capsys, tmp_path):
    (tmp_path / "mine.csv").write_text("label,0,1\n1,0.5,-2\n0,3,4\n")
    assert run("evaluate", "--predictions", tmp_path / "mine.csv") == 0
    np.save(tmp_path / "logits.npy", np.array([[0.5, -2], [3, 4]]))
    np.save(tmp_path / "labels.npy", np.array([1, 0]))
    of_table = capsys.readouterr().out
    assert run("evaluate", "--predictions", tmp_path / "logits.npy", "--labels", tmp_path / "labels.npy") == 0
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()[2:]] == [
        line.split()[1:] for line in of_table.splitlines()[2:]
    ]


def test_the_table_of_rows_replaces_no_file_that_is_read_however_it_is_written(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = "label,logit_a,logit_b\n" + "a,2,1\n" * 9
    (tmp_path / "mine.csv").write_text(text)
    for out in ("mine.csv", tmp_path / "mine.csv"):
        assert run("evaluate", "mine.csv", "--resamples", 0, "--out", out) == 2
        assert f"--out must name another file than those that are read, got {out}" in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == text


def test_shifted_files_are_averaged_by_the_family_in_their_names(tmp_path):
    files = [logits_file(tmp_path / f"toy-c__fog__{severity}.npz", seed=severity) for severity in (1, 2)]
    words = ("--predictions", logits_file(tmp_path / "mine.npz"), "--resamples", 0, "--out", tmp_path / "rows.csv")
    assert run("evaluate", *words, "--shift", *files) == 0
    rows = [row for row in read_rows(tmp_path / "rows.csv") if row.metric == "accuracy" and row.dataset == "toy-c"]
    found = {(row.corruption, row.severity): row.value for row in rows}
    assert list(found) == [("fog", 1), ("fog", 2), ("mean", None)]
    assert found["mean", None] == (found["fog", 1] + found["fog", 2]) / 2


def test_labels_that_are_missing_from_a_file_without_columns(capsys, tmp_path):
    mine = logits_file(tmp_path / "mine.npz")
    np.savez(tmp_path / "val.npz", logits=np.load(mine)["logits"])
    assert run("evaluate", mine, "--val", tmp_path / "val.npz") == 2
    assert "val.npz must hold a label for every sample, under the key labels of" in capsys.readouterr().err


def test_bad_predictions_are_refused_by_the_name_of_their_file(capsys, tmp_path):
    np.savez(tmp_path / "bad.npz", logits=np.zeros((3, 2)), labels=np.array([0, 1, 2]))
    assert run("evaluate", tmp_path / "bad.npz", "--out", tmp_path / "rows.csv") == 2
    error = capsys.readouterr().err
    assert "labels must lie in [0, 2)" in error
    assert "bad" in error
    assert not (tmp_path / "rows.csv").exists()


def test_the_summary_comes_first_and_says_where_the_rows_are(capsys, tmp_path):
    np.save(tmp_path / "far.npy", np.zeros((30, 4)))
    mine = logits_file(tmp_path / "mine.npz")
    words = ("--ood", tmp_path / "far.npy", "--resamples", 50)
    assert run("evaluate", mine, *words) == 0
    text = capsys.readouterr().out
    titles = [line.strip().split("  ")[0] for line in text.splitlines()]
    for title in ("accuracy", "ECE", "NLL", "AUROC by entropy, far", "AUROC by MSP, far"):
        assert title in titles
    assert "adaptive_ece" not in text
    assert "rows: --out rows.csv writes them all" in text
    accuracy = next(line for line in text.splitlines() if line.strip().startswith("accuracy"))
    assert accuracy.split()[1:] == ["90.00", *accuracy.split()[2:3], "to", accuracy.split()[4]]
    assert run("evaluate", *words, f"--predictions={mine}") == 0
    assert capsys.readouterr().out == text


def test_groups_of_ood_sets_have_their_mean(capsys, monkeypatch, tmp_path):
    mine, a, b = (logits_file(tmp_path / "mine.npz"), tmp_path / "a.npy", tmp_path / "b.npy")
    np.save(a, np.zeros((30, 4)))
    np.save(b, np.eye(4)[np.arange(30) % 4] * 9)
    words = (mine, "--ood", a, b, "--resamples", 0, "--out", tmp_path / "rows.csv", "--names", "mine", "first")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("evaluate", *words, "--group", f"both={a},{b}", "one=~/b.npy") == 0
    rows = read_rows(tmp_path / "rows.csv")
    auroc = {row.dataset: row.value for row in rows if (row.metric, row.score) == ("auroc", "entropy")}
    assert auroc["both"] == (auroc["first"] + auroc["b"]) / 2
    assert auroc["one"] == auroc["b"] != auroc["first"]
    assert "both" in capsys.readouterr().out
    for wrong in ("both", "=a.npy", "both=c.npy", f"both={a},"):
        assert run("evaluate", *words, "--group", wrong) == 2
        assert "--group must be NAME=FILE,FILE of files that --ood names (" in capsys.readouterr().err


def test_two_models_are_compared_in_a_summary_a_page_and_rows(capsys, tmp_path):
    mine, theirs = logits_file(tmp_path / "mine.npz"), tmp_path / "theirs.npz"
    stored = np.load(mine)
    np.savez(theirs, logits=stored["logits"] * [1, 1, 1, 0.1], labels=stored["labels"])
    words = ("--against", theirs, "--resamples", 50, "--html", tmp_path / "page.html", "--out", tmp_path / "rows.csv")
    assert run("evaluate", mine, *words) == 0
    text = capsys.readouterr().out
    head = next(line.split() for line in text.splitlines() if "difference" in line)
    assert head == ["mine", "theirs", "difference", "95", "%", "interval"]
    assert {row.method for row in read_rows(tmp_path / "rows.csv")} == {"mine", "theirs"}
    assert "<h1>mine against theirs</h1>" in (tmp_path / "page.html").read_text()
    assert run("evaluate", mine, *words, "--names", "new", "old") == 0
    assert "<h1>new against old</h1>" in (tmp_path / "page.html").read_text()


def test_any_number_of_names_is_taken_for_models_and_then_for_ood_sets(capsys, tmp_path):
    mine = logits_file(tmp_path / "mine.npz")
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).normal(size=(30, 4)))
    words = ("evaluate", mine, "--ood", tmp_path / "a.npy", tmp_path / "b.npy", "--resamples", 0)
    for names, expected in (
        ((), ("mine", "AUROC by entropy, a", "AUROC by entropy, b")),
        (("new",), ("new", "AUROC by entropy, a", "AUROC by entropy, b")),
        (("new", "street signs"), ("new", "AUROC by entropy, street signs", "AUROC by entropy, b")),
        (("new", "street signs", "cats"), ("new", "AUROC by entropy, street signs", "AUROC by entropy, cats")),
    ):
        assert run(*words, *(("--names", *names) if names else ())) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"{expected[0]}: ")
        assert all(title in text for title in expected[1:])
    for names in (("new", "x", "y", "z"), ("new", "x", "x")):
        assert run(*words, "--names", *names) == 2
        error = capsys.readouterr().err
        assert "--names must differ, one for each model and each set of --ood" in error
        assert f"3 at most, got {len(names)}: {', '.join(names)}" in error


def test_folders_of_images_are_named_without_their_path(capsys, tmp_path):
    """As long as that tells them apart; the model by the folder of its run."""
    labels, rng = torch.arange(40) % 4, torch.Generator().manual_seed(0)
    folder = tmp_path / "runs" / "erm-photos" / "predictions"
    places = {"test": "/home/me/photos/val-15", "cats": "/home/me/cats", "x": "/a/birds", "y": "/b/birds"}
    for name, place in places.items():
        logits = torch.randn(40, 4, generator=rng)
        save(Predictions(logits, labels, dataset=f"folder:{place}"), folder / f"{name}.safetensors")
    write_provenance(folder.parent, {"classes": list("abcd")})
    files = [folder / f"{name}.safetensors" for name in places]
    page = tmp_path / "page.html"
    table = tmp_path / "rows.csv"
    assert run("evaluate", files[0], "--ood", *files[1:], "--resamples", 0, "--out", table, "--html", page) == 0
    assert capsys.readouterr().out.startswith("erm-photos: ")
    rows = [row for row in read_rows(table) if row.metric == "auroc"]
    assert {row.dataset for row in rows} == {"cats", "folder:/a/birds", "folder:/b/birds"}
    assert "photos/val-15 (40)" in page.read_text()
    assert "/home/me" not in page.read_text()


def test_two_runs_are_named_by_their_folders(tmp_path):
    """Their files have the same name."""
    files = [tmp_path / name / "predictions" / "mine.npz" for name in ("dnn-s0", "regmixup-s0")]
    for file in files:
        file.parent.mkdir(parents=True)
        logits_file(file)
        write_provenance(file.parent.parent, {"classes": list("abcd")})
    table = tmp_path / "rows.csv"
    assert run("evaluate", files[0], "--against", files[1], "--resamples", 0, "--out", table) == 0
    assert {row.method for row in read_rows(table)} == {"dnn-s0", "regmixup-s0"}


def test_other_images_and_flags_without_a_second_model_are_refused(capsys, tmp_path):
    mine, theirs = logits_file(tmp_path / "mine.npz"), logits_file(tmp_path / "theirs.npz", seed=1)
    assert run("evaluate", mine, "--against", theirs, "--html", tmp_path / "page.html") == 2
    assert "mine must be the same images in the same order for both models" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
    assert run("evaluate", mine, "--against-ood", theirs) == 2
    assert "--against-ood, --against-shift, --against-val and --against-train need --against" in capsys.readouterr().err


def test_sets_of_one_model_alone_are_refused_by_the_names_of_both_flags(capsys, tmp_path):
    mine = logits_file(tmp_path / "mine.npz")
    for flag in ("--ood", "--against-ood", "--shift", "--against-shift"):
        assert run("evaluate", mine, "--against", mine, flag, mine) == 2
        name = flag.removeprefix("--").removeprefix("against-")
        got = "0 and 1" if "against" in flag else "1 and 0"
        error = f"with --against, --{name} and --against-{name} must have the same sets, got {got} files"
        assert error in " ".join(capsys.readouterr().err.split())


def test_the_page_of_our_own_predictions_shows_their_images(tmp_path, finished_run):
    finished_run.predict_all(["digits/test", "photographs/test"], device="cpu")
    folder = finished_run.folder / "predictions"
    words = (folder / "digits__test.safetensors", "--ood", folder / "photographs__test.safetensors")
    assert run("evaluate", *words, "--resamples", 0, "--html", tmp_path / "page.html") == 0
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/png;base64,") + text.count("data:image/jpeg;base64,") >= 16


def test_the_page_names_examples_by_the_classes_of_the_model(tmp_path, finished_run):
    """Which number the labels, whatever the test set has."""
    finished_run.predict_all(["digits/test"], device="cpu")
    folder = shutil.copytree(finished_run.folder, tmp_path / "run")
    record = read_provenance(folder)
    for classes, named in (([f"the {one}" for one in record["classes"]], True), (["the first"], False)):
        write_provenance(folder, record | {"classes": classes})
        words = (folder / "predictions" / "digits__test.safetensors", "--html", tmp_path / "page.html")
        assert run("evaluate", *words, "--resamples", 0) == 0
        assert ('alt="says the ' in (tmp_path / "page.html").read_text()) is named


def test_errors_are_ordered_by_msp(capsys, tmp_path):
    mine, other = logits_file(tmp_path / "mine.npz"), tmp_path / "other.npy"
    np.save(other, np.zeros((30, 4)))
    words = (mine, "--ood", other, "--against", mine, "--against-ood", other, "--resamples", 0)
    assert run("evaluate", *words, "--out", tmp_path / "rows.csv", "--html", tmp_path / "page.html") == 0
    rows = {row.score: row.value for row in read_rows(tmp_path / "rows.csv") if row.metric == "aurc"}
    text = " ".join(capsys.readouterr().out.split())
    assert f"AURC by MSP {1000 * rows['max_probability']:.2f}" in text
    assert round(100 * rows["entropy"], 2) != round(100 * rows["max_probability"], 2)
    for said in (text, (tmp_path / "page.html").read_text()):
        assert "AURC by MSP" in said
        assert "AUROC by entropy, other" in said
        assert "AUROC by MSP, other" in said
        assert "n percent but for NLL (nats), AURC by MSP (thousandths)" in said
