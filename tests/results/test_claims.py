"""Claims: verdicts on fabricated rows, where they may be asked, and that the paper's own tables say what they quote."""

import re
from dataclasses import replace

import pytest
import torch
from claims import CLAIMS, Training, gather, method_label, nearest

from regmixup.config import encode
from regmixup.methods import METHODS
from regmixup.report.aggregation import Aggregation
from regmixup.report.results import ONE_PRIOR_VARIANCE, RunRecord
from regmixup.run_folder import write_config
from regmixup.training.config import configure, resolve
from regmixup.types import Row

FIELD = Training("cifar10-resnet18", (), 100, "bfloat16")
PAPERS = Training("cifar10-wrn28-10", (), 350, "bfloat16")
DETECTION = next(claim for claim in CLAIMS if (claim.method, claim.reference, claim.on) == ("regmixup", "dnn", "OOD"))
ACCURACY = next(claim for claim in CLAIMS if claim.title == "RegMixup is more accurate than plain training")
CALIBRATION = next(claim for claim in CLAIMS if claim.title == "RegMixup is better calibrated than plain training")
SHIFT = next(
    claim for claim in CLAIMS if claim.title == "RegMixup is more accurate under corruption than plain training"
)
SCORE = next(claim for claim in CLAIMS if (claim.method, claim.scores[0]) == ("regmixup", "dempster_shafer"))
WEIGHT = next(claim for claim in CLAIMS if claim.margin is not None)


def rows(method, values, first=0, **fields):
    place = {"dataset": "cifar10/test", "metric": "accuracy", "train_set": "cifar10/train", **fields}
    return [
        Row(method=method, seed=seed, run=f"{method}{seed}", value=value, **place)
        for seed, value in enumerate(values, start=first)
    ]


def ask(claim, own, other, training=FIELD, **fields):
    found = claim.ask(
        training, Aggregation([*rows(claim.method, own, **fields), *rows(claim.reference, other, **fields)])
    )
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        ([0.95, 0.96, 0.955], [0.94, 0.951, 0.944], "holds"),
        ([0.94, 0.951, 0.944], [0.95, 0.96, 0.955], "fails"),
        ([0.95, 0.93, 0.96], [0.94, 0.95, 0.945], "undecided"),
        ([0.99], [0.50], "undecided"),  # one seed decides nothing
        ([0.99], [0.50, 0.51, 0.50], "undecided"),
        ([0.95] * 3, [0.95] * 3, "undecided"),
    ],
)
def test_a_direction_is_decided_by_the_interval_over_seeds(own, other, verdict):
    found = ask(ACCURACY, own, other)
    assert found.verdict == verdict
    assert found.n == (len(own), len(other))
    assert found.effect == pytest.approx(sum(own) / len(own) - sum(other) / len(other))
    assert (found.interval is None) == (min(len(own), len(other)) < 2)
    lower = ask(CALIBRATION, own, other, metric="adaptive_ece")  # less is better
    assert lower.verdict == {"holds": "fails", "fails": "holds"}.get(verdict, verdict)


@pytest.mark.parametrize(
    ("own", "verdict"),
    [([0.951, 0.949, 0.951], "holds"), ([0.96, 0.961, 0.96], "fails"), ([0.953, 0.945, 0.956], "undecided")],
)
def test_no_change_is_decided_by_the_margin(own, verdict):
    assert ask(WEIGHT, own, [0.95, 0.9501, 0.9499]).verdict == verdict


def test_seeds_are_paired_only_where_both_have_them():
    """The methods differ by a constant and seeds by much more: pairs see it, other seeds do not."""
    values = [0.90, 0.93, 0.96]
    better = [value + 0.01 for value in values]
    assert ask(ACCURACY, better, values).verdict == "holds"
    mixed = Aggregation([*rows("regmixup", better), *rows("dnn", values, first=1)])
    assert ACCURACY.ask(FIELD, mixed)[0].verdict == "undecided"


