"""Random choices, the same on every machine: random streams, one by name for each purpose, and stratified splits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seed_for(seed: int, *purpose: str | int) -> int:
    """Return 63 bits of the SHA-256 of the seed and the purpose.

    >>> seed_for(0, "order", 3) == seed_for(0, "order", 3) != seed_for(0, "order", 4)
    True
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def reseed(device: torch.device, seed: int) -> None:
    """Seed torch's own generators, of the CPU and of the given kind of device.

    torch.manual_seed would seed those of every kind of device, which is slower.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def generator_for(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose. A stream is resumed by its seed and a position; no state is stored."""
    return torch.Generator().manual_seed(seed_for(seed, *purpose))


def stratified(labels: Tensor, fractions: tuple[float, ...], *, digests: Sequence[str] = ()) -> list[Tensor]:
    """Split indices so that every class is divided in the given fractions; return the parts, each sorted.

    Within a class, samples are ordered by the SHA-256 of "0:index" and cut at the rounded cumulative fractions, so the
    split depends on nothing but its arguments: no library's random generator is involved. Every part has a sample of
    each class that has as many.

    digests: a hash of each sample's content, to order by instead, so that neither names nor the order of files matter.
    Samples of equal content are kept together, also those of different classes, which follow the first of these.

    >>> [part.tolist() for part in stratified(torch.tensor([0, 0, 0, 0, 1, 1]), (0.5, 0.5))]
    [[2, 3, 4], [0, 1, 5]]
    >>> [part.tolist() for part in stratified(torch.zeros(4), (0.5, 0.5), digests=("d", "a", "c", "a"))]
    [[1, 3], [0, 2]]
    """
    keys = digests or [hashlib.sha256(f"0:{index}".encode()).hexdigest() for index in range(len(labels))]
    last = len(fractions) - 1
    classes: dict[int, dict[str, list[int]]] = {}
    for index, (label, key) in enumerate(zip(labels.tolist(), keys, strict=True)):
        classes.setdefault(label, {}).setdefault(key, []).append(index)
    part_of: dict[str, int] = {}
    for _, groups in sorted(classes.items()):
        free = sorted(key for key in groups if key not in part_of)
        images = sum(len(groups[key]) for key in free)
        cuts = [round(sum(fractions[: part + 1]) * images) for part in range(last + 1)]
        part = placed = 0
        for position, key in enumerate(free):
            # Each part takes one at least, and leaves one for each that follows.
            if position and part < last and (placed >= cuts[part] or len(free) - position <= last - part):
                part += 1
            part_of[key] = part
            placed += len(groups[key])
    parts: list[list[int]] = [[] for _ in fractions]
    for index, key in enumerate(keys):
        parts[part_of[key]].append(index)
    return [torch.tensor(part, dtype=torch.int64) for part in parts]
