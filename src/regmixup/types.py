"""The types that pass between modules: Batch, LossOutput, Predictions, Row. Importing them imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MEAN = "mean"
"""The corruption of a row that is the mean over all corrupted versions of a set."""

VALIDATED = ("val_accuracy", "val_nll", "val_brier")
"""The names of what training measures on a validation set after an epoch."""

RESERVED = (
    "loss", "train_accuracy", "epoch", "step", "steps", "lr", "seconds", "images_per_second", "seconds_per_epoch",
    *VALIDATED,
)  # fmt: skip
"""The names that training gives the numbers of a step or an epoch; the parts of a loss have other names."""

_MORE_IS_BETTER = ("accuracy", "auroc", "aupr", "aupr_id", "failure_auroc", "fisher_criterion", "entropy")
_NEITHER_IS_BETTER = ("temperature", "prior_variance")


def higher_is_better(metric: str) -> bool | None:
    """Return whether more of a row's metric is better; None where neither is. Less is better if it is not listed here.

    entropy: of predictions half-way between two images, the only place where it is a metric and not a score.

    >>> higher_is_better("accuracy"), higher_is_better("ece"), higher_is_better("temperature")
    (True, False, None)
    """
    return None if metric in _NEITHER_IS_BETTER else metric in _MORE_IS_BETTER


Precision = Literal["float32", "tf32", "bfloat16"]
"""float32: nothing is rounded. tf32: on CUDA, factors of products are rounded to 10 bits. bfloat16: autocast."""

Role = Literal["train", "validation", "test", "shifted", "ood", ""]
"""The purpose of a dataset; "" where that is not known."""


def role_in_name(dataset: str) -> Role:
    """Return the role that a dataset's name tells, for predictions that do not state theirs; "" if it tells none.

    >>> [role_in_name(name) for name in ("cifar10/train-90", "vitamin-c/val", "svhn/test", "cifar10-c/fog/3", "mine")]
    ['train', 'validation', 'test', 'shifted', '']
    """
    family, _, inside = dataset.partition("/")
    split = inside.partition("/")[0]
    if dataset.startswith("path:"):  # interpolations between a set's images
        return "shifted"
    if split == "val-test":
        return "test"
    return _SPLITS.get(split.partition("-")[0], "shifted" if family.endswith("-c") else "")


_SPLITS: dict[str, Role] = {
    "train": "train", "extra": "train", "val": "validation", "validation": "validation", "test": "test",
}  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Images and their labels.

    x: (N, C, H, W), uint8 in 0..255 or floating point in [0, 1].
    y: (N,) class indices, or (N, K) class probabilities.
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class LossOutput:
    """The result of an objective for one batch.

    loss: scalar to call `.backward()` on.
    logits: (N, K) of the clean images, for an honest train accuracy; None unless the objective forwards them all.
    parts: the named terms before weighting, detached, for logging: {"clean": ..., "mixed": ...}; no name is `RESERVED`.
    """

    loss: Tensor
    logits: Tensor | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for a dataset. Posthoc maps, scores, metrics and rows need nothing else of it.

    logits: (N, K) float; labels: (N,) integers, kept as int64. Arrays are taken for all fields and kept as tensors.
    features: (N, D) penultimate activations, where stored; head_weight (K, D) and head_bias (K,) the linear head.
    probs: (N, K) where they are not the softmax of the logits (Monte-Carlo, mean of probabilities).
    logit_variance: (N, K); member_logits: (M, N, K) of an ensemble.
    class_count (K,), class_mean (K, D), class_scatter (D (D + 1) / 2,): the class moments of features that are not
    stored, in the form of `ClassMoments.packed`.
    dataset: the dataset's name; role: what it is for, by default what `role_in_name` reads from that name.
    info: free text that travels with the file (fingerprints, layout of derived sets).
    """

    logits: Tensor
    labels: Tensor
    features: Tensor | None = None
    probs: Tensor | None = None
    logit_variance: Tensor | None = None
    member_logits: Tensor | None = None
    head_weight: Tensor | None = None
    head_bias: Tensor | None = None
    class_count: Tensor | None = None
    class_mean: Tensor | None = None
    class_scatter: Tensor | None = None
    dataset: str = ""
    info: Mapping[str, str] = field(default_factory=dict)
    role: Role = ""

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"role must be one of {', '.join(filter(None, get_args(Role)))}, got {self.role!r}")
        if not self.role:
            object.__setattr__(self, "role", role_in_name(self.dataset))
        for key, text in self.info.items():
            if not (isinstance(key, str) and isinstance(text, str)):
                raise ValueError(f"info must hold text, got {text!r:.80} of {key!r}")
        for name in PREDICTION_TENSORS:
            if getattr(self, name) is not None or name in ("logits", "labels"):
                object.__setattr__(self, name, as_tensor(name, getattr(self, name)))
        if self.logits.ndim != 2 or not self.logits.is_floating_point():
            raise ValueError(f"logits must be a floating-point (N, K) tensor, got {_describe(self.logits)}")
        if not is_whole(self.labels):
            raise ValueError(f"labels must be an integer (N,) tensor, got {_describe(self.labels)}")
        object.__setattr__(self, "labels", self.labels.long())
        for name, letters in _SHAPES.items():
            tensor = getattr(self, name)
            if tensor is not None and not self._fits(tensor, letters):
                shape, logits = ", ".join(letters), tuple(self.logits.shape)
                raise ValueError(f"{name} must be ({shape}) for logits (N, K) of {logits}, got {_describe(tensor)}")

    def _fits(self, tensor: Tensor, letters: str) -> bool:
        """Return whether a tensor has a dimension for each letter, of N images and K classes as in the logits."""
        known = dict(zip("NK", self.logits.shape, strict=True))
        if tensor.ndim != len(letters):
            return False
        return all(size == known.get(letter, size) for letter, size in zip(letters, tensor.shape, strict=True))

    def __len__(self) -> int:
        return len(self.logits)

    def __repr__(self) -> str:
        stored = ", ".join(name for name in PREDICTION_TENSORS if getattr(self, name) is not None)
        counts = f"{len(self):,} images, {self.logits.shape[1]:,} classes"
        return f"Predictions({self.dataset!r}, {counts}, role {self.role!r}: {stored})"

    def to(self, device: torch.device | str) -> Predictions:
        """Return the same predictions with all tensors on a device."""
        tensors = {name: getattr(self, name) for name in PREDICTION_TENSORS}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items() if tensor is not None})

    @property
    def from_probs(self) -> bool:
        """True if the logits are the logarithm of probabilities, so that each row lacks a constant."""
        return self.info.get("logits") == LOG_OF_PROBS


