"""Trainings of `advise`: copies of the images, what fits in the time, and a candidate trained and measured."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regmixup import data, metrics, predictions
from regmixup.advice.verdict import CANDIDATES, LEAST_FOLDS
from regmixup.cli.progress import LiveProgress
from regmixup.data.decode import EvalTransform, open_rgb, upright
from regmixup.data.folders import FolderSet
from regmixup.data.splits import generator_for
from regmixup.deployment.probe import Pace
from regmixup.metrics import scores
from regmixup.names import printable
from regmixup.training.config import choose_device
from regmixup.training.loading import reader
from regmixup.training.run import Run
from regmixup.training.train import train

if TYPE_CHECKING:
    from regmixup.advice import Plan

CORRUPTIONS, SEVERITY = ("gaussian_noise", "defocus_blur", "brightness", "jpeg_compression"), 3
"""The shift: one corruption of each kind, at a moderate severity."""
MOST_IMAGES, LEAST_CLASSES = 4000, 4
MARGIN = 1.15
"""Factor on the expected time of a training."""


class Experiment:
    """Train candidates as ordinary runs in `runs`, and measure them: a `Measure`."""

    def __init__(
        self,
        plan: Plan,
        runs: Path,
        device: str | torch.device | None = None,
        workers: int | None = None,
        progress: LiveProgress | None = None,
    ) -> None:
        self.plan, self.runs, self.progress = plan, runs, progress
        self.device = choose_device(device)
        # Small copies are decoded faster than worker processes start, unless a GPU waits for them.
        self.workers = workers if workers is not None or self.device.type != "cpu" else 0
        self.test_images = cache(self._test_images)

    def __call__(self, name: str, fold: int) -> dict[str, float]:
        sets, label = self.plan.sets(fold), f"fold {fold}, {CANDIDATES[name].label}"
        config = self.plan.config(name, fold, len(data.load(sets["train"], root=self.runs)))
        hooks = self.progress.hooks(label, config.total_epochs) if self.progress is not None else {}
        run = train(config, self.runs, root=self.runs, device=self.device, workers=self.workers, **hooks)
        return self._measure(run, sets, fold)

    def _measure(self, run: Run, sets: Mapping[str, str], fold: int) -> dict[str, float]:
        names = [sets[role] for role in ("test", "novel") if role in sets]
        clean, *novel = run.predict_all(names, root=self.runs, device=self.device, features=False)
        probs, labels = clean.logits.double().softmax(dim=1), clean.labels
        model = run.model(device=self.device)
        shifted = [
            metrics.accuracy(
                predictions.predict_images(model, images, labels, features=False).logits.softmax(dim=1), labels
            )
            for images in self.test_images(fold, run.transform())
        ]
        found = {name: getattr(metrics, name)(probs, labels) for name in ("accuracy", "nll", "ece")}
        found["shift"] = sum(shifted) / len(shifted)
        if novel:
            known, other = (scores.entropy(found.logits) for found in (clean, *novel))
            found["ood"] = metrics.auroc(known, other)
        return found

    def _test_images(self, fold: int, transform: EvalTransform) -> list[Tensor]:
        """Return the images of a fold under each corruption, the same for every candidate."""
        images = data.load(self.plan.sets(fold)["test"], root=self.runs)
        (whole,) = images.parts(reader(transform, (self.plan.size, self.plan.size)), size=len(images))
        return [
            data.corrupt(whole.images, name, severity=SEVERITY, generator=generator_for(0, "advise", name, fold))
            for name in CORRUPTIONS
        ]


class Scope(NamedTuple):
    """The scope that fits: folds, epochs of plain training (even), and seconds of a training with its evaluation."""

    folds: int
    epochs: int
    seconds: float


def fit(
    images: int, minutes: float, pace: Pace, *, most: int, folds: int | None, epochs: int | None, pretrained: bool
) -> Scope:
    """Choose folds and epochs: as many epochs as the images need, then as many folds as fit; else fewer epochs.

    The epochs are 20,000 / images, 10 to 60, or 8,000 / images, 4 to 30, from pretrained weights. If not even 5 folds
    fit, they are lowered to a quarter at least; then several calls are needed.
    """
    passes, low, high = (8000, 4, 30) if pretrained else (20000, 10, 60)
    full = _even(epochs or min(high, max(low, passes // images)))

    def seconds(count: int, folds: int) -> float:
        train, test = images * (folds - 1) / folds, images / folds
        return 1.5 + (count * train + 2 * len(CORRUPTIONS) * test) * pace.train

    def fits(count: int, folds: int) -> bool:
        return MARGIN * len(CANDIDATES) * folds * seconds(count, folds) <= 60 * minutes

    fewest = min(LEAST_FOLDS, most)
    chosen = folds or next((k for k in range(most, fewest, -1) if fits(full, k)), fewest)
    shortest = full if epochs else _even(max(low, full // 4))
    count = next((e for e in range(full, shortest, -2) if fits(e, chosen)), shortest)
    return Scope(chosen, count, seconds(count, chosen))


def _even(count: int) -> int:
    """Return the even number at or above a count: RegMixup has half the epochs."""
    return count + count % 2


def choose_files(source: FolderSet, digests: Sequence[str]) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Return for each class its files by content, and notes on what is not used."""
    files: dict[str, dict[str, str]] = {name: {} for name in source.classes}
    for path, label, digest in zip(source.paths, source.labels.tolist(), digests, strict=True):
        files[source.classes[label]].setdefault(digest, path)
    notes = []
    if few := [name for name, found in files.items() if len(found) < LEAST_FOLDS]:
        notes.append(f"classes with fewer than {LEAST_FOLDS} images are not used: {printable(', '.join(few))}")
    files = {name: found for name, found in files.items() if name not in few}
    if len(files) < 2:
        raise ValueError(
            f"photos must have at least two classes with {LEAST_FOLDS} different images each, beside those that are "
            f"kept for the test, found {len(files)} in {source.name}: add images"
        )
    share = MOST_IMAGES / sum(map(len, files.values()))
    if share < 1:
        notes.append(f"{100 * share:.0f} % of the images of every class are used, {MOST_IMAGES:,} in all")
        files = {c: dict(sorted(of.items())[: max(LEAST_FOLDS, round(share * len(of)))]) for c, of in files.items()}
    return files, tuple(notes)


