"""Stratified splits that are the same on every machine, and the file that pins one."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from regmixup.storage import read_json, write_text


def stratified(labels: Tensor, fractions: tuple[float, ...], *, seed: int = 0) -> list[Tensor]:
    """Split indices so that every class is divided in the given fractions; return the parts, each sorted.

    Within a class, samples are ordered by the SHA-256 of "seed:index" and cut at the rounded cumulative fractions,
    so the split depends on nothing but its arguments: no library's random generator is involved.

    >>> [part.tolist() for part in stratified(torch.tensor([0, 0, 0, 0, 1, 1]), (0.5, 0.5))]
    [[2, 3, 4], [0, 1, 5]]
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) <= 0:
        raise ValueError(f"fractions must be positive and sum to 1, got {fractions}")
    parts: list[list[int]] = [[] for _ in fractions]
    classes: dict[int, list[int]] = {}
    for index, label in enumerate(labels.tolist()):
        classes.setdefault(label, []).append(index)
    for members in classes.values():
        members.sort(key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())
        start, cumulative = 0, 0.0
        for part, fraction in zip(parts, fractions, strict=True):
            cumulative += fraction
            stop = round(cumulative * len(members))
            part += members[start:stop]
            start = stop
    return [torch.tensor(sorted(part), dtype=torch.int64) for part in parts]


def index_sha256(parts: list[Tensor]) -> str:
    """Return the SHA-256 of the indices, part by part, as little-endian 64-bit integers."""
    return hashlib.sha256(b"".join(part.numpy().astype("<i8").tobytes() for part in parts)).hexdigest()


def split_indices(
    labels: Tensor, fractions: tuple[float, ...], seed: int = 0, store: Path | None = None
) -> list[Tensor]:
    """Return the `stratified` split, pinned by a file: written the first time, and compared with from then on.

    store: the JSON file, with the split's parts and their hash; None pins nothing. A folder that cannot be written to
    is no error, since the split does not depend on the file.
    """
    parts = stratified(labels, fractions, seed=seed)
    if store is None:
        return parts
    pinned = {
        "fractions": list(fractions),
        "seed": seed,
        "sha256": index_sha256(parts),
        "parts": [part.tolist() for part in parts],
    }
    if store.is_file():
        found = read_json(store)
        for key, expected in pinned.items():
            if not isinstance(found, dict) or found.get(key) != expected:
                value = found.get(key) if isinstance(found, dict) else found
                raise ValueError(
                    f"{store} pins another split: expected {key} {str(expected)[:80]}, found {str(value)[:80]}. "
                    "Either the labels or the file changed; delete the file to pin the split anew"
                )
    else:
        with suppress(OSError):
            write_text(store, json.dumps(pinned) + "\n")
    return parts
