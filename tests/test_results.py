"""What is published follows from the archived runs under results/, and other people's code finds the same numbers."""

import re
import runpy
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import ttest_ind, ttest_rel
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import CLAIMS, Training, points
from regmixup.report.significance import difference
from regmixup.storage import read_rows, read_table, write_table
from regmixup.study.archive import archived_rows, outcomes_path
from regmixup.study.plan import load_study, read_header, studies
from regmixup.study.tasks import Job
from regmixup.types import Quantity, Row

ROOT = Path(__file__).parent.parent
made = runpy.run_path(str(ROOT / "docs" / "make_results.py"))
length = made["LENGTH"]
ARCHIVED = {study: made["archives"](study) for study in made["folders"](ROOT / "results")}
ARCHIVES = [  # a study that reuses another has its archives, too
    pytest.param(*one, id=one[0].name)
    for one in {
        (planned.stem, folder): (planned, folder) for own in ARCHIVED.values() for planned, folder in own
    }.values()
]
WITH_LOGITS = [one for one in ARCHIVES if (one.values[1] / f"logits-{one.values[0].stem}.npz").is_file()]
WITH_OUTCOMES = [one for one in ARCHIVES if outcomes_path(one.values[1], one.values[0].stem).is_file()]


@pytest.fixture(scope="module")
def pages():
    return made["pages"]()


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "results/README.md",
        "docs/results.md",
        "docs/claims.md",
        "docs/images/length.svg",
        "docs/images/causes.svg",
        "docs/images/standard.svg",
    ],
)
def test_a_page_is_what_the_archives_say(pages, name):
    assert pages[ROOT / name] == (ROOT / name).read_text(encoding="utf-8"), "run docs/make_results.py"


def test_the_repository_stays_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()) < 30e6


def test_what_is_planned_fits_into_the_repository():
    """Sizes as archived so far, for every line of the field's recipes that is missing; and room for some logits."""
    total = sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file())
    outcomes, rows, note, an_epoch = 206e3, 32e3, 10.6e3, 155  # those of CIFAR-10 with CIFAR-10-C
    one = ROOT / "results" / "causes" / "regmixup-cifar10-train-resnet18-s0-648e1c9a13da"
    for pattern, size in (
        ("outcomes-*", outcomes),
        ("[rf]*-regmixup*", rows),
        ("archive*", note),
        ("hist*", 50 * an_epoch),
    ):
        assert 0.9 * size < sum(path.stat().st_size for path in one.glob(pattern)) < 1.1 * size, pattern
    for name in studies():
        study = load_study(name)
        if {part.recipe for part in study.parts} <= set(made["FIELD"]) and not study.select:
            done = {(planned.stem, planned.config) for planned, _ in made["archives"](name)}
            left = [planned for planned in study.runs() if (planned.stem, planned.config) not in done]
            job = Job(study=study, runs=ROOT, root=None, workers=None)
            scaled = 2 if study.parts[0].evaluate.validation else 1  # rows with and without temperature
            total += sum(scaled * rows + note + outcomes * job.keeps_outcomes(planned) for planned in left)
            total += sum(an_epoch * config.epochs for config in {planned.config for planned in left})
    assert total + 2 * 1.1e6 < 29e6, f"{total / 1e6:.1f} MB"


def test_the_first_seed_has_its_outcomes():
    for name, found in ARCHIVED.items():
        job = Job(study=load_study(name), runs=ROOT, root=None, workers=None)
        for planned, folder in found:
            assert outcomes_path(folder, planned.stem).is_file() or not job.keeps_outcomes(planned), folder


def test_a_fingerprint_names_one_run():
    """A run that is trained again for a second study replaces the first: its numbers differ in their last digits."""
    names = [folder.name for _, folder in (param.values for param in ARCHIVES)]
    assert len(set(names)) == len({folder for _, folder in (param.values for param in ARCHIVES)}), names


def test_every_number_names_runs_that_are_archived(pages):
    """Every line of a table of ours has a fingerprint, and every archived run is listed with its minutes."""
    there = {folder.name[-12:] for _, folder in (param.values for param in ARCHIVES)}
    for path, text in pages.items():
        assert set(re.findall(r"`([0-9a-f]{12})`", text)) <= there, path
    listed = pages[ROOT / "docs" / "results.md"].partition("## The runs")[2]
    assert set(re.findall(r"^\| `([0-9a-f]{12})`", listed, flags=re.MULTILINE)) == there
    for line in pages[ROOT / "results" / "README.md"].splitlines():
        if re.match(r"\| [a-z]+\S*\(", line):
            assert re.search(r"`[0-9a-f]{12}` \|$", line), line


