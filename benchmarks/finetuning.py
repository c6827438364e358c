"""Measure fine-tuning from pretrained weights: plain training against RegMixup, and the speed of both on a GPU.

    python benchmarks/finetuning.py data DATA --root DATASETS --photographs FOLDER       once, on any machine
    python benchmarks/finetuning.py table DATA --init tf_efficientnet_lite0.pth --out runs.jsonl --jobs 6 --minutes 5
    python benchmarks/finetuning.py markdown runs.jsonl                                  the table again, from the file
    python benchmarks/finetuning.py throughput DATA                                      about 90 s on a GPU

data: writes what the others read, about 25 MB: the photographs (class folders, or train/ and val/ with class folders in
each, which are joined), and from DATASETS a few of CIFAR-100's test images, of SVHN's and of Tiny ImageNet's.

table: `photographs`, 5 folds, at 224 px; and `cifar100`, 5 disjoint train sets with 5 images of each class, tested on
20 others of each, enlarged to 128 px. For each of 5 seeds: dnn, dnn with twice the epochs (the compute of RegMixup,
which forwards every image twice), and regmixup. Everything is measured on images that had no part in training, without
temperature scaling; OOD are Tiny ImageNet's images for the photographs, SVHN's for CIFAR-100. A line of JSON is added
for every run; a run that is in the file already is skipped. Seed 0 of everything comes first, and no run starts after
--minutes. Processes use the GPU in turns, or at the same time where CUDA's MPS daemon has been started before.

throughput: images per second of `rm.train`'s own epochs, on images in GPU memory and on JPEG files, beside a bare loop
(bfloat16 autocast, channels-last, fused AdamW, images in GPU memory and not augmented), and of the loader alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from multiprocessing import get_context, parent_process, set_start_method
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn

import regmixup as rm
from regmixup.data.folders import class_folders, image_files
from regmixup.data.images import FolderSet, ImageSet
from regmixup.data.streaming import StreamingLoader
from regmixup.report.significance import resampled_difference
from regmixup.training.config import resolve
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine, cudnn, device_name, settings
from regmixup.training.loading import train_transform
from regmixup.training.loop import Training
from regmixup.training.run import Run
from regmixup.training.stopping import Stop

PIXELS = "pixels.npz"
SOURCES = ("cifar100/test", "svhn/test", "tiny-imagenet-64/val")
SETS, PER_SET, OOD = 5, 5, 500
"""Train sets of CIFAR-100, images of each class in one of them, and images of each other dataset."""
PER_CLASS = SETS * PER_SET + 20
"""Images of each class of CIFAR-100: 20 are in no train set."""
METHODS = {"dnn": ("dnn", 1), "dnn x2": ("dnn", 2), "regmixup": ("regmixup", 1)}
"""By name in the table: the method, and the factor of its epochs."""
SETTINGS = {
    "optimizer": "adamw", "lr": 1e-3, "min_lr": 0.0, "warmup_epochs": 1.0, "warmup_lr": 0.0, "cooldown_epochs": 0,
    "weight_decay": 0.05, "decay_on": "weights", "clip_norm": 1.0, "freeze": 2, "ema": 0.99,
    "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "interpolation": "bilinear", "crop_padding": 16,
}  # fmt: skip
COLUMNS = {
    "accuracy": ("accuracy", 100), "ece": ("ECE", 100), "nll": ("NLL", 1), "augrc": ("AUGRC by MSP x 1000", 1000),
    "failure_auroc": ("failure AUROC by MSP", 100), "ood_auroc": ("OOD AUROC by DS", 100),
}  # fmt: skip
"""Metrics by name: the head of the column, and the factor of what it shows."""


@dataclass(frozen=True)
class Task:
    """Images to fine-tune on. overlap: test images of a fold over its train images; 0 for disjoint train sets."""

    name: str
    ood: str
    epochs: int
    batch_size: int
    image_size: int
    folds: int = 5
    overlap: float = 0.0


TASKS = {
    "photographs": Task("photographs", "tiny", epochs=10, batch_size=32, image_size=224, overlap=0.25),
    "cifar100": Task("cifar100", "svhn", epochs=20, batch_size=50, image_size=128),
}


@dataclass(frozen=True)
class Job:
    """One run of the table. settings: what identifies how it is trained, besides the rest."""

    task: Task
    fold: int
    seed: int
    method: str
    settings: str
    engine: Engine = Engine()  # noqa: RUF009 (frozen)

    @property
    def key(self) -> dict[str, Any]:
        """Return what identifies its line in the file of runs."""
        own = {"task": self.task.name, "fold": self.fold, "seed": self.seed, "method": self.method}
        return {**own, "settings": self.settings}


# ---------------------------------------------------------------------------------------------------------------- data


def write_data(args: argparse.Namespace) -> None:
    """Write the photographs as one folder of classes, and the small images as one file."""
    target = args.data / "photographs"
    if target.exists():
        raise SystemExit(f"{target} is there already: delete it, or choose another folder")
    if args.tiny:
        write_noise(args.data)
        return
    parts = [part for part in ("train", "val") if (args.photographs / part).is_dir()] or [""]
    for part in parts:
        for name in class_folders(args.photographs / part):
            (target / name).mkdir(parents=True, exist_ok=True)
            for path in image_files(args.photographs / part / name):
                shutil.copy(path, target / name / f"{part}{Path(path).name}")
    cifar, svhn, tiny = (rm.data.load(name, root=args.root) for name in SOURCES)
    chosen = torch.cat([(cifar.labels == label).nonzero()[:PER_CLASS, 0] for label in range(len(cifar.classes))])
    shared = {tiny.classes.index(name) for name in class_folders(target) if name in tiny.classes}
    unlike = torch.tensor([place for place, label in enumerate(tiny.labels.tolist()) if label not in shared])
    np.savez_compressed(
        args.data / PIXELS,
        cifar100=cifar.images[chosen].numpy(),
        labels=cifar.labels[chosen].numpy(),
        svhn=svhn.images[:: len(svhn) // OOD][:OOD].numpy(),
        tiny=tiny.images[unlike[:: len(unlike) // OOD][:OOD]].numpy(),
    )
    print(f"wrote {args.data}: {len(image_files(target))} photographs, {len(chosen)} images of CIFAR-100")
    print(f"classes of Tiny ImageNet that the photographs show, left out: {len(shared)} of {len(tiny.classes)}")


def write_noise(folder: Path) -> None:
    """Write files of the same form that hold noise: two classes of photographs, three of CIFAR-100."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / "photographs" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    pixels = {name: rng.integers(0, 256, (3 * PER_CLASS, 3, 8, 8), dtype=np.uint8) for name in ("cifar100", "svhn")}
    labels = np.repeat(np.arange(3), PER_CLASS)
    np.savez_compressed(folder / PIXELS, **pixels, tiny=pixels["svhn"], labels=labels)


