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


def test_what_was_typed_in_is_known_by_its_name_and_the_source_that_there_is(forget):
    checksums = []
    for name in ("Typed", "Typed", "Other"):
        code = f"class {name}(nn.Module):\n    pass\nrm.networks.register('typed', {name})"
        exec(code, {"__name__": "typed_in", "nn": nn, "rm": rm})
        checksums.append(plugins.REGISTERED["network", "typed"].sha256)
    assert checksums[0] == checksums[1] != checksums[2]


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