def leave_out(classes: Sequence[str], folds: int) -> tuple[tuple[str, ...], ...]:
    """Return the classes that each fold leaves out: a fifth, in the order of the SHA-256 of their names, in turn."""
    if len(classes) < LEAST_CLASSES:
        return ()
    order = sorted(classes, key=lambda name: hashlib.sha256(os.fsencode(name)).digest())
    count = max(1, len(classes) // 5)
    turns = ([(fold * count + i) % len(order) for i in range(count)] for fold in range(folds))
    return tuple(tuple(sorted(order[i] for i in turn)) for turn in turns)


def copy_images(chosen: Mapping[str, Mapping[str, str]], folder: Path, side: int) -> None:
    """Copy images, upright, as PNG files with this shorter side, named by the content of the originals."""

    def copy(job: tuple[str, str, str]) -> None:
        name, digest, path = job
        target = folder / name / f"{digest[:20]}.png"
        if not target.is_file():
            image = upright(open_rgb(path))
            scale = side / min(image.size)
            image = image.resize((max(side, round(image.width * scale)), max(side, round(image.height * scale))))
            target.parent.mkdir(parents=True, exist_ok=True)
            image.save(target.with_suffix(".part"), format="png")
            target.with_suffix(".part").rename(target)

    jobs = [(name, digest, path) for name, files in chosen.items() for digest, path in files.items()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(copy, jobs))


def link_images(source: Path, target: Path) -> None:
    """Make a folder with the files of another one, as links where the file system has them."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.png"):
        if not (target / file.name).is_file():
            try:
                os.link(file, target / file.name)
            except OSError:
                shutil.copyfile(file, target / file.name)