def rows_of(planned, folder):
    """The rows of whole sets without temperature, by set, metric and score."""
    return {
        (row.dataset, row.metric, row.score): row
        for row in archived_rows(folder, planned.stem)
        if row.posthoc == "none" and not row.corruption
    }


def test_the_comparison_of_scores_is_the_mean_of_the_rows(pages):
    """RegMixup, 200 epochs, all nine numbers; and failures are found better by entropy in every line."""
    section = pages[ROOT / "docs" / "results.md"].partition("## Which score?")[2].partition("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith("| regmixup | 200 |"))
    rows = [rows_of(*one) for one in ARCHIVED["length"] if one[0].label == "regmixup(epochs=200)"]
    test, ood = "cifar10/test", ("cifar100/test", "svhn/test", "tiny-imagenet/val")
    wanted = [
        scale * np.mean([own[name, metric, score].value for own in rows for name in names])
        for metric, names, scale in (("failure_auroc", [test], 100), ("auroc", ood, 100), ("scod_augrc", ood, 1000))
        for score in ("dempster_shafer", "max_probability", "entropy")
    ]
    assert [float(cell) for cell in line.split("|")[4:-1]] == pytest.approx(wanted, abs=0.0051)
    lines = [line.split("|") for line in section.splitlines() if line.startswith(("| dnn", "| regmixup"))]
    assert all(float(cells[6]) > float(cells[4]) for cells in lines)
    assert f"(up in {len(lines)} and down in 0 of {len(lines)} lines); OOD" in section


def expected_calibration_error(confidence, right):
    """Fifteen bins of equal width, closed on the right."""
    bins = np.clip(np.ceil(15 * confidence) - 1, 0, 14).astype(int)
    return sum(abs((right - confidence)[bins == index].sum()) for index in range(15)) / len(right)


@pytest.mark.parametrize(("planned", "folder"), WITH_OUTCOMES)
def test_rows_agree_with_what_numpy_and_scikit_learn_find_in_the_outcomes(planned, folder):
    """Accuracy exactly; the others to what float16 leaves of a score: ties, and images at the edge of a bin."""
    rows = rows_of(planned, folder)
    outcomes = np.load(folder / f"outcomes-{planned.stem}.npz")
    sets = planned.evaluate
    correct = outcomes[f"{sets.test}:correct"]
    accuracy = correct.mean()
    assert rows[sets.test, "accuracy", ""].value == pytest.approx(accuracy, abs=1e-12)
    for name, score in (("uncertainty", "max_probability"), ("dempster_shafer", "dempster_shafer")):
        inside = outcomes[f"{sets.test}:{name}"].astype(float)
        failures = roc_auc_score(~correct, inside)
        assert rows[sets.test, "failure_auroc", score].value == pytest.approx(failures, abs=2e-4)
        generalised = (1 - failures) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
        assert rows[sets.test, "augrc", score].value == pytest.approx(generalised, abs=2e-5)
        for other in sets.ood:
            outside = outcomes[f"{other}:{name}"].astype(float)
            found = roc_auc_score([0] * len(inside) + [1] * len(outside), np.concatenate([inside, outside]))
            assert rows[other, "auroc", score].value == pytest.approx(found, abs=2e-4), other
    uncertainty = outcomes[f"{sets.test}:uncertainty"]
    confidence = 1 - uncertainty.astype(float)
    rounding = np.spacing(uncertainty).astype(float) / 2
    edges = np.arange(1, 15) / 15
    other_bin = (abs(confidence[:, None] - edges) <= rounding[:, None]).any(axis=1)  # it may have been in the next bin
    allowed = (rounding + 2 * other_bin * abs(correct - confidence)).mean()
    assert allowed < 2e-3
    found = expected_calibration_error(confidence, correct)
    assert rows[sets.test, "ece", ""].value == pytest.approx(found, abs=allowed)


def recomputed(logits, sets):
    """Return the headline metrics of stored logits, by NumPy, SciPy and scikit-learn alone."""
    values = {name: logits[f"{name}:logits"].astype(float) for name in (sets.test, *sets.ood)}
    labels, probs = logits[f"{sets.test}:labels"], softmax(values[sets.test], axis=1)
    right = probs.argmax(1) == labels
    classes = probs.shape[1]
    scores = {
        "dempster_shafer": {name: classes / (classes + np.exp(z).sum(1)) for name, z in values.items()},
        "max_probability": {name: -softmax(z, axis=1).max(1) for name, z in values.items()},
    }
    covered = np.arange(1, len(labels) + 1)
    errors = np.cumsum(~right[np.argsort(-probs.max(1), kind="stable")])
    found = {
        (sets.test, "accuracy", ""): accuracy_score(labels, probs.argmax(1)),
        (sets.test, "nll", ""): log_loss(labels, probs, labels=range(probs.shape[1])),
        (sets.test, "ece", ""): expected_calibration_error(probs.max(1), right),
        (sets.test, "aurc", "max_probability"): (errors / covered).mean(),
        (sets.test, "augrc", "max_probability"): errors.mean() / len(labels),
        (sets.test, "failure_auroc", "max_probability"): roc_auc_score(right, probs.max(1)),
    }
    for name in sets.ood:
        outside = np.r_[np.zeros(len(labels)), np.ones(len(values[name]))]
        for score, own in scores.items():
            found[name, "auroc", score] = roc_auc_score(outside, np.r_[own[sets.test], own[name]])
    return found


@pytest.mark.parametrize(("planned", "folder"), WITH_LOGITS)
def test_rows_agree_with_what_others_code_finds_in_the_logits(planned, folder):
    """To what float16 leaves of a logit: ties, and images at the edge of a bin."""
    rows = rows_of(planned, folder)
    found = recomputed(np.load(folder / f"logits-{planned.stem}.npz"), planned.evaluate)
    assert len(found) == 6 + 2 * len(planned.evaluate.ood)
    for key, value in found.items():
        assert rows[key].value == pytest.approx(value, abs=2e-4), key


def test_some_headline_runs_have_their_logits():
    """Plain training and RegMixup at the longest training."""
    assert {one.values[0].label for one in WITH_LOGITS} >= {"dnn(epochs=200)", "regmixup(epochs=200)"}


def test_pages_grow_with_the_archives_and_say_what_is_missing(tmp_path):
    """Of two runs: every page is written, the other methods are missing, and nothing is decided."""
    (tmp_path / "precision").mkdir()
    kept = [folder for folder in sorted((ROOT / "results" / "length").iterdir()) if folder.name.startswith("regmixup")]
    for folder in kept:
        shutil.copytree(folder, tmp_path / "length" / folder.name)
    _, readme, page, claims, figure, *_ = made["pages"](tmp_path).values()
    assert "0 networks, no time; 10 of 10 lines are missing" in readme
    labels = {planned.label for planned, folder in ARCHIVED["length"] if folder.name.startswith("regmixup")}
    assert readme.count("| regmixup(") == len(labels)
    assert "dnn(" not in readme
    assert "Not asked yet: no length has both methods." in page
    assert "| dnn | 100 | 0 |" in page
    assert page.count("too few runs") == 5
    assert f"1 of {len(CLAIMS)} claims can be asked" in claims  # RegMixup's two scores, for which it is enough alone
    assert claims.count("No rows yet") == len(CLAIMS) - 1
    assert "plain training" not in figure


def test_companions_cost_something_before_their_lines_are_archived(tmp_path):
    own = sorted((ROOT / "results" / "standard").glob("*-cifar10-train-90-*"))
    for folder in own:
        shutil.copytree(folder, tmp_path / "standard" / folder.name)
    cost = made["cost"]("standard", tmp_path)
    # That of the ensemble is five networks, of which the first is there by itself, too.
    assert cost.startswith(f"{len(own) + 3} networks, ")
    assert f"{cost}; 46 of 46 lines are missing" in made["readme"](tmp_path)
    assert f"| standard | 0 of 46 | {cost} | " in made["costs"]([], tmp_path)


def test_numbers_that_were_computed_differently_are_not_mixed(tmp_path):
    for index, folder in enumerate(sorted((ROOT / "results" / "length").iterdir())[:2]):
        target = shutil.copytree(folder, tmp_path / "length" / folder.name) / "provenance.json"
        record = read_table(target)
        record["versions"]["numerics"] += index
        write_table(target, record)
    with pytest.raises(ValueError, match="one numerics version"):
        made["pages"](tmp_path)


def test_claims_are_also_asked_with_the_trainings_that_were_replaced(pages):
    rows = read_rows(ROOT / "results" / "replaced.csv")
    archived = {folder.name.rpartition("-")[2]: folder for found in ARCHIVED.values() for _, folder in found}
    for run in {row.run for row in rows}:
        fingerprint, _, commit = run.partition("@")
        assert not read_table(archived[fingerprint] / "provenance.json")["commit"].startswith(commit), (
            "the same training"
        )
    section = pages[ROOT / "docs" / "claims.md"].partition("## With the trainings that were replaced")[2]
    for epochs, other, score in ((200, "dnn", "dempster_shafer"), (50, "mixup", "entropy")):
        archives, every = [], []
        for method, by in (("regmixup", "dempster_shafer"), (other, score)):
            label, wanted = f"{method}(epochs={epochs})", Quantity("cifar100/test", "auroc", score=by)
            stem = f"{label}-ea60a6f0"
            folders = {folder for found in ARCHIVED.values() for planned, folder in found if planned.stem == stem}
            kept = [row for folder in folders for row in archived_rows(folder, stem)]
            replaced = [row for row in rows if row.method == label]
            archives.append([100 * row.value for row in kept if row.quantity == wanted])
            every.append([100 * row.value for row in [*kept, *replaced] if row.quantity == wanted])
        effect = points((np.mean(every[0]) - np.mean(every[1])) / 100)
        assert section.count(f"| {effect}, {welch(every)}, Welch, n {len(every[0])}, {len(every[1])} |") == 1
        assert section.count(f", {welch(archives)}, Welch |") == 1  # the test alone
    changed = [line.split(" | ") for line in section.splitlines() if line.startswith("| ") and ", n " in line]
    by_test = [cells for cells in changed if cells[-1].startswith(cells[-2])]
    assert f"{len(changed)} of the " in section
    assert f", {len(by_test)} of them by the test alone" in section


def welch(values):
    low, high = ttest_ind(*values, equal_var=False).confidence_interval()
    return f"{points(low / 100)} to {points(high / 100)}"


def test_a_training_is_kept_once_before_it_is_replaced(tmp_path):
    folder = ARCHIVED["length"][0][1]
    made["REPLACED"]["keep"]([folder], tmp_path / "one.csv")
    rows = read_rows(tmp_path / "one.csv")
    fingerprint = folder.name.rpartition("-")[2]
    assert {row.run.partition("@")[0] for row in rows} == {fingerprint}
    assert {row.metric for row in rows} == set(made["REPLACED"]["METRICS"])
    found = made["REPLACED"]["kept"](rows, fingerprint, rows[0].method)
    assert {row.seed for row in found} == {-1}
    assert [row.value for row in found] == [row.value for row in rows if row.method == rows[0].method]
    with pytest.raises(ValueError, match="that is not kept yet, got"):
        made["REPLACED"]["keep"]([folder], tmp_path / "one.csv")
    other = ARCHIVED["causes"][0][1]
    made["REPLACED"]["keep"]([other], tmp_path / "one.csv")
    assert read_rows(tmp_path / "one.csv")[: len(rows)] == rows
    assert len({row.run for row in read_rows(tmp_path / "one.csv")}) == 2


def test_the_figure_has_a_point_for_every_number(pages):
    """Seven panels; circles are as many as cells of the table beside it."""
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "length.svg"])
    circles = [one for one in drawn.iter() if one.tag.endswith("circle")]
    text = pages[ROOT / "docs" / "results.md"].partition("length.svg")[2].partition("## ")[0]
    lines = [line for line in text.splitlines() if re.match(r"\| [a-z]", line)]
    assert len(circles) == 7 * len(lines)
    height = float(drawn.get("height"))
    legend = [one for one in drawn if one.tag.endswith("}g")][-1]
    assert max(float(one.get("y")) for one in legend if one.tag.endswith("text")) < height / 2 - 4  # in a panel
    assert len(lines) >= 10


