"""What evaluation needs of every image: outcomes and scores, from one pass over the logits, in pieces.

A table of a million rows of a thousand logits is mapped from its file; what is kept of it is some numbers per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.metrics.ordering import pieces_of, span
from regmixup.metrics.outcomes import NUM_BINS, Outcomes
from regmixup.metrics.scores.logit_scores import Softmax
from regmixup.metrics.scores.registry import rows_of, scores_of_rows
from regmixup.posthoc import as_given
from regmixup.threads import in_order
from regmixup.types import Predictions

_PIECE = 2**18  # float64 numbers, some tables of which stay in the cache


@dataclass(frozen=True)
class Version:
    """Predictions and a temperature that is still to divide their logits."""

    predictions: Predictions
    temperature: float = 1.0

    def whole(self) -> Predictions:
        """The predictions at that temperature."""
        return as_given(self.predictions, self.temperature)

    def rows(self, some: slice) -> Predictions:
        """The same of some of the samples."""
        return as_given(rows_of(self.predictions, some), self.temperature)


@dataclass(frozen=True)
class PerImage:
    """outcomes: of all samples; scores: (N,) of each, by name."""

    outcomes: Outcomes
    scores: dict[str, Tensor] = field(default_factory=dict)


def per_image(version: Version, *, classwise: bool = False, scores: Sequence[str] = ()) -> PerImage:
    """Outcomes with terms, in float64, and some scores of logits and of members, in one pass.

    classwise: whether the outcomes have `class_gaps`.
    """
    found: list[dict[str, Tensor]] = []

    def look(rows: Tensor) -> PerImage:
        part = version.rows(span(rows))
        softmax = Softmax(part.logits)
        probs = part.probs.double() if part.probs is not None else softmax.probs
        outcomes = Outcomes.of(probs, part.labels, terms=True, class_bins=NUM_BINS if classwise else 0)
        return PerImage(outcomes, scores_of_rows(part, scores, softmax))

    def outcomes() -> Iterator[Outcomes]:
        for part in in_order(look, pieces_of(version.predictions.logits, _PIECE)):
            found.append(part.scores)
            yield part.outcomes

    joined = Outcomes.joined(outcomes())
    return PerImage(joined, {name: torch.cat([part[name] for part in found]) for name in scores})
