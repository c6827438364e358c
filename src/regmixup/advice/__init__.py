"""Advice on a folder of photographs: plain training against RegMixup, label smoothing and EMA, at equal compute.

    advice = rm.advise("~/photos", minutes=30)
    print(advice)

Every image of the folder, but for the part that `finetune` tests on, is in one of k folds. For each fold every
candidate is trained on the other folds, from the same weights, in the same order, and measured on it. In each fold some
classes are left out of training, and show whether the model knows what it does not know. `verdict` says what follows.

Equal compute: every training sends equally many images forward and backward. RegMixup adds a mixed image to every clean
one, so it gets half the epochs.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regmixup import networks, plugins
from regmixup.advice.trainings import (
    CORRUPTIONS,
    LEAST_CLASSES,
    MARGIN,
    SEVERITY,
    Experiment,
    choose_files,
    copy_images,
    fit,
    leave_out,
    link_images,
)
from regmixup.advice.verdict import CANDIDATES, METRICS, PLAIN, Goal, Verdict, judge, to_markdown
from regmixup.cli.progress import LiveProgress
from regmixup.config import check_count, check_number, decode
from regmixup.data.catalogue import find
from regmixup.data.folders import hash_files
from regmixup.data.reading import load_files
from regmixup.deployment.finetune import BACKBONE
from regmixup.deployment.finetune import RECIPE as FINETUNING
from regmixup.deployment.folder import expected_pixels, inspect, native_size, suggest_batch
from regmixup.deployment.probe import measure_pace
from regmixup.names import counted, printable
from regmixup.objectives import build
from regmixup.storage import is_stored, read_table, write_json, write_table, write_text
from regmixup.training.config import TrainConfig, choose_device, configure

MOST_FOLDS = 10
RECIPE = "imagenet-resnet50"
"""The recipe for folders of `regmixup train`, which a plan changes; its network is replaced, too."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trainings, fixed before the first comparison and stored in plan.json.

    folder: where the copies of the images and the verdict lie, in `runs`. photos: the dataset that they are copies of.
    images, classes: those used. chance: the share of the largest class among those trained on. notes: what was left
    out, in words. epochs: of plain training. left_out: for each fold, the classes that are not trained on. seconds: for
    one training and its evaluation, at the pace measured first. orient: whether photographs are rotated by their EXIF
    orientation, which plans of earlier versions did not; the copies are upright already.
    """

    folder: str
    path: str
    photos: str
    fingerprint: str
    images: int
    chance: float
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    network: str
    init: str
    size: int
    folds: int
    epochs: int
    lr: float
    goal: Goal
    seed: int
    left_out: tuple[tuple[str, ...], ...]
    seconds: float
    orient: bool = False

    @property
    def trainings(self) -> int:
        """The number of trainings of the whole plan."""
        return len(CANDIDATES) * self.folds

    @property
    def tested(self) -> int:
        """About how many images are tested, over all folds."""
        away = sum(map(len, self.left_out)) / max(1, len(self.left_out) * len(self.classes))
        return round(self.images * (1 - away))

    def sets(self, fold: int) -> dict[str, str]:
        """Return the datasets of a fold: train, test, and novel with the classes that are left out, if any."""
        known = f"folder:{self.folder}/{f'known-{fold}' if self.left_out else 'images'}"
        names = {"train": f"{known}/without-{fold}-of-{self.folds}", "test": f"{known}/fold-{fold}-of-{self.folds}"}
        return {**names, "novel": f"folder:{self.folder}/novel-{fold}"} if self.left_out else names

    def changes(self, name: str, images: int) -> dict[str, Any]:
        """Return what a candidate's training changes in the recipe for folders. images: in its train set."""
        candidate = CANDIDATES[name]
        # Pretrained weights are trained as `finetune` does, on the pixels that they expect.
        given = {"init": self.init} | FINETUNING | expected_pixels(self.network) if self.init else {}
        given |= {"ema": candidate.ema} if candidate.ema else {}
        given |= {"orient": True} if self.orient else {}
        return {
            "network": self.network, "cooldown_epochs": 0, "optimizer": "adamw", "weight_decay": 0.05, **given,
            "image_size": self.size, "color_jitter": 0.0, "epochs": self.epochs // candidate.cost,
            "warmup_epochs": 1.0, "batch_size": suggest_batch(images), "lr": self.lr,
        }  # fmt: skip

    def config(self, name: str, fold: int, images: int) -> TrainConfig:
        """Return the training of a candidate for a fold. images: in its train set."""
        objective = build(CANDIDATES[name].objective, **CANDIDATES[name].fields)
        return configure(
            RECIPE, "dnn", **self.changes(name, images), objective=objective, train_set=self.sets(fold)["train"],
            seed=self.seed + fold - 1,
        )  # fmt: skip

    def command(self, name: str) -> str:
        """Return the command that trains a candidate in the same way on the images of all folds."""
        candidate = CANDIDATES[name]
        flags = {"recipe": RECIPE, "train_set": self.photos, "method": candidate.method, **candidate.fields}
        flags |= self.changes(name, self.images)
        words = [word for key, value in flags.items() for word in (f"--{key.replace('_', '-')}", *_words(value))]
        return shlex.join(["regmixup", "train", *words, *plugins.flags()])

    def describe(self) -> str:
        """Return lines about what is compared, at which cost, and by which rule."""
        names = ", ".join(candidate.label for candidate in CANDIDATES.values())
        others, half = self.epochs, self.epochs // 2
        ood = "; ".join(f"fold {i}: {printable(', '.join(c))}" for i, c in enumerate(self.left_out, 1))
        return "\n".join([
            f"photos      {counted(self.images, 'image')} of {counted(len(self.classes), 'class')} of {self.photos}",
            *(f"note        {note}" for note in self.notes),
            f"candidates  {names}",
            f"network     {self.network} from {self.init or 'random'} weights, whole, {self.size} pixels, AdamW",
            f"compute     equal: every training sends equally many images forward and backward; RegMixup, with a mixed "
            f"image for every clean one, has {counted(half, 'epoch')}, all others {others}",
            f"folds       {self.folds}; each is measured once with every candidate trained on the others",
            f"left out    {ood or f'no class: OOD needs {LEAST_CLASSES} classes, found {len(self.classes)}'}",
            f"shift       {', '.join(CORRUPTIONS)} at severity {SEVERITY}",
            f"rule        {METRICS[self.goal].label} decides: a candidate is recommended if its interval (corrected "
            f"resampled t, 95 % for all {len(CANDIDATES) - 1} candidates together) is better than plain training, "
            f"and only when all {self.folds} folds are done",
        ])  # fmt: skip

    def scope(self, runs: str | Path, seconds: float) -> str:
        """Return a line about how many trainings there are, are done, and fit in so many seconds."""
        record = Record.read(Path(runs) / self.folder)
        each, left = record.expected(self), self.trainings - record.done
        fitting = min(left, max(0, int(seconds / (MARGIN * each))))
        return (
            f"pace        about {each:.0f} s a training, as measured: {self.trainings} trainings ({len(CANDIDATES)} "
            f"candidates x {self.folds} folds) take about {self.trainings * each / 60:.0f} min; {record.done} are "
            f"done, {fitting} of the other {left} fit now"
        )