def test_the_figure_of_causes_draws_every_choice_by_both_scores(pages):
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "causes.svg"])
    names = [one.text for one in drawn if one.tag.endswith("text")][:-2]  # the last are the note
    panels = [one for one in drawn if one.tag.endswith("}g")]
    circles = [[one for one in panel if one.tag.endswith("circle")] for panel in panels]
    assert len(names) == 10
    assert [len(own) for own in circles] == [10, 10, 20, 20, 20, 10, 10]
    by_dempster_shafer = dict(zip(names, (float(one.get("cx")) for one in circles[2][::2]), strict=True))
    ordered = sorted(by_dempster_shafer, key=by_dempster_shafer.get)
    assert ordered[:2] == ["alpha 1", "separate passes"]  # -10.0 and -8.4 points, as the tables say
    assert ordered[-1] == "separate passes, statistics of clean images"


def test_the_figure_of_methods_marks_what_has_one_seed(pages):
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "standard.svg"])
    names = [one.text for one in drawn if one.tag.endswith("text")][:-2]
    circles = [one for panel in drawn if panel.tag.endswith("}g") for one in panel if one.tag.endswith("circle")]
    accuracy = dict(zip(names, circles[: len(names)], strict=True))
    table = pages[ROOT / "docs" / "results.md"].partition("### ResNet-18 on CIFAR-10")[2]
    seeds = dict(re.findall(r"^\| ([\w+-]+) \| 100 \| (\d) \|", table.partition("\n\n| ")[2], re.MULTILINE))
    assert set(names) == set(seeds) - {"dnn"}
    assert all((one.get("stroke") == "#999") == (seeds[name] == "1") for name, one in accuracy.items())


