"""From a run to its rows and figure data: measured once, and again where anything changed."""

import base64
import io
import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from regmixup.study.cost import Paces, estimate
from regmixup.study.measure import PAIRS, cached_rows, complete_run, figure_data

from regmixup import data, metrics
from regmixup.cli import main
from regmixup.data.images import interpolate
from regmixup.metrics.calibration import ece
from regmixup.posthoc import LastLayerLaplace, MonteCarlo, TemperatureScaling
from regmixup.predictions import predict
from regmixup.report.results import Results
from regmixup.run_folder import figures_path, write_provenance
from regmixup.storage import InUseError, read_rows, read_table
from regmixup.study import measure as module
from regmixup.study.archive import archive_places
from regmixup.study.plan import load_study
from regmixup.study.runner import FailedRunsError, run_study
from regmixup.study.status import run_status
from regmixup.study.tasks import Task, find_tasks
from regmixup.training.config import resolve
from regmixup.training.run import Run
from regmixup.training.train import train
from regmixup.types import Row
from tests.data.official import write_cifar
from tests.holding import held_by_another_process
from tests.study.mini import FEW_SETS, write_mini

# On random images the best temperature and prior variance may lie on the edges of their ranges.
pytestmark = pytest.mark.filterwarnings("ignore:the best")

CPU = torch.device("cpu")
STUDY = """
title = "Companions"
recipe = "cifar10-wrn28-10"
methods = ["dnn", "kfac-llla"]
seeds = [1, 0]

[train]
network = "small"
epochs = 1

[grid.kfac-llla]
posthoc.name = "laplace"  # with its defaults instead of the paper's: then there is a prior variance to choose
posthoc.samples = 20
posthoc.grid = [[0.1, 10.0]]

[evaluate]
validation = "cifar10/val-10"
calibration = "companion"
test = "cifar10/test"
resamples = 10
"""


@pytest.fixture(scope="module")
def companions(tmp_path_factory):
    root = tmp_path_factory.mktemp("companions")
    write_cifar(root, "cifar10", per_file=40)
    study = load_study(str(write_mini(root, STUDY)))
    folder = run_study(study, root / "runs", root=root, device="cpu")
    return root, list(study.runs()), read_rows(folder / "rows.csv")


REFRESHED = """
title = "Refreshed"
recipe = "cifar10-wrn28-10"
methods = ["dnn"]
seeds = [0]
refresh_batch_norm = true

[train]
network = "small"
epochs = 1

[evaluate]
validation = "cifar10/val-10"
calibration = "companion"
test = "cifar10/test"
feature_scores = true
resamples = 10
"""


def test_refreshed_batch_norm_gives_further_rows_of_the_same_run(tmp_path):
    """From the predictions of the same weights with other statistics, the train set's and the companion's as well."""
    write_cifar(tmp_path, "cifar10", per_file=40)
    study = load_study(str(write_mini(tmp_path, REFRESHED)))
    folder = run_study(study, tmp_path / "runs", root=tmp_path, device="cpu")
    rows = read_rows(folder / "rows.csv")
    assert {row.method for row in rows} == {"dnn", "dnn(bn=refreshed)"}
    assert len({row.run for row in rows}) == 1
    plain, planned = study.runs()
    run, companion = (run_of(tmp_path, config).refreshed() for config in (planned.config, planned.companion))
    assert run.predictions_path("cifar10/train").is_file()
    own = [row for row in rows if row.method == planned.label]
    validation, test = companion.predict("cifar10/val-10"), run.predict("cifar10/test")
    (temperature,) = [row.value for row in own if row.metric == "temperature"]
    assert temperature == TemperatureScaling().fit(validation.logits, validation.labels).temperature
    found = {row.method: row.value for row in rows if (row.metric, row.posthoc) == ("nll", "none")}
    assert found[planned.label] == pytest.approx(float(metrics.nll(test.logits.double().softmax(dim=1), test.labels)))
    assert found[planned.label] != found[plain.label]
    assert (run.folder / f"figures-{planned.stem}.json").is_file()


def run_of(root, config):
    config = resolve(config, torch.device("cpu"))
    return Run(root / "runs" / config.name, config)


