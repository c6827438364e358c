"""The answers of a model on the test images, for whoever decides about using it: counts, mistakes and confusions.

These sections come first on the page of one model. The HTML is in templates/answers.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from regmixup.evaluation.curves import GetImages, thumbnail
from regmixup.names import counted, percent, shortened
from regmixup.report.page import PageSection, fill

EVERYTHING = "none: answers everything"
SIDE = 160
"""The longest side of an image on the page, in pixels."""
MOST_CLASSES = 40
"""Classes in a confusion matrix, and in the table of classes."""
_PICTURES, _PAIRS, _PAIR_PICTURES, _TIED = 24, 6, 4, 3


@dataclass(frozen=True)
class Counts:
    """Counts at a threshold: test images, those answered, and those answered rightly; OOD images answered."""

    images: int
    answers: int
    right: int
    others: int = 0

    def __str__(self) -> str:
        """
        >>> print(Counts(images=100, answers=91, right=90))
        Answers 91 of 100 test images, 90 of those right; asks a person for 9
        """
        answers = f"Answers {self.answers:,} of {counted(self.images, 'test image')}"
        return f"{answers}, {self.right:,} of those right; asks a person for {self.images - self.answers:,}"


@dataclass(frozen=True)
class Answers:
    """The answers to N test images.

    truth, label: (N,) the true class and the answer. sure: (N,) its probability. score: (N,) larger where the model is
    less sure. thresholds: by title, the largest score that is answered; the chosen one first. classes: K names. look:
    gets at the images, where they are here. others: (M,) the score of OOD images. note: a sentence to begin
    with. compared: what the thresholds compare, in words, where it is not the probability.
    """

    truth: Tensor
    label: Tensor
    sure: Tensor
    score: Tensor
    thresholds: Mapping[str, float]
    classes: Sequence[str]
    look: GetImages | None = None
    others: Tensor = field(default_factory=lambda: torch.empty(0))
    note: str = ""
    compared: str = ""

    def counts(self) -> dict[str, Counts]:
        """Return what each threshold does."""
        right = self.label == self.truth
        counts = {}
        for title, threshold in self.thresholds.items():
            answered = self.score <= threshold
            others = self.others <= threshold
            counts[title] = Counts(len(right), int(answered.sum()), int((answered & right).sum()), int(others.sum()))
        return counts

    def confusion(self) -> Tensor:
        """Return how often class i was answered as j, (K, K)."""
        size = len(self.classes)
        return torch.bincount(self.truth * size + self.label, minlength=size**2).reshape(size, size)

    def pairs(self) -> list[tuple[int, int, Tensor]]:
        """Return pairs of classes and the places of the images of one that were taken for the other, most first."""
        places = (self.label != self.truth).nonzero()[:, 0]
        both = torch.stack([self.truth, self.label])[:, places].sort(dim=0).values
        kinds, numbers, sizes = both.unique(dim=1, return_inverse=True, return_counts=True)
        order = sizes.argsort(descending=True, stable=True).tolist()
        return [(*kinds[:, kind].tolist(), places[numbers == kind]) for kind in order]

    def pictures(self, places: Tensor, most: int) -> list[dict[str, object]]:
        """Return images and what was said of them, the surest first; none where the images are not here."""
        first = places[self.sure[places].argsort(descending=True, stable=True)][:most].tolist()
        images = self.look(first) if self.look is not None and first else []
        return [
            {
                "image": thumbnail(image, side=SIDE),
                "said": self.classes[int(self.label[place])],
                "sure": percent(float(self.sure[place])),
                "truth": self.classes[int(self.truth[place])],
                "file": Path(image).name if isinstance(image, (str, Path)) else "",
            }
            for place, image in zip(first, images, strict=False)
        ]

    def sections(self) -> Iterator[PageSection]:
        """Yield the sections of a page: what it answers, mistakes as pictures, which classes are confused."""
        counts = fill("answers.html", "answers", self.counts(), len(self.others), self.note)
        yield PageSection("answers", "What it answers", counts)
        wrong = self.label != self.truth
        asked = ~(self.score <= next(iter(self.thresholds.values())))  # by the chosen threshold; a NaN is asked
        groups = {
            "Wrong, and sure enough to answer": wrong & ~asked,
            "Wrong, but left to a person": wrong & asked,
            "Right, but left to a person": ~wrong & asked,
        }
        shown = [
            (title, int(chosen.sum()), self.pictures(chosen.nonzero()[:, 0], _PICTURES))
            for title, chosen in groups.items()
        ]
        if any(pictures for _, _, pictures in shown):
            yield PageSection("mistakes", "Mistakes", fill("answers.html", "mistakes", shown, self.compared))
        matrix = self.confusion().tolist() if len(self.classes) <= MOST_CLASSES else []
        tables = fill("answers.html", "classes", self.classes, matrix, self._class_lines())
        yield PageSection("classes", "Classes", tables)
        pairs = [
            (self.classes[first], self.classes[second], len(places), self.pictures(places, _PAIR_PICTURES))
            for first, second, places in self.pairs()[:_PAIRS]
            if len(places) > 1
        ]
        if pairs:
            yield PageSection("pairs", "Classes most often confused", fill("answers.html", "pairs", pairs))

    def _class_lines(self) -> list[tuple[str, int, int, str]]:
        """Return a line for each class, those with the smallest share of right answers first."""
        lines = []
        for label, name in enumerate(self.classes):
            answers = self.label[self.truth == label]
            wrong = answers[answers != label]
            counts = torch.bincount(wrong, minlength=1)
            most = [self.classes[place] for place in (counts == counts.max()).nonzero()[:, 0].tolist()]
            confused = shortened(most, _TIED) if len(wrong) else ""
            lines.append((name, len(answers), len(answers) - len(wrong), confused))
        return sorted(lines, key=lambda line: line[2] / max(line[1], 1))[:MOST_CLASSES]
