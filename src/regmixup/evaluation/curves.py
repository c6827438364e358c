"""The data that figures draw, from predictions: binned or sampled at fixed places, so small and easy to pool."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions, subset_of
from regmixup.evaluation.set_scores import SetScores, score_sets
from regmixup.metrics.calibration import Reliability, reliability
from regmixup.metrics.detection import TPR, needed_count, roc_curve
from regmixup.metrics.pieces import precise
from regmixup.metrics.scores import score_all
from regmixup.metrics.selective import risk_coverage
from regmixup.posthoc import probabilities
from regmixup.types import Predictions

FPR = tuple((step / 50) ** 2 for step in range(51))
"""Where ROC curves are sampled: densest where false alarms are few."""
COVERAGE = tuple(step / 50 for step in range(1, 51))
"""Where risk-coverage curves are sampled."""
NUM_BINS = 256
"""Bins of a score's histogram: finer than any drawing, so that those of several runs can be added in coarser ones."""
BIN_IMAGES, MOST_BINS = 20, 15
"""Bins of equal mass: images in each, at least, where there are so many, and how many bins at most."""

GetImages = Callable[[Sequence[int]], Sequence[Any]]
"""Images by their places in a set: tensors (C, H, W) or arrays (H, W, C), uint8 or in [0, 1], PIL images, or files."""


def model_figures(
    versions: Mapping[str, Predictions],
    ood: Sequence[Predictions],
    *,
    scores: SetScores | None = None,
    images_of: Mapping[str, GetImages] | None = None,
    classes: Sequence[str] = (),
    equal_mass: bool = False,
) -> dict[str, Any]:
    """Return what the figures draw of one model: "reliability", "scores" and, with `images_of`, "examples".

    versions: the test predictions as they are ("none") and, where there is a temperature, with it ("temperature").
    scores: those of an evaluation of the same sets, by default all that need no train predictions. equal_mass: see
    `reliability_bins`. images_of, classes: see `examples`.
    """
    test = versions["none"]
    scores = scores or score_sets(test, ood)
    figures: dict[str, Any] = {
        "reliability": reliability_bins(versions, equal_mass=equal_mass),
        "scores": score_curves(test, scores),
    }
    if images_of:
        figures["examples"] = examples(test, ood, scores, images_of, classes=classes)
    return figures


def reliability_bins(
    versions: Mapping[str, Predictions], *, equal_mass: bool = False
) -> dict[str, dict[str, list[Any]]]:
    """Return count, mean confidence and accuracy of bins for every version; None in empty bins.

    There are 15 bins of equal width or, with `equal_mass`, as many as have BIN_IMAGES images each, at most MOST_BINS.
    """
    diagrams = {}
    for name, predictions in versions.items():
        restricted = restrict_predictions(predictions)
        binned = equal_mass_reliability if equal_mass else reliability
        bins = binned(probabilities(restricted), restricted.labels)
        diagrams[name] = {
            "count": bins.count.tolist(),
            "confidence": _rounded(bins.confidence),
            "accuracy": _rounded(bins.accuracy),
        }
    return diagrams


