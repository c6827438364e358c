"""What the page's script gets: pooled over seeds, compared, and small."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, ttest_ind

from regmixup.config import encode
from regmixup.evaluation.curves import histogram
from regmixup.report.aggregation import Aggregation, Cell, Quantity
from regmixup.report.figures import (
    MASS,
    densest,
    density,
    pooled_histograms,
    pooled_history,
    pooled_profile,
    pooled_reliability,
)
from regmixup.report.results import RunRecord, load_results
from regmixup.report.script_data import script_cell, script_data
from regmixup.report.tables import ONE_TEMPERATURE, Column, study_tables, tabulate
from regmixup.training.config import configure
from regmixup.types import Row


@pytest.fixture(scope="module")
def setting(finished_study):
    return script_data(load_results(finished_study.folder))["settings"][0]


def test_histograms_of_seeds_with_other_ranges_add_up_to_that_of_all_samples():
    """Against the exact histogram; fine bins that cross an edge are the only difference."""
    generator = torch.Generator().manual_seed(0)
    seeds = [
        torch.rand(4000, generator=generator).double() * width + shift for width, shift in ((1.0, 0.0), (2.0, 0.5))
    ]
    given = []
    for values in seeds:
        low, high = float(values.min()), float(values.max())
        given.append({"range": [low, high], "counts": {"test": histogram(values, low, high)}})
    found = pooled_histograms(given, num_bins=20)
    exact, _ = np.histogram(torch.cat(seeds).numpy(), bins=20, range=(given[0]["range"][0], given[1]["range"][1]))
    assert np.abs(np.array(found["counts"]["test"]) - 1e4 * exact / 8000).max() < 25
    assert sum(found["counts"]["test"]) == pytest.approx(10_000, abs=20)


def test_pooled_reliability_is_that_of_all_samples_together():
    bins = [
        {"count": [3, 0], "confidence": [0.4, None], "accuracy": [1 / 3, None]},
        {"count": [1, 4], "confidence": [0.2, 0.9], "accuracy": [0.0, 0.75]},
    ]
    assert pooled_reliability(bins) == [[35.0, 25.0, 50.0, 4], [90.0, 75.0, 50.0, 4]]


def test_profiles_add_counts_and_average_means():
    one = {"top": math.log(2), "counts": [[1, 0], [0, 1]], "mean": [0.0, 0.6], "pairs": [[0.1, 0.2]]}
    two = {"top": math.log(2), "counts": [[1, 0], [1, 0]], "mean": [0.2, 0.2], "pairs": [[0.3, 0.2]]}
    found = pooled_profile([one, two])
    assert found["counts"] == [[2, 0], [1, 1]]
    assert found["mean"] == [0.1, 0.4]
    assert found["pairs"] == [[0.2, 0.2]]


def test_long_histories_are_thinned_with_both_ends():
    history = [{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 351)]
    epochs, values = pooled_history([history, history])["loss"]
    assert len(epochs) == len(values) == 120
    assert (epochs[0], epochs[-1]) == (1, 350)
    assert values[-1] == pytest.approx(1 / 350, rel=1e-3)


def test_an_epoch_whose_record_is_lost_is_left_out_for_all_seeds():
    whole = [{"epoch": epoch, "loss": float(epoch)} for epoch in (1, 2, 3)]
    assert pooled_history([whole, [whole[0], whole[2]]]) == {"loss": [[1, 3], [1.0, 3.0]]}
    assert pooled_history([whole, []]) == {}


def test_a_part_of_the_loss_that_not_every_epoch_has_is_left_out():
    history = [{"epoch": 1, "loss": 1.0, "mixed": 2.0}, {"epoch": 2, "loss": 0.5}]
    assert list(pooled_history([history])) == ["loss"]


@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_the_shaded_region_holds_its_mass_and_no_other_of_that_size_is_denser(alpha):
    regions = densest(alpha)
    own = beta(alpha, alpha)
    assert sum(own.cdf(high) - own.cdf(low) for low, high in regions) == pytest.approx(MASS, abs=1e-9)
    lam = np.linspace(0.001, 0.999, 999)
    inside = np.any([(lam > low) & (lam < high) for low, high in regions], axis=0)
    assert own.pdf(lam[inside]).min() >= own.pdf(lam[~inside]).max() - 0.05


def test_densities_are_scipys():
    lam, height = density(0.3)
    assert height == pytest.approx(beta(0.3, 0.3).pdf(lam), abs=1e-3)


def test_a_cell_for_the_script_has_what_the_tables_show():
    ours, theirs = [0.975, 0.972, 0.973], [0.961, 0.963, 0.96]
    rows = [
        Row(method=m, seed=i, metric="ece", value=v)
        for m, vs in {"dnn": theirs, "mixup": ours}.items()
        for i, v in enumerate(vs)
    ]
    table = tabulate(Aggregation(rows), [Column("ECE", Quantity("", "ece"))])
    mean, std, n, p, verdict, marks = script_cell(table.lines["mixup"][0])
    assert (mean, std, n, verdict, marks) == (97.33, 0.15, 3, -1, 0)
    assert p == pytest.approx(ttest_ind(ours, theirs, equal_var=False).pvalue, rel=0.05)
    assert script_cell(table.lines["dnn"][0]) == [96.13, 0.15, 3, None, 0, 1]
    assert script_cell(None) is None
    assert script_cell(Cell(0.5, math.nan, 1)) == [50.0, None, 1, None, 0, 0]


def test_the_detection_table_compares_the_numbers_that_it_shows(finished_study):
    """regmixup's runs stand in for mixup's, which the paper scores by entropy, and dnn's by Dempster-Shafer."""
    results = load_results(finished_study.folder)
    runs = [replace(run, label="mixup", score="entropy") if run.label == "regmixup" else run for run in results.runs]
    rows = [replace(row, method="mixup") if row.method == "regmixup" else row for row in results.rows]
    results = replace(results, runs=runs, rows=rows)
    ((table, _),) = study_tables(results)
    titles = [column.title for column in table.columns]
    wanted = table.lines["mixup"][titles.index("AUROC photographs")]
    cells = script_data(results)["settings"][0]["detection"]["cells"]["auroc"]
    assert cells[""][0][1] == script_cell(wanted)
    assert cells[""][0][0] == cells["dempster_shafer"][0][0]
    assert cells[""][0][1][0] == cells["entropy"][0][1][0]  # the same number,
    assert cells[""][0][1][3] != cells["entropy"][0][1][3]  # beside another one of dnn