@cache
def enlarged(data: Path, name: str, size: int) -> ImageSet:
    """Return small images at another size (bicubic); only CIFAR-100's have labels."""
    with np.load(data / PIXELS) as arrays:
        pixels, labels = torch.from_numpy(arrays[name]), torch.from_numpy(arrays["labels"])
    parts = (nn.functional.interpolate(part.float(), (size, size), mode="bicubic") for part in pixels.split(500))
    images = torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
    if name != "cifar100":
        return ImageSet(images, torch.zeros(len(images), dtype=torch.int64), ("unlike",), name)
    return ImageSet(images, labels, tuple(str(label) for label in range(int(labels.max()) + 1)), name)


def small_part(data: Path, task: Task, fold: int) -> ImageSet:
    """Return the fold-th train set, from 1 on; for fold 0, what no train set has."""
    whole = enlarged(data, task.name, task.image_size)
    group = torch.arange(len(whole)) % PER_CLASS // PER_SET  # classes follow each other, PER_CLASS images of each
    return whole.select((group == fold - 1 if fold else group >= SETS).nonzero()[:, 0])


# --------------------------------------------------------------------------------------------------------------- table


def settings_for(*, files: bool) -> dict[str, Any]:
    """Return the settings of the table; files are cropped without padding."""
    return {name: value for name, value in SETTINGS.items() if not (files and name == "crop_padding")}


