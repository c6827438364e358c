"""How fast metrics, the temperature grid and a whole evaluation are: this package beside its peers, in one run.

    python benchmarks/metrics.py                     # 1,000,000 x 100 probabilities, some minutes on two cores
    python benchmarks/metrics.py --size 100000       # a tenth of everything
    python benchmarks/metrics.py --full              # also the temperature grid on 50,000 x 1,000 logits
    python benchmarks/metrics.py --evaluate 1000000 1000 --ood-files 2000    # only these two: a 4 GB file, many files

Metrics: milliseconds, best of several turns, taken one after the other in every turn. The peers are torchmetrics (with
and without checking its arguments), netcal and scikit-learn; each row names the fastest of those that compute the same.
"extra" is what this package allocates at most beyond its inputs, in units of the probabilities. netcal cuts [lo, hi)
into bins and torchmetrics gives confidence 1 a bin of its own, so values differ in the last digits where samples lie on
edges. Evaluation: CIFAR-10 from stored predictions, the test set and 75 shifted versions with and without temperature,
and three OOD sets by every score of logits, 1,000 resamples each. --evaluate: one set of so many rows and classes, in a
file that is mapped into memory, without intervals; --ood-files: 10,000 x 10 test logits against so many files of 1,000.
Memory is the resident pages that no file backs (on Linux, resident less shared), less those at the start.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import regmixup as rm
from regmixup.predictions.store import file_name, load, save

Metric = Callable[[], object]


def fastest(candidates: dict[str, Metric], turns: int) -> dict[str, float]:
    """Return milliseconds by name, the best of several turns in which every candidate runs once."""
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(turns):
        for name, run in candidates.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - started))
    return best


def resident() -> float:
    """Return the megabytes the process holds now beside what it maps from files (Linux)."""
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_growth(run: Metric) -> float:
    """Return the peak growth in megabytes while `run` runs, sampled every millisecond; NaN where /proc is missing."""
    if not Path("/proc/self/statm").exists():
        run()
        return float("nan")
    start, seen, done = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(resident() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    done.set()
    watcher.join()
    return max(seen)


def compare(title: str, candidates: dict[str, Metric], turns: int) -> None:
    """Print one row: ours, the fastest peer, the ratio, and all peers. The first candidate is ours."""
    times = fastest(candidates, turns)
    (_, ours), *peers = times.items()
    name, other = min(peers, key=lambda peer: peer[1])
    listed = ", ".join(f"{peer} {value:.0f}" for peer, value in peers)
    print(f"{title:22}{ours:9.1f}{other:9.1f}  {other / ours:5.1f}x  {name:24}({listed})", flush=True)


def drawn(
    samples: int, classes: int, temperature: float = 1.0, *, seed: int = 0, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw float32 logits, and labels from their softmax at some temperature, so that accuracy is realistic."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.empty(samples, classes) if out is None else out
    labels = torch.empty(samples, dtype=torch.int64)
    for some in torch.arange(samples).split(max(1, 2**22 // classes)):
        logits[some] = 3 * torch.randn(len(some), classes, generator=generator)
        probs = (logits[some] / temperature).softmax(dim=1)
        labels[some] = torch.multinomial(probs, 1, generator=generator).squeeze(1)
    return logits, labels


def metrics(size: int, classes: int, turns: int) -> None:
    from netcal.metrics import ECE
    from sklearn.metrics import roc_auc_score
    from torchmetrics.functional.classification import binary_auroc, multiclass_calibration_error

    logits, labels = drawn(size, classes)
    probs = torch.empty_like(logits)
    for some in torch.arange(size).split(max(1, 2**22 // classes)):
        probs[some] = logits[some].softmax(dim=1)
    del logits
    arrays = probs.numpy(), labels.numpy()
    table = probs.numel() * probs.element_size() / 1e6
    ours: dict[str, Metric] = {
        "ece": lambda: rm.metrics.ece(probs, labels),
        "adaptive_ece interp": lambda: rm.metrics.adaptive_ece(probs, labels),
        "adaptive_ece split": lambda: rm.metrics.adaptive_ece(probs, labels, binning="split"),
    }
    extra = max(peak_growth(run) for run in ours.values())
    print(f"{size:,} x {classes} float32 probabilities ({table:.0f} MB); extra {extra / table:.2f} of them\n")
    print(f"{'metric':22}{'ours':>9}{'fastest':>9}  {'ratio':>6}")
    width = {
        f"torchmetrics{' unchecked' if not check else ''}": lambda check=check: multiclass_calibration_error(
            probs, labels, num_classes=classes, n_bins=15, validate_args=check
        )
        for check in (True, False)
    }
    compare("ece", {"ours": ours["ece"], **width, "netcal": lambda: ECE(15).measure(*arrays)}, turns)
    mass = {"netcal equal mass": lambda: ECE(15, equal_intervals=False).measure(*arrays)}
    for name in ("adaptive_ece interp", "adaptive_ece split"):
        compare(name, {"ours": ours[name], **mass}, turns)
    half = size // 2
    scores = torch.randn(2 * half, generator=torch.Generator().manual_seed(1))
    scores[half:] += 1
    positive = torch.arange(2 * half) // half
    squashed = scores.sigmoid()  # torchmetrics takes numbers in [0, 1]
    candidates: dict[str, Metric] = {
        "ours": lambda: rm.metrics.auroc(scores[:half], scores[half:]),
        "torchmetrics": lambda: binary_auroc(squashed, positive),
        "torchmetrics unchecked": lambda: binary_auroc(squashed, positive, validate_args=False),
        "scikit-learn": lambda: roc_auc_score(positive.numpy(), scores.numpy()),
    }
    compare(f"auroc {half:,} + {half:,}", candidates, turns)


def temperature(samples: int, classes: int) -> None:
    logits, labels = drawn(samples, classes, temperature=1.5)
    table = logits.numel() * logits.element_size() / 1e6
    started = time.perf_counter()
    extra = peak_growth(lambda: rm.posthoc.TemperatureScaling().fit(logits, labels))
    print(f"9,901 temperatures on {samples:,} x {classes:,} logits ({table:.0f} MB):", end=" ")
    print(f"{time.perf_counter() - started:.1f} s, {extra:.0f} MB beside them", flush=True)


def evaluation(samples: int, subsets: int) -> None:
    """Time a whole CIFAR-10 evaluation from files: load, fit a temperature, measure and resample everything."""
    names = ["cifar10/test", "cifar10/val-10", *(f"cifar10-c/c{i // 5}/{i % 5 + 1}" for i in range(subsets))]
    outside = ["cifar100/test", "svhn/test", "tiny-imagenet/val"]
    sizes = {"cifar10/val-10": samples // 2, "svhn/test": round(2.6032 * samples)}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / file_name(name) for name in (*names, *outside)}
        for seed, (name, path) in enumerate(paths.items()):
            logits, labels = drawn(sizes.get(name, samples), 10, temperature=1.5, seed=seed)
            save(rm.Predictions(logits, labels, dataset=name), path)
        started = time.perf_counter()
        found = {name: load(path) for name, path in paths.items()}
        test, validation, *shift = (found[name] for name in names)
        rows = rm.evaluate(test, validation=validation, shift=shift, ood=[found[name] for name in outside])
        seconds = time.perf_counter() - started
    print(f"evaluation of {samples:,} test images, {subsets} shifted sets and 3 OOD sets:", end=" ")
    print(f"{len(rows)} rows with intervals in {seconds:.1f} s")


def one_set(samples: int, classes: int) -> None:
    """Time the evaluation of a set that may be larger than memory: written in pieces, mapped, evaluated."""
    with tempfile.TemporaryDirectory() as folder:
        path, own = Path(folder) / "logits.npy", Path(folder) / "labels.npy"
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(samples, classes))
        np.save(own, drawn(samples, classes, temperature=1.5, out=torch.from_numpy(mapped))[1].numpy())
        del mapped
        started, worked = time.perf_counter(), time.process_time()
        extra = peak_growth(lambda: rm.evaluate(load(path, labels=own), bootstrap=None))
        seconds, busy = time.perf_counter() - started, time.process_time() - worked
        size = path.stat().st_size / 1e6
    print(f"evaluation of {samples:,} x {classes:,} logits ({size:.0f} MB), no intervals:", end=" ")
    print(f"{seconds:.1f} s ({busy:.1f} s of cores), {extra:.0f} MB beside the file", flush=True)


def many_files(count: int) -> None:
    """Time one test set against many OOD files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"set{i}.safetensors" for i in range(count)]
        for seed, path in enumerate(paths, 1):
            save(rm.Predictions(*drawn(1000, 10, seed=seed), dataset=path.stem), path)
        test = rm.Predictions(*drawn(10_000, 10, temperature=1.5), dataset="test")
        started, worked = time.perf_counter(), time.process_time()
        rows = rm.evaluate(test, ood=[load(path) for path in paths], bootstrap=None)
        seconds, busy = time.perf_counter() - started, time.process_time() - worked
    print(f"{count:,} OOD files of 1,000 x 10 logits, no intervals:", end=" ")
    print(f"{len(rows):,} rows in {seconds:.1f} s ({busy:.1f} s of cores)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="rows of the table of probabilities")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--subsets", type=int, default=75, help="shifted sets of the evaluation")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--full", action="store_true", help="also the temperature grid on 50,000 x 1,000 logits")
    parser.add_argument("--evaluate", type=int, nargs=2, metavar=("ROWS", "CLASSES"), help="evaluate one mapped file")
    parser.add_argument("--ood-files", type=int, default=0, help="evaluate this many OOD files")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="netcal")
    torch.set_num_threads(options.threads)
    if options.evaluate or options.ood_files:
        print(f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}")
        if options.evaluate:
            one_set(*options.evaluate)
        if options.ood_files:
            many_files(options.ood_files)
        return
    print(f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}; milliseconds\n")
    metrics(options.size, options.classes, options.turns)
    print()
    temperature(max(100, options.size // 100), 100)
    if options.full:
        temperature(50_000, 1000)
    evaluation(max(100, options.size // 100), options.subsets)


if __name__ == "__main__":
    main()
