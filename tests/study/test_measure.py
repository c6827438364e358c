"""Temperatures and prior variances of models that were trained on everything come from their companions."""

from dataclasses import replace

import pytest
import torch

from regmixup import metrics
from regmixup.posthoc import LastLayerLaplace, TemperatureScaling
from regmixup.report.results import Results
from regmixup.storage import read_rows
from regmixup.study.plan import load_study
from regmixup.study.runner import run_study
from regmixup.training.config import resolve
from regmixup.training.run import Run
from tests.data.official import write_cifar
from tests.study.mini import write_mini

# On random images the best temperature and prior variance may lie on the edges of their ranges.
pytestmark = pytest.mark.filterwarnings("ignore:the best")

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
def carried_out(tmp_path_factory):
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


def test_there_is_one_companion_for_all_seeds_and_methods_that_train_alike(carried_out):
    root, plan, _ = carried_out
    assert len({planned.companion for planned in plan}) == 1
    assert len(list((root / "runs").glob("*/checkpoint.safetensors"))) == 3
    companion = run_of(root, plan[0].companion)
    assert companion.config.seed == 1
    assert companion.predictions_path("cifar10/val-10").is_file()
    for planned in plan:  # whoever was trained on the validation images is not asked about them
        assert not run_of(root, planned.config).predictions_path("cifar10/val-10").exists()


def test_a_report_knows_that_one_companion_served_several_seeds(carried_out):
    root, plan, _ = carried_out
    (setting,) = Results.open(root / "runs" / "study-mini").settings
    assert setting.design.one_temperature == {planned.label for planned in plan}
    assert setting.design.untested.keys() == {planned.label for planned in plan if planned.method == "kfac-llla"}


def test_the_temperature_is_that_of_the_companion_and_scales_the_models_own_logits(carried_out):
    root, plan, rows = carried_out
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


def test_the_prior_variance_is_that_of_the_companion_and_the_curvature_the_models_own(carried_out):
    root, plan, rows = carried_out
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
