"""The archived runs under results/, with their lines in the studies, and the rows of one; and made-up ones."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regmixup.storage import write_rows
from regmixup.study.archive import archive_places, archived_rows, outcomes_path
from regmixup.study.plan import load_study
from regmixup.study.tasks import find_tasks
from regmixup.types import Row

ROOT = Path(__file__).parents[2]


def archives(study):
    """Return the planned runs of a study that are archived, with their folders."""
    plan, here = load_study(study), ROOT / "results" / study
    tasks = find_tasks(list(plan.runs()), here, torch.device("cuda"), archive_places(plan, here))
    return [(task.planned, task.archive) for task in tasks if task.archive is not None]


STUDIES = sorted({note.parent.parent.name for note in (ROOT / "results").glob("*/*/archive.json")})
ARCHIVED = {study: archives(study) for study in STUDIES}

ARCHIVES = [  # a study that reuses another has its archives, too
    pytest.param(planned, folder, id=planned.name)
    for planned, folder in {
        (planned.stem, folder): (planned, folder) for archived in ARCHIVED.values() for planned, folder in archived
    }.values()
]
WITH_LOGITS = [param for param in ARCHIVES if (param.values[1] / f"logits-{param.values[0].stem}.npz").is_file()]
WITH_OUTCOMES = [param for param in ARCHIVES if outcomes_path(param.values[1], param.values[0].stem).is_file()]


def rows_of(planned, folder):
    """The rows of whole sets without temperature, by set, metric and score."""
    return {
        (row.dataset, row.metric, row.score): row
        for row in archived_rows(folder, planned.stem)
        if row.posthoc == "none" and not row.corruption
    }


def write_evaluation(folder, label, test, aurocs, *, seed=10, epochs=100, others=()):
    """Archive an evaluation of a run, as far as tables read it.

    aurocs: by OOD set and score. others: the fields of further rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {"train_set": "cifar10/train", "network": "resnet18", "epochs": epochs, "precision": "bfloat16"}
    (folder / "config.json").write_text(json.dumps({**config, "seed": seed}))
    (folder / "archive.json").write_text("{}")
    row = Row(run=folder.name, method=label, posthoc="none")
    rows = [replace(row, dataset=test, metric="accuracy", value=0.95)]
    for (name, score), value in aurocs.items():
        rows.append(replace(row, dataset=name, metric="auroc", score=score, value=value))
    rows += [replace(row, **fields) for fields in others]
    write_rows(folder / "rows.csv", rows)
    (folder / f"rows-{test.replace('/', '-')}.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
