"""What a training step of every method costs beside plain training, side by side in one run.

    python benchmarks/methods.py [--device cuda] [--network wrn28-10] [--methods dnn regmixup ...]

One step is everything between two batches: draw, forward, backward, SGD, what the head keeps. All methods take the
same batch of 128 CIFAR-sized images in the same precision (bfloat16 on CUDA), eager, channels-last, and take turns for
several rounds; the table shows the median. Methods whose training is that of another (kfac-llla) or several times that
(deep-ensemble) are measured by that other.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from regmixup.methods import METHODS
from regmixup.training.config import choose_device, configure, resolve
from regmixup.training.loop import train_step
from regmixup.training.optim import make_optimizer
from regmixup.training.run import Run
from regmixup.types import Batch

PAPER = {"dnn": 1.0, "mixup": 1.2, "regmixup": 1.5, "augmix": 4.0}


def stepper(method: str, network: str, batch: Batch) -> Callable[[int], None]:
    """A function that takes some training steps of a method on a batch."""
    device = batch.x.device
    config = configure("cifar10-wrn28-10", method)
    sngp = config.network.endswith("-sngp") and network == "wrn28-10"
    config = resolve(replace(config, members=1, network=config.network if sngp else network), device)
    torch.manual_seed(0)
    model = Run(Path(), config).build(num_classes=10, input_shape=batch.x.shape[1:]).to(device)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = make_optimizer(model, replace(config, lr=1e-3))

    def steps(count: int) -> None:
        for _ in range(count):
            draw = config.objective.draw(len(batch.x), tuple(batch.x.shape[1:]))
            train_step(config, model, optimizer, batch, draw)

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
    parser.add_argument("--methods", nargs="+", default=[m for m in METHODS if m not in ("kfac-llla", "deep-ensemble")])
    args = parser.parse_args()
    device = choose_device(args.device)
    x = torch.randint(0, 256, (args.batch_size, 3, 32, 32), dtype=torch.uint8).to(device)
    batch = Batch(x.contiguous(memory_format=torch.channels_last), torch.arange(args.batch_size, device=device) % 10)

    steppers, memory = {}, {}
    for method in args.methods:
        held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        steppers[method] = stepper(method, args.network, batch)
        steppers[method](3)
        memory[method] = (torch.cuda.max_memory_allocated() - held) / 2**30 if device.type == "cuda" else float("nan")
    times: dict[str, list[float]] = {method: [] for method in steppers}
    for _ in range(args.rounds):
        for method, steps in steppers.items():
            times[method].append(milliseconds(steps, args.steps, device))
    median = {method: statistics.median(values) for method, values in times.items()}
    plain = median.get("dnn", next(iter(median.values())))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    print(f"{args.network}, batch {args.batch_size}, {name}, torch {torch.__version__}\n")
    print("| method | ms per step | relative to DNN | the paper | peak memory, GiB |\n|---|---|---|---|---|")
    for method, value in median.items():
        paper = f"{PAPER[method]:.1f}" if method in PAPER else "–"
        print(f"| {method} | {value:.1f} | {value / plain:.2f} | {paper} | {memory[method]:.1f} |")


if __name__ == "__main__":
    main()
