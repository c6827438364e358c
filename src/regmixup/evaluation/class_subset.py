"""Restrict predictions to some of the classes, for sets that cover 200 of 1000: ImageNet-A, -R and -O.

Two protocols are in use: compare all 1000 logits, or only those of the set's own classes. The second is the one of the
sets' authors and of `evaluate`, which says so in the dataset's name and takes `class_subset=False` for the other.
Labels of these sets are numbered among the 1000 classes; `info["class_subset"]` lists the set's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regmixup.metrics.scores.registry import some_samples
from regmixup.types import Predictions


def subset_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """Return the class indices that a dataset's or a prediction's `info` states.

    >>> subset_of({"class_subset": "6,11,13"})
    (6, 11, 13)
    """
    if "class_subset" not in info:
        raise ValueError("this set covers all classes: its info has no class_subset")
    return tuple(map(int, info["class_subset"].split(",")))


def restrict_labels(labels: Tensor, class_indices: Sequence[int]) -> Tensor:
    """Map labels among all classes to positions among `class_indices`.

    >>> restrict_labels(torch.tensor([3, 1, 3]), (1, 3)).tolist()
    [1, 0, 1]
    """
    index = torch.tensor(class_indices, device=labels.device)
    same = labels[:, None] == index
    if not bool(same.any(dim=1).all()):
        outside = labels[~same.any(dim=1)][0]
        raise ValueError(f"labels must be among the {len(index)} classes of the subset, got {int(outside)}")
    return same.int().argmax(dim=1)


def restrict_predictions(predictions: Predictions) -> Predictions:
    """Return logits and labels of a set's own classes, with a name that says so; unchanged for a set of all classes."""
    if "class_subset" not in predictions.info:
        return predictions
    subset = subset_of(predictions.info)
    return _restricted(predictions, subset, restrict_labels(predictions.labels, subset))


def restrict_pair(test: Predictions, ood: Predictions) -> tuple[Predictions, Predictions]:
    """Return the test images of an OOD set's classes and the OOD set, both with the logits of these classes alone.

    Both are unchanged where the OOD set has no classes of its own.
    """
    if "class_subset" not in ood.info:
        return test, ood
    subset = subset_of(ood.info)
    inside = torch.isin(test.labels, torch.tensor(subset, device=test.labels.device))
    if not bool(inside.any()):
        raise ValueError(f"{test.dataset} has no image of the {len(subset)} classes of {ood.dataset}")
    images = some_samples(test, inside)
    return (
        _restricted(images, subset, restrict_labels(images.labels, subset)),
        _restricted(ood, subset, torch.full_like(ood.labels, -1)),
    )


def _restricted(predictions: Predictions, subset: Sequence[int], labels: Tensor) -> Predictions:
    if max(subset) >= predictions.logits.shape[1]:
        got = f"{predictions.logits.shape[1]} of {predictions.dataset}"
        raise ValueError(f"a set of class {max(subset)} needs logits of more than {max(subset)} classes, got {got}")
    probs = predictions.probs
    if probs is not None:
        # Those given that the class is one of these; as for logits, where they are their softmax.
        probs = probs[:, list(subset)]
        probs = probs / probs.sum(dim=1, keepdim=True)
    return Predictions(
        predictions.logits[:, list(subset)],
        labels,
        probs=probs,
        dataset=f"{predictions.dataset} ({len(subset)} classes)",
        role=predictions.role,
        info={key: value for key, value in predictions.info.items() if key != "class_subset"},
    )
