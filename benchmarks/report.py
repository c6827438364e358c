"""How long a report of a full-size CIFAR-10 study takes and how large its page is: 15 methods, 5 seeds, all scores.

    python benchmarks/report.py                      # into a temporary folder
    python benchmarks/report.py --keep my-folder     # and keep the study, to look at its page

Nothing is trained: rows and figure data have the sizes and the look of real ones, their values are made up. Timed is
`report` alone, from the folders on disk to report.html, .md, .tex and .csv. It must stay below 60 s on two cores, the
page below 5 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regmixup.config import encode
from regmixup.data.catalogue import BENCHMARK
from regmixup.evaluation.curves import path_curves, reliability_bins, score_curves, thumbnail
from regmixup.metrics.calibration import CLASSIFICATION
from regmixup.metrics.detection import DETECTION
from regmixup.posthoc import as_given
from regmixup.report.output import write_report
from regmixup.report.results import Results
from regmixup.run_folder import figures_path
from regmixup.storage import digest, write_json, write_rows, write_text
from regmixup.study.figures import PAIRS
from regmixup.training.config import configure
from regmixup.types import MEAN, Predictions, Row

RECIPE = "cifar10-wrn28-10"
METHODS = (
    "dnn", "mixup", "regmixup", "cutmix", "regcutmix", "mixup+cutmix", "regmixup+cutmix", "regmixup+regcutmix",
    "dnn-sn", "dnn-srn", "sngp", "duq", "kfac-llla", "augmix", "deep-ensemble",
)  # fmt: skip
OOD = {"cifar100/test": 10_000, "svhn/test": 26_032, "tiny-imagenet/val": 10_000}
FEATURE_SCORES = ("mahalanobis", "mahalanobis_tied", "relative_mahalanobis", "knn", "vim", "react", "ash")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def predictions(dataset: str, size: int, strength: float, seed: int, **more: Any) -> Predictions:
    """Make up logits that are right more often the larger the strength is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (size,), generator=generator)
    logits = 1.5 * torch.randn(size, 10, generator=generator)
    logits += strength * torch.nn.functional.one_hot(labels, 10)
    return Predictions(logits, labels, dataset=dataset, **more)


def figures(position: int) -> dict[str, Any]:
    """Return the figure data of one method, as an evaluation makes them."""
    test = predictions("cifar10/test", 10_000, 8 + position / 10, position)
    ood = [predictions(name, size, 3.0, 100 + position) for name, size in OOD.items()]
    scores = score_curves(test, ood)
    path = predictions("path", 20_000, 2.0, position, info={"pairs": "1000", "lambdas": "20"})
    noise = torch.Generator().manual_seed(position)
    image = torch.randint(256, (2 * PAIRS, 3, 32, 32), generator=noise, dtype=torch.uint8)
    return {
        "reliability": reliability_bins({"none": test, "temperature": as_given(test, 1.3)}),
        "scores": scores | dict.fromkeys(FEATURE_SCORES, scores["energy"]),
        "path": path_curves(path, pairs=PAIRS),
        "images": [
            {
                "classes": [CLASSES[i], CLASSES[i + 1]],
                "png": [thumbnail(end).partition(",")[2] for end in image[2 * i : 2 * i + 2]],
            }
            for i in range(PAIRS)
        ],
    }


