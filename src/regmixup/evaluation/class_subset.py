"""Restrict predictions to some of the classes, for sets that cover 200 of 1000: ImageNet-A, -R and -O.

As their authors do, only the logits of the set's own classes are compared, and the dataset's name in rows says so.
Labels of these sets are numbered among the 1000 classes; `info["class_subset"]` lists the set's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regmixup.metrics.pieces import select_samples
from regmixup.types import Predictions


def subset_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """Return the class indices that a dataset's or a prediction's `info` states; none for a set of all classes.

    >>> subset_of({"class_subset": "6,11,13"})
    (6, 11, 13)
    """
    return tuple(int(label) for label in info.get("class_subset", "").split(",") if label)


def restrict_labels(labels: Tensor, class_indices: Sequence[int]) -> Tensor:
    """Map labels among all classes to positions among `class_indices`.

    >>> restrict_labels(torch.tensor([3, 1, 3]), (1, 3)).tolist()
    [1, 0, 1]
    """
    same = labels[:, None] == torch.tensor(class_indices, device=labels.device)
    outside = labels[~same.any(dim=1)]
    if len(outside):
        raise ValueError(f"labels must be among the {len(class_indices)} classes of the subset, got {int(outside[0])}")
    return same.int().argmax(dim=1)


def restrict_predictions(predictions: Predictions) -> Predictions:
    """Return logits and labels of a set's own classes, with a name that says so; unchanged for a set of all classes."""
    subset = subset_of(predictions.info)
    return _restricted(predictions, subset) if subset else predictions


def restrict_pair(test: Predictions, ood: Predictions) -> tuple[Predictions, Predictions]:
    """Return the test images of the classes of an OOD set and the OOD set, both with the logits of these alone.

    The classes are the OOD set's own, else the test set's own; where neither has any, both sets are unchanged.
    """
    subset = subset_of(ood.info) or subset_of(test.info)
    if not subset:
        return test, ood
    inside = torch.isin(test.labels, torch.tensor(subset, device=test.labels.device))
    return _restricted(select_samples(test, inside), subset), _restricted(ood, subset, labelled=False)


def _restricted(predictions: Predictions, subset: Sequence[int], *, labelled: bool = True) -> Predictions:
    labels, probs = predictions.labels, predictions.probs
    if probs is not None:
        # Those given that the class is one of these; as for logits, where they are their softmax.
        probs = probs[:, list(subset)]
        probs = probs / probs.sum(dim=1, keepdim=True)
    return Predictions(
        predictions.logits[:, list(subset)],
        restrict_labels(labels, subset) if labelled else torch.full_like(labels, -1),
        probs=probs,
        dataset=f"{predictions.dataset} ({len(subset)} classes)",
        role=predictions.role,
        info={key: text for key, text in predictions.info.items() if key != "class_subset"},
    )
