"""The archived runs under results/, with their lines in the studies, and the rows of one."""

from pathlib import Path

import pytest
from make_archives import archives, folders

from regmixup.study.archive import archived_rows, outcomes_path

ROOT = Path(__file__).parents[2]

ARCHIVED = {study: archives(study) for study in folders(ROOT / "results")}

ARCHIVES = [  # a study that reuses another has its archives, too
    pytest.param(*one, id=one[0].name)
    for one in {
        (planned.stem, folder): (planned, folder) for own in ARCHIVED.values() for planned, folder in own
    }.values()
]

WITH_LOGITS = [one for one in ARCHIVES if (one.values[1] / f"logits-{one.values[0].stem}.npz").is_file()]

WITH_OUTCOMES = [one for one in ARCHIVES if outcomes_path(one.values[1], one.values[0].stem).is_file()]


def rows_of(planned, folder):
    """The rows of whole sets without temperature, by set, metric and score."""
    return {
        (row.dataset, row.metric, row.score): row
        for row in archived_rows(folder, planned.stem)
        if row.posthoc == "none" and not row.corruption
    }
