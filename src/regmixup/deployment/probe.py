"""The linear probe on stored features of a frozen backbone, and the plan: what fits in a time at the measured pace.

The probe is logistic regression: with the features z of the train images, standardised,

    W, b = argmin  mean_i w_(y_i) CE(W z_i + b, y_i) + decay / 2 ||W||^2,

by L-BFGS on all images at once. The decay is the one of a few with the best validation accuracy. Features are computed
once, without augmentation; the standardisation is folded into W and b, so that the result is an ordinary linear head.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.data.decode import decode_all, open_rgb
from regmixup.data.images import FolderSet, labels_among
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast, float32_products
from regmixup.posthoc.base import required
from regmixup.predictions import predict_batches
from regmixup.training.config import TrainConfig, resolve
from regmixup.training.loading import evaluation_transform, make_decoder, train_transform
from regmixup.training.run import Run
from regmixup.types import Predictions

PASSES = 8000
"""Images, repeated or not, that fine-tuning sees: the epochs are this over the number of train images, 3 to 30."""
FEWEST_EPOCHS = 5
"""Fewer epochs are not tried unless fewer are wanted: two or three of more were worse than the probe in every try."""
_MARGIN = 0.85
"""Share of the time that is planned for."""
DECAYS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Tried from the strongest on, each from the solution of the one before."""
_BATCH = 64
_TRIED = 8
"""Images of a measured step."""
_REPEATS = 3
"""Measured steps, of which the shortest counts: the first one, and what else runs here, only add to it."""


class ProbeHead(NamedTuple):
    """A linear head: weight (K, D), bias (K,), fitted with this decay; accuracy and NLL on the validation images."""

    weight: Tensor
    bias: Tensor
    decay: float
    accuracy: float
    nll: float


def build_network(config: TrainConfig, num_classes: int) -> Classifier:
    """Return the network of a training, freshly initialised, and leave torch's random numbers as they are."""
    with torch.random.fork_rng([]):
        return Run(Path(), config).build(num_classes=num_classes, input_shape=(3, config.image_size, config.image_size))


def predict_files(
    model: Classifier,
    images: FolderSet,
    config: TrainConfig,
    classes: Sequence[str],
    advance: Callable[[int], object] = lambda _: None,
) -> Predictions:
    """Return logits and features of image files as evaluation sees them. classes: those of the model, by name.

    advance: called with the number of images of every batch when it is done.
    """
    assert config.precision != "auto"  # it is resolved
    decode = make_decoder(evaluation_transform(config, files=True), (config.image_size, config.image_size))
    known = labels_among(images.classes, classes)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for part in images.parts(decode, size=_BATCH):
            yield part.images, known[part.labels]
            advance(len(part))

    return predict_batches(model, batches(), dataset=images.name, precision=config.precision)


def fit_probe(train: Predictions, validation: Predictions, class_weight: Sequence[float] | None = None) -> ProbeHead:
    """Fit a linear head on features; of several decays, the one with the best validation accuracy, then NLL.

    class_weight: one per class, for the loss of the train images.

    >>> x = torch.tensor([[-1.0, 0.0], [-2.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    >>> images = Predictions(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), features=x)
    >>> head = fit_probe(images, images)
    >>> head.accuracy, (x @ head.weight.T + head.bias).argmax(dim=1).tolist()
    (1.0, [0, 0, 1, 1])
    """
    features, new_features = (required(part, "features", "a linear probe").double() for part in (train, validation))
    num_classes = train.logits.shape[1]
    mean, std = features.mean(dim=0), features.std(dim=0, correction=0)
    # A feature that never changes has no information, and dividing by its deviation would blow up new features.
    scale = torch.where(std > 1e-6 * (1 + mean.abs()), 1 / std.clamp_min(1e-12), 0.0)
    z, z_validation = (features - mean) * scale, (new_features - mean) * scale
    w = nn.Parameter(z.new_zeros(num_classes, z.shape[1]))
    b = nn.Parameter(z.new_zeros(num_classes))
    weights = z.new_ones(num_classes) if class_weight is None else z.new_tensor(class_weight)
    heads = []
    for decay in DECAYS:
        _minimise(w, b, z, train.labels, decay, weights[train.labels])
        folded = w.detach() * scale
        logits = z_validation @ w.detach().T + b.detach()
        accuracy = float((logits.argmax(dim=1) == validation.labels).double().mean())
        nll = float(F.cross_entropy(logits, validation.labels))
        heads.append(ProbeHead(folded.float(), (b.detach() - folded @ mean).float(), decay, accuracy, nll))
    return max(heads, key=lambda head: (head.accuracy, -head.nll))


