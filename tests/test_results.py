"""What is published under results/ follows from the archived runs, and other people's code finds the same numbers."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from regmixup.study.archive import archived_rows

ROOT = Path(__file__).parent.parent
made = runpy.run_path(str(ROOT / "docs" / "make_results.py"))
ARCHIVES = [
    pytest.param(planned, folder, id=f"{planned.name}")
    for study in sorted(path.name for path in (ROOT / "results").iterdir() if path.is_dir())
    for planned, folder in made["archives"](study)
]


def test_the_page_is_what_the_archives_say():
    assert made["page"]() == (ROOT / "results" / "README.md").read_text(), "run docs/make_results.py"


def test_the_repository_stays_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()) < 30e6


@pytest.mark.parametrize(("planned", "folder"), ARCHIVES)
def test_rows_agree_with_what_numpy_and_scikit_learn_find_in_the_outcomes(planned, folder):
    """Accuracy exactly; AUROC to what float16, with its ties, leaves of a score."""
    rows = {
        (row.dataset, row.metric, row.score): row
        for row in archived_rows(folder, planned.stem)
        if row.posthoc == "none" and not row.corruption
    }
    outcomes = np.load(folder / f"outcomes-{planned.stem}.npz")
    sets = planned.evaluate
    correct = outcomes[f"{sets.test}:correct"]
    assert rows[sets.test, "accuracy", ""].value == pytest.approx(correct.mean(), abs=1e-12)
    for name, score in (("uncertainty", "max_probability"), ("dempster_shafer", "dempster_shafer")):
        inside = outcomes[f"{sets.test}:{name}"].astype(float)
        failures = roc_auc_score(~correct, inside)
        assert rows[sets.test, "failure_auroc", score].value == pytest.approx(failures, abs=2e-4)
        for other in sets.ood:
            outside = outcomes[f"{other}:{name}"].astype(float)
            found = roc_auc_score([0] * len(inside) + [1] * len(outside), np.concatenate([inside, outside]))
            assert rows[other, "auroc", score].value == pytest.approx(found, abs=2e-4), other
