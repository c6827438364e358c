"""Measure prediction of CIFAR-10-C on a GPU beside its forward passes alone, and the evaluation behind it.

    python benchmarks/prediction.py [--networks resnet18 resnet50 wrn28-10] [--precision tf32] [--sets 75] [--root DATA]

Another --recipe gives another test set and its corruptions: digits needs no files.

    forward   the network on batches that lie in GPU memory, nothing else
    stored    `Run.store`: reading and hashing the files, forward passes, class moments, writing the predictions
    rows      `rm.evaluate` of the test set and the shifted sets, with intervals
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import regmixup as rm
from regmixup import data
from regmixup.data.images import ImageSet
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.mixing import to_float
from regmixup.networks.precision import Precision, autocast, float32_products, memory_format
from regmixup.predictions.predict import BATCH_SIZES, store_predictions
from regmixup.study.planned_run import Evaluation
from regmixup.training.run import Run

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(action: Callable[[], object]) -> float:
    """Return the wall-clock time of a call, until the GPU has finished."""
    started = time.perf_counter()
    action()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def forward_passes(run: Run, name: str, root: Path | None) -> Callable[[], None]:
    """Return a function that passes one dataset, already on the device, through the run's network."""
    model = run.model(device=DEVICE).eval().to(memory_format=memory_format(run.predicts_in, DEVICE))
    images = data.load(name, root=root)
    assert isinstance(images, ImageSet)
    batches = images.images.to(DEVICE).split(BATCH_SIZES[DEVICE.type])

    @torch.no_grad()
    def passes() -> None:
        with float32_products(run.predicts_in), autocast(run.predicts_in, DEVICE):
            for batch in batches:
                model(to_float(batch))

    return passes


def measure(config: rm.TrainConfig, precision: Precision, number: int, root: Path | None, runs: Path) -> str:
    """Return a line of the table, for a network that is trained for one epoch if it is not yet."""
    family = config.train_set.split("/")[0]
    sets = Evaluation(test=f"{family}/test", shift=(f"{family}-c",)).shift_sets()[:number]
    run = rm.train(config, runs, root=root, device=DEVICE, engine=rm.Engine(compile="off"))
    run = replace(run, predicts_in=precision)
    passes = forward_passes(run, sets[0], root)
    passes()
    alone = min(seconds(passes) for _ in range(3)) * len(sets)
    test = f"{family}/test"
    store_predictions(run, [test], root=root, device=DEVICE)

    def store_again() -> None:
        for name in sets:
            run.predictions_path(name).unlink(missing_ok=True)
        store_predictions(run, sets, root=root, device=DEVICE)

    stored = min(seconds(store_again) for _ in range(2))

    def evaluate() -> None:
        own, *shifted = (found.to(DEVICE) for found in run.predict_all([test, *sets], root=root, device=DEVICE))
        rm.evaluate(own, shift=shifted, bootstrap=Bootstrap())

    rows = seconds(evaluate)
    return (
        f"{config.network:10} {precision:9} {len(sets):4} {alone:8.2f} s {stored:8.2f} s {stored / alone:6.2f} "
        f"{rows:8.2f} s {rows / stored:6.2f}"
    )


def main() -> None:
    """Measure every network in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet18", "resnet50", "wrn28-10"])
    parser.add_argument("--precision", nargs="+", default=["tf32"])
    parser.add_argument("--recipe", default="cifar10-resnet18")
    parser.add_argument("--sets", type=int, default=75, help="at most so many shifted sets")
    parser.add_argument("--root", type=Path, default=None)
    options = parser.parse_args()
    heads = (f"{name:>{width}}" for name, width in (("forward", 10), ("stored", 10), ("ratio", 6), ("rows", 10)))
    print(f"{'network':10} {'precision':9} sets", *heads, " ratio")
    with tempfile.TemporaryDirectory() as runs:
        for network in options.networks:
            config = rm.configure(options.recipe, "dnn", network=network, epochs=1)
            for precision in options.precision:
                print(measure(config, precision, options.sets, options.root, Path(runs)), flush=True)


if __name__ == "__main__":
    main()