def test_lines_of_one_run_predict_each_set_once_and_fit_a_map_once(tmp_path, monkeypatch):
    """Also a shifted set, whose features only the second line needs; the first has the rows that it has alone."""
    predicted, fitted = [], []
    plain, fit = predict._predict, LastLayerLaplace.fit
    monkeypatch.setattr(predict, "_predict", lambda *a, **k: predicted.append(a[2]) or plain(*a, **k))
    monkeypatch.setattr(LastLayerLaplace, "fit", lambda *a, **k: fitted.append(a) or fit(*a, **k))
    text = FEW_SETS.replace("[0, 1]", "[0]").replace("resamples = 100", "resamples = 10")
    both, alone = (text.replace('"dnn", "regmixup"', methods) for methods in ('"dnn", "kfac-llla"', '"dnn"'))
    both += "\n[grid.kfac-llla]\nposthoc.samples = 10\n"

    def rows(text, runs):
        folder = run_study(load_study(str(write_mini(tmp_path, text))), tmp_path / runs, device="cpu")
        return [row for row in read_rows(folder / "rows.csv") if row.method == "dnn"]

    found = rows(both, "both")
    assert len(predicted) == len(set(predicted)) == 5  # with the train set
    assert len(fitted) == 1
    monkeypatch.setattr(module, "evaluate", None)
    assert rows(both, "both") == found  # the files have not changed since
    monkeypatch.undo()
    assert rows(alone, "alone") == found


def test_figures_find_a_folder_of_images_under_the_root(tmp_path):
    (tmp_path / "root" / "photos" / "one").mkdir(parents=True)
    for number in range(3):
        Image.new("L", (8, 8), 50 * number).save(tmp_path / "root" / "photos" / "one" / f"{number}.png")
    text = FEW_SETS.replace("photographs/test", "folder:photos").replace("[0, 1]", "[0]")
    study = load_study(str(write_mini(tmp_path, text.replace(', "regmixup"', ""))))
    (planned,) = study.runs()
    folder = run_study(study, tmp_path / "runs", root=tmp_path / "root", device="cpu")
    drawn = read_table(figures_path(run_of(folder.parent.parent, planned.config).folder, planned.stem))
    assert "folder:photos" in drawn["scores"]["dempster_shafer"]["roc"]


def test_there_is_one_companion_for_all_seeds_and_methods_that_train_alike(companions):
    root, plan, _ = companions
    assert len({planned.companion for planned in plan}) == 1
    assert len(list((root / "runs").glob("*/checkpoint.safetensors"))) == 3
    companion = run_of(root, plan[0].companion)
    assert companion.config.seed == 1
    assert companion.predictions_path("cifar10/val-10").is_file()
    for planned in plan:  # whoever was trained on the validation images is not asked about them
        assert not run_of(root, planned.config).predictions_path("cifar10/val-10").exists()


def test_a_seed_on_another_machine_takes_what_an_archived_companion_chose(companions, tmp_path):
    """Without its weights, so that it is not trained again, and one table has one temperature."""
    root, plan, rows = companions
    study, kept = load_study(str(root / "mini.toml")), tmp_path / "kept"
    run_study(study, root / "runs", root=root, device="cpu", archive=kept)
    companion = run_of(root, plan[0].companion).folder.name
    assert sorted(path.name for path in (kept / companion).glob("rows-*")) == sorted(
        f"rows-{stem}.csv.gz" for stem in {planned.choosing.stem for planned in plan}
    )
    gone = [planned for planned in plan if planned.config.seed == 0]
    for planned in gone:
        shutil.rmtree(kept / run_of(root, planned.config).folder.name, ignore_errors=True)
    places = archive_places(study, kept)
    found = [run_status(task, Paces()) for task in find_tasks(gone, tmp_path / "runs", CPU, places)]
    assert estimate(status.task for status in found).networks == 1
    assert {status.epochs for status in found} == {1}
    folder = run_study(study, tmp_path / "runs", root=root, device="cpu", archive=kept)
    assert [path.parent.name for path in (tmp_path / "runs").glob("*/checkpoint.safetensors")] == [
        run_of(root, gone[0].config).folder.name
    ]
    assert read_rows(folder / "rows.csv") == rows


def test_what_a_study_spent_includes_its_companions(companions, tmp_path, capsys):
    """Found in the runs folder, archived, or both, and whether their lines are done or not; all others are left."""
    root, kept, study = companions[0], tmp_path / "kept", load_study(str(companions[0] / "mini.toml"))
    run_study(study, root / "runs", root=root, device="cpu", archive=kept)
    companion, nowhere = run_of(root, companions[1][0].companion).folder.name, tmp_path / "nowhere"
    shutil.copytree(root / "runs" / companion, tmp_path / "alone" / companion)
    shutil.copytree(kept / companion, tmp_path / "kept-alone" / companion)
    for runs, archive, count in (
        (root / "runs", nowhere, 3),
        (nowhere, kept, 3),
        (root / "runs", kept, 3),
        (tmp_path / "alone", nowhere, 1),
        (nowhere, tmp_path / "kept-alone", 1),
        (tmp_path / "alone", tmp_path / "kept-alone", 1),
        (tmp_path / "alone", kept, 3),
    ):
        places = ["--runs", str(runs), "--archive", str(archive)]
        main(["study", str(root / "mini.toml"), *places, "--device", "cpu", "--dry-run"])
        found = re.search(r"spent  (\d) .*\nleft   (\d) ", capsys.readouterr().out)
        assert [int(number) for number in found.groups()] == [count, 3 - count]