def rows(template: Row, scores: list[str], draw: random.Random) -> Iterator[Row]:
    """Yield the rows of one run, as an evaluation makes them."""

    def value(base: float) -> float:
        return min(1.0, max(0.0, draw.gauss(base, 0.004)))

    bases = {"accuracy": 0.96, "nll": 0.15, "brier": 0.06}
    for posthoc in ("none", "temperature"):
        for metric in CLASSIFICATION:
            own = value(bases.get(metric, 0.02))
            yield replace(template, dataset="cifar10/test", posthoc=posthoc, metric=metric, value=own, n=10_000)
        for metric in CLASSIFICATION:
            shifted = replace(template, dataset="cifar10-c", posthoc=posthoc, metric=metric, n=10_000)
            for corruption in BENCHMARK:
                for severity in range(1, 6):
                    own = value(bases.get(metric, 0.02) * (1 - 0.08 * severity))
                    yield replace(shifted, corruption=corruption, severity=severity, value=own)
            yield replace(shifted, corruption=MEAN, value=value(bases.get(metric, 0.02) * 0.76))
    yield replace(template, dataset="cifar10/test", posthoc="temperature", metric="temperature", value=1.3)
    for corruption in BENCHMARK:
        for severity in range(1, 6):
            own = replace(template, dataset="cifar10-c", corruption=corruption, severity=severity, n=10_000)
            yield replace(own, metric="fisher_criterion", value=draw.gauss(60 - 8 * severity, 2))
    for score in scores:
        yield replace(template, dataset="cifar10/test", score=score, metric="aurc", value=value(0.01))
        for dataset in OOD:
            for metric in DETECTION:
                yield replace(template, dataset=dataset, score=score, metric=metric, value=value(0.9), n=10_000)


def fabricate(root: Path, methods: Sequence[str], seeds: int) -> Path:
    """Write a study's folder with all of its run folders, and return it."""
    draw = random.Random(0)
    entries, found = [], []
    for position, method in enumerate(methods):
        drawn = figures(position)
        for seed in range(seeds):
            config = configure(RECIPE, method, seed=seed)
            folder = root / config.name
            write_json(folder / "config.json", encode(config))
            seconds = draw.gauss(14_000, 300) * (2 if "reg" in method else 1)
            record = {"data": {"cifar10/train": 64 * "0"}, "device": "made up", "seconds": seconds, "versions": {}}
            write_json(folder / "provenance.json", record)
            epochs = [
                {"epoch": e, "loss": 2.3 / e**0.5, "train_accuracy": 1 - 0.9 / e, "seconds": 40.0}
                for e in range(1, config.epochs + 1)
            ]
            write_text(folder / "history.jsonl", "".join(json.dumps(epoch) + "\n" for epoch in epochs))
            write_text(figures_path(folder, method), json.dumps(drawn))
            entry = {"method": method, "label": method, "recipe": RECIPE, "seed": seed, "posthoc": None}
            entries.append({**entry, "folder": folder.name, "stem": method, "calibration": "companion"})
            place = {"network": config.network, "train_set": config.train_set, "seed": seed, "method": method}
            found += rows(Row(study="full", run=folder.name[-12:], **place), list(drawn["scores"]), draw)
    folder = root / "study-full"
    about = "Made-up numbers of a full-size study, to measure the report."
    write_rows(folder / "rows.csv", found)
    study = {"title": "CIFAR-10, all methods", "about": about, "rank": False, "runs": entries}
    write_json(folder / "study.json", {**study, "rows_digest": digest(folder / "rows.csv")})
    return folder


def main() -> None:
    """Fabricate, report, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a folder for the study, which is then kept")
    parser.add_argument("--methods", type=int, default=len(METHODS), help="take the first so many methods")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    keep, methods = args.keep, METHODS[: args.methods]
    with tempfile.TemporaryDirectory() as temporary:
        folder = fabricate(keep or Path(temporary), methods, args.seeds)
        count = (folder / "rows.csv").read_text().count("\n") - 1
        started = time.perf_counter()
        page = write_report(Results.open(folder))[0]
        seconds = time.perf_counter() - started
        size = page.stat().st_size / 1e6
        print(f"{len(methods)} methods x {args.seeds} seeds, {count:,} rows, {os.cpu_count()} cores")
        print(f"report in {seconds:.1f} s (at most 60), page of {size:.2f} MB (at most 5)")
        if keep:
            print(page)


if __name__ == "__main__":
    main()