def execute(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """Train a run, predict what it has not seen, and return its metrics."""
    if args.device.type == "cuda":
        torch.set_num_threads(1)  # several of these processes share the cores with those that decode
    task, fold, data, started = job.task, job.fold, args.data, time.perf_counter()
    if task.name == "photographs":
        train_set, test_set = (f"folder:{task.name}/{part}-{fold}-of-{task.folds}" for part in ("without", "fold"))
    else:
        train_set, test_set = f"small-{task.name}/set{fold}", f"small-{task.name}/test"
        rm.data.register(train_set, partial(small_part, data, task, fold), role="train")
        rm.data.register(test_set, partial(small_part, data, task, 0))
    rm.data.register(f"enlarged-{task.ood}/ood", partial(enlarged, data, task.ood, task.image_size), role="ood")
    method, longer = METHODS[job.method]
    config = rm.configure(
        "imagenet-resnet50", method, train_set=train_set, network=args.network, init=args.init, seed=job.seed,
        epochs=longer * task.epochs, batch_size=task.batch_size, image_size=task.image_size,
        **settings_for(files=task.name == "photographs"),
    )  # fmt: skip
    here = {"root": data, "device": args.device}
    with tempfile.TemporaryDirectory() as runs:
        run = rm.train(config, runs, workers=args.decoders, engine=job.engine, **here)
        trained, record = time.perf_counter() - started, run.provenance()
        test, ood = run.predict_all([test_set, f"enlarged-{task.ood}/ood"], features=False, **here)
        metrics = measure(test.logits, test.labels, ood.logits)
    return {
        **job.key, "network": args.network, "epochs": config.epochs, "objective": repr(config.objective),
        **metrics, "test_images": len(test), "ood_images": len(ood),
        "overlap": task.overlap, "train_seconds": round(trained, 2), "seconds": round(time.perf_counter() - started, 2),
        "device": record["device"], "execution": record["execution"], "torch": torch.__version__,
        "init": record.get("init", {}).get("sha256", ""),
    }  # fmt: skip


def measure(logits: Tensor, labels: Tensor, unlike: Tensor) -> dict[str, float | None]:
    """Return the package's metrics; failure AUROC is none without an error."""
    probs, metrics = logits.double().softmax(1), rm.metrics
    correct, unsure = probs.argmax(1) == labels, rm.scores.max_probability(logits)
    mixed = bool(correct.any()) and not bool(correct.all())
    return {
        "accuracy": metrics.accuracy(probs, labels),
        "ece": metrics.ece(probs, labels),
        "nll": metrics.nll(probs, labels),
        "augrc": metrics.augrc(unsure, correct),
        "failure_auroc": metrics.failure_auroc(unsure, correct) if mixed else None,
        "ood_auroc": metrics.auroc(rm.scores.dempster_shafer(logits), rm.scores.dempster_shafer(unlike)),
    }


def planned(args: argparse.Namespace) -> list[Job]:
    """Return all runs, seed 0 of every fold and method first."""
    init = hashlib.sha256(Path(args.init).read_bytes()).hexdigest() if args.init else ""
    told = [SETTINGS, METHODS, {name: asdict(task) for name, task in TASKS.items()}, args.network, init]
    settings = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    return [
        Job(task, fold, seed, method, settings)
        for seed in range(args.seeds)
        for fold in range(1, args.folds + 1)
        for method in METHODS
        for name, task in TASKS.items()
        if name in args.tasks
    ]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a results file; a last one that was cut off is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    return records


def begin_process() -> None:
    """Fork the processes that decode (those of a spawned one would import torch anew), and end with the parent."""
    set_start_method("fork", force=True)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


class Queue:
    """The runs still to do and the file of those done, for one thread per process."""

    def __init__(self, jobs: list[Job], args: argparse.Namespace) -> None:
        self.args, self.until, self.lock = args, time.monotonic() + 60 * args.minutes, threading.Lock()
        done = read_records(args.out)
        self.jobs = [job for job in jobs if not any(job.key.items() <= record.items() for record in done)]
        self.total, self.failed = len(self.jobs), 0
        print(f"{len(jobs) - self.total} of {len(jobs)} runs are in {args.out} already", flush=True)

    def take(self, preferred: str) -> Job | None:
        """Return the next run, of the preferred task if one is left: cuDNN's search is made once for each shape."""
        with self.lock:
            if not self.jobs or time.monotonic() > self.until:
                return None
            job = next((job for job in self.jobs if job.task.name == preferred), self.jobs[0])
            self.jobs.remove(job)
            return job

    def add(self, job: Job, record: dict[str, Any] | None) -> None:
        """Write a finished run; none: it failed, and is tried once more, kernel by kernel."""
        with self.lock:
            left = f"{len(self.jobs)} not begun, {max(0, self.until - time.monotonic()):.0f} s to begin them"
            words = f"{job.task.name} fold {job.fold} seed {job.seed} {job.method}"
            if record is None:
                print(f"{words}: FAILED\n{traceback.format_exc()}", flush=True)
                if job.engine == Engine():
                    self.jobs.insert(0, replace(job, engine=Engine(compile="off", graphs="off")))
                else:
                    self.failed += 1
                return
            with self.args.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{words}: {record['accuracy']:.4f} in {record['seconds']:.1f} s ({left})", flush=True)

    def work(self, preferred: str) -> None:
        """Do one run after the other in a process of its own, a new one after a failure: CUDA's errors are final."""
        while True:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin_process) as process:
                while (job := self.take(preferred)) is not None:
                    try:
                        self.add(job, process.submit(execute, job, self.args).result())
                    except Exception:
                        self.add(job, None)
                        break
                else:
                    return