def test_a_damaged_archive_of_a_companion_is_an_error_before_anything_is_trained(companions, tmp_path):
    root, kept, study = companions[0], tmp_path / "kept", load_study(str(companions[0] / "mini.toml"))
    run_study(study, root / "runs", root=root, device="cpu", archive=tmp_path / "whole")
    companion = run_of(root, companions[1][0].companion).folder.name
    shutil.copytree(tmp_path / "whole" / companion, kept / companion)
    (kept / companion / "history.jsonl").write_text("")
    with pytest.raises(
        FailedRunsError, match=rf"(\d) of \1 runs failed\n  .*: .*{companion}/history\.jsonl has changed"
    ):
        run_study(study, tmp_path / "runs", root=root, device="cpu", archive=kept)
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["study-mini"]


def test_a_display_counts_the_epochs_of_a_companion_that_is_trained_first(companions, tmp_path):
    root, plan, _ = companions
    planned = plan[0]
    runs = [Run.of(resolve(config, CPU), tmp_path) for config in (planned.config, planned.companion)]
    task = Task(index=0, label="dnn", planned=planned, run=runs[0], companion=runs[1])
    total, seen = task.epochs(), []
    complete_run(planned, tmp_path, root=root, device="cpu", on_epoch=lambda record: seen.append(record))
    assert (total, [record["epoch"] for record in seen]) == (2, [1, 2])
    assert [record["loss"] for record in task.history(total)] == [record["loss"] for record in seen]
    assert task.epochs() == 1, "it is trained now"
    assert [record["epoch"] for record in task.history(task.epochs())] == [1]


def test_a_display_shows_a_companion_that_is_trained_last(companions, tmp_path, monkeypatch):
    """Of a process that was killed, at once or when the run is tried again."""
    root, plan, _ = companions
    planned, seen, calls = plan[0], [], []

    def first_held(config, *args, **kwargs):
        calls.append(config.train_set)
        if len(calls) == 1:
            raise InUseError("held")
        return train(config, *args, **kwargs)

    def show(record):
        seen.append((calls[-1], record["epoch"]))

    monkeypatch.setattr(module, "train", first_held)
    monkeypatch.setattr(module, "measure", lambda *args, **kwargs: [])
    complete_run(planned, tmp_path, root=root, device="cpu", on_epoch=show)
    assert seen == [("cifar10/train", 1), ("cifar10/train-90", 2)]
    shutil.rmtree(Run.of(resolve(planned.companion, CPU), tmp_path).folder)
    complete_run(planned, tmp_path, root=root, device="cpu", on_epoch=show)
    assert seen[2:] == [("cifar10/train-90", 2)]


def test_a_run_is_trained_while_another_process_trains_its_companion(companions, tmp_path):
    root, plan, _ = companions
    companion = resolve(plan[0].companion, CPU).name
    shutil.copytree(root / "runs" / companion, tmp_path / "runs" / companion)
    checkpoint = tmp_path / "runs" / companion / "checkpoint.safetensors"
    checkpoint.rename(tmp_path / "later")
    with held_by_another_process(checkpoint.parent), pytest.raises(InUseError, match=companion):
        complete_run(plan[0], tmp_path / "runs", root=root, device="cpu")
    assert Run.of(resolve(plan[0].config, CPU), tmp_path / "runs").finished
    (tmp_path / "later").rename(checkpoint)
    rows = complete_run(plan[0], tmp_path / "runs", root=root, device="cpu")
    assert [row.value for row in rows if row.metric == "temperature"] == [
        row.value for row in companions[2] if row.metric == "temperature" and row.method == "dnn" and row.seed == 1
    ]


def test_a_report_knows_that_one_companion_served_several_seeds(companions):
    root, plan, _ = companions
    (setting,) = Results.open(root / "runs" / "study-mini").settings
    assert setting.design.one_temperature == {planned.label for planned in plan}
    assert setting.design.untested.keys() == {planned.label for planned in plan if planned.method == "kfac-llla"}


