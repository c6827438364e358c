"""Measure a training step of every method beside plain training, side by side in one run.

    python benchmarks/methods.py [--device cuda] [--network wrn28-10] [--methods dnn regmixup ...]

One step is everything between two batches: augmentation, draw, forward, backward, SGD, what the head keeps. All methods
take the same batch of 128 CIFAR-sized images in the same precision (bfloat16 on CUDA), carried out as --compile and
--graphs say, and take turns for several rounds; the table shows the median. Methods whose training is that of another
(kfac-llla) or several times that (deep-ensemble) are measured by that other.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from regmixup.data.images import ImageSet
from regmixup.methods import METHODS
from regmixup.training.config import configure, resolve
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine, choose_device, settings
from regmixup.training.loop import Training
from regmixup.training.run import Run

PAPER = {"dnn": 1.0, "mixup": 1.2, "regmixup": 1.5, "augmix": 4.0}


def stepper(
    method: str, network: str, dataset: ImageSet, device: torch.device, engine: Engine
) -> Callable[[int], None]:
    """A function that takes some training steps of a method."""
    config = configure("cifar10-wrn28-10", method)
    sngp = config.network.endswith("-sngp") and network == "wrn28-10"
    size = len(dataset)
    config = replace(config, members=1, network=config.network if sngp else network, batch_size=size, lr=1e-3)
    training = Training(Run(Path(), resolve(config, device)), dataset, device, Ranks(), engine, workers=0).resume()
    training.model.train()
    (picked,) = training.loaders[0].picks(0)

    def steps(count: int) -> None:
        for step in range(count):
            training.take_step(training.draw_shards(step, [picked], size))

    return steps


def milliseconds(steps: Callable[[int], None], count: int, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    steps(count)
    wait()
    return 1000 * (time.perf_counter() - started) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--network", default="wrn28-10")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", default="off", choices=["auto", "on", "off"])
    parser.add_argument("--graphs", default="auto", choices=["auto", "on", "off"])
    parser.add_argument("--methods", nargs="+", default=[m for m in METHODS if m not in ("kfac-llla", "deep-ensemble")])
    args = parser.parse_args()
    device = choose_device(args.device)
    images = torch.randint(0, 256, (args.batch_size, 3, 32, 32), dtype=torch.uint8)
    classes = tuple("abcdefghij")[: args.batch_size]
    dataset = ImageSet(images, torch.arange(args.batch_size) % 10, classes, "synthetic/train")
    engine = Engine(compile=args.compile, graphs=args.graphs)
    with settings(device, engine, "bfloat16"):
        measure(args, dataset, device, engine)


def measure(args: argparse.Namespace, dataset: ImageSet, device: torch.device, engine: Engine) -> None:
    """Time all methods in turn, and print the table."""
    steppers, memory = {}, {}
    for method in args.methods:
        held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        steppers[method] = stepper(method, args.network, dataset, device, engine)
        steppers[method](3)
        memory[method] = (torch.cuda.max_memory_allocated() - held) / 2**30 if device.type == "cuda" else float("nan")
    times: dict[str, list[float]] = {method: [] for method in steppers}
    for _ in range(args.rounds):
        for method, steps in steppers.items():
            times[method].append(milliseconds(steps, args.steps, device))
    median = {method: statistics.median(values) for method, values in times.items()}
    plain = median.get("dnn", next(iter(median.values())))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    how = f"compile {args.compile}, graphs {args.graphs}"
    print(f"{args.network}, batch {args.batch_size}, {how}, {name}, torch {torch.__version__}\n")
    print("| method | ms per step | relative to DNN | the paper | peak memory, GiB |\n|---|---|---|---|---|")
    for method, value in median.items():
        paper = f"{PAPER[method]:.1f}" if method in PAPER else "–"
        print(f"| {method} | {value:.1f} | {value / plain:.2f} | {paper} | {memory[method]:.1f} |")


if __name__ == "__main__":
    main()
