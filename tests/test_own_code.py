"""Code of the user's own that has no file, or is not registered: it enters fingerprints all the same."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup import plugins
from regmixup.config import decode, encode, fingerprint
from regmixup.training.config import resolve

CPU = torch.device("cpu")
OWN_OBJECTIVE = """
import regmixup as rm
from regmixup.objectives.erm import ERM

class Scaled(ERM):
    def compute(self, model, x, y, draw):
        return super().compute(model, x, 2 * y, draw)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "own_objective.py"


@pytest.mark.parametrize(
    ("old", "new"), [("8, 3", "9, 3"), ("relu", "gelu"), ("side = 2", "side = 3"), ("return 1", "return 0")]
)
def test_a_class_that_was_typed_in_differs_with_its_code(forget, old, new):
    code = """
class Typed(nn.Module):
    side = 2
    @staticmethod
    def axis():
        return 1
    def __init__(self, num_classes):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3)
    def forward(self, x):
        return nn.functional.relu(self.first(x))
"""
    found = []
    for text in (code, code, code.replace(old, new)):
        space = {"__name__": "typed_in", "nn": nn}
        exec(text + "\nrm.networks.register('typed', Typed)", space | {"rm": rm})
        found.append(plugins.REGISTERED["network", "typed"].sha256)
    assert found[0] == found[1] != found[2]


def test_an_unregistered_objective_that_is_edited_is_another_run(own, forget, monkeypatch):
    names = []
    for text in (OWN_OBJECTIVE, OWN_OBJECTIVE, OWN_OBJECTIVE.replace("2 * y", "y")):
        own.write_text(text)
        sys.modules.pop("own_objective", None)
        objective = __import__("own_objective").Scaled()
        for given in (objective, rm.Alternate(objective, rm.ERM())):
            names.append(fingerprint(resolve(rm.configure("digits", objective=given), CPU)))
    assert names[:2] == names[2:4]
    assert not set(names[:2]) & set(names[4:])


def test_an_unregistered_objective_is_read_back_once_its_module_is_imported(own, forget, monkeypatch):
    own.write_text(OWN_OBJECTIVE.replace("2 * y", "y"))
    objective = __import__("own_objective").Scaled()
    run = rm.train(rm.configure("digits", objective=objective, epochs=1, network="small"), "runs", device="cpu")
    assert rm.Run.open(run.folder).config.objective == objective
    del plugins.REGISTERED["class", "own_objective.Scaled"]
    with pytest.raises(
        ValueError, match=r"the class 'own_objective.Scaled' of the plugin own_objective, which is not loaded"
    ):
        rm.Run.open(run.folder)


def test_an_objective_must_have_a_name_of_its_own_and_record_its_values():
    class Hidden(rm.ERM):
        def __init__(self, strength):
            object.__setattr__(self, "strength", strength)

    named = type("RegMixup", (rm.ERM,), {})
    for objective, message in ((named(), "must have a new name, got RegMixup"), (Hidden(1), "must be a dataclass")):
        with pytest.raises(ValueError, match=message):
            resolve(rm.configure("digits", objective=objective), CPU)
    stored = encode(rm.RegMixup(5))
    assert type(decode(rm.Objective, stored)) is rm.RegMixup
