"""From predictions of a made-up model to rows: which exist, what they carry, where the temperature comes from."""

from dataclasses import replace

import pytest
import torch

from regmixup.evaluation.evaluate import evaluate, relative_rows
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import accuracy, adaptive_ece, brier, classwise_ece, debiased_ece, ece, mce, nll
from regmixup.metrics.detection import aupr, auroc, fpr_at_tpr
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.metrics.registry import SELECTIVE
from regmixup.metrics.scores import SCORES
from regmixup.metrics.selective import scod_augrc, scod_aurc
from regmixup.types import Predictions, Row

CLASSIFICATION = {
    "accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece, "adaptive_ece": adaptive_ece,
    "debiased_ece": debiased_ece,
}  # fmt: skip
ON_TEST_ALONE = {"classwise_ece": classwise_ece, "mce": mce}
DETECTION = {
    "auroc": auroc,
    "aupr": aupr,
    "aupr_id": lambda a, b: aupr(a, b, positive="id"),
    "fpr_at_tpr": fpr_at_tpr,
    "fpr_at_tpr_ood": lambda a, b: fpr_at_tpr(a, b, convention="detect_ood"),
}
CLASSES = 4


def made_up(dataset, seed, count=120, overconfidence=2.0):
    """Labels drawn from softmax(s), logits overconfidence * s: the right temperature is `overconfidence`."""
    generator = torch.Generator().manual_seed(seed)
    calm = torch.randn(count, CLASSES, generator=generator)
    labels = torch.multinomial(calm.softmax(dim=1), 1, generator=generator).squeeze(1)
    return Predictions(overconfidence * calm, labels, dataset=dataset)


TEST = made_up("toy/test", 0)
VALIDATION = made_up("toy/val", 1, count=400)
SHIFT = [
    made_up("toy-c/blur/1", 2, overconfidence=2.0),
    made_up("toy-c/blur/2", 3, overconfidence=5.0),
    made_up("toy-c/fog/1", 4, count=60, overconfidence=1.0),
]
OOD = [made_up("near/test", 5), made_up("far/test", 6, count=70, overconfidence=0.5)]


@pytest.fixture(scope="module")
def rows():
    template = Row(study="s", run="r", method="m", network="net", train_set="toy/train", seed=7)
    return evaluate(TEST, validation=VALIDATION, shift=SHIFT, ood=OOD, row=template)


