"""From predictions of a made-up model to rows: which exist, what they carry, where the temperature comes from."""

from dataclasses import replace

import pytest
import torch

from regmixup.evaluation.evaluate import evaluate, fit_temperature
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import accuracy, adaptive_ece, brier, debiased_ece, ece, nll
from regmixup.metrics.detection import DETECTION
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.metrics.scores import SCORES
from regmixup.metrics.selective import SELECTIVE
from regmixup.posthoc import TemperatureScaling, as_given
from regmixup.types import Predictions, Row

CLASSIFICATION = {
    "accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece, "adaptive_ece": adaptive_ece,
    "debiased_ece": debiased_ece,
}  # fmt: skip
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


def row_of(rows, **wanted):
    """The one row that has these fields."""
    (found,) = [row for row in rows if all(getattr(row, name) == v for name, v in wanted.items())]
    return found


def value(rows, **wanted):
    return row_of(rows, **wanted).value


def test_test_metrics_are_those_of_the_softmax(rows):
    probs = TEST.logits.double().softmax(dim=1)
    for name, metric in CLASSIFICATION.items():
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


def test_shifted_sets_have_rows_of_their_own_and_of_their_plain_mean(rows):
    for name, metric in CLASSIFICATION.items():
        each = []
        for subset in SHIFT:
            family, corruption, severity = subset.dataset.split("/")
            place = {"dataset": family, "corruption": corruption, "severity": int(severity), "posthoc": "none"}
            each.append(value(rows, metric=name, **place))
            assert each[-1] == metric(subset.logits.double().softmax(dim=1), subset.labels)
        mean = value(rows, dataset="toy-c", corruption="mean", metric=name, posthoc="none")
        assert mean == pytest.approx(sum(each) / 3, abs=1e-15)


def test_families_of_shift_are_averaged_apart_and_another_name_is_one_corruption_without_severity():
    rows = evaluate(TEST, shift=[made_up("a-c/x/1", 0), made_up("a-c/x/2", 1), made_up("cifar10.1/test", 2)])
    for family, place in (("a-c", "x"), ("cifar10.1/test", "cifar10.1/test")):
        each = [r.value for r in rows if (r.dataset, r.metric, r.corruption) == (family, "nll", place)]
        assert value(rows, dataset=family, corruption="mean", metric="nll") == pytest.approx(sum(each) / len(each))


@pytest.mark.parametrize("score", SCORES)
def test_every_score_and_metric_is_present_for_every_ood_set(rows, score):
    for ood in OOD:
        for name, metric in DETECTION.items():
            expected = metric(SCORES[score](TEST.logits), SCORES[score](ood.logits))
            assert value(rows, dataset=ood.dataset, score=score, metric=name) == expected


def test_temperature_comes_from_validation_alone(rows):
    temperature = value(rows, metric="temperature")
    assert temperature == TemperatureScaling().fit(VALIDATION.logits, VALIDATION.labels).temperature
    other_labels = replace(TEST, labels=TEST.labels.roll(1))
    again = evaluate(other_labels, validation=VALIDATION, bootstrap=None)
    assert value(again, metric="temperature") == temperature
    calm = replace(VALIDATION, logits=VALIDATION.logits / 2)
    halved = value(evaluate(TEST, validation=calm, bootstrap=None), metric="temperature")
    assert halved == pytest.approx(temperature / 2, abs=2e-3)


def test_a_temperature_from_elsewhere_takes_the_place_of_the_validation_set(rows):
    temperature = fit_temperature(as_given, VALIDATION)
    elsewhere = evaluate(TEST, temperature=temperature, shift=SHIFT, ood=OOD, bootstrap=None)
    assert [row.value for row in elsewhere] == [row.value for row in rows]
    assert all(row.low is None and row.high is None for row in elsewhere)
    with pytest.raises(ValueError, match=r"temperature must be None where it is chosen on toy/val, got 2\.0"):
        evaluate(TEST, validation=VALIDATION, temperature=2.0)
    with pytest.raises(ValueError, match="toy/test is no validation set"):
        fit_temperature(as_given, TEST)


def test_there_are_no_other_rows(rows):
    classification = 2 * len(CLASSIFICATION)
    test = classification + 1 + len(SCORES) * len(SELECTIVE)  # with the temperature
    shift = classification * (len(SHIFT) + 1)
    detection = len(OOD) * len(SCORES) * len(DETECTION)
    assert len(rows) == test + shift + detection
    assert {row.posthoc for row in rows if row.score} == {"none"}
    carried = {(row.study, row.run, row.method, row.network, row.train_set, row.seed) for row in rows}
    assert carried == {("s", "r", "m", "net", "toy/train", 7)}
    assert {row.metric for row in rows if row.low is None} == {"temperature"}
    assert all(row.low <= row.high for row in rows if row.low is not None)