def table(args: argparse.Namespace) -> None:
    """Do what is missing, in several processes, and print the table."""
    queue, jobs = Queue(planned(args), args), args.jobs if args.jobs is not None else 0 if args.tiny else 6
    if jobs:
        # Two of three begin with the photographs, which must be decoded anew in every epoch.
        names = [args.tasks[-1] if number % 3 == 2 else args.tasks[0] for number in range(jobs)]
        names = names if jobs > 2 else [""] * jobs
        with ThreadPoolExecutor(jobs) as threads:
            list(threads.map(queue.work, names))
    else:
        while (job := queue.take("")) is not None:
            queue.add(job, execute(job, args))
    left, failed = len(queue.jobs), queue.failed
    print(f"{queue.total - left - failed} runs done, {failed} failed, {left} not begun\n")
    print(markdown(read_records(args.out)))


def markdown(records: list[dict[str, Any]]) -> str:
    """Return a table for every task: means, and paired differences with 95 % intervals."""
    lines = []
    records = [record for record in records if record["settings"] == records[-1]["settings"]]
    for name in TASKS:
        own = [record for record in records if record["task"] == name]
        if not own:
            continue
        found = {m: {(r["fold"], r["seed"]): r for r in own if r["method"] == m} for m in METHODS}
        heads = [title for title, _ in COLUMNS.values()]
        lines += [f"| {name} | runs | epochs | {' | '.join(heads)} | s per run |", "|" + "---|" * (len(heads) + 4)]
        for method, runs in found.items():
            if every := list(runs.values()):
                cells = [mean_of([r[metric] for r in every], factor) for metric, (_, factor) in COLUMNS.items()]
                seconds, epochs = statistics.fmean(r["train_seconds"] for r in every), every[0]["epochs"]
                lines.append(f"| {method} | {len(every)} | {epochs} | {' | '.join(cells)} | {seconds:.1f} |")
        for method, reference in (("regmixup", "dnn"), ("regmixup", "dnn x2"), ("dnn x2", "dnn")):
            if pairs := sorted(found[method].keys() & found[reference].keys()):
                cells = []
                for metric, (_, factor) in COLUMNS.items():
                    both = {pair: (found[method][pair][metric], found[reference][pair][metric]) for pair in pairs}
                    values = {pair: a - b for pair, (a, b) in both.items() if a is not None and b is not None}
                    cells.append(difference_of(values, factor, own[0]["overlap"]))
                lines.append(f"| {method} − {reference} | {len(pairs)} | | {' | '.join(cells)} | |")
        lines.append("")
    return "\n".join(lines)


