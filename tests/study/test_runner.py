"""Carrying out a study."""

import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from regmixup import metrics
from regmixup.metrics import CLASSIFICATION, DETECTION, SELECTIVE
from regmixup.posthoc import MonteCarlo
from regmixup.report.page import study_page
from regmixup.report.results import load_results
from regmixup.report.tables import study_tables
from regmixup.run_folder import read_figures
from regmixup.storage import read_rows, read_table
from regmixup.study import runner
from regmixup.study.runner import collect, run_study
from regmixup.training.run import Run
from tests.holding import held_by_another_process
from tests.study.mini import MINI, load_mini


def test_rows_cover_every_method_seed_and_question(finished_study):
    _, _, folder = finished_study
    rows = read_rows(folder / "rows.csv")
    assert {(r.method, r.seed) for r in rows} == {(m, s) for m in ("dnn", "regmixup") for s in (0, 1)}
    assert {r.study for r in rows} == {"mini"}
    one = [r for r in rows if r.method == "dnn" and r.seed == 0]
    assert len({(r.dataset, r.corruption, r.severity, r.posthoc, r.score, r.metric) for r in one}) == len(one)
    own = {"temperature", "fisher_criterion"}
    assert {r.metric for r in one} == {*CLASSIFICATION, *DETECTION, *SELECTIVE, *own}
    assert all(r.low <= r.high for r in one if r.metric not in own)
    assert all(0 <= r.value <= 1 for r in one if r.metric in ("accuracy", "ece", "auroc"))


def test_a_study_under_torchrun_is_refused(finished_study, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "world_size", lambda: 2)
    with pytest.raises(ValueError, match="must be started without torchrun, got 2 processes"):
        run_study(finished_study.study, tmp_path, device="cpu")


def test_a_wrong_number_of_workers_is_refused_before_any_run_fails_of_it(finished_study, tmp_path):
    with pytest.raises(ValueError, match=r"^workers must be an integer >= 0, got -1$"):
        run_study(finished_study.study, tmp_path, device="cpu", workers=-1)
    assert not any(tmp_path.iterdir())


def test_a_second_run_repeats_no_training_and_no_prediction_and_gives_the_same_rows(finished_study):
    study, runs, folder = finished_study
    before = {p: p.stat().st_mtime_ns for p in runs.rglob("*.safetensors")}
    rows = (folder / "rows.csv").read_bytes()
    (folder / "rows.csv").unlink()
    assert run_study(study, runs, device="cpu") == folder
    assert (folder / "rows.csv").read_bytes() == rows
    assert {p: p.stat().st_mtime_ns for p in runs.rglob("*.safetensors")} == before


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def drop_lines(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))