def test_rows_count_the_samples_behind_them(rows):
    counts = {(row.dataset, row.corruption, row.severity): row.n for row in rows if row.metric != "temperature"}
    assert counts == {
        ("toy/test", "", None): 120,
        ("toy-c", "blur", 1): 120,
        ("toy-c", "blur", 2): 120,
        ("toy-c", "fog", 1): 60,
        ("toy-c", "mean", None): 300,
        ("near/test", "", None): 120,
        ("far/test", "", None): 70,
    }


# ---------------------------------------------------------------------------------------------------- intervals


def test_groups_add_the_mean_over_their_ood_sets(rows):
    groups = {"near": ["near/test"], "all": ["near/test", "far/test"]}
    grouped = evaluate(TEST, validation=VALIDATION, shift=SHIFT, ood=OOD, groups=groups, row=Row())
    assert len(grouped) == len(rows) + 2 * len(SCORES) * len(DETECTION)
    each = [row_of(grouped, dataset=ood.dataset, score="energy", metric="auroc") for ood in OOD]
    mean = row_of(grouped, dataset="all", score="energy", metric="auroc")
    assert mean.value == pytest.approx(sum(row.value for row in each) / 2)
    assert mean.n == 120 + 70
    joint = (grouped.resampled[each[0].quantity] + grouped.resampled[each[1].quantity]) / 2
    interval = Bootstrap().interval(joint)
    assert (mean.low, mean.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    alone = row_of(grouped, dataset="near", score="energy", metric="auroc")
    assert (alone.value, alone.low, alone.high) == (each[0].value, each[0].low, each[0].high)


@pytest.mark.parametrize(
    ("group", "sets"),
    [
        ("far", ["near/test", "svhn/test"]),
        ("far", []),
        ("far", ["far/test", "far/test"]),
        ("far", "far/test"),
        ("far", iter(["far/test"])),
    ],
    ids=["unknown", "empty", "twice", "text", "iterator"],
)
def test_a_group_lists_given_sets_once(group, sets):
    contract = r"must list some of the OOD sets \(near/test, far/test\), each once, got "
    with pytest.raises(ValueError, match=f"^group '{group}' {contract}"):
        evaluate(TEST, ood=OOD, groups={group: sets})


def test_groups_have_names():
    with pytest.raises(ValueError, match=r"^groups must hold names of OOD sets by .*, got \['near/test'\]$"):
        evaluate(TEST, ood=OOD, groups=["near/test"])


def test_a_group_may_have_the_name_of_its_only_set_but_of_no_other():
    rows = evaluate(TEST, ood=OOD, groups={"far/test": ["far/test"]})
    assert len({row.value for row in rows if (row.dataset, row.metric, row.score) == ("far/test", "auroc", "gen")}) == 1
    for name in ("near/test", TEST.dataset):
        with pytest.raises(ValueError, match=f"^group '{name}' must have another name than the set '{name}', got"):
            evaluate(TEST, ood=OOD, groups={name: ["far/test"]})


def test_an_ood_set_has_another_name_than_the_test_set():
    """As of mine/test.npz and svhn/test.npz: figures would draw one of them for both."""
    with pytest.raises(
        ValueError, match=r"^an OOD set must have another name than the test set, got 'toy/test': change"
    ):
        evaluate(TEST, ood=[replace(OOD[0], dataset="toy/test")])
    assert evaluate(replace(TEST, dataset=""), ood=[replace(OOD[0], dataset="")], bootstrap=None)


def test_probs_that_are_none_are_refused():
    """A sigmoid's outputs do not sum to 1: their likelihood would be too good."""
    sigmoid = replace(TEST, probs=TEST.logits.sigmoid())
    for sets in ({"subject": sigmoid}, {"subject": TEST, "ood": [replace(OOD[0], probs=OOD[0].logits.sigmoid())]}):
        with pytest.raises(ValueError, match=r"^probs of (toy|near)/test must be >= 0 and sum to 1 in every row, got"):
            evaluate(**sets)


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


def test_shifted_versions_are_resampled_together():
    """The mean over subsets of the same images has the interval of the mean, not the mean of the intervals."""
    same = [replace(TEST, dataset=f"toy-c/copy/{severity}") for severity in (1, 2, 3)]
    again = evaluate(TEST, shift=same)
    single = row_of(again, dataset="toy/test", metric="ece")
    mean = row_of(again, dataset="toy-c", corruption="mean", metric="ece")
    assert (mean.low, mean.high) == pytest.approx((single.low, single.high), abs=1e-12)


# ----------------------------------------------------------------------------------------------------- held out


@pytest.mark.parametrize(
    "validation",
    [
        TEST,
        replace(TEST, dataset="copy"),
        replace(VALIDATION, dataset="cifar10/test", role=""),
        replace(VALIDATION, dataset="toy-c/blur/1", role=""),
        replace(VALIDATION, dataset="mine", role="shifted"),
        replace(VALIDATION, dataset="mine", role="train"),
    ],
    ids=["test", "its copy", "a test set", "a shifted set", "its role", "train images"],
)
def test_nothing_is_fitted_on_what_is_reported(validation):
    with pytest.raises(ValueError, match="is no validation set: nothing may be fitted on it"):
        evaluate(TEST, validation=validation, shift=SHIFT, ood=OOD)


def test_train_images_in_place_of_test_images_are_told():
    with pytest.warns(UserWarning, match="mine/train-80 are train images of the model, so these are no test results"):
        evaluate(replace(TEST, dataset="mine/train-80", role=""), bootstrap=None)


def test_sets_are_known_by_fingerprint_or_logits_and_by_name_and_size():
    test, validation = (replace(p, info={"data": "abc"}) for p in (TEST, VALIDATION))
    with pytest.raises(ValueError, match=r"toy/val is no validation set: .*, it is toy/test that is reported"):
        evaluate(test, validation=validation)
    inside, outside = (replace(test, info={"data": "def", "whole": whole}) for whole in ("abc", "ghi"))
    for first, second in ((test, inside), (inside, test)):  # as cifar10/openood-val is a part of cifar10/test
        with pytest.raises(ValueError, match=r"toy/val is no validation set: .*, it is toy/test that is reported"):
            evaluate(first, validation=replace(validation, info=second.info))
    assert evaluate(test, validation=replace(validation, info=outside.info), bootstrap=None)
    with pytest.raises(ValueError, match="logits is no validation set"):
        evaluate(replace(TEST, dataset="logits"), validation=made_up("logits", 9))
    named = replace(VALIDATION, dataset="logits")
    assert evaluate(replace(TEST, dataset="logits"), validation=named, bootstrap=None)  # of another size
    stated = replace(VALIDATION, dataset="toy-c/fog/3", role="validation")
    assert evaluate(TEST, validation=stated, bootstrap=None)
    collapsed = (replace(TEST, logits=0 * TEST.logits, dataset=d, info={"data": d}) for d in ("a", "b"))
    rows = evaluate(next(collapsed), ood=list(collapsed), bootstrap=None)
    assert {row.value for row in rows if row.metric == "auroc"} == {0.5}


def broken(worst):
    logits = TEST.logits.clone()
    logits[3, 1] = worst
    return replace(TEST, logits=logits)


@pytest.mark.parametrize(
    ("test", "sets", "message"),
    [
        (TEST, {"shift": [made_up("s/x/1", 0), made_up("s/x/1", 2)]}, "given once, got s/x/1 2 times"),
        (
            TEST,
            {"ood": [Predictions(torch.zeros(3, 7), torch.zeros(3).long(), dataset="other")]},
            "other and toy/test must be predicted by one model, got 7 and 4 classes",
        ),
        (
            replace(TEST, info={"run": "a" * 64}),
            {"ood": [replace(OOD[0], info={"run": "b" * 64})]},
            r"near/test and toy/test must be predicted by one model, got those of runs a{12} and b{12}",
        ),
        (broken(torch.nan), {}, "toy/test must hold finite .* in 1 of 120 rows, the first is row 3"),
        (
            TEST,
            {"ood": [Predictions(torch.zeros(0, CLASSES), torch.zeros(0).long(), dataset="nothing")]},
            "nothing must hold finite logits of some samples, got none",
        ),
        (replace(TEST, logits=TEST.logits.softmax(dim=1)), {}, "the logits of toy/test look like probabilities"),
        (
            TEST,
            {"ood": [replace(TEST, dataset="copy", labels=torch.full_like(TEST.labels, -1))]},
            "an OOD set must hold other samples than .*, got copy with the same",
        ),
        (TEST, {"ood": OOD[0]}, r"^ood must be a list of Predictions, got Predictions\('near/test', "),
        (TEST, {"shift": {"s/x/1": OOD[0]}}, r"^shift must be a list of Predictions, got \{'s/x/1': Pred"),
        (TEST, {"train": replace(VALIDATION, features=VALIDATION.logits)}, "test predictions must hold features where"),
        (replace(TEST, features=TEST.logits), {"train": VALIDATION}, "train predictions must hold features where"),
    ],
)
def test_sets_that_cannot_be_measured_are_refused_by_name(test, sets, message):
    with pytest.raises(ValueError, match=message):
        evaluate(test, **sets, bootstrap=None)


def test_outputs_of_a_sigmoid_are_told():
    with pytest.warns(UserWarning, match=r"the logits of toy/test lie in \[0, 1\], as the outputs of a sigmoid do"):
        evaluate(replace(TEST, logits=TEST.logits.sigmoid()), bootstrap=None)


def test_unnamed_sets_and_log_probabilities_and_one_class_are_measured():
    unnamed = replace(TEST, dataset="")
    rows = evaluate(unnamed, ood=[replace(unnamed, logits=TEST.logits.flip(0))], bootstrap=Bootstrap(resamples=50))
    row = next(row for row in rows if row.metric == "auroc")
    assert row.low < row.value == 0.5 < row.high  # the OOD set is resampled on its own
    evaluate(replace(TEST, logits=TEST.logits.log_softmax(dim=1)), bootstrap=None)
    evaluate(replace(TEST, logits=torch.ones(len(TEST), 1), labels=0 * TEST.labels), bootstrap=None)


def test_features_or_stored_moments_bring_the_fisher_criterion_of_test_and_shifted_sets():
    features = torch.randn(len(TEST), 3, generator=torch.Generator().manual_seed(0))
    moments = ClassMoments.of(features, TEST.labels, TEST.logits.shape[1]).packed()
    shifted = replace(TEST, dataset="toy-c/fog/3", **moments)
    rows = evaluate(replace(TEST, features=features), shift=[shifted], bootstrap=None)
    expected = fisher_criterion(features, TEST.labels)
    assert value(rows, metric="fisher_criterion", dataset="toy/test") == expected
    found = row_of(rows, metric="fisher_criterion", dataset="toy-c")
    assert (found.corruption, found.severity, found.n) == ("fog", 3, len(TEST))
    assert found.value == pytest.approx(expected, rel=1e-9)


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


def test_scores_are_not_fitted_on_what_is_reported_either():
    test = replace(TEST, features=TEST.logits)
    with pytest.raises(ValueError, match="copy is no train set: nothing may be fitted on it"):
        evaluate(test, train=replace(test, dataset="copy"))


def test_features_without_spread_leave_the_fisher_criterion_out_and_say_so():
    flat = replace(TEST, features=torch.nn.functional.one_hot(TEST.labels, CLASSES).float())
    with pytest.warns(UserWarning, match=r"no Fisher criterion for toy/test: features must vary within some class"):
        rows = evaluate(flat, bootstrap=None)
    assert "fisher_criterion" not in {row.metric for row in rows}


def test_the_nll_of_finite_logits_is_finite_where_probabilities_are_not_and_so_is_its_interval():
    """A label's logit of 5,000 below the largest is a probability of 0 in float64, but costs 5,000 nats."""
    logits = torch.tensor([[5000.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    test = Predictions(logits, torch.tensor([1, 1, 0]), dataset="a/test")
    found = row_of(evaluate(test, bootstrap=Bootstrap(resamples=50)), metric="nll")
    terms = torch.nn.functional.cross_entropy(logits.double(), test.labels, reduction="none")
    assert found.value == pytest.approx(float(terms.mean()), rel=1e-12)
    assert found.low is not None
    assert found.low < found.value < found.high <= 5000


@pytest.mark.parametrize("info", [{}, {"class_subset": "0,1"}])
def test_the_nll_at_a_temperature_is_finite_too(info):
    """The labels' logits lie 4,000 below the largest: 800 nats at a temperature of 5."""
    logits = torch.tensor([[4000.0, 0.0], [0.0, 4000.0]])
    test = Predictions(logits, torch.tensor([1, 0]), dataset="a/test", info=info)
    rows = evaluate(test, temperature=5.0, bootstrap=None)
    assert [row.value for row in rows if row.metric == "nll"] == [4000.0, 800.0]


def test_a_temperature_that_divides_nothing_is_refused():
    with pytest.raises(ValueError, match="temperature must be a finite number > 0, got 0"):
        evaluate(Predictions(torch.eye(2), torch.tensor([0, 1]), dataset="a/test"), temperature=0)


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
