"""Deep ensembles: the predictions of several models for one dataset, as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal, get_args

import torch

from regmixup.names import check_name
from regmixup.posthoc.base import probabilities
from regmixup.types import LOG_OF_PROBS, Predictions

Average = Literal["logits", "probs"]


def ensemble(members: Sequence[Predictions], *, average: Average = "logits") -> Predictions:
    """Return the mean over M members, for the same samples: of the logits, as in the paper's DE.

    logits: the mean of the members' logits, whatever `average` is. member_logits: (M, N, K).
    probs: the mean of the members' probabilities, for average="probs" and where a member has `probs` that are not the
    softmax of its logits (Monte-Carlo); else None, the softmax of the mean logits.
    Features and heads belong to one member and are left out; of `info` stays what all members share.

    >>> sure, unsure = (Predictions(torch.tensor([[s, 0.0]]), torch.tensor([0])) for s in (2.0, 0.0))
    >>> ensemble([sure, unsure]).logits
    tensor([[1., 0.]])
    """
    check_name("average", average, get_args(Average))
    if not members:
        raise ValueError("members must hold at least one Predictions, got none")
    first = members[0]
    for position, member in enumerate(members):
        same = member.logits.shape == first.logits.shape and torch.equal(member.labels, first.labels)
        if not same or member.dataset != first.dataset:
            raise ValueError(
                "members must predict the same dataset with the same labels and classes, got "
                f"{first.dataset!r} {tuple(first.logits.shape)} and, in position {position}, "
                f"{member.dataset!r} {tuple(member.logits.shape)}" + ("" if same else " with other labels or classes")
            )
    stacked = torch.stack([member.logits for member in members])
    mixes_probs = average == "probs" or any(member.probs is not None for member in members)
    return Predictions(
        stacked.mean(dim=0, dtype=torch.float64).to(stacked.dtype),
        first.labels,
        probs=reduce(torch.add, map(probabilities, members)) / len(members) if mixes_probs else None,
        member_logits=stacked,
        dataset=first.dataset,
        role=first.role,
        info={key: text for key, text in first.info.items() if all(m.info.get(key) == text for m in members)}
        | ({"logits": LOG_OF_PROBS} if any(member.from_probs for member in members) else {}),
    )
