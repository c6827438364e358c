"""Where the paper contradicts itself: numbers that cannot both be right, best numbers not marked, text that miscounts.

Tables are kept as printed; a slip says what a reader should not chase. The marks that the numbers ask for, and numbers
that stand twice, are computed from the tables by a test, which finds these slips and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regmixup.paper import DOUBTS, At
from regmixup.report.significance import Marks


@dataclass(frozen=True)
class Slip:
    """kind: about a number, about the marking of the best one, or about the text.

    cells: the cells it is about. correct: for marks, what the numbers ask for at each of the cells.
    place: the section of a statement in the text.
    """

    kind: Literal["number", "mark", "text"]
    sentence: str
    cells: tuple[At, ...] = ()
    correct: tuple[Marks, ...] = ()
    place: str = ""


_NEITHER, _BOLD, _UNDERLINE, _BOTH = Marks(), Marks(True), Marks(False, True), Marks(True, True)


def _mark(table: str, column: str, correct: Mapping[str, Marks], sentence: str) -> Slip:
    return Slip("mark", sentence, tuple(At(table, line, column) for line in correct), tuple(correct.values()))


def _text(place: str, sentence: str) -> Slip:
    return Slip("text", sentence, place=place)


_OURS = "RegMixup (our)"
_NUMBERS = tuple(Slip("number", *doubt) for doubt in DOUBTS)
_MARKS = (
    _mark(
        "5",
        "resnet50 cifar10 svhn/test",
        {_OURS: _BOLD, "DE (5×)": _UNDERLINE},
        "The paper underlines RegMixup's 95.39; the ensemble's 96.90 is best.",
    ),
    _mark(
        "5",
        "resnet50 cifar10 tiny-imagenet/val",
        {"DE (5×)": _UNDERLINE},
        "The paper underlines nothing; the ensemble's 90.5 is best.",
    ),
    _mark(
        "10 left",
        "resnet50 cifar10 cifar10/test",
        {"RegMixup (Ours)": _BOTH},
        "The paper marks nothing; RegMixup's 1.40 is best.",
    ),
    _mark(
        "10 left",
        "wrn28-10 cifar10 cifar10-c",
        {"Mixup": _NEITHER},
        "The paper marks Mixup's 7.93 beside AugMix's 5.77, which is best.",
    ),
    *(
        _mark(
            "10 right",
            f"{network} cifar100 {dataset}",
            {"RegMixup (Ours)": _BOTH},
            f"The paper marks nothing; RegMixup's {best} is best.",
        )
        for network, dataset, best in (
            ("resnet50", "cifar100/test", "3.92"),
            ("resnet50", "cifar100-c", "13.68"),
            ("wrn28-10", "cifar100/test", "2.47"),
            ("wrn28-10", "cifar100-c", "10.49"),
        )
    ),
    _mark(
        "15",
        "wrn28-10 cifar100 cifar100/test",
        {_OURS: _NEITHER, "Mixup": _BOTH},
        "The paper marks RegMixup's 1.65; Mixup's 1.16 is best.",
    ),
    _mark(
        "18",
        "wrn28-10 cifar10 cifar10/test",
        {"RegMixup": _NEITHER, "ViT-RegMixup+RegCutMix": _BOLD},
        "The paper prints RegMixup's 97.46 bold; 97.47 is best.",
    ),
    _mark(
        "18",
        "wrn28-10 cifar10 tiny-imagenet/val",
        {"RegCutMix": _NEITHER},
        "The paper prints 91.68 bold beside 91.70, which is best.",
    ),
)
_TEXTS = (
    _text("Section 2", "Mixup's α is said to be about 0.2 in most cases; Table 9 has 0.3 four times and 0.1 once."),
    _text("Section 2", "RegMixup over Mixup on Tiny-ImageNet is given as 6.15; Table 1 makes it 6.17."),
    _text(
        "Section 4",
        "DUQ is said not to be reported where trained on CIFAR-100; Table 3 has 50.4 for it, which Appendix B says was "
        "borrowed.",
    ),
    _text(
        "Section 4.1",
        "SNGP, DUQ and KFAC-LLLA are said to be less accurate than DNN; with ResNet-50, KFAC-LLLA is more accurate on "
        "both sets of Table 2 (95.21 against 95.19, 79.41 against 79.19).",
    ),
    _text(
        "Section 4.2",
        "SNGP is named as the one single model that detects better than RegMixup, for WRN28-10 and CIFAR-10 against "
        "CIFAR-100; in the same column of Table 5 AugMix does so too (89.78 against 89.63).",
    ),
    _text("Appendix A", "RegMixup over SNGP on C100-C is given as 2.47; Table 8 makes it 10.43 - 7.93 = 2.50."),
    _text(
        "Appendix A",
        "RegMixup is said to be best calibrated under shift everywhere but on C10-C; on ImageNet-R and -Sketch "
        "AugMix is (Table 7).",
    ),
    _text(
        "Appendix B", "Table 9 has no T for AugMix, whose calibration Tables 6 to 8 and 15 to 17 give after scaling."
    ),
    _text("Appendix B", "Table 9 calls DNN-SRN DNN-SR."),
    _text(
        "Appendix H",
        "RegMixup+CutMix is said to be inferior to Mixup+CutMix most of the time; it is in 12 of the 24 columns of "
        "Tables 18 and 19.",
    ),
)
SLIPS = (*_NUMBERS, *_MARKS, *_TEXTS)


def slips_by_cell(*kinds: str) -> dict[At, list[str]]:
    """Return the sentences about each cell, of some kinds of slips."""
    found: dict[At, list[str]] = {}
    for slip in SLIPS:
        for at in slip.cells if slip.kind in kinds else ():
            found.setdefault(at, []).append(slip.sentence)
    return found
