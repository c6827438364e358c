"""Evaluating a 1000-class model on sets that cover 200 of the classes: ImageNet-A, -R and -O.

Two protocols are in use: compare all 1000 logits, or only those of the set's own classes. The second is the one of the
sets' authors. Which one a number used must be said, so restricting is a step one takes, never a default. Labels
of these sets are numbered among the 1000 classes; `info["class_subset"]` lists the set's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def subset_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """The class indices that a dataset's or a prediction's `info` states.

    >>> subset_of({"class_subset": "6,11,13"})
    (6, 11, 13)
    """
    if "class_subset" not in info:
        raise ValueError("this set covers all classes: its info has no class_subset")
    return tuple(map(int, info["class_subset"].split(",")))


def restrict(logits: Tensor, class_indices: Sequence[int]) -> Tensor:
    """The columns of some classes: (N, K) -> (N, len(class_indices)).

    >>> restrict(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), (1, 3)).tolist()
    [[1.0, 3.0]]
    """
    index = _check(class_indices)
    if logits.ndim != 2 or int(index.max()) >= logits.shape[1]:
        raise ValueError(f"logits must be (N, K) with K > {int(index.max())}, got {tuple(logits.shape)}")
    return logits[:, index.to(logits.device)]


def restrict_labels(labels: Tensor, class_indices: Sequence[int]) -> Tensor:
    """Labels among all classes -> positions among `class_indices`.

    >>> restrict_labels(torch.tensor([3, 1, 3]), (1, 3)).tolist()
    [1, 0, 1]
    """
    index = _check(class_indices).to(labels.device)
    order = index.argsort()
    position = torch.searchsorted(index[order], labels).clamp(max=len(index) - 1)
    if not torch.equal(index[order][position], labels):
        outside = labels[index[order][position] != labels][0]
        raise ValueError(f"labels must be among the {len(index)} classes of the subset, got {int(outside)}")
    return order[position]


def _check(class_indices: Sequence[int]) -> Tensor:
    index = torch.tensor(class_indices, dtype=torch.int64)
    if index.ndim != 1 or len(index) == 0 or int(index.min()) < 0 or len(index.unique()) != len(index):
        raise ValueError(f"class_indices must be different integers >= 0, got {list(class_indices)[:10]}")
    return index