def equal_mass_reliability(probs: Tensor, labels: Tensor) -> Reliability:
    """Return bins of equally many samples, sorted by confidence; samples of equal confidence share a bin.

    >>> probs = torch.linspace(0.5, 0.99, 50)
    >>> bins = equal_mass_reliability(torch.stack([probs, 1 - probs], dim=1), torch.tensor([1] * 10 + [0] * 40))
    >>> bins.count.tolist(), bins.accuracy.round(decimals=2).tolist()
    ([25, 25], [0.6, 1.0])
    """
    top = precise(probs).max(dim=1)
    confidence, order = top.values.sort()
    right = (top.indices == labels).to(confidence)[order]
    num_bins = min(MOST_BINS, max(1, len(labels) // BIN_IMAGES))
    index = torch.searchsorted(confidence, confidence) * num_bins // len(labels)
    count = torch.bincount(index, minlength=num_bins)
    means = (torch.bincount(index, weights=column, minlength=num_bins) / count for column in (confidence, right))
    return Reliability(count, *means)


def score_curves(test: Predictions, scores: SetScores) -> dict[str, dict[str, Any]]:
    """Return, for every score, histograms of the test and every OOD set, ROC of every OOD set, risk against coverage.

    Each score has "range" (low, high), the histograms' first and last edge, beyond which samples count in the end
    bins; "counts" by dataset, NUM_BINS each; "roc" by OOD set, the true-positive rates at FPR; "risk" at COVERAGE.
    """
    known = restrict_predictions(test)
    correct = probabilities(known).argmax(dim=1) == known.labels
    curves = {}
    for name, test_scores in scores.test.items():
        sets, roc = {test.dataset: test_scores}, {}
        for dataset, pair in scores.pairs.items():
            if name in pair.outside:
                sets[dataset] = pair.outside[name]
                roc[dataset] = roc_at(pair.inside[name], pair.outside[name])
        low, high = _spread(sets.values())
        curves[name] = {
            "range": [low, high],
            "counts": {dataset: histogram(values, low, high) for dataset, values in sets.items()},
            "roc": roc,
            "risk": risk_at(test_scores, correct),
        }
    return curves


def histogram(values: Tensor, low: float, high: float, *, num_bins: int = NUM_BINS) -> list[int]:
    """Return counts in equal bins [lo, hi) between low and high; what lies beyond counts in the first or last bin.

    >>> histogram(torch.tensor([-1.0, 0.0, 0.4, 0.5, 1.0, 7.0]), 0.0, 1.0, num_bins=2)
    [3, 3]
    """
    index = ((precise(values) - low) / (high - low) * num_bins).floor().clamp(0, num_bins - 1).long()
    return torch.bincount(index, minlength=num_bins).tolist()


def roc_at(id_scores: Tensor, ood_scores: Tensor, grid: Sequence[float] = FPR) -> list[float]:
    """Return the exact ROC curve's true-positive rate at given false-positive rates, its highest where it is vertical.

    >>> roc_at(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]), grid=(0.0, 0.25, 1.0))
    [0.5, 0.75, 1.0]
    """
    curve = roc_curve(id_scores, ood_scores)
    return np.interp(grid, curve.fpr.numpy(), curve.tpr.numpy()).round(5).tolist()


def risk_at(scores: Tensor, correct: Tensor, grid: Sequence[float] = COVERAGE) -> list[float]:
    """Return the share of errors among the surest samples that make up at least each coverage, tied samples together.

    >>> risk_at(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]), grid=(0.5, 0.75))
    [0.0, 0.33333]
    """
    curve = risk_coverage(scores, correct)
    wanted = torch.tensor(grid, dtype=curve.coverage.dtype)
    # A coverage of 0.7 may be stored as 0.7000000000000001: 1e-9 keeps it from asking for one sample more.
    return _rounded(curve.risk[torch.searchsorted(curve.coverage, wanted - 1e-9).clamp(max=len(curve.risk) - 1)])


def _spread(sets: Iterable[Tensor]) -> tuple[float, float]:
    """Return the interval of all but 1/1000 of the values at either end: no outlier flattens a histogram."""
    ordered = precise(torch.cat(list(sets))).sort().values
    cut = len(ordered) // 1000
    low, high = float(ordered[cut]), float(ordered[-1 - cut])
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _rounded(values: Tensor) -> list[Any]:
    """Return numbers with five decimals, None for NaN."""
    return [None if math.isnan(value) else round(value, 5) for value in values.tolist()]


def path_curves(predictions: Predictions, *, pairs: int, num_bins: int = 40) -> dict[str, Any]:
    """Return the entropy along interpolations between test images, as in the paper's Figure 3.

    predictions: of a `path:` set. "counts": for every lambda, the paths in each of B bins of entropy from 0 to "top",
    log K; "mean": the mean entropy at every lambda; "pairs": the entropies along the first `pairs` paths.
    """
    paths, lambdas = int(predictions.info["pairs"]), int(predictions.info["lambdas"])
    values = score_all(predictions)["entropy"].reshape(paths, lambdas)
    top = math.log(predictions.logits.shape[1])
    return {
        "top": top,
        "counts": [histogram(entropies, 0.0, top, num_bins=num_bins) for entropies in values.T],
        "mean": _rounded(values.mean(dim=0)),
        "pairs": [_rounded(entropies) for entropies in values[:pairs]],
    }


EXAMPLES = 8
"""Examples of each kind."""
SIDE = 64
"""The longest side of a thumbnail, in pixels."""


def examples(
    test: Predictions,
    ood: Sequence[Predictions],
    scores: SetScores,
    images_of: Mapping[str, GetImages],
    *,
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what to look at: the surest errors, the least sure test images, the best accepted OOD images.

    The model is unsure where its entropy lies above that of 95 % of the test images. images_of: by set, a function that
    returns its images; a set that is not in it has no examples. Of sets that cover some of the classes only the logits
    of these compete, as in `evaluate`. classes: the model's, by name.
    """
    exhibits = []
    if test.dataset in images_of:
        get_images, names = images_of[test.dataset], competing_classes(test, classes)
        known = restrict_predictions(test)
        score, top = scores.test["entropy"], probabilities(known).max(dim=1)
        exhibits.append(_exhibit("errors", known, top.indices != known.labels, -top.values, get_images, names))
        exhibits.append(_exhibit("rejected", known, score > accepting_threshold(score), -score, get_images, names))
    for other in ood:
        if other.dataset in images_of:
            get_images, names = images_of[other.dataset], competing_classes(other, classes)
            _, outside = restrict_pair(test, other)
            _, id_scores, ood_scores = scores.pairs[other.dataset]
            threshold, score = accepting_threshold(id_scores["entropy"]), ood_scores["entropy"]
            exhibits.append(_exhibit("accepted", outside, score <= threshold, score, get_images, names))
    return {"score": "entropy", "sets": exhibits}


def accepting_threshold(score: Tensor, share: float = TPR) -> float:
    """Return the smallest threshold that accepts this share of the images, by default as for FPR at 95 % TPR."""
    return float(score.sort().values[needed_count(share, len(score)) - 1])


def competing_classes(predictions: Predictions, classes: Sequence[str]) -> list[str]:
    """Return the names of the classes that compete in a set: all of the model's, or the set's own; else their numbers.

    classes: the names of all of the model's.
    """
    labels = subset_of(predictions.info) or range(predictions.logits.shape[1])
    return [str(classes[label]) if label < len(classes) else str(label) for label in labels]


def _exhibit(
    kind: str, predictions: Predictions, chosen: Tensor, order: Tensor, get_images: GetImages, names: Sequence[str]
) -> dict[str, Any]:
    """Return the first of the chosen images, a mask (N,), by `order`, with what the model said, and their number."""
    places = chosen.nonzero()[:, 0]
    first = places[order[places].argsort(stable=True)][:EXAMPLES]
    top = probabilities(predictions)[first].max(dim=1)
    images = get_images(first.tolist()) if len(first) else []
    columns = top.indices.tolist(), top.values.tolist(), predictions.labels[first].tolist()
    shown = []
    for image, said, sure, label in zip(images, *columns, strict=False):
        truth = names[label] if kind != "accepted" and label >= 0 else ""
        entry = {"image": thumbnail(image), "said": names[said], "truth": truth, "sure": round(sure, 4)}
        if isinstance(image, (str, Path)):
            entry["file"] = Path(image).name
        shown.append(entry)
    return {"kind": kind, "set": predictions.dataset, "count": len(places), "total": len(predictions), "images": shown}


def thumbnail(image: Any, *, side: int = SIDE) -> str:
    """Return an image as a data URI: PNG as it is within SIDE pixels, else JPEG with its longest side at most `side`.

    image: a tensor (C, H, W), an array (H, W, C) or (H, W), uint8 or in [0, 1], a PIL image, or a file, shown upright.
    """
    from PIL import Image, ImageOps

    if isinstance(image, Tensor):
        levels = image if image.dtype == torch.uint8 else (image * 255).round().clamp(0, 255).to(torch.uint8)
        image = levels.cpu().permute(1, 2, 0).numpy()
    if isinstance(image, np.ndarray):
        if image.dtype.kind == "f":
            image = (image * 255).round().clip(0, 255).astype(np.uint8)
        if image.shape[2:] == (1,):
            image = image[:, :, 0]
    if isinstance(image, (str, Path)):
        with Image.open(image) as opened:
            opened.draft("RGB", (side, side))
            image = opened.convert("RGB")
        with suppress(Exception):  # metadata may be damaged
            ImageOps.exif_transpose(image, in_place=True)
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    file, small = io.BytesIO(), max(picture.size) <= SIDE
    if small:
        if picture.mode in ("CMYK", "YCbCr"):  # which PNG does not have
            picture = picture.convert("RGB")
        picture.save(file, "PNG", optimize=True)
    else:
        picture = picture.convert("RGB")
        picture.thumbnail((side, side))
        picture.save(file, "JPEG", quality=80)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(file.getvalue()).decode()}"
