"""How fast images are corrupted: this package beside `imagecorruptions`, in one run.

    python benchmarks/corruptions.py                 # 15 + 4 corruptions, a few minutes on two cores
    python benchmarks/corruptions.py --full          # also corrupts all 750,000 images of CIFAR-10-C, and times it
    python benchmarks/corruptions.py --device cuda

Columns: milliseconds per 32x32 image, averaged over the five severities. "cifar" is what CIFAR-10-C needs. Since
`imagecorruptions` (pip install imagecorruptions 'setuptools<81') knows ImageNet-C's constants only, the ratio compares
it with this package at the same constants; its corruptions that fail with today's libraries are left out, and so is the
whole column where it is not installed. It works image by image on one core; this package uses --threads of them.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

from regmixup.data import corrupt
from regmixup.data.catalogue import BENCHMARK, EXTRA

PEER = "imagecorruptions"


def photograph_pieces(count: int, side: int = 32) -> torch.Tensor:
    """Cut `count` pieces from scikit-learn's two photographs at a third of their size: uint8 (count, 3, side, side)."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    random = np.random.default_rng(0)
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    shrunk = [np.asarray(photo.resize((photo.width // 3, photo.height // 3))) for photo in photos]
    corners = [(random.integers(0, p.shape[0] - side), random.integers(0, p.shape[1] - side)) for p in shrunk * count]
    pieces = [p[y : y + side, x : x + side] for p, (y, x) in zip(shrunk * count, corners, strict=True)][:count]
    return torch.from_numpy(np.stack(pieces)).permute(0, 3, 1, 2).contiguous()


def load_peer() -> Callable[..., np.ndarray] | None:
    """Return `imagecorruptions.corrupt`, or None with a message."""
    warnings.filterwarnings("ignore")
    try:
        from imagecorruptions import corrupt as peer
    except ImportError as error:
        print(f"{PEER} is not installed ({error}): timing this package alone\n")
        return None
    return peer


def time_ours(images: torch.Tensor, name: str, constants: str) -> float:
    """Seconds per image over the five severities; the first block of each is a warm-up."""
    generator = torch.Generator().manual_seed(0)
    for severity in range(1, 6):
        corrupt(images[:16], name, severity=severity, generator=generator, constants=constants)
    synchronize(images)
    start = time.perf_counter()
    for severity in range(1, 6):
        corrupt(images, name, severity=severity, generator=generator, constants=constants)
    synchronize(images)
    return (time.perf_counter() - start) / (5 * len(images))


def time_peer(peer: Callable[..., np.ndarray], images: torch.Tensor, name: str) -> float | None:
    """Seconds per image over the five severities, or None if the corruption fails."""
    arrays = images.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    try:
        peer(arrays[0], corruption_name=name, severity=1)
    except Exception:
        return None
    start = time.perf_counter()
    for severity in range(1, 6):
        for image in arrays:
            peer(image, corruption_name=name, severity=severity)
    return (time.perf_counter() - start) / (5 * len(arrays))


def synchronize(images: torch.Tensor) -> None:
    if images.device.type == "cuda":
        torch.cuda.synchronize()


def time_full(images: torch.Tensor) -> float:
    """Seconds to corrupt 10,000 images by the 15 corruptions at five severities."""
    many = images.repeat(math.ceil(10_000 / len(images)), 1, 1, 1)[:10_000]
    start = time.perf_counter()
    for name in BENCHMARK:
        for severity in range(1, 6):
            corrupt(many, name, severity=severity, generator=torch.Generator().manual_seed(severity))
    synchronize(images)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=682, help="images a corruption and severity, this package")
    parser.add_argument("--peer-images", type=int, default=20, help="the same for imagecorruptions")
    parser.add_argument("--names", nargs="+", default=[*BENCHMARK, *EXTRA], help="corruptions; all by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--full", action="store_true", help="also time the whole of CIFAR-10-C")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    images = photograph_pieces(options.images).to(options.device)
    peer = load_peer()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    print(f"{machine}, {options.threads} threads, torch {torch.__version__}; ms per 32x32 image\n")
    print(f"{'corruption':20}{'cifar':>9}{'imagenet':>10}{PEER:>18}{'ratio':>9}")
    ours: dict[str, float] = {}
    pairs: dict[str, tuple[float, float]] = {}
    for name in options.names:
        ours[name], same = (1000 * time_ours(images, name, constants) for constants in ("cifar", "imagenet"))
        other = time_peer(peer, images[: options.peer_images], name) if peer else None
        columns = f"{'-':>18}{'-':>9}"
        if other is not None:
            pairs[name] = (same, 1000 * other)
            columns = f"{1000 * other:18.3f}{1000 * other / same:8.1f}x"
        print(f"{name:20}{ours[name]:9.4f}{same:10.4f}{columns}", flush=True)
    if pairs:
        for label, left_out in (("", ()), (" without frost, which reads a photograph each time", ("frost",))):
            kept = [pair for name, pair in pairs.items() if name not in left_out]
            ratio = sum(b for _, b in kept) / sum(a for a, _ in kept)
            middle = math.exp(sum(math.log(b / a) for a, b in kept) / len(kept))
            print(f"\n{len(kept)} corruptions both can do{label}: {ratio:.1f}x in total, {middle:.1f}x geometric mean")
    if set(BENCHMARK) <= set(ours):
        projected = sum(ours[name] for name in BENCHMARK) * 5 * 10_000 / 1000
        print(f"\nCIFAR-10-C, 15 x 5 x 10,000 images: projected {projected:.0f} s")
    if options.full:
        print(f"CIFAR-10-C, 15 x 5 x 10,000 images: measured {time_full(images):.0f} s")


if __name__ == "__main__":
    main()