def test_each_ood_set_is_asked_by_each_methods_own_score():
    claim = next(one for one in CLAIMS if (one.method, one.reference, one.on) == ("regmixup", "mixup", "OOD"))
    found = []
    for dataset in ("svhn/test", "cifar100/test"):
        for score, value in (("dempster_shafer", 0.9), ("entropy", 0.7)):
            for method in ("regmixup", "mixup"):
                found += rows(method, [value, value + 0.001], dataset=dataset, metric="auroc", score=score)
    findings = claim.ask(FIELD, Aggregation(found))
    assert {one.dataset: round(one.effect, 6) for one in findings} == {"svhn/test": 0.2, "cifar100/test": 0.2}
    assert findings[0].runs == ("regmixup0", "regmixup1", "mixup0", "mixup1")


def test_two_scores_of_the_same_runs_are_paired():
    """Seeds differ by far more than the two scores of a seed do, and the paper has no pair of tables to compare."""
    fields = {"dataset": "svhn/test", "metric": "auroc"}
    own, other = [0.80, 0.90, 0.95], [0.81, 0.911, 0.9595]
    found = [
        *rows("regmixup", own, score="dempster_shafer", **fields),
        *rows("regmixup", other, score="entropy", **fields),
    ]
    (finding,) = SCORE.ask(FIELD, Aggregation(found))
    assert (finding.test, finding.n, finding.verdict) == ("paired", (3, 3), "fails")
    assert finding.effect == pytest.approx(-0.0305 / 3)
    assert finding.runs == ("regmixup0", "regmixup1", "regmixup2")
    assert SCORE.papers("cifar10/train", "svhn/test") == []
    assert SCORE.rule == (
        "Holds if the AUROC of regmixup by Dempster-Shafer minus that of regmixup by entropy, on OOD sets, is above 0."
    )
    assert SCORE.ask(FIELD, Aggregation(found[:3])) == []


def test_only_the_mean_over_corruptions_and_what_was_not_scaled_is_asked():
    fields = {"dataset": "cifar10-c (rebuilt)", "corruption": "mean"}
    assert ask(SHIFT, [0.8, 0.81], [0.7, 0.71], **fields).effect == pytest.approx(0.1)
    for other in ({"corruption": "fog"}, {"severity": 3}, {"posthoc": "temperature"}, {"dataset": "cifar100-c"}):
        found = [*rows("regmixup", [0.8, 0.81], **(fields | other)), *rows("dnn", [0.7, 0.71], **(fields | other))]
        assert SHIFT.ask(FIELD, Aggregation(found)) == []
    assert ACCURACY.ask(FIELD, Aggregation(rows("regmixup", [0.9, 0.91]))) == []


def test_the_papers_setting_is_known_and_nearest():
    same, shorter = (ask(ACCURACY, [0.9, 0.91], [0.8, 0.81], training=t) for t in (PAPERS, FIELD))
    longer = replace(shorter, training=FIELD._replace(epochs=500))
    assert PAPERS.is_papers
    assert not FIELD.is_papers
    assert not PAPERS._replace(changes=("epochs 200 instead of 350",)).is_papers
    assert nearest([shorter, same, longer]) == [same]
    assert nearest([shorter, longer]) == [longer]
    assert nearest([]) == []
    single = replace(longer, interval=None)
    assert nearest([shorter, single]) == [shorter]
    assert nearest([single]) == [single]
    other = replace(shorter, training=Training("cifar100-resnet18", (), 200, "bfloat16"))
    assert nearest([shorter, other, longer]) == [other, longer]  # one for each train set