def test_the_script_neither_tests_nor_marks_what_one_temperature_gave_to_several_seeds(finished_study):
    results = load_results(finished_study.folder)
    assert {run.calibration for run in results.runs} == {"holdout"}
    results = replace(results, runs=[replace(run, calibration="companion") for run in results.runs])
    (found,) = script_data(results)["settings"]
    for metric in found["shift"][0]["metrics"]:
        scaled = metric["title"].endswith("+ T")
        assert metric["note"] == (ONE_TEMPERATURE if scaled else "")
        compared = [cell[3:6] for own in metric["cells"] for column in own for cell in column]
        assert all(one == [None, 0, 0] for one in compared) == scaled
    assert all(cell[3:6] == [None, 0, 0] for cell in found["calibration"]["temperature"])
    ((table, _),) = study_tables(results)
    assert ONE_TEMPERATURE in table.notes()


def test_an_average_over_quantities_is_taken_seed_by_seed():
    place = {"method": "dnn", "dataset": "toy-c", "corruption": "fog", "metric": "accuracy"}
    values = {(0, 1): 0.9, (0, 2): 0.5, (1, 1): 0.8}
    rows = [Row(**place, seed=seed, severity=severity, value=value) for (seed, severity), value in values.items()]
    measured = Aggregation(rows)
    both = [Quantity("toy-c", "accuracy", corruption="fog", severity=severity) for severity in (1, 2)]
    assert measured.average(both, "dnn") == {0: pytest.approx(0.7)}
    assert measured.average(both, "mixup") == {}


def test_the_mean_of_all_corruptions_is_the_row_of_the_evaluation(finished_study, setting):
    rows = load_results(finished_study.folder).rows
    values = [r.value for r in rows if (r.method, r.corruption, r.metric, r.posthoc) == ("dnn", "mean", "ece", "none")]
    metric = next(one for one in setting["shift"][0]["metrics"] if one["title"] == "ECE")
    assert metric["cells"][0][-1][0][0] == pytest.approx(100 * sum(values) / 2, abs=0.006)
    # The mean over severities of the only corruption is the same.
    assert metric["cells"][0][0][0][0] == metric["cells"][0][-1][0][0]


def test_every_score_that_was_measured_can_be_picked(finished_study, setting):
    measured = {row.score for row in load_results(finished_study.folder).rows if row.metric == "auroc"}
    assert set(setting["detection"]["scores"]) == measured == set(setting["scores"][0])


def test_fisher_curves_come_from_the_shifted_sets(finished_study, setting):
    rows = load_results(finished_study.folder).rows
    values = [r.value for r in rows if (r.method, r.severity, r.metric) == ("regmixup", 5, "fisher_criterion")]
    assert len(values) == 2
    assert setting["fisher"][0]["corruptions"] == ["contrast"]
    assert setting["fisher"][0]["values"][1][0][1][0] == pytest.approx(sum(values) / 2, abs=0.006)


def test_only_methods_that_mix_images_have_a_density_of_lambda(finished_study, setting, monkeypatch):
    assert [(one["method"], one["alpha"]) for one in setting["mixing"]] == [("regmixup", 20.0)]
    augmix = encode(configure("digits", "augmix"))
    monkeypatch.setattr(RunRecord, "config", property(lambda run: augmix))
    assert script_data(load_results(finished_study.folder))["settings"][0]["mixing"] == []