def mean_of(values: list[float | None], factor: float) -> str:
    """Return a mean in words; how many values it has, where some are missing."""
    present = [factor * value for value in values if value is not None]
    if not present:
        return "–"
    short = f" (of {len(present)})" if len(present) < len(values) else ""
    return f"{statistics.fmean(present):.{3 if factor == 1 else 2}f}{short}"


def difference_of(values: dict[tuple[int, int], float], factor: float, overlap: float) -> str:
    """Return a mean difference with its interval over folds, in each of which seeds are averaged first.

    values: by (fold, seed). With d the differences of J folds, the squared standard error is (1 / J + overlap) var(d),
    with J - 1 degrees of freedom: the corrected resampled t-test (Nadeau and Bengio, 2003) for train sets that share
    images, Student's for disjoint ones.

    >>> difference_of({(1, 0): 0.01, (1, 1): 0.03, (2, 0): 0.0, (2, 1): 0.02, (3, 0): 0.06, (3, 1): 0.0}, 100, 0.5)
    '+2.00 [-1.93, +5.93]'
    """
    if not values:
        return "–"
    folds = sorted({fold for fold, _ in values})
    means = [statistics.fmean(v for (own, _), v in values.items() if own == fold) for fold in folds]
    digits = 3 if factor == 1 else 2
    shown = f"{factor * statistics.fmean(means):+.{digits}f}"
    if len(means) < 2:
        return shown
    low, high = resampled_difference(means, [0.0] * len(means), test_share=overlap).interval()
    return f"{shown} [{factor * low:+.{digits}f}, {factor * high:+.{digits}f}]"


# ---------------------------------------------------------------------------------------------------------- throughput


def seconds(action: Callable[[], object]) -> float:
    """Return how long a call takes, on the GPU too."""
    started = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


class Ours:
    """Epochs of `rm.train`'s own loop with the settings of the table, on images in memory or on files."""

    def __init__(self, network: str, method: str, dataset: Any, args: argparse.Namespace, stack: ExitStack) -> None:
        config = rm.configure(
            "imagenet-resnet50", method, network=network, epochs=10_000, batch_size=args.batch_size,
            image_size=args.size, **settings_for(files=isinstance(dataset, FolderSet)) | {"freeze": 0, "lr": 1e-5},
        )  # fmt: skip
        engine = Engine(compile=args.compile, checkpoint_minutes=600)
        run = Run(Path(stack.enter_context(tempfile.TemporaryDirectory())), resolve(config, args.device))
        stack.enter_context(settings(args.device, engine, run.config.precision))
        self.training = Training(run, dataset, args.device, Ranks(), engine, args.workers).resume()

    def __call__(self, epochs: int = 1) -> None:
        self.training.run_epochs(Stop(), until=self.training.position.epoch + epochs)


