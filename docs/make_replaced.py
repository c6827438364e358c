"""Trainings that were replaced in results/: further lines needed their weights, which an archive does not hold.

The same seed trained again is another network. The tables hold the later one, so that a fingerprint names one training.
`python docs/make_replaced.py FOLDER...` keeps the main rows of archives that are about to be replaced, in
results/replaced.csv; make_results.py asks every claim with them, too.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmixup.run_folder import read_provenance
from regmixup.storage import read_rows, read_table, write_rows
from regmixup.study.archive import archived_rows
from regmixup.types import MEAN, Row

PLACE = Path(__file__).parents[1] / "results" / "replaced.csv"
METRICS = ("accuracy", "ece", "adaptive_ece", "auroc", "augrc")


def read(path: Path = PLACE) -> list[Row]:
    """Return the rows of all replaced trainings."""
    return read_rows(path) if path.is_file() else []


def kept(rows: Sequence[Row], fingerprint: str, label: str) -> list[Row]:
    """Return the rows of the replaced trainings of a run, each as a seed of its own, which no other training has."""
    seeds = {run: -1 - place for place, run in enumerate(dict.fromkeys(row.run for row in rows))}
    own = [row for row in rows if row.run.startswith(f"{fingerprint}@") and row.method == label]
    return [replace(row, seed=seeds[row.run]) for row in own]


def keep(folders: Sequence[Path], path: Path = PLACE) -> None:
    """Add the main rows of archives to the file. A training is named by its fingerprint and the code's commit."""
    rows = read(path)
    for folder in folders:
        name = f"{folder.name.rpartition('-')[2]}@{(read_provenance(folder).get('commit') or 'unknown')[:8]}"
        if any(row.run == name for row in rows):
            raise ValueError(f"{folder} must be a training that is not kept yet, got {name}, which {path.name} has")
        every = (
            row for stem in read_table(folder / "archive.json")["evaluations"] for row in archived_rows(folder, stem)
        )
        rows += [
            replace(row, run=name)
            for row in every
            if row.metric in METRICS and row.posthoc == "none" and row.corruption in ("", MEAN) and row.severity is None
        ]
    write_rows(path, rows)


if __name__ == "__main__":
    keep([Path(name) for name in sys.argv[1:]])
