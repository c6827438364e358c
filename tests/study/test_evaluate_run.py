"""From a run to its rows and figure data: measured once, and again where anything changed."""

import base64
import io
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from regmixup import data, metrics
from regmixup.data.images import interpolate
from regmixup.metrics.calibration import ece
from regmixup.posthoc import LastLayerLaplace, TemperatureScaling
from regmixup.predictions import predict
from regmixup.run_folder import figures_path
from regmixup.storage import read_rows, read_table
from regmixup.study import evaluate_run as module
from regmixup.study.evaluate_run import stored_rows
from regmixup.study.figures import PAIRS, figure_data, find_images
from regmixup.study.launchers import InTurn
from regmixup.study.runner import run_study
from regmixup.study.tasks import StudyJob, Task, attempt, find_tasks
from regmixup.training.config import resolve
from regmixup.training.run import Run
from tests.data.official import write_cifar
from tests.holding import held_by_another_process
from tests.study.mini import FEW_SETS, load_mini

# On random images the best temperature and prior variance may lie on the edges of their ranges.
pytestmark = pytest.mark.filterwarnings("ignore:the best")

CPU = torch.device("cpu")
PLAIN = """
title = "Companions"
recipe = "cifar10-wrn28-10"
methods = ["dnn"]
seeds = [1, 0]

[train]
network = "small"
epochs = 1

[evaluate]
validation = "cifar10/val-10"
calibration = "companion"
test = "cifar10/test"
resamples = 10
"""
LAPLACE = """
[grid.kfac-llla]
posthoc.name = "laplace"  # with its defaults instead of the paper's: then there is a prior variance to choose
posthoc.samples = 20
posthoc.grid = [[0.1, 10.0]]
"""
STUDY = PLAIN.replace('["dnn"]', '["dnn", "kfac-llla"]') + LAPLACE
REFRESHED = PLAIN.replace("seeds = [1, 0]", "seeds = [0]\nrefresh_batch_norm = true") + "feature_scores = true\n"


@pytest.fixture(scope="module")
def companions(tmp_path_factory):
    root = tmp_path_factory.mktemp("companions")
    write_cifar(root, "cifar10", per_file=40)
    study = load_mini(root, STUDY)
    folder = run_study(study, root / "runs", root=root, device="cpu")
    return root, list(study.runs()), read_rows(folder / "rows.csv")


def test_refreshed_batch_norm_gives_further_rows_of_the_same_run(tmp_path):
    """From the predictions of the same weights with other statistics, the train set's and the companion's as well."""
    write_cifar(tmp_path, "cifar10", per_file=40)
    study = load_mini(tmp_path, REFRESHED)
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
    text = (
        FEW_SETS.replace("[0, 1]", "[0]")
        .replace("resamples = 100", "resamples = 10")
        .replace("epochs = 5", "epochs = 1")
    )
    both, alone = (text.replace('"dnn", "regmixup"', methods) for methods in ('"dnn", "kfac-llla"', '"dnn"'))
    both += "\n[grid.kfac-llla]\nposthoc.samples = 10\n"

    def rows(text, runs):
        folder = run_study(load_mini(tmp_path, text), tmp_path / runs, device="cpu")
        return [row for row in read_rows(folder / "rows.csv") if row.method == "dnn"]

    found = rows(both, "both")
    assert len(predicted) == len(set(predicted)) == 5  # with the train set
    assert len(fitted) == 1
    monkeypatch.setattr(module, "evaluate", None)
    assert rows(both, "both") == found  # the files have not changed since
    monkeypatch.undo()
    assert rows(alone, "alone") == found


def test_there_is_one_companion_for_all_seeds_and_methods_that_train_alike(companions):
    root, plan, _ = companions
    assert len({planned.companion for planned in plan}) == 1
    assert len(list((root / "runs").glob("*/checkpoint.safetensors"))) == 3
    companion = run_of(root, plan[0].companion)
    assert companion.config.seed == 1
    assert companion.predictions_path("cifar10/val-10").is_file()
    for planned in plan:  # whoever was trained on the validation images is not asked about them
        assert not run_of(root, planned.config).predictions_path("cifar10/val-10").exists()


def test_a_display_counts_the_epochs_of_a_companion_first(companions, tmp_path):
    root, plan, _ = companions
    planned = plan[0]
    runs = [Run.of(resolve(config, CPU), tmp_path) for config in (planned.config, planned.companion)]
    task = Task(index=0, title="dnn", planned=planned, run=runs[0], companion=runs[1])
    records = []
    launcher = InTurn(CPU)
    callbacks = {"on_step": None, "on_epoch": records.append, "of_mine": records}  # each may be None, as those of train
    launcher.open(StudyJob(runs=tmp_path, root=root), SimpleNamespace(hooks=lambda *_: callbacks))
    launcher.submit(task)
    assert launcher.wait(0)[0].error == ""
    assert (task.epochs(), [record["epoch"] for record in records]) == (2, [1, 2])
    assert [record["loss"] for record in task.history()] == [record["loss"] for record in records]