def detection(epochs, plain, mixed, dataset="svhn/test", by_msp=None):
    """Both methods at one length. by_msp: RegMixup's values by that score; plain training has the same by both."""
    by_score = {"dempster_shafer": (plain, mixed)} | ({"max_probability": (plain, by_msp)} if by_msp else {})
    rows = [
        Row(method=method, seed=seed, run=f"{method}{seed}", dataset=dataset, metric="auroc", score=score,
            train_set="cifar10/train", value=value)
        for score, both in by_score.items()
        for method, values in zip(("dnn", "regmixup"), both, strict=True)
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return Training("cifar10-resnet18", (f"epochs {epochs} instead of 100",), epochs, "bfloat16"), Aggregation(rows)


PLAIN = [0.90, 0.91, 0.92]


@pytest.mark.parametrize(
    ("short", "long", "said"),
    [
        ([0.80, 0.81, 0.825], [0.93, 0.941, 0.95], "RegMixup is ahead at 200 epochs"),
        (
            [0.80, 0.81, 0.825],
            [0.90, 0.911, 0.919],
            "of 25 epochs shrinks, and is not distinguishable from none at 200",
        ),
        ([0.80, 0.81, 0.825], [0.87, 0.881, 0.89], "of 25 epochs shrinks, and is still there at 200"),
        ([0.87, 0.88, 0.89], [0.87, 0.881, 0.889], "RegMixup is behind at 200 epochs"),
        ([0.80, 0.89, 0.86], [0.85, 0.97, 0.88], "**Not decided.**"),
        ([0.80], [0.95], "**Not decided.**"),
        ([0.88, 0.93, 0.90], [0.895, 0.9451, 0.915], "**Not decided.**"),  # it grows, from no deficit that is shown
    ],
    ids=["ahead", "closed", "shrinks", "behind", "spread", "one seed", "no deficit"],
)
def test_the_answer_to_the_open_question_follows_from_the_intervals(short, long, said):
    found = dict([detection(25, PLAIN, short), detection(200, PLAIN, long)])
    told = length["answer"](found, [25, 50, 200])
    assert said in told.partition("Both methods")[0]
    assert "At 50 epochs one of the two is missing." in told


def test_the_answer_says_what_the_score_has_to_do_with_it():
    """A deficit by Dempster-Shafer that MSP does not see is one of the score, not of the network."""
    short = detection(25, PLAIN, [0.80, 0.81, 0.825], by_msp=[0.90, 0.911, 0.919])
    long = detection(200, PLAIN, [0.90, 0.911, 0.919], by_msp=[0.91, 0.911, 0.919])
    told = length["answer"](dict([short, long]), [25, 200])
    assert "**By Dempster-Shafer, the paper's score: SVHN: the deficit of 25 epochs shrinks" in told
    assert "**By MSP: no set is decided at 200 epochs.**" in told
    assert "At 25 epochs: SVHN −9.83 by Dempster-Shafer, +0.00 by MSP." in told
    lines = [line for line in told.splitlines() if line.startswith("| SVHN AUROC")]
    assert [line.split(" | ")[0] for line in lines] == ["| SVHN AUROC", "| SVHN AUROC by MSP"]
    assert "**−9.83 [" in lines[0]
    assert "| +0.00 [" in lines[1]


def test_the_answer_says_what_replaced_trainings_change():
    short, long = detection(25, PLAIN, [0.80, 0.81, 0.825]), detection(200, PLAIN, [0.90, 0.911, 0.919])
    further = detection(200, [*PLAIN, 0.911, 0.909], [0.88, 0.881, 0.879, 0.882])  # more trainings, and a deficit
    told = {name: length["answer"](dict([short, long]), [25, 200], dict([short, own])) for name, own in
            (("same", long), ("more", further))}  # fmt: skip
    assert "†" not in told["same"].partition("| SVHN")[2]
    assert "trainings that were replaced](" not in told["same"]
    assert "it is otherwise at 200 epochs: SVHN −2.95 [" in told["more"]
    assert [line.count("†") for line in told["more"].splitlines() if line.startswith("| SVHN AUROC")] == [1]


def test_refreshed_statistics_are_compared_on_the_same_networks():
    """Three of five networks were measured both ways; the other two must not count."""
    training, found = detection(100, [*PLAIN, 0.99, 0.99], [0.90, 0.911, 0.919, 0.92, 0.93])
    plain, mixed = (found.rows(Quantity("svhn/test", "auroc"), label) for label in ("dnn", "regmixup"))
    again = [replace(row, method="dnn(bn=refreshed)", value=row.value - 0.02) for row in plain[:3]]
    told = length["answer"]({training: Aggregation([*plain, *mixed, *again])}, [100])
    assert "measured both ways): plain training SVHN −2.00." in told


@pytest.mark.parametrize("order", [(30, 100), (100, 30)])
def test_seeds_differ_as_they_do_after_the_longest_training_with_the_most(order):
    mixed = {30: [0.80, 0.81, 0.82], 100: [0.80, 0.85, 0.90]}
    found = dict(detection(epochs, PLAIN, mixed[epochs]) for epochs in order)
    assert "deviation of 5.00 on SVHN, over the 3 seeds of 100 epochs" in length["answer"](found, [30, 100])


def test_cells_are_also_counted_after_a_correction_for_their_number():
    """Alone either of two cells with p between 0.025 and 0.05 would stay; Holm asks 0.025 of the smaller one."""
    mixed = {25: [0.86, 0.85, 0.885], 200: [0.95, 0.935, 0.97]}
    found = dict(detection(epochs, PLAIN, own) for epochs, own in mixed.items())
    chances = [ttest_rel(own, PLAIN).pvalue for own in mixed.values()]
    assert 0.025 < min(chances) < max(chances) < 0.05
    assert "of their kind: by Dempster-Shafer 0 of 2." in length["answer"](found, [25, 200])
    found = dict(detection(epochs, PLAIN, [0.80, 0.81, 0.8201]) for epochs in mixed)
    assert "Dempster-Shafer 2 of 2 (SVHN at 25, SVHN at 200 epochs)." in length["answer"](found, [25, 200])


@pytest.mark.parametrize(("last", "said"), [([0.90, 0.911, 0.919], True), ([0.93, 0.941, 0.889], False)])
def test_the_answer_says_where_the_papers_gain_is_outside_our_interval(last, said):
    """On Tiny-ImageNet the paper gains 2.22 and 3.75."""
    both = ((25, [0.80, 0.81, 0.825]), (200, last))
    found = dict(detection(epochs, PLAIN, own, "tiny-imagenet/val") for epochs, own in both)
    assert ("The paper's gains on Tiny-ImageNet" in length["answer"](found, [25, 200])) == said


def test_an_interval_ends_where_the_metric_does():
    """Student's interval of 99, 99.5 and 96 % reaches beyond 100."""
    column = made["Column"]("SVHN AUROC", made["Quantity"]("svhn/test", "auroc"))
    rows = measured({"dnn": [0.99, 0.995, 0.96]})
    assert made["cell"](column, rows).endswith(", 100.00]")
    assert made["cell"](column, [Row(value=0.01), Row(value=0.04)]).startswith("2.50 [0.00, ")


def test_failures_are_ranked_by_msp_and_detection_by_the_methods_own_score():
    columns = {column.title: column for column in made["standard_columns"]("cifar10-resnet18")}
    rows = [
        *measured({"regmixup": [0.1]}, "cifar10/test", "augrc", "max_probability"),
        *measured({"regmixup": [0.2]}, "cifar10/test", "augrc", "dempster_shafer"),
        *measured({"regmixup": [0.7], "mixup": [0.6]}, score="max_probability"),
        *measured({"regmixup": [0.8], "mixup": [0.5]}),
        *measured({"regmixup": [0.3], "mixup": [0.4]}, score="entropy"),
    ]
    aggregation = Aggregation(rows)
    assert [row.value for row in columns["AUGRC by MSP"].rows(aggregation, "regmixup")] == [0.1]
    assert [row.value for row in columns["svhn AUROC"].rows(aggregation, "regmixup")] == [0.8]
    assert [row.value for row in columns["svhn AUROC"].rows(aggregation, "mixup")] == [0.4]


def test_ours_beside_others_has_a_deviation_where_theirs_has():
    """Over seeds, of the mean over both sets: 85, 87 and 89 %."""
    near = [("cifar100/test", [0.84, 0.86, 0.88]), ("tiny-imagenet/val", [0.86, 0.88, 0.90])]
    aggregation = Aggregation([row for name, own in near for row in measured({"dnn": own}, name)])
    columns = [made["Column"]("", made["Quantity"](name, "auroc")) for name, _ in near]
    assert made["_beside"]({"method": "dnn", "near": "88.03 ± 0.25"}, "near", columns, aggregation).endswith(
        "/ 87.00 ± 2.00"
    )
    assert made["_beside"]({"method": "dnn", "near": "88.03"}, "near", columns, aggregation) == "88.03 / 87.00"
    assert (
        made["_beside"]({"method": "mixup", "near": "88.03 ± 0.25"}, "near", columns, aggregation) == "88.03 ± 0.25 / –"
    )


def test_calibration_has_columns_of_t_where_it_was_chosen_and_the_papers_numbers_beside():
    training = Training("cifar10-resnet18", (), 100, "bfloat16")
    rows = measured({"dnn": [0.02, 0.04]}, "cifar10/test", "ece", "")
    heads, _, own, *rest = headline_table(training, rows)
    assert heads[3:-1] == ["ECE", "AdaECE"]
    assert own[3].startswith("3.00 [")
    assert ["dnn, the paper's ResNet-50", "350", "5", "–", "3.02", ""] in rest
    chosen = {"posthoc": "temperature"}
    rows += measured({"dnn": [1.4, 1.4]}, "cifar10/test", "temperature", "", **chosen)
    rows += measured({"dnn": [0.01, 0.03], "half-regmixup": [0.02]}, "cifar10/test", "ece", "", **chosen)
    heads, _, own, *rest = headline_table(training, rows)
    assert heads[3:-1] == ["ECE", "AdaECE", "T", "ECE with T"]
    assert own[5] == "1.400", "chosen, not estimated"
    assert own[6].startswith("2.00 [")
    assert ["dnn, the paper's ResNet-50", "350", "5", "–", "3.02", "1.51", "1.38", ""] in rest
    assert [line[0] for line in rest].count("half-regmixup") == 1


def headline_table(training, rows):
    """Return the cells of the table about calibration."""
    text = made["headline"]({training: Aggregation(rows)}, training.recipe).rpartition("\n\n")[2]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def measured(values, dataset="svhn/test", metric="auroc", score="dempster_shafer", **place):
    """Rows of 50 epochs: a value for each seed of each label."""
    return [
        Row(method=label, seed=seed, run=f"{label}{seed}", dataset=dataset, metric=metric, score=score, value=value,
            train_set="cifar10/train", **place)
        for label, own in values.items()
        for seed, value in enumerate(own)
    ]  # fmt: skip


def causes(values, by_msp=None):
    training = Training("cifar10-resnet18", ("epochs 50 instead of 100",), 50, "bfloat16")
    columns = made["standard_columns"]("cifar10-resnet18")
    rows = [*measured(values), *measured(by_msp or {}, score="max_probability")]
    return made["CAUSES"]["section"]({training: Aggregation(rows)}, columns, made["headings"](columns))


def first_table(text):
    """Return the lines of the table of all columns by their labels."""
    lines = text.partition("AUROC by MSP |")[0].splitlines()
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


BASE = [0.85, 0.86, 0.84]


def test_causes_are_differences_from_the_base_paired_by_seed():
    """Seeds differ by a point and the sum adds one to each of them: pairs see it to a hundredth, eta adds nothing."""
    summed, weighted = [0.8601, 0.87, 0.8499], [0.861, 0.850, 0.8405]
    text = causes(
        {"regmixup": BASE, "regmixup(scale=sum)": summed, "regmixup(eta=2)": weighted, "dnn": [0.88, 0.89, 0.87]}
    )
    lines = first_table(text)
    found = difference({0: 0.01, 1: 0.0, 2: 0.0005}, {0: -0.001, 1: 0.01, 2: 0.0}).interval()
    assert found[0] < 0 < found[1]
    assert "| **+1.00 [+0.98, +1.02]** |" in lines["regmixup(scale=sum)"]
    low, high = (f"{100 * bound:+.2f}".replace("-", "−") for bound in found)
    assert f"| +0.05 [{low}, {high}] |" in lines["regmixup(eta=2)"]
    assert "| **+3.00 [+3.00, +3.00]** |" in lines["dnn"]
    assert "| 85.00 |" in lines["regmixup, the base"]
    assert lines["regmixup(passes=separate)"].endswith("| – | missing |")
    assert "`regmixup(scale=sum)0` `regmixup(scale=sum)1`" in lines["regmixup(scale=sum)"]
    assert "**SVHN AUROC:** the sum of both terms +1.00 (3 seeds); none is shown to be ahead of plain training." in text


def test_a_choice_explains_the_gain_only_if_it_is_ahead_of_plain_training():
    ahead = [value + 0.03 for value in BASE]
    text = causes({"regmixup": BASE, "regmixup(alpha=1)": ahead, "dnn": [0.862, 0.87, 0.851]})
    assert "**SVHN AUROC:** alpha 1 +3.00 (3 seeds); ahead of plain training: alpha 1." in text


def test_the_standard_table_tells_what_stands_after_the_correction():
    """Mixup's change is sure, RegMixup's is by itself but not as one of three, and bimodal's is chance."""
    plain = [0.85, 0.86, 0.84, 0.855]
    changes = {
        "mixup": (0.02, 0.021, 0.019, 0.02),
        "regmixup": (-0.004, -0.012, -0.007, -0.016),
        "bimodal": (0.01, -0.01, 0.004, -0.004),
    }
    values = {label: [a + b for a, b in zip(plain, own, strict=True)] for label, own in changes.items()}
    assert 0.05 / 2 < ttest_rel(values["regmixup"], plain).pvalue < 0.05
    given = {"dnn": plain, **values, "cutmix": [0.9]}
    rows = [row for metric in ("accuracy", "ece") for row in measured(given, "cifar10/test", metric, "")]
    columns = made["standard_columns"]("cifar10-resnet18")
    text = made["STANDARD"]["answer"](Aggregation(rows), columns, made["headings"](columns), made["CAUSES"]["compared"])
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- **mixup** (4 seeds): better in accuracy +2.00; worse in ECE +2.00.",
        "- **regmixup** (4 seeds): before the correction only accuracy −0.98, ECE −0.98.",
        "- **bimodal** (4 seeds): nothing is told apart.",
        "- **bimodal** (4 seeds): better in accuracy +0.98; worse in ECE +0.98.",  # than RegMixup, the only one asked
    ]


