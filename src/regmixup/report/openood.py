"""Rows of OpenOOD v1.5's leaderboard: `regmixup report STUDY --openood`.

A row has the mean AUROC over a near and a far group of sets, in percent. A group's mean is written only where each of
its sets was measured, on OpenOOD's images. Else the row's description names the sets that are missing, and the mean
over those that are there, all images of a set standing in for OpenOOD's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from regmixup.names import counted
from regmixup.report.aggregation import Aggregation
from regmixup.report.leaderboard import FAR, NEAR, family_of
from regmixup.report.results import Results, Setting
from regmixup.report.significance import Values
from regmixup.report.tables import ood_sets, tested_set
from regmixup.storage import csv_lines, write_text
from regmixup.types import Quantity

GROUPS = {
    family: {
        "Near-OOD": [f"{near}/openood-{family}" for near in near_families],
        "Far-OOD": FAR,
    }
    for family, near_families in NEAR.items()
}
"""The sets of each group by the train set's family; a set without a slash is any dataset, or folder, of that name."""
POSTPROCESSORS = {
    "max_probability": "MSP", "energy": "EBO", "max_logit": "MLS", "gen": "GEN", "mahalanobis_tied": "MDS",
    "relative_mahalanobis": "RMDS", "knn": "KNN", "vim": "VIM", "react": "ReAct", "scale": "SCALE", "fdbd": "fDBD",
}  # fmt: skip
"""OpenOOD's names of scores that mean the same here and there."""
COLUMNS = "Training,Postprocessor,Near-OOD_AUROC,Far-OOD_AUROC,ID_Accuracy,Outlier_Data,Arch,Additional_Description"
NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wrn28-10": "WRN-28-10"}


def write_openood(results: Results) -> tuple[Path, str]:
    """Write openood.csv into the results' folder; return its path and its text."""
    lines = [row for setting in results.settings for row in openood_rows(setting)]
    if not lines:
        raise ValueError(f"study must have OOD sets for {' or '.join(GROUPS)}, {results.title!r} has none")
    path, text = results.folder / "openood.csv", csv_lines([COLUMNS.split(","), *lines])
    write_text(path, text)
    return path, text


def openood_rows(setting: Setting) -> list[list[str]]:
    """Return a row for each method and score that was measured, means over seeds; none for other train sets."""
    aggregation = setting.aggregation
    test = tested_set(aggregation)
    family = test.partition("/")[0]
    if family not in GROUPS:
        return []
    lines = []
    for label in setting.labels:
        config = setting.runs_of(label)[0].config
        accuracies = aggregation.values(Quantity(test, "accuracy"), label)
        about = [f"{config['epochs']} epochs, {counted(len(accuracies), 'seed')}"]
        if test != f"{family}/openood-test":
            about.append(f"in-distribution images are {test}, not {family}/openood-test")
        arch = NETWORKS.get(config["network"], config["network"])
        for score, name in POSTPROCESSORS.items():
            groups = [_mean(aggregation, label, score, *group) for group in GROUPS[family].items()]
            if any(mean for mean, _ in groups):
                cells = ["" if lacks else mean for mean, lacks in groups]
                description = "; ".join([*about, *(lacks for _, lacks in groups if lacks)])
                lines.append([label, name, *cells, _percent(accuracies), "No", arch, description])
    return lines


def _mean(aggregation: Aggregation, label: str, score: str, group: str, wanted: Sequence[str]) -> tuple[str, str]:
    """Return the mean over the sets of a group that were measured, and what it lacks, "" where it is complete."""
    quantity = partial(Quantity, metric="auroc", score=score)
    measured = [name for name in ood_sets(aggregation) if aggregation.values(quantity(name), label)]
    used, missing = [], []
    for name in wanted:
        same_images = [dataset for dataset in measured if name in (dataset, family_of(dataset))]
        same_family = [dataset for dataset in measured if family_of(dataset) == family_of(name)]
        if not same_images:
            missing.append(name)
        used += (same_images or same_family)[:1]
    mean = _percent(aggregation.average([quantity(name) for name in used], label))
    present = f" ({mean} over {', '.join(used)})" if mean else ""
    return mean, f"{group} lacks {', '.join(missing)}{present}" if missing else ""


def _percent(values: Values) -> str:
    return f"{100 * sum(values.values()) / len(values):.2f}" if values else ""
