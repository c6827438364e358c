"""Stratified splits that are the same on every machine."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def stratified(labels: Tensor, fractions: tuple[float, ...], *, seed: int = 0) -> list[Tensor]:
    """Split indices so that every class is divided in the given fractions; each part sorted.

    Within a class, samples are ordered by the SHA-256 of "seed:index" and cut at the rounded cumulative fractions,
    so the split depends on nothing but its arguments: no library's random generator is involved.

    >>> [part.tolist() for part in stratified(torch.tensor([0, 0, 0, 0, 1, 1]), (0.5, 0.5))]
    [[2, 3, 4], [0, 1, 5]]
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) <= 0:
        raise ValueError(f"fractions must be positive and sum to 1, got {fractions}")
    parts: list[list[int]] = [[] for _ in fractions]
    for label in sorted(set(labels.tolist())):
        members = (labels == label).nonzero().flatten().tolist()
        members.sort(key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())
        start, cumulative = 0, 0.0
        for part, fraction in zip(parts, fractions, strict=True):
            cumulative += fraction
            stop = round(cumulative * len(members))
            part += members[start:stop]
            start = stop
    return [torch.tensor(sorted(part), dtype=torch.int64) for part in parts]