def test_causes_are_asked_by_msp_as_well():
    """Separate passes lose ten points by Dempster-Shafer and none by MSP: both stand there, in words and in tables."""
    lost = {"regmixup": BASE, "regmixup(passes=separate)": [0.75, 0.761, 0.74]}
    text = causes(lost, {"regmixup": BASE, "regmixup(passes=separate)": [0.851, 0.859, 0.8405]})
    assert "- **SVHN AUROC:** separate forward passes −9.97 (3 seeds);" in text
    assert "; by MSP: no effect is shown." in text
    (line,) = [line for line in text.partition("SVHN AUROC by MSP")[2].splitlines() if "passes=separate" in line]
    assert "| +0.02 [" in line


def test_many_choices_without_effect_decide_nothing_although_one_interval_excludes_zero():
    """The correction counts the lines: +0.2 with p = 0.03 by itself is not decided beside six others."""
    others = ("passes=separate", "scale=sum", "lam=sample", "alpha=10", "eta=0.5", "eta=2")
    values = {f"regmixup({name})": [0.86, 0.85, 0.84] for name in others}
    text = causes({"regmixup": BASE, "regmixup(alpha=1)": [0.852, 0.8625, 0.8415], **values})
    assert "| +0.20 [+0.08, +0.32] |" in first_table(text)["regmixup(alpha=1)"]
    assert (
        "none of 7 choices has an effect that the seeds can tell from none; before the correction only: alpha 1" in text
    )