def test_a_run_is_trained_while_another_process_trains_its_companion(companions, tmp_path):
    root, plan, _ = companions
    companion = resolve(plan[0].companion, CPU).name
    shutil.copytree(root / "runs" / companion, tmp_path / "runs" / companion)
    checkpoint = tmp_path / "runs" / companion / "checkpoint.safetensors"
    checkpoint.rename(tmp_path / "later")
    job, (task, *_) = StudyJob(runs=tmp_path / "runs", root=root), find_tasks(plan, tmp_path / "runs", CPU, [])
    with held_by_another_process(checkpoint.parent):
        assert companion in attempt(job, task, CPU).held
    assert task.run.finished
    (tmp_path / "later").rename(checkpoint)
    assert attempt(job, task, CPU).error == ""
    assert [row.value for row in task.rows() if row.metric == "temperature"] == [
        row.value for row in companions[2] if row.metric == "temperature" and row.method == "dnn" and row.seed == 1
    ]


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


@pytest.fixture
def planned(finished_study):
    return next(finished_study.study.runs())


@pytest.fixture
def run(finished_study, planned, tmp_path):
    """A copy of the first run of the mini study."""
    run = Run.of(resolve(planned.config, CPU), finished_study.runs)
    return replace(run, folder=shutil.copytree(run.folder, tmp_path / run.folder.name))


def touch(path):
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", ["nothing", "predictions", "settings", "code"])
def test_rows_and_figures_are_made_again_if_what_they_depend_on_has_changed(run, planned, monkeypatch, change):
    calls, evaluate = [], module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda *a, **k: calls.append(1) or evaluate(*a, **k))
    rows, figures = stored_rows(run.folder, planned.stem), figures_path(run.folder, planned.stem).read_bytes()
    if change == "predictions":
        touch(run.predictions_path("photographs/test"))
    elif change == "settings":
        planned = replace(planned, evaluate=replace(planned.evaluate, resamples=99))
    elif change == "code":
        monkeypatch.setattr(module, "_code", lambda: "corrected")
    again = module.evaluate_run(planned, run, device=CPU)
    assert len(calls) == (change != "nothing")
    assert [row.value for row in again] == [row.value for row in rows]
    assert figures_path(run.folder, planned.stem).read_bytes() == figures
    assert module.evaluate_run(planned, run, device=CPU) == again
    assert len(calls) == (change != "nothing")


@pytest.fixture
def drawn(run, planned):
    return read_table(figures_path(run.folder, planned.stem))


def test_temperature_comes_from_the_rows(run, planned, drawn):
    scale = next(row.value for row in stored_rows(run.folder, planned.stem) if row.metric == "temperature")
    test = run.predict("digits/test")
    expected = ece((test.logits.double() / scale).softmax(dim=1), test.labels)
    bins = drawn["reliability"]["temperature"]
    gaps = [n * abs(c - a) for n, c, a in zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True) if n]
    assert sum(gaps) / len(test) == pytest.approx(expected, abs=1e-4)
    assert figures_path(run.folder, planned.stem).stat().st_size < 100_000


def test_the_images_are_the_ends_of_the_paths(drawn):
    source = data.load("digits/test")
    paths = interpolate(source).images.reshape(1000, 20, 1, 8, 8)
    assert len(drawn["images"]) == PAIRS == len(drawn["path"]["pairs"])
    for index, pair in enumerate(drawn["images"]):
        first, second = (np.array(Image.open(io.BytesIO(base64.b64decode(text)))) for text in pair["png"])
        assert torch.equal(torch.from_numpy(first) / 255, paths[index, -1, 0])
        assert torch.equal(torch.from_numpy(second) / 255, paths[index, 0, 0])
        assert pair["classes"][0] != pair["classes"][1]


def test_examples_are_named_by_the_classes_that_number_the_labels(run):
    """Those that the model was trained on, whatever the test set has."""
    test, ood = run.predict("digits/test"), run.predict("photographs/test")
    drawn = figure_data({"none": test}, [ood], classes=[f"the {number}" for number in range(10)])
    images = [image for shown in drawn["examples"]["sets"] for image in shown["images"]]
    assert {image[key][:4] for image in images for key in ("said", "truth")} - {""} == {"the "}
    assert "path" not in drawn


def test_figures_find_a_folder_of_images_under_the_root_and_go_without_images_that_are_not_there(run, tmp_path):
    (tmp_path / "photos" / "one").mkdir(parents=True)
    for number in range(3):
        Image.new("L", (8, 8), 50 * number).save(tmp_path / "photos" / "one" / f"{number}.png")
    test, ood = run.predict("digits/test"), run.predict("folder:photos", root=tmp_path)
    classes = [str(number) for number in range(10)]
    shown = {root: figure_data({"none": test}, [ood], classes=classes, root=root) for root in (tmp_path, None)}
    sets = {root: {part["set"] for part in drawn["examples"]["sets"]} for root, drawn in shown.items()}
    assert sets[tmp_path] - sets[None] == {"folder:photos"}


def test_the_images_that_figures_show_are_read_once_for_all_runs_but_those_of_a_folder(tmp_path, monkeypatch):
    """A list of Tiny-ImageNet means to decode 10,000 files; a folder may have other files for the next run."""
    (tmp_path / "photos" / "one").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "one" / "0.png")
    load, names = data.load, []

    def counted(name, **options):
        names.append(name)
        return load(name, **options)

    monkeypatch.setattr(data, "load", counted)
    for _ in range(2):
        looks, classes = find_images(["digits/test", "folder:photos"], tmp_path)
        assert (list(looks), classes[3]) == (["digits/test", "folder:photos"], "3")
    assert names == ["digits/test", "folder:photos", "folder:photos"]
