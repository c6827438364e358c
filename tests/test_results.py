"""What is published follows from the archived runs under results/, and other people's code finds the same numbers."""

import json
import re
import runpy
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import Training
from regmixup.study.archive import archived_rows
from regmixup.types import Row

ROOT = Path(__file__).parent.parent
made = runpy.run_path(str(ROOT / "docs" / "make_results.py"))
length = made["LENGTH"]
ARCHIVES = [
    pytest.param(planned, folder, id=f"{planned.name}")
    for study in sorted(path.name for path in (ROOT / "results").iterdir() if path.is_dir())
    for planned, folder in made["archives"](study)
]


@pytest.fixture(scope="module")
def pages():
    return made["pages"]()


@pytest.mark.parametrize("name", ["results/README.md", "docs/results.md", "docs/claims.md", "docs/images/length.svg"])
def test_a_page_is_what_the_archives_say(pages, name):
    assert pages[ROOT / name] == (ROOT / name).read_text(encoding="utf-8"), "run docs/make_results.py"


def test_the_repository_stays_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()) < 30e6


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


@pytest.mark.parametrize(("planned", "folder"), ARCHIVES)
def test_rows_agree_with_what_numpy_and_scikit_learn_find_in_the_outcomes(planned, folder):
    """Accuracy exactly; the others to what float16 leaves of a score: ties, and images at the edge of a bin."""
    rows = {
        (row.dataset, row.metric, row.score): row
        for row in archived_rows(folder, planned.stem)
        if row.posthoc == "none" and not row.corruption
    }
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
    bins = np.clip(np.ceil(15 * confidence) - 1, 0, 14).astype(int)
    gaps = [abs(np.sum((correct - confidence)[bins == index])) for index in range(15)]
    assert rows[sets.test, "ece", ""].value == pytest.approx(sum(gaps) / len(correct), abs=allowed)


def test_pages_grow_with_the_archives_and_say_what_is_missing(tmp_path):
    """Of two runs: every page is written, the other methods are missing, and nothing is decided."""
    (tmp_path / "precision").mkdir()
    kept = [folder for folder in sorted((ROOT / "results" / "length").iterdir()) if folder.name.startswith("regmixup")]
    for folder in kept:
        shutil.copytree(folder, tmp_path / "length" / folder.name)
    readme, page, claims, figure = made["pages"](tmp_path).values()
    assert "Nothing is archived yet; 10 lines are missing" in readme
    assert readme.count("| regmixup(") >= len(kept)
    assert "dnn(" not in readme
    assert "Not asked yet: no length has both methods." in page
    assert "| dnn | 100 | 0 |" in page
    assert page.count("too few runs") == 5
    assert "0 of 15 claims can be asked" in claims
    assert claims.count("No rows yet") == 15
    assert "plain training" not in figure


def test_numbers_that_were_computed_differently_are_not_mixed(tmp_path):
    for index, folder in enumerate(sorted((ROOT / "results" / "length").iterdir())[:2]):
        target = shutil.copytree(folder, tmp_path / "length" / folder.name) / "provenance.json"
        record = json.loads(target.read_text())
        record["versions"]["numerics"] += index
        target.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="one numerics version"):
        made["pages"](tmp_path)


def test_the_figure_has_a_point_for_every_number(pages):
    """Seven panels; circles are as many as cells of the table beside it."""
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "length.svg"])
    circles = [one for one in drawn.iter() if one.tag.endswith("circle")]
    text = pages[ROOT / "docs" / "results.md"].partition("length.svg")[2].partition("## ")[0]
    lines = [line for line in text.splitlines() if re.match(r"\| [a-z]", line)]
    assert len(circles) == 7 * len(lines)
    assert len(lines) >= 10


def detection(epochs, plain, mixed):
    rows = [
        Row(method=method, seed=seed, run=f"{method}{seed}", dataset="svhn/test", metric="auroc",
            score="dempster_shafer", train_set="cifar10/train", value=value)
        for method, values in (("dnn", plain), ("regmixup", mixed))
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return Training("cifar10-resnet18", (f"epochs {epochs} instead of 100",), epochs, "bfloat16"), Aggregation(rows)


PLAIN = [0.90, 0.91, 0.92]


@pytest.mark.parametrize(
    ("short", "long", "said"),
    [
        ([0.80, 0.81, 0.825], [0.93, 0.941, 0.95], "RegMixup is ahead at 200 epochs"),
        ([0.80, 0.81, 0.825], [0.90, 0.911, 0.919], "not distinguishable from none at 200 epochs"),
        ([0.80, 0.81, 0.825], [0.87, 0.881, 0.89], "still there at 200 epochs"),
        ([0.87, 0.88, 0.89], [0.87, 0.881, 0.889], "RegMixup is behind at 200 epochs"),
        ([0.80, 0.89, 0.86], [0.85, 0.97, 0.88], "**Not decided.**"),
        ([0.80], [0.95], "**Not decided.**"),
    ],
    ids=["ahead", "closed", "shrinks", "behind", "spread", "one seed"],
)
def test_the_answer_to_the_open_question_follows_from_the_intervals(short, long, said):
    found = dict([detection(25, PLAIN, short), detection(200, PLAIN, long)])
    told = length["answer"](found, [25, 50, 200])
    assert said in told.partition("Both methods")[0]
    assert "At 50 epochs one of the two is missing." in told