def test_the_temperature_is_that_of_the_companion_and_scales_the_models_own_logits(companions):
    root, plan, rows = companions
    validation = run_of(root, plan[0].companion).predict("cifar10/val-10")
    expected = TemperatureScaling().fit(validation.logits, validation.labels).temperature
    for planned in plan:
        if planned.method != "dnn":
            continue
        own = [row for row in rows if (row.method, row.seed) == ("dnn", planned.config.seed)]
        assert [row.value for row in own if row.metric == "temperature"] == [expected]
        test = run_of(root, planned.config).predict("cifar10/test")
        probs = (test.logits.double() / expected).softmax(dim=1)
        (found,) = [row.value for row in own if (row.metric, row.posthoc) == ("ece", "temperature")]
        assert found == pytest.approx(metrics.ece(probs, test.labels), abs=1e-12)


def test_the_prior_variance_is_that_of_the_companion_and_the_curvature_the_models_own(companions):
    root, plan, rows = companions
    (label,) = {planned.label for planned in plan if planned.method == "kfac-llla"}
    planned = next(planned for planned in plan if planned.label == label and planned.config.seed == 0)
    companion = run_of(root, planned.companion)
    train, validation = companion.predict("cifar10/train-90"), companion.predict("cifar10/val-10")
    chosen = planned.posthoc.fit(train=train, validation=validation).prior_variance
    own = [row for row in rows if row.method == label and row.seed == 0]
    assert [row.value for row in own if row.metric == "prior_variance"] == [chosen]
    run = run_of(root, planned.config)
    fitted = replace(planned.posthoc, prior_variance=chosen).fit(train=run.predict("cifar10/train"))
    expected = fitted(run.predict("cifar10/test"))
    (found,) = [row.value for row in own if (row.metric, row.posthoc) == ("ece", "none")]
    assert found == pytest.approx(metrics.ece(expected.probs, expected.labels), abs=1e-12)
    assert isinstance(planned.posthoc, LastLayerLaplace)


ROWS = [Row(metric="accuracy", value=0.5, low=0.4, high=0.6, n=10)]


@pytest.fixture
def kept(tmp_path):
    """A cache that holds ROWS, and a function that asks it again and says whether it had to compute."""
    source = tmp_path / "p.safetensors"
    source.write_bytes(b"abc")
    path = tmp_path / "rows.csv"

    def ask(settings="s"):
        calls = []
        rows = cached_rows(path, [source], settings, lambda: calls.append(1) or ROWS)
        assert rows == ROWS
        return bool(calls)

    assert ask()
    return ask, path, source


def test_nothing_is_computed_twice(kept):
    ask, *_ = kept
    assert not ask()


def test_other_predictions_are_measured_anew(kept):
    ask, _, source = kept
    source.write_bytes(b"abcd")
    assert ask()
    os.utime(source, ns=(1, 1))
    assert ask()
    assert not ask()


def test_other_settings_are_measured_anew(kept):
    ask, *_ = kept
    assert ask("t")


def test_other_code_measures_anew(kept, monkeypatch):
    ask, *_ = kept
    monkeypatch.setattr(module, "_code", lambda: "corrected")
    assert ask()


def test_a_dropped_line_is_noticed_and_measured_anew(kept):
    ask, path, _ = kept
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.warns(UserWarning, match=r"rows\.csv: its content has changed since it was written; measured again"):
        assert ask()
    assert not ask()


@pytest.mark.parametrize("suffix", [".csv", ".json"])
@pytest.mark.parametrize("content", [b"", b"\0" * 50])
def test_a_damaged_file_is_made_again_with_a_warning(kept, suffix, content):
    ask, path, _ = kept
    path.with_suffix(suffix).write_bytes(content)
    with pytest.warns(UserWarning, match=rf"rows\{suffix}: .*; measured again"):
        assert ask()
    assert not ask()


def test_a_source_that_is_made_again_while_its_rows_are_computed_is_not_measured_twice(tmp_path):
    source = tmp_path / "p.safetensors"
    source.write_bytes(b"damaged")
    for computes in (lambda: source.write_bytes(b"whole") and ROWS, None):
        assert cached_rows(tmp_path / "rows.csv", [source], "s", computes) == ROWS


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_missing_file_is_made_again(kept, suffix):
    ask, path, _ = kept
    path.with_suffix(suffix).unlink()
    assert ask()
    assert not ask()


@pytest.fixture(scope="module")
def run(finished_study):
    return Run.open(next(finished_study.runs.glob("*/rows-dnn-*.csv")).parent)


@pytest.fixture(scope="module")
def stem(run):
    """What the study called the files of this run."""
    return next(run.folder.glob("rows-dnn-*.csv")).stem.removeprefix("rows-")


