"""Measure the cost of the loaders, side by side in one run.

    python benchmarks/loaders.py resident [--device cuda]      batches of 128 CIFAR-sized images against a training step
    python benchmarks/loaders.py streaming FOLDER [--workers 2] image files against a bare torchvision DataLoader

resident: milliseconds for an augmented batch (crop, flip, labels) and for a WRN-28-10 RegMixup step in bfloat16 and
channels-last; the ratio is the loader's share. streaming: images per second of our loader and of torch's DataLoader
over torchvision's ImageFolder with the same transforms, in turns, best of several passes each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import regmixup as rm
from regmixup.data.images import FolderSet, ImageSet
from regmixup.data.loader import ResidentLoader
from regmixup.data.streaming import StreamingLoader
from regmixup.training.loading import train_transform


def seconds(work: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def resident(device: torch.device, network: str, batch_size: int, images: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    dataset = ImageSet(pixels, torch.arange(images) % 10, tuple("0123456789"), "random")
    loader = ResidentLoader(dataset, batch_size=batch_size, seed=0, device=device, padding=4, flip=True)
    model = rm.networks.build(network, num_classes=10, normalize=((0.5,) * 3, (0.25,) * 3))
    model = model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    objective, batch = rm.RegMixup(), next(loader.epoch(0))

    def load() -> None:
        for _ in loader.epoch(0):
            pass

    def train() -> None:
        for _ in range(steps):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = objective(model, batch.x, batch.y).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    load(), train()
    per_batch = min(seconds(load, device) for _ in range(5)) / len(loader)
    per_step = min(seconds(train, device) for _ in range(3)) / steps
    print(f"loader {1e3 * per_batch:.3f} ms a batch, {network} RegMixup step {1e3 * per_step:.2f} ms,", end=" ")
    print(f"share {per_batch / per_step:.2%}  ({images} images, {device}, torch {torch.__version__})")


def streaming(folder: str, workers: int, passes: int) -> None:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    files = rm.data.load(f"folder:{folder}")
    assert isinstance(files, FolderSet)
    config, cpu = rm.configure("imagenet-resnet50", "dnn", interpolation="bilinear"), torch.device("cpu")
    transform = train_transform(config, shape=None)
    ours = StreamingLoader(
        files.paths, files.labels, transform=transform, shape=(3, 224, 224), batch_size=64, seed=0, device=cpu,
        workers=workers, epochs=passes,
    )  # fmt: skip
    same = v2.Compose([transform, v2.PILToTensor()])
    bare = torch.utils.data.DataLoader(ImageFolder(folder, same), batch_size=64, shuffle=True, num_workers=workers)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for epoch in range(passes):
        times["ours"].append(seconds(lambda e=epoch: [None for _ in ours.epoch(e)], cpu))  # type: ignore[misc]
        times["bare"].append(seconds(lambda: [None for _ in bare], cpu))
    rates = {name: len(files) / min(values) for name, values in times.items()}
    print(f"{len(files)} images, {workers} workers: ours {rates['ours']:.0f}/s, bare {rates['bare']:.0f}/s,", end=" ")
    print(f"ratio {rates['ours'] / rates['bare']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["resident", "streaming"])
    parser.add_argument("folder", nargs="?", help="for streaming: a tree with one folder of images per class")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--network", default="wrn28-10")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=5)
    args = parser.parse_args()
    if args.what == "resident":
        resident(torch.device(args.device), args.network, args.batch_size, args.images, args.steps)
    elif args.folder is None:
        parser.error("streaming needs a folder")
    else:
        streaming(args.folder, args.workers, args.passes)


if __name__ == "__main__":
    main()
