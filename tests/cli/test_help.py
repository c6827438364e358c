"""The help of every verb: it reads source code, so it is compared with the classes that the code defines."""

import dataclasses
from importlib import import_module
from pathlib import Path

import pytest

from regmixup.cli import VERBS, help
from regmixup.cli.data import ACTIONS
from regmixup.training.engine import Engine
from tests.cli.running import run

CLASSES = {verb: f"{verb.capitalize()}Verb" for verb in VERBS if verb not in ("data", "train")}
CLASSES |= {f"data {action}": cls.__name__ for action, (cls, _) in ACTIONS.items()}


def flags_of(cls):
    """Return the fields of a dataclass by name, those of an engine in place of it."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if fields.pop("engine", None):
        fields |= {field.name: field for field in dataclasses.fields(Engine)}
    return fields


@pytest.mark.parametrize("verb", CLASSES)
def test_the_help_has_every_flag_with_its_default(verb, capsys):
    module = verb.partition(" ")[0]
    fields = flags_of(getattr(import_module(f"regmixup.cli.{module}"), CLASSES[verb]))
    assert run(*verb.split(), "--help") == 0
    text = capsys.readouterr().out
    words = text.split()
    for name, field in fields.items():
        read = help.read_fields(f"cli/{module}.py", CLASSES[verb])[name]
        assert read.flag(name).split()[0] in words
        if isinstance(field.default, str | int | float | Path) and field.default not in ("", False):
            assert f"[{field.default}]" in words, f"{verb} --help does not show the default of {name}"


def test_a_flag_of_several_values_and_an_argument_that_may_be_left_out_are_marked(capsys):
    assert run("evaluate", "--help") == 0
    assert "--ood ..." in capsys.readouterr().out
    assert run("list", "--help") == 0
    assert "usage: regmixup list [WHAT] [options]" in capsys.readouterr().out


def test_an_example_stands_on_one_line(capsys):
    assert run("finetune", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Example: regmixup finetune labels.csv --freeze --ood ~/other-images" in lines
    assert max(map(len, lines)) > 100


def test_the_loss_of_train_is_that_of_the_method(capsys):
    assert run("train", "--method", "logitnorm", "--help") == 0
    assert "none: plain cross-entropy. [logitnorm]" in " ".join(capsys.readouterr().out.split())


def test_the_objective_of_train_has_the_fields_that_it_inherits(capsys):
    assert run("train", "--method", "half-regmixup", "--help") == 0
    own = capsys.readouterr().out.partition("of the method half-regmixup:")[2]
    assert [flag for flag in ("--share", "--alpha", "--eta") if flag not in own] == []