def _minimise(w: nn.Parameter, b: nn.Parameter, z: Tensor, y: Tensor, decay: float, weights: Tensor) -> None:
    """Minimise the regularised cross-entropy, in place. weights: of the images, (N,)."""
    optimizer = torch.optim.LBFGS([w, b], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weights * F.cross_entropy(z @ w.T + b, y, reduction="none")).mean() + decay / 2 * w.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def measure_pace(config: TrainConfig, images: FolderSet, device: torch.device) -> float:
    """Return the seconds that an image takes in training, decoding included, as measured on a few images.

    Random weights take as long as any. On a CPU, decoding competes with the network for the same cores; beside an
    accelerator, two processes at least decode while it computes, and the slower of both counts.
    """
    config, count = resolve(config, device), min(_TRIED, len(images))
    model = build_network(config, len(images.classes)).to(device).train()
    sample = images.select(torch.arange(count) * len(images) // count)
    transform = train_transform(config, shape=images.shape)
    begun = time.perf_counter()
    x = decode_all(sample.paths, lambda file: transform(open_rgb(file))).to(device)
    decoding = time.perf_counter() - begun
    y = sample.labels.to(device)
    steps = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        with float32_products(config.precision), autocast(config.precision, device):
            loss = config.objective(model, x, y, generator=torch.Generator().manual_seed(0)).loss
        loss.backward()
        loss.item()  # waits for the device
        steps.append(time.perf_counter() - begun)
    step = min(steps) * (1 if config.sharpness == "none" else 2)  # SAM takes the gradient twice
    seconds = decoding + step if device.type == "cpu" else max(decoding / 2, step)
    return seconds / count


@dataclass(frozen=True)
class Plan:
    """The epochs of fine-tuning; 0: the linear probe is the model.

    wanted: the epochs that the number of images suggests. pace: seconds per image in training; 0 if not measured.
    """

    epochs: int
    wanted: int
    pace: float = 0.0

    def describe(self, minutes: float) -> str:
        """Return why there are so many epochs."""
        if not self.pace:
            return f"{self.epochs} (given)"
        text = (
            f"{self.epochs} of {self.wanted} wanted fit in {minutes:g} min at {1 / self.pace:.1f} images/s (--minutes)"
        )
        if self.epochs == 0:
            fewest = min(self.wanted, FEWEST_EPOCHS)
            text += f"; fewer than {fewest} would make it worse, so the linear probe is the model (--epochs)"
        return text


def plan_epochs(num_train: int, *, pace: float, seconds: float) -> Plan:
    """Plan the wanted epochs, or as many as fit in `seconds`. Plan none where so few fit: fewer than wanted and than 5.

    >>> [plan_epochs(800, pace=0.1, seconds=s).epochs for s in (8000, 720, 360)]
    [10, 7, 0]
    >>> [plan_epochs(images, pace=0.1, seconds=1e6).wanted for images in (100, 800, 100_000)]
    [30, 10, 3]
    """
    wanted = min(30, max(3, math.ceil(PASSES / num_train)))
    fitting = int(_MARGIN * seconds / (num_train * pace))
    epochs = min(wanted, fitting) if fitting >= min(wanted, FEWEST_EPOCHS) else 0
    return Plan(epochs, wanted, pace)