def _words(value: object) -> list[str]:
    """Return a value as words of the command line, from which the same value is read; none for a flag that is on.

    >>> _words((0.48145466, 1e-3, 1.0)), _words("adamw"), _words(True)
    (['0.48145466', '0.001', '1'], ['adamw'], [])
    """
    if value is True:
        return []
    values = value if isinstance(value, tuple) else (value,)
    return [short if isinstance(v, float) and float(short := f"{v:g}") == v else str(v) for v in values]


@dataclass(frozen=True)
class Advice:
    """The verdict so far. done: trainings that are finished. seconds_left: expected for the others. page: Markdown."""

    plan: Plan
    verdict: Verdict
    done: int
    seconds_left: float
    page: Path

    @property
    def command(self) -> str:
        """Return the command that trains as recommended, plainly where nothing is; "" while it is undecided."""
        verdict = self.verdict
        return "" if verdict.decision == "undecided" else self.plan.command(verdict.choice or PLAIN)

    def __str__(self) -> str:
        lines = list(self.verdict.sentences)
        if left := self.plan.trainings - self.done:
            lines.append(f"{left} of {self.plan.trainings} trainings are left, about {self.seconds_left / 60:.0f} min")
        return "\n".join([*lines, *filter(None, [self.command])])


Measure = Callable[[str, int], Mapping[str, float]]
"""Train a candidate for a fold, both given, and return its metrics by name."""