def test_runs_are_compared_only_if_they_were_trained_alike(tmp_path):
    found = []
    for method, label, fields in (
        ("dnn", "dnn(epochs=25)", {"epochs": 25}),
        ("regmixup", "regmixup(epochs=25)", {"epochs": 25}),
        ("regmixup", "regmixup", {}),
        ("dnn", "dnn", {"batch_size": 256}),
        ("regmixup", "regmixup(epochs=25, bn=refreshed)", {"epochs": 25}),
        ("dnn", "dnn(epochs=25)", {"epochs": 25}),  # evaluated by a second study, too
    ):
        config = resolve(configure("cifar10-resnet18", method, precision="bfloat16", **fields), torch.device("cuda"))
        folder = tmp_path / config.name
        folder.mkdir(exist_ok=True)
        write_config(folder, encode(config))
        record = RunRecord(folder, label, method, "cifar10-resnet18", 0, "stem")
        found.append((record, [Row(method=label, seed=0, run=record.key, dataset="cifar10/test", metric="accuracy")]))
    settings = gather(found)
    labels = {(training.epochs, len(training.changes)): own.labels for training, own in settings.items()}
    assert labels == {(25, 1): ["dnn", "regmixup", "regmixup(bn=refreshed)"], (100, 0): ["regmixup"], (100, 1): ["dnn"]}
    assert [one.training.epochs for one in ACCURACY.ask_all(settings)] == [25]
    assert method_label("regmixup(epochs=50, eta=2)") == "regmixup(eta=2)"


@pytest.mark.parametrize(("seeds", "untested"), [((0, 1), {"kfac-llla": ONE_PRIOR_VARIANCE}), ((0, 0), {})])
def test_what_may_be_compared_is_as_in_a_report(tmp_path, seeds, untested):
    """Two studies evaluated one seed each, or both the same."""
    found = []
    for seed, label in zip(seeds, ("kfac-llla", "kfac-llla(epochs=25)"), strict=True):
        config = configure("cifar10-resnet18", "kfac-llla", precision="bfloat16", epochs=25, seed=seed)
        folder = tmp_path / config.name
        folder.mkdir(exist_ok=True)
        write_config(folder, encode(resolve(config, torch.device("cuda"))))
        record = RunRecord(folder, label, "kfac-llla", "cifar10-resnet18", seed, "stem", calibration="companion")
        found.append((record, [Row(method=label, seed=seed, run=record.key, metric="prior_variance", value=0.6)]))
    (own,) = gather(found).values()
    assert own.design.untested == untested


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.title)
def test_a_claim_names_methods_and_is_what_the_papers_tables_say(claim):
    """The paper's differences on CIFAR-10 have the claimed sign, and a number that the text quotes is one of them."""
    assert {claim.method.partition("(")[0], claim.reference.partition("(")[0]} <= METHODS.keys()
    assert re.match(r"Section|Appendix", claim.place)
    sets = {"test": ["/test"], "shifted": ["-c"], "OOD": []}[claim.on]
    ood = {"cifar10": "cifar100/test", "cifar100": "cifar10/test"}
    differences = {}
    for family in ood:
        names = [f"{family}{suffix}" for suffix in sets] or [ood[family], "svhn/test", "tiny-imagenet/val"]
        differences[family] = [own.value for name in names for own in claim.papers(f"{family}/train", name)]
    if claim.reference in METHODS and claim.method in METHODS and not any(claim.scores):
        assert differences["cifar10"]
        assert all((value > 0) == claim.above for value in differences["cifar10"])
    quoted = re.findall(r"(\d\.\d\d) points", claim.text)
    known = {f"{abs(100 * value):.2f}" for own in differences.values() for value in own}
    assert set(quoted) <= known


def test_the_papers_effect_says_when_its_numbers_are_in_doubt():
    """Table 5 has the same numbers for both networks there, and not on SVHN."""
    assert [str(one) for one in DETECTION.papers("cifar10/train", "cifar100/test")] == [
        "+1.02 with WRN-28-10, in doubt",
        "+1.02 with ResNet-50, in doubt",
    ]
    assert not any(one.doubtful for one in DETECTION.papers("cifar10/train", "svhn/test"))


def test_titles_differ_and_no_verdict_lacks_an_interval():
    assert len({claim.title for claim in CLAIMS}) == len(CLAIMS)
    assert (
        ask(DETECTION, [0.9], [0.5], dataset="svhn/test", metric="auroc", score="dempster_shafer").verdict
        == "undecided"
    )