def value(rows, **wanted):
    """The value of the one row that has these fields."""
    found = [row for row in rows if all(getattr(row, name) == v for name, v in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows match {wanted}"
    return found[0].value


def test_test_metrics_are_those_of_the_softmax(rows):
    probs = TEST.logits.double().softmax(dim=1)
    for name, metric in (CLASSIFICATION | ON_TEST_ALONE).items():
        assert value(rows, dataset="toy/test", posthoc="none", metric=name) == metric(probs, TEST.labels)


def test_temperature_rows_divide_the_logits_by_the_reported_temperature(rows):
    temperature = value(rows, dataset="toy/test", metric="temperature")
    assert 1.3 < temperature < 3.0  # planted: 2
    probs = (TEST.logits.double() / temperature).softmax(dim=1)
    for name, metric in CLASSIFICATION.items():
        expected = metric(probs, TEST.labels)
        assert value(rows, dataset="toy/test", posthoc="temperature", metric=name) == expected
    shifted = (SHIFT[1].logits.double() / temperature).softmax(dim=1)
    found = value(rows, corruption="blur", severity=2, posthoc="temperature", metric="ece")
    assert found == ece(shifted, SHIFT[1].labels)


def test_temperature_changes_calibration_and_not_accuracy(rows):
    accuracies = {
        posthoc: value(rows, dataset="toy/test", posthoc=posthoc, metric="accuracy")
        for posthoc in ("none", "temperature")
    }
    assert accuracies["none"] == accuracies["temperature"]
    likelihood = {
        posthoc: value(rows, dataset="toy/test", posthoc=posthoc, metric="nll") for posthoc in ("none", "temperature")
    }
    assert likelihood["temperature"] < likelihood["none"]


def test_without_validation_there_are_no_temperature_rows():
    rows = evaluate(TEST, shift=SHIFT, ood=OOD)
    assert {row.posthoc for row in rows} == {"none"}
    assert "temperature" not in {row.metric for row in rows}


def test_temperature_comes_from_validation_alone(rows):
    other_labels = replace(TEST, labels=TEST.labels.roll(1))
    again = evaluate(other_labels, validation=VALIDATION)
    assert value(again, metric="temperature") == value(rows, metric="temperature")
    assert value(again, posthoc="none", metric="accuracy") != value(
        rows, dataset="toy/test", metric="accuracy", posthoc="none"
    )
    calm = replace(VALIDATION, logits=VALIDATION.logits / 2)
    halved = value(evaluate(TEST, validation=calm), metric="temperature")
    assert halved == pytest.approx(value(rows, metric="temperature") / 2, abs=2e-3)


def test_every_shifted_subset_has_its_own_rows(rows):
    for subset in SHIFT:
        family, corruption, severity = subset.dataset.split("/")
        probs = subset.logits.double().softmax(dim=1)
        for name, metric in CLASSIFICATION.items():
            found = value(
                rows, dataset=family, corruption=corruption, severity=int(severity), posthoc="none", metric=name
            )
            assert found == metric(probs, subset.labels)


@pytest.mark.parametrize("metric", CLASSIFICATION)
@pytest.mark.parametrize("posthoc", ["none", "temperature"])
def test_shift_mean_is_the_plain_mean_over_subsets(rows, metric, posthoc):
    each = [
        row.value
        for row in rows
        if row.dataset == "toy-c" and row.severity is not None and (row.metric, row.posthoc) == (metric, posthoc)
    ]
    assert len(each) == 3
    mean = value(rows, dataset="toy-c", corruption="mean", metric=metric, posthoc=posthoc)
    assert mean == pytest.approx(sum(each) / 3, abs=1e-15)


def test_for_ece_the_mean_over_subsets_is_not_pooling():
    """Confidence 0.8 everywhere; all of one subset is right, 6 of 10 of the other: errors 0.2 and 0.2, pooled 0."""
    logits = torch.tensor([[0.8, 0.1, 0.06, 0.04]]).log().repeat(10, 1)
    right, wrong = torch.zeros(10, dtype=torch.int64), torch.tensor([0] * 6 + [1] * 4)
    shift = [Predictions(logits, right, dataset="toy-c/a/1"), Predictions(logits, wrong, dataset="toy-c/b/1")]
    rows = evaluate(TEST, shift=shift)
    pooled = torch.cat([logits, logits]).double().softmax(dim=1), torch.cat([right, wrong])
    assert value(rows, corruption="mean", metric="accuracy") == accuracy(*pooled) == 0.8
    assert ece(*pooled) == pytest.approx(0.0, abs=1e-6)
    assert value(rows, corruption="mean", metric="ece") == pytest.approx(0.2, abs=1e-6)


def test_families_of_shift_are_averaged_apart():
    rows = evaluate(TEST, shift=[made_up("a-c/x/1", 0), made_up("a-c/x/2", 1), made_up("b-c/x/1", 2)])
    for family in ("a-c", "b-c"):
        each = [r.value for r in rows if (r.dataset, r.metric) == (family, "nll") and r.corruption == "x"]
        assert value(rows, dataset=family, corruption="mean", metric="nll") == pytest.approx(sum(each) / len(each))


def test_a_shifted_set_with_another_kind_of_name_is_one_corruption_without_severity():
    rows = evaluate(TEST, shift=[made_up("cifar10.1/test", 3)])
    assert value(rows, dataset="cifar10.1/test", corruption="cifar10.1/test", severity=None, metric="ece") > 0


@pytest.mark.parametrize("ood", OOD, ids=lambda p: p.dataset)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("metric", DETECTION)
def test_every_score_and_metric_is_present_for_every_ood_set(rows, ood, score, metric):
    expected = DETECTION[metric](SCORES[score](TEST.logits), SCORES[score](ood.logits))
    assert value(rows, dataset=ood.dataset, score=score, metric=metric) == expected


def test_there_are_no_other_rows(rows):
    classification = 2 * len(CLASSIFICATION)
    test = 2 * len(CLASSIFICATION | ON_TEST_ALONE) + 1 + len(SCORES) * len(SELECTIVE)  # with the temperature
    shift = classification * (len(SHIFT) + 1)
    detection = len(OOD) * len(SCORES) * (len(DETECTION) + 2)  # SCOD
    assert len(rows) == test + shift + detection
    assert {row.posthoc for row in rows if row.score} == {"none"}


def test_every_row_carries_the_template(rows):
    carried = {(row.study, row.run, row.method, row.network, row.train_set, row.seed) for row in rows}
    assert carried == {("s", "r", "m", "net", "toy/train", 7)}


def test_rows_count_the_samples_behind_them(rows):
    counted = [row for row in rows if row.metric != "temperature" and not row.metric.startswith("scod")]
    counts = {(row.dataset, row.corruption, row.severity): row.n for row in counted}
    assert counts == {
        ("toy/test", "", None): 120,
        ("toy-c", "blur", 1): 120,
        ("toy-c", "blur", 2): 120,
        ("toy-c", "fog", 1): 60,
        ("toy-c", "mean", None): 300,
        ("near/test", "", None): 120,
        ("far/test", "", None): 70,
    }


def test_stored_probabilities_are_used_where_they_are_not_the_softmax():
    probs = torch.full((120, CLASSES), 1 / CLASSES)
    rows = evaluate(replace(TEST, probs=probs))
    assert value(rows, metric="nll") == pytest.approx(torch.tensor(CLASSES).log().item(), abs=1e-6)


def test_ood_labels_are_not_needed():
    unlabelled = replace(OOD[0], labels=torch.full((120,), -1))
    rows = evaluate(TEST, ood=[unlabelled])
    expected = auroc(SCORES["entropy"](TEST.logits), SCORES["entropy"](OOD[0].logits))
    assert value(rows, score="entropy", metric="auroc") == expected


@pytest.mark.parametrize("group", ["shift", "ood"])
def test_a_repeated_dataset_is_an_error(group):
    twice = [made_up("same/set/1", 0), made_up("other/set/1", 1), made_up("same/set/1", 2)]
    with pytest.raises(ValueError, match="each dataset must be given once, got same/set/1 more than once"):
        evaluate(TEST, **{group: twice})


@pytest.mark.parametrize("group", ["validation", "shift", "ood"])
def test_another_number_of_classes_is_an_error(group):
    other = Predictions(torch.zeros(3, 7), torch.zeros(3, dtype=torch.int64), dataset="other")
    with pytest.raises(ValueError, match="other and toy/test must be predicted by one model, got 7 and 4 classes"):
        evaluate(TEST, **{group: other if group == "validation" else [other]})


def test_predictions_are_not_changed():
    before = TEST.logits.clone(), VALIDATION.logits.clone(), OOD[0].logits.clone()
    evaluate(TEST, validation=VALIDATION, ood=OOD)
    for left, right in zip(before, (TEST, VALIDATION, OOD[0]), strict=True):
        assert torch.equal(left, right.logits)


# ---------------------------------------------------------------------------------------------------- intervals


def row_of(rows, **wanted):
    (found,) = [row for row in rows if all(getattr(row, name) == v for name, v in wanted.items())]
    return found


def test_every_measured_row_has_an_interval_but_those_that_are_not_resampled(rows):
    without = {row.metric for row in rows if row.low is None}
    assert without == {"temperature"}
    assert all(row.low <= row.high for row in rows if row.low is not None)


def test_the_intervals_are_percentiles_over_resampled_test_images(rows):
    probs, bootstrap = TEST.logits.double().softmax(dim=1), Bootstrap()
    counts = bootstrap.counts(len(TEST))
    values = torch.tensor(
        [accuracy(probs.repeat_interleave(c, 0), TEST.labels.repeat_interleave(c)) for c in counts.long()],
        dtype=torch.float64,
    )
    expected = bootstrap.interval(values)
    found = row_of(rows, dataset="toy/test", posthoc="none", metric="accuracy")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_every_value_lies_in_its_interval(rows):
    outside = [row for row in rows if row.low is not None and not row.low <= row.value <= row.high]
    assert outside == []


def test_shifted_versions_are_resampled_together(rows):
    """The mean over subsets of the same images has the interval of the mean, not the mean of the intervals."""
    same = [replace(TEST, dataset=f"toy-c/copy/{severity}") for severity in (1, 2, 3)]
    again = evaluate(TEST, shift=same)
    single = row_of(again, dataset="toy/test", metric="ece")
    mean = row_of(again, dataset="toy-c", corruption="mean", metric="ece")
    assert (mean.low, mean.high) == pytest.approx((single.low, single.high), abs=1e-12)


def test_intervals_can_be_left_out_and_change_no_value(rows):
    bare = evaluate(TEST, validation=VALIDATION, shift=SHIFT, ood=OOD, bootstrap=None)
    assert all(row.low is None and row.high is None for row in bare)
    assert [row.value for row in bare] == [row.value for row in rows]


# ----------------------------------------------------------------------------------------------------- held out


@pytest.mark.parametrize(
    "validation",
    [
        TEST,
        replace(TEST, dataset="copy"),
        replace(VALIDATION, dataset="toy/test", role=""),
        replace(VALIDATION, dataset="cifar10/test", role=""),
        replace(VALIDATION, dataset="toy-c/blur/1", role=""),
        replace(VALIDATION, dataset="imagenet/val-test", role=""),
        replace(VALIDATION, dataset="far/test", role=""),
        replace(VALIDATION, dataset="mine", role="shifted"),
    ],
    ids=["test", "its copy", "its name", "a test set", "a shifted set", "a part for testing", "an OOD set", "its role"],
)
def test_nothing_is_fitted_on_what_is_reported(validation):
    with pytest.raises(ValueError, match="is no validation set: nothing may be fitted on it"):
        evaluate(TEST, validation=validation, shift=SHIFT, ood=OOD)


def test_a_validation_set_may_be_called_like_a_shifted_one():
    rows = evaluate(TEST, validation=replace(VALIDATION, dataset="vitamin-c/val", role=""), bootstrap=None)
    assert value(rows, metric="temperature") == value(
        evaluate(TEST, validation=VALIDATION, bootstrap=None), metric="temperature"
    )
    stated = replace(VALIDATION, dataset="toy-c/fog/3", role="validation")
    assert evaluate(TEST, validation=stated, bootstrap=None)


def test_whoever_says_so_in_words_may_fit_on_the_test_set():
    rows = evaluate(TEST, validation=TEST, fit_on="a test set, knowingly", bootstrap=None)
    assert value(rows, metric="temperature") > 1
    with pytest.raises(ValueError, match="unknown fit_on 'test'"):
        evaluate(TEST, validation=VALIDATION, fit_on="test")


def test_a_set_of_the_same_data_is_known_by_its_fingerprint():
    test, validation = (replace(p, info={"data": "abc"}) for p in (TEST, VALIDATION))
    with pytest.raises(ValueError, match=r"toy/val is no validation set: .*, it is toy/test that is reported"):
        evaluate(test, validation=validation)


def test_features_bring_the_fisher_criterion():
    features = torch.randn(len(TEST), 3, generator=torch.Generator().manual_seed(0))
    rows = evaluate(replace(TEST, features=features), bootstrap=None)
    assert value(rows, metric="fisher_criterion") == fisher_criterion(features, TEST.labels)


def test_stored_moments_bring_the_fisher_criterion_of_shifted_sets():
    features = torch.randn(len(TEST), 3, generator=torch.Generator().manual_seed(0))
    moments = ClassMoments.of(features, TEST.labels, TEST.logits.shape[1]).packed()
    shifted = replace(TEST, dataset="toy-c/fog/3", **moments)
    found = [r for r in evaluate(TEST, shift=[shifted], bootstrap=None) if r.metric == "fisher_criterion"]
    assert [(r.dataset, r.corruption, r.severity, r.n) for r in found] == [("toy-c", "fog", 3, len(TEST))]
    assert found[0].value == pytest.approx(fisher_criterion(features, TEST.labels), rel=1e-9)


def test_selective_prediction_is_measured_for_every_score(rows):
    correct = TEST.logits.argmax(dim=1) == TEST.labels
    for name, score in SCORES.items():
        for metric, function in SELECTIVE.items():
            found = value(rows, dataset="toy/test", score=name, metric=metric)
            assert found == function(score(TEST.logits), correct)


def test_a_test_set_without_errors_has_no_failure_auroc():
    right = replace(TEST, labels=TEST.logits.argmax(dim=1))
    assert {r.metric for r in evaluate(right) if r.score == "entropy"} == {"aurc", "augrc"}


def test_all_right_and_all_wrong_have_the_exact_interval_and_not_one_of_length_zero():
    right = TEST.logits.argmax(dim=1)
    for labels, expected in ((right, (0.025 ** (1 / 120), 1)), ((right + 1) % TEST.logits.shape[1], (0, None))):
        row = next(r for r in evaluate(replace(TEST, labels=labels)) if r.metric == "accuracy")
        low, high = expected
        assert row.low == pytest.approx(low)
        assert row.high == pytest.approx(high if high is not None else 1 - 0.025 ** (1 / 120))
        below = row.low if row.value else 1 - row.high
        assert below**120 == pytest.approx(0.025)  # so accurate a model has all 120 right in 1 of 40 sets


def test_selective_prediction_is_measured_with_the_ood_images_present(rows):
    """All images of both sets, each once, with an interval around the value."""
    correct = TEST.logits.argmax(dim=1) == TEST.labels
    for other in OOD:
        for metric, function in (("scod_aurc", scod_aurc), ("scod_augrc", scod_augrc)):
            (row,) = [r for r in rows if (r.dataset, r.score, r.metric) == (other.dataset, "entropy", metric)]
            assert row.value == function(SCORES["entropy"](TEST.logits), correct, SCORES["entropy"](other.logits))
            assert row.n == len(TEST) + len(other)
            assert row.low < row.value < row.high


def test_predictions_of_two_runs_are_not_one_model():
    test, other = (replace(p, info={"run": run}) for p, run in ((TEST, "a" * 64), (OOD[0], "b" * 64)))
    with pytest.raises(ValueError, match=r"near/test and toy/test must be predicted by one model, got .* a+ and b+"):
        evaluate(test, ood=[other])
    assert evaluate(test, ood=[OOD[0]], bootstrap=None)  # one that says nothing may come from anywhere


def test_train_features_bring_the_scores_of_features():
    """A far cluster of features is found by them, whatever the logits say."""
    generator = torch.Generator().manual_seed(0)

    def featured(predictions, offset):
        features = offset + torch.randn(len(predictions), 5, generator=generator)
        return replace(predictions, features=features, info={})

    train, test, ood = featured(VALIDATION, 0.0), featured(TEST, 0.0), featured(OOD[0], 20.0)
    rows = evaluate(test, train=train, ood=[ood], bootstrap=None)
    for score in ("mahalanobis", "mahalanobis_tied"):
        assert value(rows, score=score, metric="auroc") == 1.0
    assert value(rows, score="knn", metric="auroc") < 1.0  # it compares directions alone
    bare = evaluate(test, train=train, ood=[OOD[0]], bootstrap=None)
    assert {row.score for row in bare if row.metric == "auroc"} == set(SCORES)


def test_predictions_need_no_names():
    """Unnamed sets are not taken for one another, and an unnamed OOD set is resampled on its own."""
    test, validation = (replace(p, dataset="") for p in (TEST, VALIDATION))
    ood = replace(test, logits=test.logits.flip(0))
    rows = evaluate(test, validation=validation, ood=[ood], bootstrap=Bootstrap(resamples=50))
    found = next(row for row in rows if row.metric == "auroc")
    assert found.low < found.value == 0.5 < found.high
    with pytest.raises(ValueError, match="got one without a name more than once"):
        evaluate(test, ood=[ood, validation])
    with pytest.raises(ValueError, match=r"this is no validation set: .*, its role is test"):
        evaluate(test, validation=test)


def test_the_test_set_is_no_ood_set():
    """It is known by its fingerprint, or by its logits where that is missing; files of two folders may share a name."""
    copy = replace(TEST, dataset="copy", labels=torch.full_like(TEST.labels, -1))
    with pytest.raises(ValueError, match=r"an OOD set must hold other samples than .*, got copy with the same"):
        evaluate(TEST, ood=[copy])
    test, other = (replace(p, info={"data": "abc"}) for p in (TEST, OOD[0]))
    with pytest.raises(ValueError, match="an OOD set must hold other samples than the test set"):
        evaluate(test, ood=[other])
    assert evaluate(TEST, ood=[replace(TEST, logits=-TEST.logits)], bootstrap=None)


def test_a_collapsed_model_may_say_the_same_about_two_sets_of_known_data():
    test, ood = (replace(TEST, logits=torch.zeros_like(TEST.logits), dataset=d, info={"data": d}) for d in ("a", "b"))
    found = evaluate(test, ood=[ood], bootstrap=None)
    assert {row.value for row in found if row.metric == "auroc"} == {0.5}


def test_two_sets_with_one_name_are_told_apart_by_their_size_and_what_was_said_by_its_logits():
    named = replace(VALIDATION, dataset="logits")
    assert evaluate(replace(TEST, dataset="logits"), validation=named, bootstrap=None)
    with pytest.raises(ValueError, match="logits is no validation set"):
        evaluate(replace(TEST, dataset="logits"), validation=replace(made_up("logits", 9), dataset="logits"))
    unlabelled = replace(VALIDATION, labels=torch.full_like(VALIDATION.labels, -1), dataset="far")
    with pytest.raises(ValueError, match="logits is no validation set"):
        evaluate(TEST, validation=named, ood=[unlabelled])


def test_scores_are_not_fitted_on_what_is_reported_either():
    test = replace(TEST, features=TEST.logits)
    with pytest.raises(ValueError, match="copy is no train set: nothing may be fitted on it"):
        evaluate(test, train=replace(test, dataset="copy"))
    assert evaluate(test, train=replace(test, dataset="copy"), fit_on="a test set, knowingly", bootstrap=None)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_train_set_is_not_silently_ignored_where_features_are_missing(name):
    given = {"train": replace(VALIDATION, features=VALIDATION.logits), "test": replace(TEST, features=TEST.logits)}
    given[name] = replace(given[name], features=None)
    with pytest.raises(ValueError, match=f"{name} predictions must hold features where a train set is given"):
        evaluate(given["test"], train=given["train"])


@pytest.mark.parametrize("worst", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_refused_by_the_name_of_their_set(worst):
    broken = TEST.logits.clone()
    broken[3, 1] = worst
    for test, ood in (
        (replace(TEST, logits=broken), []),
        (TEST, [replace(OOD[0], logits=broken[: len(OOD[0])], labels=TEST.labels[: len(OOD[0])])]),
    ):
        with pytest.raises(ValueError, match=r"/test must hold finite .* in 1 of \d+ rows, the first is row 3"):
            evaluate(test, ood=ood)


def test_a_set_without_samples_is_refused():
    with pytest.raises(ValueError, match="nothing must hold finite logits of some samples, got none"):
        evaluate(TEST, ood=[Predictions(torch.zeros(0, CLASSES), torch.zeros(0, dtype=torch.int64), dataset="nothing")])


def test_probabilities_in_the_place_of_logits_are_refused():
    probs = replace(TEST, logits=TEST.logits.softmax(dim=1))
    with pytest.raises(ValueError, match="the logits of toy/test look like probabilities"):
        evaluate(probs, bootstrap=None)
    evaluate(replace(TEST, logits=probs.logits.log()), bootstrap=None)
    evaluate(replace(TEST, logits=torch.ones(len(TEST), 1), labels=0 * TEST.labels), bootstrap=None)


def test_features_without_spread_leave_the_fisher_criterion_out_and_say_so():
    flat = replace(TEST, features=torch.nn.functional.one_hot(TEST.labels, CLASSES).float())
    with pytest.warns(UserWarning, match=r"no Fisher criterion for toy/test: features must vary within some class"):
        rows = evaluate(flat, bootstrap=None)
    assert "fisher_criterion" not in {row.metric for row in rows}


# ------------------------------------------------------------------------------------- relative to a reference


def accuracies(method, *values, seed=0):
    conditions = [("fog", 1), ("fog", 2), ("snow", 1)]
    return [
        Row(method=method, seed=seed, dataset="toy-c", corruption=c, severity=s, metric="accuracy", value=v, n=10)
        for (c, s), v in zip(conditions, values, strict=True)
    ]


def test_relative_rows_compare_with_the_reference_of_the_same_seed():
    """fog: (0.1 + 0.2) / (0.2 + 0.4), snow: 0.5 / 0.25."""
    rows = [*accuracies("dnn", 0.8, 0.6, 0.75), *accuracies("mixup", 0.9, 0.8, 0.5)]
    found = relative_rows(rows, reference="dnn")
    assert [(row.method, row.corruption, row.metric) for row in found] == [
        ("dnn", "mean", "mce_relative_to_dnn"),
        ("mixup", "mean", "mce_relative_to_dnn"),
    ]
    assert [row.value for row in found] == pytest.approx([1.0, (0.5 + 2.0) / 2])
    assert relative_rows(accuracies("mixup", 0.9, 0.8, 0.5, seed=1) + rows[:3], reference="dnn") == found[:1]


def test_relative_rows_need_a_reference_with_errors():
    rows = [*accuracies("dnn", 1.0, 1.0, 0.75), *accuracies("mixup", 0.9, 0.8, 0.5)]
    assert relative_rows(rows, reference="dnn") == []


def test_the_nll_of_finite_logits_is_finite_where_probabilities_are_not_and_so_is_its_interval():
    """A label's logit of 5,000 below the largest is a probability of 0 in float64, but costs 5,000 nats."""
    logits = torch.tensor([[5000.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    test = Predictions(logits, torch.tensor([1, 1, 0]), dataset="a/test")
    found = row_of(evaluate(test, bootstrap=Bootstrap(resamples=50)), metric="nll")
    terms = torch.nn.functional.cross_entropy(logits.double(), test.labels, reduction="none")
    assert found.value == pytest.approx(float(terms.mean()), rel=1e-12)
    assert found.low is not None
    assert found.low < found.value < found.high <= 5000


def test_log_probabilities_have_no_score_of_the_scale_of_logits():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    labels, model = torch.arange(20) % 4, torch.nn.LogSoftmax(dim=1)
    known, other = (Predictions(table, labels, dataset=name) for table, name in ((model(logits), "a"), (-logits, "b")))
    for rows in (
        evaluate(known, ood=[other], bootstrap=None),
        evaluate(model, {"test": [(logits, labels)], "ood": {"b": [-logits]}}, bootstrap=None),
    ):
        assert {row.score for row in rows if row.metric == "auroc"} >= {"entropy", "max_probability"}
        assert {"energy", "dempster_shafer", "max_logit"}.isdisjoint(row.score for row in rows)