_SHAPES = {"labels": "N", "features": "ND", "probs": "NK", "logit_variance": "NK", "member_logits": "MNK"}
"""The sizes of tensors by letter: N images and K classes, as many as in the logits."""
LOG_OF_PROBS = "log of probs"
"""The value of `info["logits"]` where only a model's probabilities were known."""

PREDICTION_TENSORS = tuple(f.name for f in fields(Predictions) if f.name not in ("dataset", "info", "role"))


def as_tensor(name: str, value: Any) -> Tensor:
    """Return a tensor as it is, an array or a list of numbers as a tensor; raise an error for anything else."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value
    try:
        array = np.asarray(value)
        # PyTorch takes neither bytes in another order than the machine's nor steps backwards.
        return torch.as_tensor(np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a tensor or an array of numbers, got {value!r:.80}") from error


def is_whole(tensor: Tensor) -> bool:
    """Return True for integer types; booleans do not count."""
    import torch

    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def not_finite(table: Tensor) -> str:
    """Describe the rows of a table (N, ...) that are not finite; return "" if all are.

    >>> import torch
    >>> not_finite(torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [3.0, float("inf")]]))
    'NaN or infinite values in 2 of 3 rows, the first is row 1 (counted from 0)'
    """
    import torch

    # NaN comes through as both; a large table without either needs no table of booleans.
    if table.numel() == 0 or bool(torch.stack(table.aminmax()).isfinite().all()):
        return ""
    rows = (~table.isfinite().flatten(1).all(dim=1)).nonzero()
    first = f"the first is row {int(rows[0])} (counted from 0)"
    return f"NaN or infinite values in {len(rows)} of {len(table)} rows, {first}"


def look_like_probabilities(table: Tensor) -> bool:
    """Return True where all rows (N, K) are numbers >= 0 that sum to 1, give or take rounding to 2 digits."""
    import torch

    if float(table.amin()) < 0:  # so that no copy of a large table of logits is made
        return False
    sums = table.sum(dim=1, dtype=torch.promote_types(table.dtype, torch.float32))
    rounding = min(0.05, 0.005 * table.shape[1] + 0.001)  # so that logits of two classes hardly ever pass for them
    return bool(((sums - 1).abs() < rounding).all())


_PASS_LOGITS = "pass what comes before the softmax, or call them probs (a key in files; rm.predictions.from_probs)"


def refuse_probs(logits: Tensor, name: str = "logits", remedy: str = _PASS_LOGITS) -> None:
    """Raise where logits (N, K) are probabilities: of one class, numbers say nothing. name, remedy: for the error."""
    if logits.shape[1] > 1 and look_like_probabilities(logits):
        raise ValueError(f"{name} look like probabilities, numbers >= 0 that sum to 1: {remedy}")


def check_probs(probs: Tensor, name: str = "probs") -> None:
    """Raise unless all rows (N, K) are probabilities, give or take their rounding. name: theirs, in the error."""
    if not look_like_probabilities(probs):
        low, high = (float(bound) for bound in probs.aminmax())
        raise ValueError(f"{name} must be >= 0 and sum to 1 in every row, got values from {low:g} to {high:g}")


def with_known_scale(predictions: Predictions) -> Predictions:
    """Record where logits are log-probabilities: a score that reads their scale would measure rounding errors.

    They are if the exponentials of all rows (N, K), K > 1, sum to 1, as those of a log-softmax do.
    """
    table = predictions.logits
    if predictions.from_probs or table.shape[1] < 2 or len(table) == 0:
        return predictions
    # Logits that a model gives fail in the first rows, so that no large table is read.
    if not all(bool((part.double().logsumexp(dim=1).abs() < 1e-3).all()) for part in table.split(2**12)):
        return predictions
    return replace(predictions, info={**predictions.info, "logits": LOG_OF_PROBS})


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"


class Quantity(NamedTuple):
    """The quantity that a row measures, whichever model it was measured on; the fields are those of a row."""

    dataset: str
    metric: str
    posthoc: str = "none"
    score: str = ""
    corruption: str = ""
    severity: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured value, with everything needed to find it again. Fractions, never percent.

    `method` is a label such as "regmixup(alpha=10)". `dataset` is what was predicted; `corruption` and `severity` are
    those of a shifted one. `posthoc` is what was done to predictions ("none", "temperature"); `score` the OOD score (""
    for metrics that need none). `low` and `high` bound `value` where an interval was computed. `n`: samples behind it.
    """

    study: str = ""
    run: str = ""
    method: str = ""
    network: str = ""
    train_set: str = ""
    seed: int | None = None
    dataset: str = ""
    corruption: str = ""
    severity: int | None = None
    posthoc: str = "none"
    score: str = ""
    metric: str = ""
    value: float = float("nan")
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def quantity(self) -> Quantity:
        return Quantity(self.dataset, self.metric, self.posthoc, self.score, self.corruption, self.severity)
