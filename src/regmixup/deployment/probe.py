"""The linear probe on stored features of a frozen backbone, and the plan: what fits in a time at the measured pace.

The probe is logistic regression: with the features z of the train images, standardised,

    W, b = argmin  mean_i w_(y_i) CE(W z_i + b, y_i) + decay / 2 ||W||^2,

by L-BFGS on all images at once. The decay is the one of a few with the best validation accuracy. Features are computed
once, without augmentation; the standardisation is folded into W and b, so that the result is an ordinary linear head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.data.decode import decode_all, open_rgb
from regmixup.data.folders import FolderSet
from regmixup.data.images import labels_among
from regmixup.deployment.folder import PASSES, Advance, PhotoFolder, Settings
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast
from regmixup.storage import is_stored, read_table, write_table
from regmixup.training.config import TrainConfig, resolve
from regmixup.training.loading import evaluation_transform, reader, train_transform
from regmixup.training.run import Run

FEWEST_EPOCHS = 5
"""Epochs for which a smaller image size is accepted."""
_SMALLEST, _STEP = 96, 32
_SHARE_OF_PROBE, _MARGIN = 0.3, 0.85
"""Largest share of the time for the probe's features, and the share of the rest that is planned for."""
_MEASURING = 0.1
"""Share of the time after which nothing more is measured."""
_OVERHEAD = 15.0
"""Seconds for what is not measured: starting loaders, fitting the probe, the page."""
DECAYS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Tried from the strongest on, each from the solution of the one before."""
_BATCH = 64
_TRIED = 8
"""Images of a measured step."""
_REPEATS, _ENOUGH = 3, 8.0
"""Most times that a step is measured, and most seconds after which it is measured no more."""
_DOUBLE = 2**24
"""Most numbers that are fitted in float64."""


class Features(NamedTuple):
    """Features (N, D) of images and their labels (N,), on the CPU."""

    values: Tensor
    labels: Tensor


@dataclass(frozen=True)
class ProbeHead:
    """A linear head: weight (K, D), bias (K,), fitted with this decay; accuracy on the validation images."""

    weight: Tensor
    bias: Tensor
    decay: float
    accuracy: float


@torch.no_grad()
def compute_features(
    model: Classifier,
    images: FolderSet,
    config: TrainConfig,
    classes: Sequence[str],
    advance: Callable[[int], object] = lambda _: None,
) -> Features:
    """Return the features of image files as evaluation sees them. classes: those of the model, by name.

    advance: called with the number of images of every batch when it is done.
    """
    device = next(model.parameters()).device
    read = reader(evaluation_transform(config, files=True), (config.image_size, config.image_size))
    found = []
    model.eval()
    for part in images.parts(read, size=_BATCH):
        with autocast(config.precision, device):
            found.append(model.features(part.images.to(device)).float().cpu())
        advance(len(part))
    return Features(torch.cat(found), labels_among(images.classes, classes)[images.labels])


def fit_probe(
    train: Features,
    validation: Features,
    num_classes: int,
    weight: Sequence[float] | None = None,
    advance: Advance = lambda *_: None,
) -> ProbeHead:
    """Fit a linear head on features; of several decays, the one with the best validation accuracy, then NLL.

    weight: one per class, for the loss of the train images. advance: called after each decay, which sees all of them.

    >>> x = torch.tensor([[-1.0, 0.0], [-2.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    >>> found = fit_probe(Features(x, torch.tensor([0, 0, 1, 1])), Features(x, torch.tensor([0, 0, 1, 1])), 2)
    >>> found.accuracy, (x @ found.weight.T + found.bias).argmax(dim=1).tolist()
    (1.0, [0, 0, 1, 1])
    """
    dtype = torch.float64 if train.values.numel() <= _DOUBLE else torch.float32
    mean, std = train.values.mean(dim=0).to(dtype), train.values.std(dim=0, correction=0).to(dtype)
    # A feature that never changes has no information, and dividing by its deviation would blow up new values.
    scale = torch.where(std > 1e-6 * (1 + mean.abs()), 1 / std.clamp_min(1e-12), torch.zeros_like(std))
    z, z_val = ((part.values.to(dtype) - mean) * scale for part in (train, validation))
    w = nn.Parameter(z.new_zeros(num_classes, z.shape[1]))
    b = nn.Parameter(z.new_zeros(num_classes))
    class_weight = None if weight is None else torch.tensor(weight, dtype=dtype)
    best: tuple[float, float] | None = None
    part, count = partial(advance, "probe"), len(train.labels)
    part(0, len(DECAYS) * count)
    for decay in DECAYS:
        _minimise(w, b, z, train.labels, decay, class_weight)
        logits = z_val @ w.detach().T + b.detach()
        accuracy = float((logits.argmax(dim=1) == validation.labels).double().mean())
        rank = accuracy, -float(F.cross_entropy(logits, validation.labels))
        if best is None or rank > best:
            best, folded = rank, w.detach() * scale
            head = ProbeHead(folded.float(), (b.detach() - folded @ mean).float(), decay, accuracy)
        part(count, len(DECAYS) * count)
    return head


def _minimise(w: nn.Parameter, b: nn.Parameter, z: Tensor, y: Tensor, decay: float, weight: Tensor | None) -> None:
    """Minimise the regularised cross-entropy, in place."""
    optimizer = torch.optim.LBFGS([w, b], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(z @ w.T + b, y, reduction="none")
        if weight is not None:
            loss = loss * weight[y]
        loss = loss.mean() + decay / 2 * w.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


class Pace(NamedTuple):
    """Seconds that an image takes at one size: through the backbone, and in a training step; decoding included."""

    forward: float
    train: float


def measure_pace(
    config: TrainConfig, images: FolderSet, device: torch.device, minutes: float, advance: Advance = lambda *_: None
) -> Pace:
    """Measure a training on a few of its images, which takes some seconds; random weights take as long as any.

    minutes: the time for everything, of which this should take a small share. advance: called after each of three
    parts: decoding, forward passes and training steps.
    On a CPU, decoding competes with the network for the same cores; beside an accelerator, the slower one counts.
    """
    config, count = resolve(config, device), min(_TRIED, len(images))
    part = partial(advance, f"pace at {config.image_size} pixels")
    part(0, 3 * count)
    with torch.random.fork_rng([]):
        shape = (3, config.image_size, config.image_size)
        model = Run(Path(), config).build(num_classes=len(images.classes), input_shape=shape).to(device)
    chosen = torch.arange(count) * len(images) // count
    transform = train_transform(images, config).build()
    begun = time.perf_counter()
    x = decode_all([images.paths[i] for i in chosen.tolist()], lambda file: transform(open_rgb(file))).to(device)
    decoding = (time.perf_counter() - begun) / count
    part(count, 3 * count)
    y = images.labels[chosen].to(device)

    def forward() -> None:
        with torch.no_grad(), autocast(config.precision, device):
            model.eval().features(x)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with autocast(config.precision, device):
            loss = config.objective(model.train(), x, y, generator=torch.Generator().manual_seed(0)).loss
        loss.backward()

    enough = min(_ENOUGH, _MEASURING * 60 * minutes / 2)
    times = []
    for function in (forward, step):
        times.append(_seconds(function, device, enough) / count)
        part(count, 3 * count)
    if device.type == "cpu":
        return Pace(*(seconds + decoding for seconds in times))
    return Pace(*(max(seconds, 2 * decoding) for seconds in times))


def _seconds(function: Callable[[], None], device: torch.device, enough: float) -> float:
    """Return how long a call takes: the shortest of a few, as the first one and what else runs here only add to it."""
    times: list[float] = []
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda _: None
    while len(times) < _REPEATS and sum(times) < enough:
        wait(device)
        begun = time.perf_counter()
        function()
        wait(device)
        times.append(time.perf_counter() - begun)
    return min(times)


@dataclass(frozen=True)
class Plan:
    """The plan that the measured pace allows: the image size of the probe, image size and epochs of fine-tuning.

    paces: by size, seconds per image. wanted: the epochs that the number of images suggests.
    """

    probe_size: int
    size: int
    epochs: int
    wanted: int
    paces: dict[int, Pace]

    def finishing(self, photos: PhotoFolder) -> float:
        """Return the seconds for what follows training: validation and test images, and the page."""
        rest = sum(photos.sizes.values()) - photos.sizes[photos.train]
        return rest * _assumed(self.paces, self.size).forward + _OVERHEAD / 2

    def probing(self, photos: PhotoFolder) -> float:
        """Return the seconds for the probe, with its validation and test; 0 where no pace was measured."""
        pace = self.paces.get(self.probe_size, Pace(0.0, 0.0))
        return (sum(photos.sizes.values()) + photos.sizes[photos.validation]) * pace.forward

    def describe(self, num_train: int, minutes: float, *, given: bool) -> str:
        """Return it in two lines. num_train: images of the train part. given: whether the epochs were asked for."""
        speed = ", ".join(f"{1 / pace.train:.1f} at {size} pixels" for size, pace in self.paces.items())
        size = self.size if self.epochs else self.probe_size
        probe = f", the probe at {self.probe_size}" if self.probe_size != size else ""
        source = f"measured images/s in training: {speed}" if speed else "given"
        limit = f"{minutes:g} minute" + "s" * (minutes != 1)
        why = f"{PASSES:,} / {num_train:,} train images, within 3 to 30"
        if self.wanted == 0:
            epochs = "0 (given): the linear probe is the model"
        elif self.epochs == 0:
            kept = f"{_OVERHEAD:.0f} s of them kept for what is not measured"
            epochs = f"none: not one fits in {limit}, {kept}, so the linear probe is the model (--minutes)"
        elif self.epochs < self.wanted:
            epochs = f"{self.epochs}, what fits in {limit} (--minutes); {self.wanted} would be {why}"
        else:
            epochs = f"{self.epochs} ({'given' if given else why})"
        return f"size         {size} pixels{probe} ({source})\nepochs       {epochs}"


def make_plan(
    photos: PhotoFolder,
    settings: Settings,
    measure: Callable[[int], Pace],
    *,
    epochs: int | None = None,
    image_size: int | None = None,
    spent: float = 0.0,
) -> Plan:
    """Choose sizes and epochs by the pace that `measure` finds at a size; nothing is measured where both are given.

    The native size is measured first. If that is too slow, a smaller size that should do, as time goes with the number
    of pixels, is measured next, and so on. spent: seconds of the time that have passed.
    """
    wanted = settings.epochs if epochs is None else epochs
    native = image_size or settings.image_size
    if image_size is not None and epochs is not None:
        return Plan(native, native, epochs, epochs, {})
    begun = time.monotonic()
    sizes = _sizes(settings.backbone, native, fixed=image_size is not None)
    paces = {native: measure(native)}
    while True:
        left = 60 * settings.minutes - spent - (time.monotonic() - begun)
        assumed = {size: _assumed(paces, size) for size in sizes}
        plan = _fit(assumed, photos, left, wanted, fewest=0 if epochs is not None else min(wanted, FEWEST_EPOCHS))
        unknown = [size for size in (plan.probe_size, plan.size) if size not in paces]
        if not unknown or time.monotonic() - begun > _MEASURING * 60 * settings.minutes:
            paces |= {size: assumed[size] for size in unknown}
            return replace(plan, epochs=plan.epochs if epochs is None else epochs, wanted=wanted, paces=paces)
        paces[min(unknown)] = measure(min(unknown))


def _assumed(paces: dict[int, Pace], size: int) -> Pace:
    """Return the pace at a size: as measured, or from the nearest larger size by the number of pixels."""
    nearest = min((other for other in paces if other >= size), default=max(paces))
    return Pace(*(value * (size / nearest) ** 2 for value in paces[nearest]))


def _fit(paces: dict[int, Pace], photos: PhotoFolder, left: float, wanted: int, *, fewest: int) -> Plan:
    """Return the largest sizes that fit in `left` seconds. paces: by size, the largest first. fewest: epochs to fit."""
    train_images, images = photos.sizes[photos.train], sum(photos.sizes.values())
    smallest = min(paces)
    costs = {size: images * pace.forward for size, pace in paces.items()}
    probe_size = next((size for size, cost in costs.items() if cost <= _SHARE_OF_PROBE * left), smallest)
    for size, pace in paces.items():
        # The probe's features and its validation; the validation and test of the fine-tuned model.
        rest = left - 2 * costs[probe_size] - costs[size] - _OVERHEAD
        fits = max(0, int(_MARGIN * rest / (train_images * pace.train)))
        if size <= probe_size and (fits >= fewest or size == smallest):
            break
    return Plan(probe_size, size, min(wanted, fits), wanted, paces)


def _sizes(backbone: str, native: int, *, fixed: bool) -> Iterable[int]:
    """Return the sizes to try, the largest first; one alone where it is given or the architecture has a fixed one."""
    from regmixup.networks.timm_models import has_fixed_size

    if fixed or (backbone.startswith("timm/") and has_fixed_size(backbone)):
        return (native,)
    return (native, *range((native - 1) // _STEP * _STEP, min(_SMALLEST, native) - 1, -_STEP))


def write_plan(work: Path, plan: Plan) -> None:
    write_table(work / "plan.json", asdict(plan))


def read_plan(work: Path) -> Plan | None:
    """Return the plan of an earlier call, so that the same command goes on with the same sizes and epochs."""
    if not is_stored(work / "plan.json"):
        return None
    try:
        table = read_table(work / "plan.json")
        paces = {int(size): Pace(*values) for size, values in table.pop("paces").items()}
        return Plan(**table, paces=paces)
    except (ValueError, TypeError):
        return None
