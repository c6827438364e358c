"""Measure the memory of a long training: RegMixup on digits, two images a step, a checkpoint after every epoch.

    python benchmarks/soak.py [--steps 10000] [--device cuda]

Prints the memory of the process (and what is allocated on the GPU) a fifth of the way along and at the end, and how
much it grew in between; exits with 1 if that is more than 10 MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import regmixup as rm

EPOCH = 225
ALLOWED = 10.0


class Memory(NamedTuple):
    """After so many steps, in MB."""

    steps: int
    process: float
    device: float


def megabytes() -> float:
    """Return the resident memory of this process; on Linux without that of files, which comes and goes."""
    try:
        resident, of_files = map(int, Path("/proc/self/statm").read_text().split()[1:3])
        return (resident - of_files) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except FileNotFoundError:  # not Linux
        return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())])) / 1e3


def soak(steps: int, device: torch.device) -> list[Memory]:
    """Train for so many steps, in whole epochs, and record the memory every fifty steps and whenever a step is slow."""
    found = []

    def look(record: dict[str, Any]) -> None:
        allocated = torch.cuda.memory_allocated(device) / 1e6 if device.type == "cuda" else 0.0
        found.append(Memory((record["epoch"] - 1) * EPOCH + record["step"], megabytes(), allocated))

    config = rm.configure("digits", "regmixup", batch_size=2, epochs=-(-steps // EPOCH), lr=1e-3)
    with tempfile.TemporaryDirectory() as runs:
        rm.train(config, runs, device=device, on_step=look)
    return found


def growth(found: list[Memory]) -> Memory:
    """Return the growth from the peak of the first fifth of the steps to the peak of the last fifth."""
    steps = found[-1].steps
    early = [memory for memory in found if memory.steps <= max(steps / 5, found[0].steps)]
    late = [memory for memory in found if memory.steps >= steps * 4 / 5]
    process, on_device = (max(m[i] for m in late) - max(m[i] for m in early) for i in (1, 2))
    return Memory(steps - early[-1].steps, process, on_device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    started = time.perf_counter()
    found = soak(args.steps, torch.device(args.device))
    for memory in (next(memory for memory in found if memory.steps >= found[-1].steps / 5), found[-1]):
        print(f"{memory.steps:>6} steps: process {memory.process:.1f} MB, device {memory.device:.1f} MB")
    grown = growth(found)
    seconds = time.perf_counter() - started
    print(f"growth over {grown.steps} steps: {grown.process:+.1f} MB, device {grown.device:+.1f} MB; {seconds:.0f} s")
    return int(max(grown.process, grown.device) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
