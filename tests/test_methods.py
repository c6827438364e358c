"""The paper's rows by name: each can be built, and names only what exists."""

import subprocess
import sys

import pytest

from regmixup import methods
from regmixup.evaluation.scores import SCORES
from regmixup.methods import METHODS, Spec
from regmixup.objectives import OBJECTIVES
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.erm import ERM
from regmixup.objectives.label_smoothing import LabelSmoothing
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.regcutmix import RegCutMix
from regmixup.objectives.regmixup import RegMixup
from regmixup.training.config import objective_of

EXPECTED = {
    "dnn": ERM(),
    "label-smoothing": LabelSmoothing(),
    "mixup": Mixup(alpha=0.3),
    "cutmix": CutMix(),
    "regmixup": RegMixup(alpha=20.0, eta=1.0),
    "regcutmix": RegCutMix(),
    "mixup+cutmix": Alternate(Mixup(alpha=0.3), CutMix()),
    "regmixup+cutmix": Alternate(RegMixup(), CutMix()),
    "regmixup+regcutmix": Alternate(RegMixup(), RegCutMix()),
}


def objectives_of(spec):
    return {spec.objective}.union(*(objectives_of(v) for v in spec.fields.values() if isinstance(v, Spec)))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_papers_rows_have_the_papers_values(name):
    assert objective_of(METHODS[name].spec) == EXPECTED[name]


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_every_method_builds_the_objective_it_names(method):
    assert type(objective_of(method.spec)) is OBJECTIVES[method.spec.objective]


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_every_method_names_what_exists(method):
    assert method.score in SCORES
    assert objectives_of(method.spec) <= set(OBJECTIVES)
    assert method.description
    assert method.citation


def test_names_are_unique_and_lead_to_their_methods():
    listed = [method.name for method in methods._METHODS]
    assert len(set(listed)) == len(listed) == len(METHODS)
    assert all(methods.get(name).name == name for name in listed)


def test_different_methods_are_different_objectives():
    built = [objective_of(method.spec) for method in METHODS.values()]
    assert len(set(built)) == len(built)


def test_the_paper_uses_entropy_for_mixup_and_dempster_shafer_elsewhere():
    assert METHODS["mixup"].score == "entropy"
    assert {METHODS[name].score for name in ("dnn", "regmixup", "cutmix")} == {"dempster_shafer"}


def test_an_unknown_method_comes_with_the_nearest():
    with pytest.raises(ValueError, match="unknown method 'regmixpu': did you mean 'regmixup'"):
        methods.get("regmixpu")


def test_a_field_that_no_objective_has_is_refused():
    with pytest.raises((TypeError, ValueError), match="alhpa"):
        objective_of(Spec("mixup", {"alhpa": 1}))


def test_listing_methods_and_recipes_imports_no_torch():
    code = "import sys, regmixup.methods, regmixup.recipes, regmixup.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
