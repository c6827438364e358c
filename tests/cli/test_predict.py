"""`regmixup predict`, after `train` and before `evaluate`."""

import shutil

import pytest

import regmixup as rm
from regmixup.storage import read_rows
from tests.cli.running import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder, made by the train verb."""
    runs = tmp_path_factory.mktemp("runs")
    assert run("train", "--method", "mixup", "--epochs", 2, "--seed", 7, "--device", "cpu", "--runs", runs) == 0
    (folder,) = runs.iterdir()
    return folder


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


def test_predicting_with_a_truncated_checkpoint_is_an_error_and_writes_no_predictions(trained, capsys, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(folder / "predictions", ignore_errors=True)
    checkpoint = folder / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert run("predict", folder, "digits/test") == 2
    assert "cannot use checkpoint" in capsys.readouterr().err
    assert not (folder / "predictions").exists()


def test_an_edited_run_configuration_is_refused(trained, capsys, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(folder / "predictions", ignore_errors=True)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"alpha": 0.3', '"alpha": 0.4'))
    assert run("predict", folder, "digits/test") == 2
    assert "belongs to configuration" in capsys.readouterr().err


def test_predicting_with_an_unfinished_run_writes_nothing(tmp_path):
    unfinished = rm.Run(tmp_path / "none", rm.configure())
    with pytest.raises(ValueError, match="is not finished"):
        unfinished.predict("digits/val")
    assert not list(tmp_path.iterdir())
