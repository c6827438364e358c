"""The leaderboard: its means and intervals by SciPy, one score for all methods, and what trainings cost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from regmixup.evaluation.evaluate import evaluate
from regmixup.report.leaderboard import leaderboard, mean_ranks, rank_caption
from regmixup.report.results import RunRecord, Setting, load_results
from regmixup.run_folder import read_config
from regmixup.storage import write_json
from regmixup.study.plan import load_study
from regmixup.types import Predictions, higher_is_better


@pytest.fixture(scope="module")
def setting(finished_study):
    (setting,) = load_results(finished_study.folder).settings
    return setting


def column(board, title):
    place = board.heads.index(title) - 1
    return {method: cells[place] for method, cells in board.lines.items()}


def values_of(setting, label, **fields):
    fields = {"method": label, "posthoc": "none", **fields}
    rows = [row for row in setting.rows if all(getattr(row, name) == value for name, value in fields.items())]
    return np.array([np.mean([row.value for row in rows if row.seed == seed]) for seed in (0, 1)])


@pytest.mark.parametrize(
    ("title", "scale", "fields"),
    [
        ("accuracy ↑", 100, {"metric": "accuracy", "dataset": "digits/test"}),
        ("AUROC by MSP ↑", 100, {"metric": "auroc", "score": "max_probability"}),
        ("AUGRC ↓", 1000, {"metric": "augrc", "score": "max_probability"}),
        ("NLL ↓", 1, {"metric": "nll", "dataset": "digits/test"}),
    ],
)
def test_a_cell_has_the_mean_over_seeds_and_students_interval(setting, title, scale, fields):
    for label, cell in column(leaderboard(setting), title).items():
        values = scale * values_of(setting, label, **fields)
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        decimals = 3 if scale == 1 else 2
        assert cell.value == pytest.approx(values.mean(), rel=1e-12)
        assert cell.text == f"{values.mean():.{decimals}f}"
        assert cell.bounds == f"{low:.{decimals}f} to {high:.{decimals}f}".replace("-", "−")


def test_sets_near_to_the_train_set_are_apart_from_the_far_ones(setting):
    renamed = {"digits/test": "cifar10/test", "photographs/test": "cifar100/test"}
    rows = [replace(row, dataset=renamed.get(row.dataset, row.dataset)) for row in setting.rows]
    rows += [replace(row, dataset="svhn/test", value=row.value / 2) for row in rows if row.dataset == "cifar100/test"]
    moved = replace(setting, rows=rows)
    board, score = leaderboard(moved), {"metric": "auroc", "score": "max_probability"}
    for title, name in (("near-OOD AUROC by MSP ↑", "cifar100/test"), ("far-OOD AUROC by MSP ↑", "svhn/test")):
        expected = 100 * values_of(moved, "dnn", dataset=name, **score).mean()
        assert column(board, title)["dnn"].value == pytest.approx(expected)


def test_the_sets_of_a_mean_are_named_and_those_that_it_lacks(setting):
    assert "AUROC by MSP over photographs/test" in leaderboard(setting).caption
    sets = {"digits/test": ["cifar10/test"], "photographs/test": ["cifar100/test", "svhn/test"]}
    rows = [replace(row, dataset=name) for row in setting.rows for name in sets.get(row.dataset, [])]
    caption = leaderboard(replace(setting, rows=rows)).caption
    assert "near-OOD AUROC by MSP over cifar100/test, without tiny-imagenet" in caption
    assert caption.endswith("far-OOD AUROC by MSP over svhn/test, without mnist, textures, places365")
    alone = replace(setting, rows=[row for row in rows if row.dataset == "cifar10/test"])
    assert "OOD" not in leaderboard(alone).caption


def test_cost_is_images_forwarded_and_minutes_as_recorded(setting):
    board = leaderboard(setting)
    images = column(board, "images forwarded")
    first = setting.runs_of("dnn")[0]
    assert images["dnn"].value == first.train_images * first.config["epochs"]
    assert images["regmixup"].value == 2 * images["dnn"].value
    seconds = [run.provenance["seconds"] for run in setting.runs_of("dnn")]
    assert column(board, "minutes")["dnn"].value == pytest.approx(np.mean(seconds) / 60)
    own = replace(setting, runs=[replace(run, train_images=None) for run in setting.runs])  # as of a registered set
    assert column(leaderboard(own), "images forwarded") == images
    for run in own.runs:  # as of before it was recorded
        del run.provenance["train_images"]
    assert set(column(leaderboard(own), "images forwarded").values()) == {None}


def test_a_metric_that_nobody_has_is_no_column_and_one_seed_has_no_interval(setting):
    rows = [row for row in setting.rows if row.metric != "nll" and row.seed == 0]
    board = leaderboard(replace(setting, rows=rows))
    assert "NLL ↓" not in board.heads
    assert {cell.bounds for cell in column(board, "accuracy ↑").values()} == {"one seed"}


def test_mean_ranks_are_those_of_four_quantities_and_equal_ones_go_to_the_cheaper(setting):
    ranked = replace(setting, ranked=True)
    shift = next(row.dataset for row in setting.rows if row.corruption == "mean")
    quantities = [
        {"metric": "accuracy", "dataset": shift, "corruption": "mean"},
        {"metric": "auroc", "score": "max_probability"},
        {"metric": "augrc", "score": "max_probability", "dataset": "digits/test"},
        {"metric": "nll", "dataset": "digits/test"},
    ]
    signs = (-1, -1, 1, 1)
    ranks = [
        stats.rankdata([sign * values_of(setting, label, **fields).mean() for label in setting.labels])
        for sign, fields in zip(signs, quantities, strict=True)
    ]
    expected = dict(zip(setting.labels, np.mean(ranks, axis=0), strict=True))
    means = mean_ranks(ranked)
    assert means == pytest.approx(expected)
    assert list(means.values()) == sorted(means.values())
    board = leaderboard(ranked)
    assert {label: cell.value for label, cell in column(board, "mean rank ↓").items()} == means
    assert board.caption.endswith(rank_caption(ranked))
    same = replace(setting, rows=[replace(row, value=0.5) for row in setting.rows])
    images = {label: cell.value for label, cell in column(leaderboard(setting), "images forwarded").items()}
    first, *_, last = mean_ranks(same)
    assert (images[first], images[last]) == (min(images.values()), max(images.values()))


PLAN = "Mean rank: over accuracy under shift, near-OOD AUROC by MSP, AUGRC, NLL; "
VALUES = {  # the ranks of these in each: 1 2 3, 2 1 3, 1 3 2, 2 1 3
    "nll": {"dnn": 0.2, "cutout": 0.3, "pixmix": 0.4},
    "augrc": {"dnn": 0.03, "cutout": 0.02, "pixmix": 0.04},
    "shift": {"dnn": 0.8, "cutout": 0.7, "pixmix": 0.75},
    "near": {"dnn": 0.9, "cutout": 0.95, "pixmix": 0.8},
}


def kind_of(row):
    """Return what of the plan of reliable-search a row measures; "" for nothing."""
    if row.corruption:
        return "shift" if (row.metric, row.corruption) == ("accuracy", "mean") else ""
    by_msp = {"augrc": "augrc", "auroc": "near"}.get(row.metric, "") if row.score == "max_probability" else ""
    return "nll" if row.metric == "nll" else by_msp


@pytest.fixture(scope="module")
def measured():
    """A row for each that the study reliable-search measures of a candidate."""
    (evaluation,) = load_study("reliable-search").evaluations.values()
    assert len(evaluation.shift_sets()) == 20

    def predicted(name):
        return Predictions(logits=torch.randn(20, 10), labels=torch.arange(20) % 10, dataset=name)

    shift, ood = map(predicted, evaluation.shift_sets()), map(predicted, evaluation.ood)
    return evaluate(predicted(evaluation.test), shift=[*shift], ood=[*ood], bootstrap=None)


def search(folder, rows, values, epochs=(3, 2, 1), *, seed=0):
    """The setting of three candidates; in what the plan does not name, each is better than the one before."""
    runs, of_all = [], []
    for place, (label, length) in enumerate(zip(values["nll"], epochs, strict=True)):
        config = {"epochs": length, "cooldown_epochs": 0, "objective": {"kind": "ERM"}}
        write_json(folder / label / "config.json", config)
        write_json(folder / label / "provenance.json", {"seconds": 60})
        runs.append(
            RunRecord(folder / label, label, label, "cifar10-resnet18", seed=seed, stem=label, calibration="holdout")
        )
        for row in rows:
            sign = 1 if higher_is_better(row.metric) else -1
            value = values.get(kind_of(row), {}).get(label, sign * place)
            of_all.append(replace(row, method=label, seed=seed, value=value))
    return Setting("cifar10-resnet18", "ResNet-18", runs, of_all, ranked=True)


def test_the_ranks_of_reliable_search_are_the_four_of_its_plan(tmp_path, measured):
    setting = search(tmp_path, measured, VALUES)
    assert mean_ranks(setting) == {"dnn": 6 / 4, "cutout": 7 / 4, "pixmix": 11 / 4}
    assert rank_caption(setting).startswith(PLAN)


@pytest.mark.parametrize(("epochs", "first"), [((3, 2, 1), "cutout"), ((2, 3, 1), "dnn")])
def test_of_equal_mean_ranks_the_training_that_forwards_fewer_images_comes_first(tmp_path, measured, epochs, first):
    values = VALUES | {"shift": {"dnn": 0.8, "cutout": 0.76, "pixmix": 0.75}}
    means = mean_ranks(search(tmp_path, measured, values, epochs))
    assert (means["dnn"], means["cutout"]) == (6 / 4, 6 / 4)
    assert next(iter(means)) == first


def test_all_shifted_sets_are_one_rank_and_far_sets_none(tmp_path, measured):
    setting = search(tmp_path, measured, VALUES)
    second = {"dnn": 0.6, "cutout": 0.9, "pixmix": 0.75}  # with the first set 0.7, 0.8 and 0.75 in the mean
    shifted = [row for row in setting.rows if kind_of(row) == "shift"]
    far = [replace(row, dataset="svhn/test", value=-row.value) for row in setting.rows if kind_of(row) == "near"]
    more = [replace(row, dataset="cifar10.1/test", value=second[row.method]) for row in shifted]
    setting = replace(setting, rows=[*setting.rows, *more, *far])
    assert mean_ranks(setting) == {"cutout": 5 / 4, "dnn": 8 / 4, "pixmix": 11 / 4}
    assert rank_caption(setting).startswith(PLAN)


TURNED = {kind: dict(zip(by_label, reversed(by_label.values()), strict=True)) for kind, by_label in VALUES.items()}


def joined(*settings, without=()):
    """Several seeds as one setting. without: pairs of label and seed that are not done."""
    runs = [run for setting in settings for run in setting.runs if (run.label, run.seed) not in without]
    rows = [row for setting in settings for row in setting.rows if (row.method, row.seed) not in without]
    return replace(settings[0], runs=runs, rows=rows)


def test_candidates_are_ranked_over_the_seeds_that_all_of_them_have(tmp_path, measured):
    """The second seed turns the order round: a candidate without it must not be compared with a mean that has it."""
    first, second = search(tmp_path, measured, VALUES), search(tmp_path, measured, TURNED, seed=3)
    alone, both = mean_ranks(first), joined(first, second)
    assert mean_ranks(both) != alone
    assert "; by means over seeds 0, 3; of equal" in rank_caption(both)
    half = joined(first, second, without=[("dnn", 3)])
    assert mean_ranks(half) == alone
    assert "; by means over seed 0, which all candidates have (0, 3; dnn: 0); of equal" in rank_caption(half)
    apart = joined(first, second, without=[("dnn", 3), ("pixmix", 0)])
    assert mean_ranks(apart) == {}
    assert rank_caption(apart).endswith("none, as the candidates share no seed (0; cutout: 0, 3; pixmix: 3)")


def test_a_candidate_without_a_rank_has_an_empty_cell_and_the_caption_names_seeds(setting):
    runs = [run for run in setting.runs if (run.label == "dnn") == (run.seed == 0)]
    rows = [row for row in setting.rows if (row.method == "dnn") == (row.seed == 0)]
    board = leaderboard(replace(setting, runs=runs, rows=rows, ranked=True))
    assert set(column(board, "mean rank ↓").values()) == {None}
    assert "mean over seeds (0; regmixup: 1)," in board.caption
    assert "mean over seeds (0, 1)," in leaderboard(setting).caption


def test_the_caption_names_what_is_ranked(setting):
    assert rank_caption(setting).startswith("Mean rank: over accuracy under shift, AUROC by MSP, AUGRC, NLL; ")
    rows = [row for row in setting.rows if row.metric != "auroc" and not row.corruption]
    assert rank_caption(replace(setting, rows=rows)).startswith("Mean rank: over AUGRC, NLL; ")


def test_a_candidate_without_a_value_cannot_be_ranked(setting):
    rows = [row for row in setting.rows if (row.method, row.metric) != ("regmixup", "nll")]
    with pytest.raises(ValueError, match=r"^NLL must be measured for every candidate, got none for regmixup$"):
        mean_ranks(replace(setting, rows=rows))


def test_a_step_of_sam_forwards_every_image_twice(setting, monkeypatch):
    before = column(leaderboard(setting), "images forwarded")["regmixup"].value
    monkeypatch.setattr(RunRecord, "config", property(lambda run: {**read_config(run.folder), "sharpness": "sam"}))
    assert column(leaderboard(replace(setting)), "images forwarded")["regmixup"].value == 2 * before