@dataclass(frozen=True)
class Request:
    """A request to `advise`; the fields are the flags of `regmixup advise`."""

    photos: str | Path
    """A folder of class folders, or one with train/; its test part is not touched."""
    minutes: float = 30.0
    """Start no training that would not end within so many minutes, judged by the pace."""
    goal: Goal = "accuracy"
    """The metric that decides: accuracy, nll, ece, shift (accuracy under corruptions), ood (AUROC of classes that were
    left out)."""
    backbone: str = ""
    """Network, see `regmixup list networks`; default: small, or with --init the one that `finetune` takes."""
    init: str = ""
    """Weights to start from: timm, or the path of a file; default: random ones."""
    size: int | None = None
    """Side of the images; default: at most 64, with --init 128."""
    folds: int | None = None
    """Folds, at least 5 for a verdict; default: as many as fit, 5 to 10."""
    epochs: int | None = None
    """Epochs of plain training, and half as many of RegMixup; default: by the number of images and the time."""
    seed: int = 0
    """Decides initialisation, data order, augmentation and mixing; every fold has its own, shared by the candidates."""
    runs: str | Path = "runs"
    """Folder for run folders, and for the folder with the verdict."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    workers: int | None = None
    """Processes that decode image files; default: none on a CPU."""

    def check(self) -> None:
        """Raise unless the values are in their ranges."""
        check_number("minutes", self.minutes, above=0)
        check_count("seed", self.seed, least=0)
        for name, least in (("folds", 2), ("epochs", 2), ("size", 16)):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, least=least)
        if self.goal not in METRICS:
            raise ValueError(f"goal must be one of {', '.join(METRICS)}, got {self.goal!r}")
        networks.check_network(self.network)

    @property
    def network(self) -> str:
        """The network that is trained."""
        return self.backbone or (BACKBONE if self.init else "small")


def advise(
    photos: str | Path,
    minutes: float = 30.0,
    *,
    runs: str | Path = "runs",
    goal: Goal = "accuracy",
    backbone: str = "",
    init: str = "",
    size: int | None = None,
    folds: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    workers: int | None = None,
) -> Advice:
    """Return what to train a folder of photographs with, as far as it can be told in so many minutes.

    photos: a folder of class folders, or one with train/; its test part is not touched. goal: the metric that decides,
    one of accuracy, nll, ece, shift (accuracy under corruptions), ood (AUROC of left-out classes).
    backbone: any network; default, small, or with `init` the one that `finetune` takes. init: weights to start from.
    size: side of the images; default, at most 64, or 128 with `init`. folds, epochs: of the plan; by default what fits.
    The rest is that of `rm.train`. Calling it again goes on with the same plan, for so many minutes.
    """
    end, where = time.monotonic() + 60 * minutes, None if device is None else str(device)
    request = Request(photos, minutes, goal, backbone, init, size, folds, epochs, seed, runs, where, workers)
    plan = make_plan(request)
    return carry_out(plan, Experiment(plan, Path(runs), where, workers), runs, end=end)


def make_plan(request: Request) -> Plan:
    """Return the plan that an earlier call has stored, or make one: copy the images, measure the pace, choose folds."""
    request.check()
    network, init, goal, runs = request.network, request.init, request.goal, request.runs
    found = inspect(request.photos)
    size = request.size or min(max(found.side, 32), 128 if init else 64, max(native_size(network), 64))
    part = find(found.train).part
    name = part.of if part else found.train
    source = load_files(name)
    digests = source.digests or hash_files(source)
    content = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    asked = [str(found.path), network, init, size, goal, request.folds, request.epochs, request.seed]
    asked += [FINETUNING | expected_pixels(network)] if init else []  # so that a plan is always carried out in one way
    key = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
    folder = Path(runs) / f"advise-{found.path.name}-{key}"
    if is_stored(folder / "plan.json"):
        plan = decode(Plan, read_table(folder / "plan.json"), str(folder / "plan.json"))
        if plan.fingerprint != content:
            raise ValueError(f"{found.path} has changed since {folder} was planned: delete that folder to plan anew")
        return plan
    chosen, notes = choose_files(source, digests)
    classes, counts = tuple(chosen), [len(files) for files in chosen.values()]
    if request.folds is not None and request.folds > min(counts):
        raise ValueError(f"folds must be at most {min(counts)}, the images of the smallest class, got {request.folds}")
    copy_images(chosen, folder / "images", round(size * 8 / 7))
    copies = load_files(f"folder:{folder.absolute()}/images")
    config = configure(RECIPE, "dnn", network=network, image_size=size, color_jitter=0.0, train_set=copies.name)
    scope = fit(
        len(copies), request.minutes, measure_pace(config, copies, choose_device(request.device), request.minutes),
        most=min(MOST_FOLDS, *counts), folds=request.folds, epochs=request.epochs, pretrained=bool(init),
    )  # fmt: skip
    left_out = leave_out(classes, scope.folds)
    for fold, novel in enumerate(left_out, 1):
        for c in classes:
            link_images(folder / "images" / c, folder / f"{'novel' if c in novel else 'known'}-{fold}" / c)
    away = len(left_out[0]) / len(classes) if left_out else 0.0
    plan = Plan(
        folder=folder.name, path=str(found.path), photos=name, fingerprint=content, images=len(copies),
        chance=max(counts) / (len(copies) * (1 - away)), classes=classes, notes=notes, network=network, init=init,
        size=size, folds=scope.folds, epochs=scope.epochs, lr=1e-3 if init else 3e-3, goal=goal, seed=request.seed,
        left_out=left_out, seconds=scope.seconds, orient=True,
    )  # fmt: skip
    write_table(folder / "plan.json", asdict(plan))
    return plan


def carry_out(
    plan: Plan, measure: Measure, runs: str | Path, *, end: float, progress: LiveProgress | None = None
) -> Advice:
    """Train fold after fold until the plan is done or the next training would not end in time; then write the verdict.

    end: on the clock of `time.monotonic`. Values that an earlier call has stored are read, not measured again.
    """
    folder = Path(runs) / plan.folder
    record = Record.read(folder)
    for fold, name in product(range(1, plan.folds + 1), CANDIDATES):
        if fold in record.values[name]:
            continue
        begun = time.monotonic()
        if begun + MARGIN * record.expected(plan) > end:
            break
        found = dict(measure(name, fold))
        record.values[name][fold] = found
        record.seconds.append(time.monotonic() - begun)
        write_table(folder / "values.json", asdict(record))
        if progress is not None:
            shown = ", ".join(f"{METRICS[metric].label} {value:.3f}" for metric, value in found.items())
            progress.end(f"fold {fold}, {CANDIDATES[name].label}", shown)
    verdict = judge(record.values, goal=plan.goal, planned=plan.folds, images=plan.tested, chance=plan.chance)
    left = plan.trainings - record.done
    advice = Advice(plan, verdict, record.done, left * record.expected(plan), folder / "advice.md")
    write_text(advice.page, to_markdown(verdict, str(advice), plan.describe()))
    write_json(folder / "advice.json", {"command": advice.command, "done": record.done, **asdict(verdict)})
    return advice


@dataclass(frozen=True)
class Record:
    """The measurements: of every candidate, for each fold, its metrics; and the seconds that each training took."""

    values: dict[str, dict[int, Mapping[str, float]]]
    seconds: list[float]

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Return what earlier calls have stored; nothing if there were none."""
        path = folder / "values.json"
        found = read_table(path) if is_stored(path) else {"values": {}, "seconds": []}
        values = {name: {int(fold): of for fold, of in found["values"].get(name, {}).items()} for name in CANDIDATES}
        return cls(values, found["seconds"])

    @property
    def done(self) -> int:
        """The number of trainings that are measured."""
        return sum(map(len, self.values.values()))

    def expected(self, plan: Plan) -> float:
        """Return the seconds of the next training: the median of the last ones, at first by the pace of the plan."""
        return median(self.seconds[-len(CANDIDATES) :]) if self.seconds else plan.seconds
