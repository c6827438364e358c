"""Compare the score of the predictor with nearest neighbours, on features of the train images: what detects better?

Both detect the user's out-of-distribution (OOD) images (`--ood`). The predictor's score is settled before, by
`--score`: what is measured here chooses nothing. With `--score auto` the same images have chosen it, and the words say
so. It stays a score of logits, which every export has; kNN (Sun et al., 2022) would carry the features of all train
images. Its k is that paper's, in proportion to the number of train images: of hundreds, 50 would be more than a whole
class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from regmixup import metrics
from regmixup.deployment.calibration import MSP
from regmixup.deployment.job import FEATURES, Job
from regmixup.deployment.predictor import Predictor
from regmixup.deployment.probe import predict_files
from regmixup.metrics.scores import SCORES
from regmixup.metrics.scores.features import KNN, default_k
from regmixup.names import percent
from regmixup.posthoc.base import required
from regmixup.storage import load_tensors
from regmixup.training.run import Run
from regmixup.types import Predictions

_TRAIN_IMAGES = {50: 50_000, 200: 50_000, 1000: 1_281_167}
"""Train images of CIFAR-10, CIFAR-100 and ImageNet, for which the paper chose these k."""


def predict_outliers(job: Job, run: Run) -> Predictions | None:
    """Return logits and features of the user's out-of-distribution images; None without any."""
    if (outliers := job.outliers) is None:
        return None
    config = replace(run.config, precision="float32")
    return predict_files(run.model(device=job.device), outliers, config, outliers.classes)


def measure_detection(
    job: Job, run: Run, predictor: Predictor, test: Predictions, outliers: Predictions | None
) -> dict[str, Any]:
    """Return the AUROC of each score; nothing where there are no images to detect. outliers: see `predict_outliers`."""
    if outliers is None:
        return {}
    k = suggest_k(job.photos.parts["train"].labels)
    neighbours = KNN(k=k).fit(_train_features(job, run))

    def scores(predictions: Predictions) -> dict[str, Tensor]:
        by_name = {name: SCORES[name](predictions.logits) for name in dict.fromkeys((predictor.score, MSP))}
        return by_name | {"knn": neighbours(required(predictions, "features", "kNN"))}

    inside = scores(test)
    return {
        "images": len(outliers),
        "test": len(test),
        "auroc": {name: metrics.auroc(inside[name], score) for name, score in scores(outliers).items()},
        "k": k,
        "chose": predictor.choice is not None,
        "accepted": int(predictor.module.decide(outliers.logits.double())["accepted"].sum()),
    }


def suggest_k(labels: Tensor) -> int:
    """Return k for train images with these labels.

    >>> import torch
    >>> [suggest_k(torch.arange(images) % 10) for images in (300, 5_000, 50_000)]
    [1, 5, 50]
    """
    k = default_k(labels)
    return max(1, round(k * len(labels) / _TRAIN_IMAGES[k]))


def describe_detection(record: Mapping[str, Any]) -> str:
    """Return what `measure_detection` has found in words."""
    images, others = record["images"], record["test"]
    names = {"knn": f"kNN (k = {record['k']})"}
    aurocs = {names.get(score, score.replace("_", " ")): percent(auroc) for score, auroc in record["auroc"].items()}
    (first, share), *further = aurocs.items()
    also = "".join(f", {other_share} by {name}" for name, other_share in further)
    chose = "; the same images chose the score, so other ones will be detected less well" if record["chose"] else ""
    return (
        f"the model is less sure of the out-of-distribution image than of the test image in {share} of pairs (AUROC "
        f"by {first}; {images} and {others} images){also}; the threshold accepts {record['accepted']} of the {images}"
        f"{chose}"
    )


def _train_features(job: Job, run: Run) -> Tensor:
    """Return the features of the train images: those that the probe was fitted on, or those of a trained backbone."""
    stored = job.work_folder() / FEATURES
    if run.config.epochs == 0 and stored.is_file():
        return load_tensors(stored)[0]["features"]
    train = predict_files(run.model(device=job.device), job.photos.parts["train"], run.config, job.photos.classes)
    return required(train, "features", "kNN")