@pytest.mark.parametrize(
    ("damage", "pattern", "warning"),
    [
        (drop_lines, "*/rows-*.csv", ""),
        (zero, "*/rows-*.json", ""),
        (zero, "*/figures-*.json", ""),
        (Path.unlink, "*/outcomes-*.npz", ""),
        (zero, "*/predictions/digits__test.safetensors", "digits__test.safetensors: .*; predicted again"),
        (zero, "study-mini/study.json", ""),
        (drop_lines, "study-mini/rows.csv", ""),
        (zero, "*/provenance.json", ""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "/".join(re.findall(r"[\w-]+\*?\.\w+$", value)),
)
def test_a_damaged_file_is_made_again_and_the_rows_are_the_same(finished_study, tmp_path, damage, pattern, warning):
    shutil.copytree(finished_study.runs, tmp_path, dirs_exist_ok=True)
    text = MINI.replace("seeds = [0, 1]", "seeds = [0]").replace('methods = ["dnn", "regmixup"]', 'methods = ["dnn"]')
    study = load_mini(tmp_path, text)
    folder = run_study(study, tmp_path, device="cpu")
    expected, rows = {path.name: path.read_bytes() for path in folder.iterdir()}, read_rows(folder / "rows.csv")
    for path in tmp_path.glob(pattern):
        damage(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run_study(study, tmp_path, device="cpu")
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    if warning:  # predicted again: another address in memory may change the last bits of a logit
        assert after.keys() == expected.keys()
        for row, other in zip(rows, read_rows(folder / "rows.csv"), strict=True):
            assert replace(other, value=0.0, low=None, high=None) == replace(row, value=0.0, low=None, high=None)
            for name in ("value", "low", "high"):
                value = getattr(row, name)
                assert getattr(other, name) == (None if value is None else pytest.approx(value, rel=1e-6, nan_ok=True))
    else:
        assert after == expected
    assert re.search(warning, " ".join(str(one.message) for one in said))
    assert run_study(study, tmp_path, device="cpu") == folder  # without a warning


def test_the_table_is_written_when_another_process_has_written_its_own(finished_study, tmp_path, monkeypatch):
    study, runs, _ = finished_study
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    table = tmp_path / "study-mini" / "rows.csv"
    complete = table.read_bytes()
    table.unlink()
    existed = []

    def leave(seconds):
        existed.append(table.exists())
        holding.__exit__(None, None, None)

    monkeypatch.setattr(runner.time, "sleep", leave)
    holding = held_by_another_process(table.parent)
    holding.__enter__()
    run_study(study, tmp_path, device="cpu")
    assert existed == [False]
    assert table.read_bytes() == complete


def test_a_run_that_another_process_finished_belongs_into_the_table(finished_study, tmp_path, monkeypatch):
    """Also where a time limit has left it to that process."""
    shutil.copytree(finished_study.runs, tmp_path, dirs_exist_ok=True)
    complete = (finished_study.folder / "rows.csv").read_bytes()
    dispatch = runner.dispatch
    monkeypatch.setattr(runner, "dispatch", lambda tasks, *more: dispatch(tasks[1:], *more))
    folder = run_study(finished_study.study, tmp_path, device="cpu", minutes=60)
    assert (folder / "rows.csv").read_bytes() == complete


def test_a_study_that_stops_has_a_report_of_what_is_done(finished_study, tmp_path):
    class StopAfterOne:
        def hooks(self, label, epochs):
            if label == "regmixup seed 0":
                raise KeyboardInterrupt
            return {}

        def begin(self, label, epochs): ...
        def epoch(self, label, record): ...
        def end(self, label, note): ...

    with pytest.raises(KeyboardInterrupt):
        run_study(finished_study.study, tmp_path, device="cpu", progress=StopAfterOne())
    with pytest.warns(UserWarning, match="left out of the table"):
        results = load_results(collect(finished_study.study, tmp_path))
    assert {row.method for row in results.rows} == {"dnn"}
    assert len(results.runs) == 1
    assert "<dt>dnn</dt>" in study_page(results, study_tables(results))


def test_a_study_that_confirms_is_not_collected_without_the_choices(finished_study):
    """The finished runs have the method's usual values, which are not those that were selected."""
    study = replace(finished_study.study, confirms="search")
    with pytest.raises(ValueError, match=r"study must not be mini, which confirms what search selected: .*-selected$"):
        collect(study, finished_study.runs)


@pytest.mark.filterwarnings("ignore:the best")
def test_methods_that_change_their_predictions_are_measured_through_what_they_do(tmp_path):
    """A Laplace approximation shares the run of plain training; the rows differ, on the shifted set, too."""
    text = MINI.replace('["dnn", "regmixup"]', '["dnn", "kfac-llla", "sngp"]').replace("[0, 1]", "[0]")
    text = text.replace("epochs = 5", "epochs = 2").replace("contrast/1", "contrast/3")
    text = text.replace("resamples = 100", "resamples = 20")
    text = text.replace('profile = "path:digits/test"', "feature_scores = true")
    text += "\n[grid.kfac-llla]\nposthoc.samples = 10\n"
    study = load_mini(tmp_path, text)
    folder = run_study(study, tmp_path, device="cpu")
    entries = read_table(folder / "study.json")["runs"]
    assert entries[0]["folder"] == entries[1]["folder"] != entries[2]["folder"]
    ece = {
        (row.method, row.dataset, row.severity): row.value
        for row in read_rows(folder / "rows.csv")
        if row.metric == "ece" and row.posthoc == "none"
    }
    scores = {(row.method, row.score) for row in read_rows(folder / "rows.csv") if row.metric == "auroc"}
    assert {(method, score) for method in ("dnn", "sngp") for score in ("knn", "mahalanobis")} <= scores
    run = Run.open(tmp_path / entries[2]["folder"])
    sampled = MonteCarlo(samples=10)(run.predict("digits/test"))
    assert ece["sngp", "digits/test", None] == pytest.approx(metrics.ece(sampled.probs, sampled.labels), abs=1e-12)
    for place in (("digits/test", None), ("digits-c", 3), ("digits-c", 5)):
        assert ece["dnn", *place] != ece["kfac-llla", *place]
    plain, laplace = (read_figures(tmp_path / entry["folder"], entry["stem"]) for entry in entries[:2])
    assert plain["reliability"]["none"] != laplace["reliability"]["none"]
    assert "max_probability" in plain["scores"]
    assert "knn" not in plain["scores"]  # which would be fitted and computed a second time


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("kfac-llla", 'head = "gp"', "kfac-llla needs one model with the linear head.*got head 'gp' and members 1"),
        ("sngp", "members = 2", "sngp needs one model with the gp head.*members 2"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_trained(tmp_path, method, change, message):
    text = MINI.replace('"regmixup"]', f'"{method}"]').replace("epochs = 5", f"epochs = 1\n{change}")
    study = load_mini(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        run_study(study, tmp_path / "runs", device="cpu")
    assert not (tmp_path / "runs").exists()
