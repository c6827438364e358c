"""Measure a whole training step on a GPU beside the loops people write, side by side in one run.

    python benchmarks/step.py [--networks wrn28-10 resnet50] [--methods regmixup dnn] [--alone]
    python benchmarks/step.py --networks resnet18 --methods regmixup --alone --fields 'sharpness = "sam"'

A step is everything between two batches: picking and augmenting the images, drawing, mixing, forward, backward, SGD.

    ours      `rm.train`'s own update, as `--compile auto --graphs auto` choose it, on images in GPU memory
    plain     the loop one writes today: bfloat16 autocast, channels-last, eager, timm's Mixup, batches already in GPU
              memory and not augmented at all, so that the comparison errs in its favour
    released  the loop of the released code: float32, NCHW, eager, a DataLoader with PIL transforms

`of ceiling` is the rate of the step's convolutions and products (three times the forward pass) relative to a bfloat16
matrix product measured in the same run. `epoch` is the wall-clock time of a whole epoch over steps x ms per step.
--alone leaves the other loops out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from timm.data.mixup import Mixup as TimmMixup
from timm.loss import SoftTargetCrossEntropy
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms
from torchvision.transforms.functional import to_pil_image

import regmixup as rm
from regmixup import networks
from regmixup.config import encode
from regmixup.data.images import ImageSet
from regmixup.methods import images_per_clean_image
from regmixup.networks.precision import cudnn
from regmixup.training.config import resolve
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine, settings
from regmixup.training.loop import Training
from regmixup.training.run import Run
from regmixup.training.stopping import Stop

BATCH, IMAGES, MATRIX = 128, 50_000, 8192
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ceiling() -> float:
    """Return the TFLOP/s of a bfloat16 matrix product."""
    a, b = (torch.randn(MATRIX, MATRIX, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    best = min(timed(lambda: a @ b, 20) for _ in range(5))
    return 2 * MATRIX**3 / best / 1e12


def timed(action: Callable[[], object], count: int) -> float:
    """Return the seconds per call."""
    synchronize()
    started = time.perf_counter()
    for _ in range(count):
        action()
    synchronize()
    return (time.perf_counter() - started) / count


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def allocated() -> float:
    """Return the bytes allocated on the GPU, and measure the peak from here; NaN without a GPU."""
    if DEVICE.type != "cuda":
        return float("nan")
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak_since(held: float) -> float:
    """Return the peak in GiB above what was held; NaN without a GPU."""
    return (torch.cuda.max_memory_allocated() - held) / 2**30 if DEVICE.type == "cuda" else float("nan")


def teraflop(network: str, method: str) -> float:
    """Return the TFLOP of a step: forward and twice that backward, for the images that the method forwards."""
    model = networks.build(network, num_classes=10).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    images = images_per_clean_image(encode(rm.configure("cifar10-resnet18", method).objective))
    return 3 * counter.get_total_flops() * BATCH * images / 1e12


def synthetic() -> ImageSet:
    """Random images in the shape of CIFAR-10."""
    images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    return ImageSet(images, torch.arange(IMAGES) % 10, tuple("abcdefghij"), "synthetic/train")


def ours(network: str, method: str, dataset: ImageSet, args: argparse.Namespace) -> dict[str, float]:
    """The engine: warm-up, then steps, then a whole epoch, then what has been compiled since the warm-up."""
    fields = {"network": network, "lr": 1e-3, "batch_size": BATCH, **tomllib.loads("\n".join(args.fields))}
    config = resolve(rm.configure("cifar10-wrn28-10", method, **fields), DEVICE)
    engine = Engine(checkpoint_minutes=60)
    with tempfile.TemporaryDirectory() as folder, settings(DEVICE, engine, config.precision):
        held = allocated()
        started = time.perf_counter()
        training = Training(Run(Path(folder), config), dataset, DEVICE, Ranks(), engine, workers=0).resume()
        training.model.train()
        steps = numbered_steps(training)
        next(steps)
        synchronize()
        warm_up = time.perf_counter() - started
        compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        timed(lambda: next(steps), 5)
        seconds = statistics.median(timed(lambda: next(steps), 2 * args.steps) for _ in range(args.rounds))
        training.run_epochs(Stop(), until=1)
        started = time.perf_counter()
        training.run_epochs(Stop(), until=2)
        epoch = time.perf_counter() - started
        again = torch._dynamo.utils.counters["stats"]["unique_graphs"] - compiled
        print(f"  {network} {method}: {training.execution}", flush=True)
        return {
            "ms": 1000 * seconds,
            "memory": peak_since(held),
            "warm-up": warm_up,
            "epoch": epoch / (seconds * IMAGES / BATCH),
            "recompiled": again,
        }


def numbered_steps(training: Training) -> Iterator[None]:
    """Take one update after the other, full batches only."""
    while True:
        for step, picked in enumerate(training.loaders[0].picks(0)):
            if step < IMAGES // BATCH:
                training.take_step(training.draw_shards(step, [picked], BATCH))
                yield


def plain(network: str, method: str, dataset: ImageSet, args: argparse.Namespace) -> dict[str, float]:
    """bfloat16, channels-last, eager, timm's Mixup."""
    held = allocated()
    model = networks.build(network, num_classes=10, normalize=((0.49, 0.48, 0.45), (0.2, 0.2, 0.2)))
    model = model.to(DEVICE, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4)
    mixup = TimmMixup(mixup_alpha=20, label_smoothing=0.0, num_classes=10)
    clean, mixed = nn.CrossEntropyLoss(), SoftTargetCrossEntropy()
    x = (dataset.images[:BATCH].to(DEVICE).float() / 255).contiguous(memory_format=torch.channels_last)
    y = dataset.labels[:BATCH].to(DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            if method == "regmixup":
                images, labels = mixup(x.clone(), y)
                logits = model(torch.cat([x, images]))
                loss = (clean(logits[:BATCH], y) + mixed(logits[BATCH:], labels)) / 2
            else:
                loss = clean(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with cudnn(benchmark=True):
        timed(step, 5)
        seconds = statistics.median(timed(step, args.steps) for _ in range(args.rounds))
    return {"ms": 1000 * seconds, "memory": peak_since(held)}


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """PIL images with the released code's transforms."""

    def __init__(self, dataset: ImageSet, count: int) -> None:
        self.pictures = [to_pil_image(image) for image in dataset.images[:count]]
        self.labels = dataset.labels.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
            ]
        )

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.pictures[index]), self.labels[index]