class Bare:
    """Epochs of the loop that one writes by hand, on the same images in GPU memory."""

    def __init__(self, network: str, method: str, dataset: ImageSet, args: argparse.Namespace) -> None:
        model = timm.create_model(network.removeprefix("timm/"), num_classes=len(dataset.classes))
        self.device, self.model = args.device, model.to(args.device, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.05, fused=True)
        self.images, self.labels = dataset.images.to(args.device), dataset.labels.to(args.device)
        self.mixes, self.batch_size = method == "regmixup", args.batch_size

    def __call__(self) -> None:
        with cudnn(benchmark=True):
            for index in torch.randperm(len(self.images), device=self.device).split(self.batch_size):
                x = self.images[index].contiguous(memory_format=torch.channels_last)
                self.step((x.float() / 255 - 0.5) / 0.5, self.labels[index])

    def step(self, x: Tensor, y: Tensor) -> None:
        """Take one update."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            if self.mixes:
                lam, partner = float(np.random.beta(10, 10)), torch.randperm(len(x), device=self.device)
                clean, mixed = self.model(torch.cat([x, torch.lerp(x[partner], x, lam)])).float().chunk(2)
                both = nn.functional.cross_entropy(mixed, y), nn.functional.cross_entropy(mixed, y[partner])
                loss = (nn.functional.cross_entropy(clean, y) + lam * both[0] + (1 - lam) * both[1]) / 2
            else:
                loss = nn.functional.cross_entropy(self.model(x).float(), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def throughput(args: argparse.Namespace) -> None:
    """Print the loader's rate, then the rates of training beside the bare loop's."""
    where = f"{device_name(args.device)}, torch {torch.__version__}, {os.cpu_count()} cores"
    print(f"{where}, batch {args.batch_size} at {args.size} px\n\n| files | workers | images/s |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        photographs = rm.data.load("folder:photographs", root=args.data)
        larger = enlarge_files(photographs, Path(folder), (500, 375))
        for what, files in (("photographs as they are", photographs), ("as 500 x 375 pixels", larger)):
            rate = loader_rate(files, args)
            print(f"| {what} | {args.workers} | {rate:,.0f} |", flush=True)
        heads = "| network | method | ours | bare | ours / bare | ours, from files |"
        print(f"\n{heads}\n|---|---|---|---|---|---|", flush=True)
        files = repeated(larger, args.images)
        for network in args.networks:
            for method in ("dnn", "regmixup"):
                try:
                    cells = " | ".join(rates(network, method, files, args))
                except Exception:
                    cells = traceback.format_exc()  # the others may still be measured
                print(f"| {network} | {method} | {cells} |", flush=True)


def rates(network: str, method: str, files: FolderSet, args: argparse.Namespace) -> list[str]:
    """Return images per second of ours, of the bare loop, their ratio, and ours from files; ours and bare in turns."""
    shape = (args.images, 3, args.size, args.size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    resident = ImageSet(images, torch.arange(args.images) % 10, tuple("0123456789"), "random")
    with ExitStack() as stack:
        loops = {"ours": Ours(network, method, resident, args, stack), "bare": Bare(network, method, resident, args)}
        for loop in loops.values():
            seconds(loop)  # the search for algorithms, and the capture of the step
        times = {name: [] for name in loops}
        for _ in range(args.rounds):
            for name, loop in loops.items():
                times[name].append(seconds(loop))
    ours, bare = (args.images / statistics.median(times[name]) for name in ("ours", "bare"))
    with ExitStack() as stack:
        streaming = Ours(network, method, files, args, stack)
        epochs = 1 + 2 * args.rounds  # in one call, as a run has them: the processes that decode start once
        streaming(epochs)
        # All epochs but the first together: one alone may find its images decoded during the one before.
        spent = sum(record["seconds"] for record in streaming.training.history[1:])
        from_files = args.images * (epochs - 1) / spent
    return [f"{ours:,.0f}", f"{bare:,.0f}", f"{ours / bare:.3f}", f"{from_files:,.0f}"]


def enlarge_files(files: FolderSet, folder: Path, size: tuple[int, int]) -> FolderSet:
    """Write each photograph once more, as large as ImageNet's usually are; return the new files."""

    def write(path: str) -> None:
        target = folder / Path(path).relative_to(files.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(target, "JPEG", quality=90)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, files.paths))
    return rm.data.load(f"folder:{folder}")


def repeated(files: FolderSet, count: int) -> FolderSet:
    """Return so many files, each several times."""
    return files.select(torch.arange(count) % len(files))