@pytest.fixture(scope="module")
def rows(run, stem):
    return read_rows(run.folder / f"rows-{stem}.csv")


@pytest.fixture(scope="module")
def evaluation(finished_study):
    return next(finished_study.study.runs()).evaluate


@pytest.fixture
def made(run, stem, rows, evaluation):
    return figure_data(run, evaluation, stem, rows=rows)


def test_a_study_leaves_it_beside_the_rows(run, stem, evaluation, rows, monkeypatch):
    monkeypatch.setattr(module, "reliability_bins", None)
    made = figure_data(run, evaluation, stem, rows=rows)
    stored = read_table(figures_path(run.folder, stem))
    assert stored == json.loads(json.dumps(made))
    assert figures_path(run.folder, stem).stat().st_size < 100_000


def test_it_is_not_made_twice_but_again_when_predictions_change(run, stem, evaluation, rows, made, monkeypatch):
    monkeypatch.setattr(module, "reliability_bins", lambda versions: "again")
    assert figure_data(run, evaluation, stem, rows=rows)["reliability"] != "again"
    path = run.predictions_path("photographs/test")
    before, text = path.stat(), figures_path(run.folder, stem).read_text()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert figure_data(run, evaluation, stem, rows=rows)["reliability"] == "again"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    figures_path(run.folder, stem).write_text(text)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"key": 1'], ids=["empty", "zeros", "cut off"])
def test_damaged_data_is_made_again_with_a_warning(run, stem, evaluation, rows, made, damage):
    path = figures_path(run.folder, stem)
    whole = path.read_bytes()
    path.write_bytes(damage)
    with pytest.warns(UserWarning, match=rf"{path.name}: .*; made again"):
        figure_data(run, evaluation, stem, rows=rows)
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b"0.", b"1.", 1))  # readable, but another number
    with pytest.warns(UserWarning, match="its content has changed since it was written; made again"):
        figure_data(run, evaluation, stem, rows=rows)
    assert path.read_bytes() == whole


def test_temperature_comes_from_the_rows(run, rows, made):
    scale = next(row.value for row in rows if row.metric == "temperature")
    test = run.predict("digits/test")
    expected = ece((test.logits.double() / scale).softmax(dim=1), test.labels)
    bins = made["reliability"]["temperature"]
    gaps = [n * abs(c - a) for n, c, a in zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True) if n]
    assert sum(gaps) / len(test) == pytest.approx(expected, abs=1e-4)


def test_the_images_are_the_ends_of_the_paths(made):
    source = data.load("digits/test")
    paths = interpolate(source).images.reshape(1000, 20, 1, 8, 8)
    assert len(made["images"]) == PAIRS == len(made["path"]["pairs"])
    for index, pair in enumerate(made["images"]):
        first, second = (np.array(Image.open(io.BytesIO(base64.b64decode(text)))) for text in pair["png"])
        assert torch.equal(torch.from_numpy(first) / 255, paths[index, -1, 0])
        assert torch.equal(torch.from_numpy(second) / 255, paths[index, 0, 0])
        assert pair["classes"][0] != pair["classes"][1]


def test_a_posthoc_map_is_applied_first(run, stem, evaluation, monkeypatch, tmp_path):
    """Variances so large that Monte-Carlo probabilities are near uniform, whatever the logits say."""
    plain = Run.predict
    monkeypatch.setattr(module.run_folder, "figures_path", lambda *_: tmp_path / "figures.json")

    def unsure(run, name, **here):
        own = plain(run, name, **here)
        return replace(own, logit_variance=1e8 * own.logits.abs())

    monkeypatch.setattr(Run, "predict", unsure)
    given = MonteCarlo(samples=50)
    drawn = figure_data(run, evaluation, stem, posthoc=given, fitted=given.fit)
    assert min(drawn["path"]["mean"]) > 1.5
    assert "temperature" not in drawn["reliability"]


def test_examples_are_named_by_the_classes_that_number_the_labels(run, evaluation, tmp_path):
    """Those that the model was trained on, whatever the test set has."""
    trained = replace(run, folder=shutil.copytree(run.folder, tmp_path / run.folder.name))
    record = trained.provenance()
    write_provenance(trained.folder, record | {"classes": [f"the {name}" for name in record["classes"]]})
    sets = figure_data(trained, evaluation, "again")["examples"]["sets"]
    names = {one[key] for own in sets for one in own["images"] for key in ("said", "truth")} - {""}
    assert {name[:4] for name in names} == {"the "}


def test_a_run_without_a_test_set_has_no_figures(run):
    class Selecting:
        test = ""

    assert figure_data(run, Selecting(), "dnn") == {}
