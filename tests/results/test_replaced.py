"""Trainings that were replaced are kept, and count in the claims as further seeds."""

import numpy as np
import pytest
from claims import points
from make_replaced import METRICS, keep, kept
from scipy.stats import ttest_ind, ttest_rel

from regmixup.storage import read_rows, read_table
from regmixup.study.archive import archived_rows
from regmixup.types import Quantity

from .archived import ARCHIVED, ROOT


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
            own = [row for folder in folders for row in archived_rows(folder, stem)]
            own.sort(key=lambda row: row.seed)  # both methods have the same
            replaced = [row for row in rows if row.method == label]
            archives.append([100 * row.value for row in own if row.quantity == wanted])
            every.append([100 * row.value for row in [*own, *replaced] if row.quantity == wanted])
        effect = points((np.mean(every[0]) - np.mean(every[1])) / 100)
        told = f"| {effect}, {welch(every)}, Welch, n {len(every[0])}, {len(every[1])} |"
        moved = verdict(ttest_rel(*archives)) != verdict(ttest_ind(*every, equal_var=False))
        assert section.count(told) == moved, "it is named where the verdict is another"
        assert section.count(f", {welch(archives)}, Welch |") == moved  # the test alone
    changed = [line.split(" | ") for line in section.splitlines() if line.startswith("| ") and ", n " in line]
    by_test = [cells for cells in changed if cells[-1].startswith(cells[-2])]
    assert f"{len(changed)} of the " in section
    assert f", {len(by_test)} of them by the test alone" in section


def verdict(test):
    return int(test.pvalue < 0.05) * np.sign(test.statistic)


def welch(values):
    low, high = ttest_ind(*values, equal_var=False).confidence_interval()
    return f"{points(low / 100)} to {points(high / 100)}"


def test_a_training_is_kept_once_before_it_is_replaced(tmp_path):
    folder = ARCHIVED["length"][0][1]
    keep([folder], tmp_path / "one.csv")
    rows = read_rows(tmp_path / "one.csv")
    fingerprint = folder.name.rpartition("-")[2]
    assert {row.run.partition("@")[0] for row in rows} == {fingerprint}
    assert {row.metric for row in rows} == set(METRICS)
    found = kept(rows, fingerprint, rows[0].method)
    assert {row.seed for row in found} == {-1}
    assert [row.value for row in found] == [row.value for row in rows if row.method == rows[0].method]
    with pytest.raises(ValueError, match="that is not kept yet, got"):
        keep([folder], tmp_path / "one.csv")
    other = ARCHIVED["causes"][0][1]
    keep([other], tmp_path / "one.csv")
    assert read_rows(tmp_path / "one.csv")[: len(rows)] == rows
    assert len({row.run for row in read_rows(tmp_path / "one.csv")}) == 2