def loader_rate(files: FolderSet, args: argparse.Namespace) -> float:
    """Return the images per second of an epoch, the start of the workers included."""
    files = repeated(files, args.loaded)
    config = rm.configure("imagenet-resnet50", "dnn", image_size=args.size, interpolation="bilinear")
    loader = StreamingLoader(
        files.paths, files.labels, transform=train_transform(config, shape=None), shape=(3, args.size, args.size),
        batch_size=args.batch_size, seed=0, device=args.device, workers=args.workers, epochs=1,
    )  # fmt: skip
    return len(files) / seconds(lambda: deque(loader.epoch(0), maxlen=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["data", "table", "markdown", "throughput"])
    parser.add_argument("data", type=Path, help="the folder that `data` writes; for markdown the file of runs")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--tiny", action="store_true", help="noise, tiny networks: does the script still work?")
    parser.add_argument("--root", type=Path, help="data: where the datasets lie")
    parser.add_argument("--photographs", type=Path, help="data: a folder of class folders, or of train and val")
    parser.add_argument("--init", default="", help="table: the file of the pretrained weights")
    parser.add_argument("--network", default="timm/tf_efficientnet_lite0", help="table: the network")
    parser.add_argument("--out", type=Path, default=Path("finetuning.jsonl"), help="table: the file of runs")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folds", type=int, default=SETS, help="table: use the first so many folds")
    parser.add_argument("--jobs", type=int, help="table: processes that train, default 6; 0 for this one alone")
    parser.add_argument("--decoders", type=int, default=4, help="table: processes that decode files, for each of these")
    parser.add_argument("--minutes", type=float, default=5.0, help="table: no run begins after so many")
    parser.add_argument("--networks", nargs="+", default=["timm/resnet50", "timm/tf_efficientnet_lite0"])
    parser.add_argument("--batch-size", type=int, default=128, help="throughput: images per step")
    parser.add_argument("--size", type=int, default=224, help="throughput: side of the images")
    parser.add_argument("--images", type=int, default=2560, help="throughput: images of an epoch")
    parser.add_argument("--loaded", type=int, default=12_800, help="throughput: images that the loader decodes")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="throughput: the loader's")
    parser.add_argument("--rounds", type=int, default=3, help="throughput: timed epochs of each loop")
    parser.add_argument("--compile", choices=["off", "on"], default="off", help="throughput: compile ours (a minute)")
    args = parser.parse_args()
    if args.what == "data" and not args.tiny and (args.root is None or args.photographs is None):
        parser.error("data needs --root and --photographs, except with --tiny")
    if args.what in ("table", "throughput") and not (args.data / PIXELS).is_file():
        parser.error(f"{args.data} must be a folder that `finetuning.py data` wrote, found no {PIXELS} in it")
    if args.tiny:
        shrink(args)
    elif args.device.type == "cuda" and args.what in ("table", "throughput") and not torch.cuda.is_available():
        parser.error("needs a GPU, except with --tiny or --device cpu")
    elif args.what == "table" and not Path(args.init).is_file():
        parser.error(f"--init must be the file of the pretrained weights, got {args.init!r}")
    if args.what == "markdown":
        print(markdown(read_records(args.data)))
    else:
        {"data": write_data, "table": table, "throughput": throughput}[args.what](args)


def shrink(args: argparse.Namespace) -> None:
    """Make everything tiny, in this process."""
    args.device = torch.device("cpu")
    args.network, args.networks, args.workers = "small", ["timm/test_resnet"], 0
    args.decoders = 2 if args.jobs else 0
    args.seeds, args.folds, args.batch_size, args.size = 1, 1, 4, 32
    args.images, args.loaded, args.rounds, args.init = 8, 8, 1, ""
    TASKS["photographs"] = Task("photographs", "tiny", epochs=3, batch_size=4, image_size=16, folds=2, overlap=1.0)
    TASKS["cifar100"] = Task("cifar100", "svhn", epochs=3, batch_size=8, image_size=16)


if __name__ == "__main__":
    main()