def released(network: str, method: str, dataset: ImageSet, args: argparse.Namespace) -> dict[str, float]:
    """float32, NCHW, eager, worker processes with PIL."""
    held = allocated()
    model = networks.build(network, num_classes=10).to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = args.steps * args.rounds + 5
    workers, pin = (0 if args.tiny else 8), DEVICE.type == "cuda"
    loader = DataLoader(Pictures(dataset, steps * BATCH), BATCH, shuffle=True, num_workers=workers, pin_memory=pin)
    batches = iter(loader)

    def step() -> None:
        x, y = (tensor.to(DEVICE) for tensor in next(batches))
        if method == "regmixup":
            lam = float(torch.distributions.Beta(20.0, 20.0).sample())
            partner = torch.randperm(len(x), device=DEVICE)
            logits = model(torch.cat([x, lam * x + (1 - lam) * x[partner]]))
            first, second = torch.cat([y, y]), torch.cat([y, y[partner]])
            weight = torch.ones(2 * len(y), device=DEVICE)
            weight[len(y) :] = lam
            losses = [nn.functional.cross_entropy(logits, target, reduction="none") for target in (first, second)]
            loss = (weight * losses[0] + (1 - weight) * losses[1]).mean()
        else:
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # the released loop logs the loss of every step

    timed(step, 5)
    seconds = statistics.median(timed(step, args.steps) for _ in range(args.rounds))
    return {"ms": 1000 * seconds, "memory": peak_since(held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["wrn28-10", "resnet50"])
    parser.add_argument("--methods", nargs="+", default=["regmixup", "dnn"])
    parser.add_argument("--fields", nargs="+", default=[], help="of the recipe, as in TOML: 'cutout = 16'; for ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15, help="steps per round; twice as many of ours")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="tiny batches, on any device: does the script still work?")
    args = parser.parse_args()
    if args.tiny:
        global BATCH, IMAGES, MATRIX
        BATCH, IMAGES, MATRIX = 2, 12, 64
    elif DEVICE.type != "cuda":
        parser.error("needs a GPU, except with --tiny")
    dataset, rate = synthetic(), ceiling()
    print(
        f"{torch.cuda.get_device_name() if DEVICE.type == 'cuda' else 'cpu'}, torch {torch.__version__}, batch {BATCH}"
    )
    print(f"ceiling {rate:.0f} TFLOP/s in bfloat16\n", flush=True)
    lines = []
    for network in args.networks:
        for method in args.methods:
            flops = teraflop(network, method)
            loops = {"ours": ours} if args.alone else {"ours": ours, "plain": plain, "released": released}
            base = 0.0  # ms of ours, which comes first
            for name, loop in loops.items():
                values = loop(network, method, dataset, args)
                speed = flops / values["ms"] * 1000
                extra = ["–"] * 3
                if name == "ours":
                    base = values["ms"]
                    extra = [f"{values['warm-up']:.0f}", f"{values['epoch']:.3f}", f"{values['recompiled']:.0f}"]
                cells = [network, method, name, f"{values['ms']:.2f}", f"{values['ms'] / base:.2f}"]
                cells += [f"{speed:.0f}", f"{100 * speed / rate:.0f} %", f"{values['memory']:.1f}", *extra]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    names = ["network", "method", "loop", "ms per step", "times ours", "TFLOP/s", "of ceiling", "peak GiB"]
    names += ["warm-up, s", "epoch / steps", "compiled later"]
    print(f"\nceiling at the end: {ceiling():.0f} TFLOP/s\n")
    print("\n".join([f"| {' | '.join(names)} |", "|" + "---|" * len(names), *lines]))


if __name__ == "__main__":
    main()