@pytest.mark.parametrize("values", [{}, {"regmixup": [0.85], "regmixup(eta=2)": [0.95]}])
def test_causes_need_two_seeds(values):
    text = causes(values)
    assert "**Not decided**" in text
    assert "**+" not in text
    assert text.count("missing") == (9 if not values else 7) + 9  # by MSP nothing is there
    assert ("| (+10.00) |" in text) == bool(values)


def test_clean_statistics_are_judged_by_the_bounds_that_the_study_states():
    """+3 points over one pass, level with plain training, and a gain of one point where the paper's smallest is 2.2."""
    columns = made["standard_columns"]("cifar10-resnet18")
    by_head, fresh = dict(zip(made["headings"](columns), columns, strict=True)), "regmixup(passes=separate-clean)"

    def judged(others, own):
        at = [Training("cifar10-resnet18", (f"epochs {n} instead of 100",), n, "bfloat16") for n in (50, 200)]
        sets = (
            ({"regmixup": [0.831, 0.835, 0.829], "dnn": others}, "cifar100/test"),
            ({"dnn": others}, "tiny-imagenet/val"),
        )
        found = {}
        for training, (known, dataset), values in zip(at, sets, own, strict=True):
            new = [replace(row, seed=row.seed + 3) for row in measured({fresh: values}, dataset)]
            found[training] = Aggregation([*measured(known, dataset), *new])
        text = made["CAUSES"]["questions"](found, by_head)
        table, _, answer = text.partition("\n\n")
        told = [re.findall(r"(?:above|below) \S+: (\S+)", line) for line in table.splitlines()[2:]]
        return told, re.findall(r"\*\*(.+?)\*\*", answer)

    plain = [0.861, 0.865, 0.859]
    repeats = [0.862, 0.866, 0.860]
    for own, told, answers in (
        ((repeats, [0.872, 0.875, 0.869]), ["yes no", "yes", "yes yes"], ["repeats", "a gain over plain training"]),
        ((repeats, [0.861, 0.864, 0.858]), ["yes no", "yes", "no yes"], ["repeats", "no gain as large as the paper's"]),
        (
            ([0.832, 0.836, 0.830], [0.86, 0.88, 0.90]),
            ["no yes", "no", "no no"],
            ["explain less than half", "not decided"],
        ),
        (([0.80, 0.86, 0.92], []), ["no no", "no", "– –"], ["not decided", "not been asked"]),
        (([], [0.9]), ["– –", "–", "– –"], ["not been asked"] * 2),
    ):
        assert judged(plain, own) == ([one.split() for one in told], answers)
    stated = read_header(studies()["clean-statistics"]).expected
    for low, high in (bounds[3:] for bounds in made["CAUSES"]["QUESTIONS"]):
        assert all(f"{bound:+.1f}" in stated for bound in (low, high) if bound)
