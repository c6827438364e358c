"""The paper's rows by name: which objective with which values. Plain data; listing it imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regmixup.names import check_name


@dataclass(frozen=True)
class Spec:
    """An objective by its command-line name, with the fields that differ from its defaults."""

    objective: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A named combination.

    spec: the objective. score: the OOD score the paper uses for this method (Appendix on OOD detection).
    """

    name: str
    spec: Spec
    description: str
    citation: str
    score: str = "dempster_shafer"


_METHODS = (
    Method("dnn", Spec("erm"), "plain cross-entropy", "Vapnik, 1991"),
    Method(
        "label-smoothing",
        Spec("label_smoothing"),
        "cross-entropy on labels moved 0.1 towards uniform",
        "Szegedy et al., 2016",
    ),
    Method(
        "mixup",
        Spec("mixup", {"alpha": 0.3}),
        "cross-entropy on mixed images alone, alpha 0.3",
        "Zhang et al., 2018",
        score="entropy",
    ),
    Method("cutmix", Spec("cutmix"), "cross-entropy on images with a pasted rectangle", "Yun et al., 2019"),
    Method("regmixup", Spec("regmixup"), "clean cross-entropy + strongly mixed one, alpha 20", "Pinto et al., 2022"),
    Method("regcutmix", Spec("regcutmix"), "clean cross-entropy + CutMix", "Pinto et al., 2022, appendix"),
    Method(
        "mixup+cutmix",
        Spec("alternate", {"first": Spec("mixup", {"alpha": 0.3}), "second": Spec("cutmix")}),
        "Mixup or CutMix, a coin at every step",
        "Pinto et al., 2022, appendix",
    ),
    Method(
        "regmixup+cutmix",
        Spec("alternate", {"first": Spec("regmixup"), "second": Spec("cutmix")}),
        "RegMixup or CutMix, a coin at every step",
        "Pinto et al., 2022, appendix",
    ),
    Method(
        "regmixup+regcutmix",
        Spec("alternate", {"first": Spec("regmixup"), "second": Spec("regcutmix")}),
        "RegMixup or RegCutMix, a coin at every step",
        "Pinto et al., 2022, appendix",
    ),
)
METHODS = {method.name: method for method in _METHODS}


def get(name: str) -> Method:
    """A method by name, or an error with the nearest one."""
    return METHODS[check_name("method", name, METHODS)]
