"""What a training tells whoever listens."""

import math

import pytest

import regmixup as rm
from regmixup.training import loop, reporting
from regmixup.training.stopping import Interrupted
from tests.training.short import IMAGES, STEPS, config, signal_after

pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.fixture
def listen():
    """All that is told, in order."""
    told = []
    names = ("on_start", "on_step", "on_epoch")
    return told, {name: (lambda value, name=name: told.append((name, value))) for name in names}


def test_the_start_once_then_steps_and_the_epoch_they_belong_to(tmp_path, monkeypatch, listen):
    monkeypatch.setattr(loop, "READ_EVERY", 3)
    told, hooks = listen
    run = rm.train(config(epochs=2), tmp_path, device="cpu", **hooks)
    assert [name for name, _ in told] == ["on_start", *["on_step", "on_step", "on_epoch"] * 2]
    assert str(told[0][1]) == run.provenance()["execution"] == "cpu: float32, not compiled"
    steps = [record for name, record in told if name == "on_step"]
    assert [(record["epoch"], record["step"], record["steps"]) for record in steps] == [
        (1, 3, STEPS),
        (1, 4, STEPS),
        (2, 3, STEPS),
        (2, 4, STEPS),
    ]
    epochs = [record for name, record in told if name == "on_epoch"]
    assert epochs == run.history()
    for step, epoch in zip(steps[1::2], epochs, strict=True):
        means = {"loss", "clean", "mixed", "train_accuracy"}
        assert {name: step[name] for name in means} == {name: epoch[name] for name in means}
    assert "images_per_second" not in steps[0]
    for record in steps[1:]:
        assert record["images_per_second"] * record["seconds_per_epoch"] == pytest.approx(IMAGES)


def test_a_resumed_run_is_told_means_since_its_epoch_began(tmp_path, monkeypatch, listen):
    monkeypatch.setattr(reporting, "_DUE", math.inf)
    told, hooks = listen
    with signal_after(2), pytest.raises(Interrupted):
        rm.train(config(epochs=1), tmp_path, device="cpu", **hooks)
    assert [name for name, _ in told] == ["on_start"]
    run = rm.train(config(epochs=1), tmp_path, device="cpu", **hooks)
    step = next(record for name, record in told if name == "on_step")
    assert step["loss"] == run.history()[0]["loss"]


@pytest.mark.parametrize("hook", ["on_start", "on_epoch"])
def test_an_error_in_a_hook_is_the_callers_and_the_run_can_go_on(tmp_path, hook):
    def broken(value):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rm.train(config(epochs=1), tmp_path, device="cpu", **{hook: broken})
    assert rm.train(config(epochs=1), tmp_path, device="cpu").finished
