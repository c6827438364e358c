"""What a run reports: callbacks, means over an epoch, throughput, and curves in which an interruption does not show."""

import math

import pytest
import torch

import regmixup as rm
from regmixup.training import loop
from regmixup.training.reporting import Tally, means
from regmixup.types import RESERVED, VALIDATED
from tests.training.short import EVERY_STEP, IMAGES, STEPS, config, interrupt

CPU = torch.device("cpu")


@pytest.fixture
def _look_every_three_steps(monkeypatch):
    monkeypatch.setattr(loop, "READ_EVERY", 3)
    monkeypatch.setattr(loop, "REPORT_SECONDS", math.inf)


@pytest.fixture
def listen():
    """All that callbacks are told, in order."""
    told = []
    names = ("on_start", "on_step", "on_epoch")
    return told, {name: (lambda record, name=name: told.append((name, record))) for name in names}


@pytest.mark.usefixtures("few_digits", "_look_every_three_steps")
class TestCallbacks:
    def test_the_start_once_then_steps_and_the_epoch_they_belong_to(self, tmp_path, listen):
        told, hooks = listen
        run = rm.train(config(epochs=2, warmup_epochs=1.0), tmp_path, device="cpu", **hooks)
        assert [name for name, _ in told] == ["on_start", *["on_step", "on_step", "on_epoch"] * 2]
        assert told[0][1] == run.provenance()["execution"] == "cpu: float32, not compiled"
        steps = [record for name, record in told if name == "on_step"]
        places = [(1, 3, STEPS), (1, 4, STEPS), (2, 3, STEPS), (2, 4, STEPS)]
        assert [(record["epoch"], record["step"], record["steps"]) for record in steps] == places
        assert [record["lr"] for record in steps] == [
            run.config.lr_at(epoch - 1 + (step - 1) / STEPS) for epoch, step, _ in places
        ]
        epochs = [record for name, record in told if name == "on_epoch"]
        assert epochs == run.history()
        for step, epoch in zip(steps[1::2], epochs, strict=True):
            names = {"loss", "clean", "mixed", "train_accuracy"}
            assert {name: step[name] for name in names} == {name: epoch[name] for name in names}
        reported = {name for record in (*steps, *epochs) for name in record}
        assert reported - {"clean", "mixed"} == {*RESERVED} - {*VALIDATED}, (
            "a part of that name would replace the number"
        )
        for record in steps:
            assert record["images_per_second"] * record["seconds_per_epoch"] == pytest.approx(IMAGES)

    def test_a_callback_that_is_an_empty_list_of_its_own_records_is_called(self, tmp_path):
        class Records(list):
            __call__ = list.append

        starts, steps, epochs = Records(), Records(), Records()
        run = rm.train(config(epochs=1), tmp_path, device="cpu", on_start=starts, on_step=steps, on_epoch=epochs)
        assert (len(starts), len(steps), epochs) == (1, 2, run.history())

    def test_a_resumed_run_is_told_means_since_its_epoch_began(self, tmp_path, listen):
        told, hooks = listen
        interrupt(config(epochs=1), tmp_path, after=2, **hooks)
        assert [name for name, _ in told] == ["on_start"]
        run = rm.train(config(epochs=1), tmp_path, device="cpu", **hooks)
        assert told[-2][0] == "on_step"
        assert told[-2][1]["loss"] == run.history()[0]["loss"]

    def test_the_recorded_seconds_count_epochs_whose_records_are_lost(self, tmp_path):
        """A damaged line of the history must not make a training look cheaper."""

        def stop(record):
            if record["epoch"] == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            rm.train(config(epochs=4), tmp_path, device="cpu", on_epoch=stop, engine=EVERY_STEP)
        (history,) = tmp_path.glob("*/history.jsonl")
        first, _, *others = history.read_text().splitlines()
        history.write_text("\n".join([first, "{", *others]) + "\n")
        with pytest.warns(UserWarning, match=r"history\.jsonl is damaged in line 2 of 3"):
            run = rm.train(config(epochs=4), tmp_path, device="cpu", engine=EVERY_STEP)
        records = run.history()
        assert [record["epoch"] for record in records] == [1, 3, 4]
        mean = sum(record["seconds"] for record in records) / 3
        assert run.provenance()["seconds"] == pytest.approx(4 * mean, abs=1e-3)

    def test_the_seconds_of_an_ensemble_are_those_its_members_recorded(self, tmp_path):
        first, second = (rm.train(config(epochs=1, seed=seed), tmp_path, device="cpu") for seed in (0, 1))
        (first.folder / "history.jsonl").write_text("{")
        with pytest.warns(UserWarning, match="damaged"):
            run = rm.train(config(epochs=1, members=2), tmp_path, device="cpu")
        seconds = [member.provenance()["seconds"] for member in (first, second)]
        assert [member.folder for member in run.members()] == [first.folder, second.folder]
        assert run.provenance()["seconds"] == pytest.approx(sum(seconds), abs=1e-3)

    @pytest.mark.parametrize("hook", ["on_start", "on_epoch"])
    def test_an_error_in_a_hook_is_the_callers_and_the_run_can_go_on(self, tmp_path, hook):
        def broken(record):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            rm.train(config(epochs=1), tmp_path, device="cpu", **{hook: broken})
        assert rm.train(config(epochs=1), tmp_path, device="cpu").finished

    def test_members_of_an_ensemble_follow_each_other(self, tmp_path):
        steps, epochs = [], []
        hooks = {"on_step": steps.append, "on_epoch": epochs.append}
        run = rm.train(config(epochs=1, members=3), tmp_path, device="cpu", tensorboard=True, **hooks)
        assert [record["loss"] for record in epochs] == [member.history()[0]["loss"] for member in run.members()]
        ends = [(record["epoch"], record["step"]) for record in steps if record["step"] == STEPS]
        assert ends == [(1, STEPS), (2, STEPS), (3, STEPS)]
        assert not list(run.folder.glob("events*"))
        assert all(len(list(member.folder.glob("events*"))) == 1 for member in run.members())

    def test_a_cpu_is_looked_at_by_the_clock_too(self, tmp_path, monkeypatch):
        steps = []
        monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)
        rm.train(config(epochs=1), tmp_path, device="cpu", on_step=steps.append)
        assert [record["step"] for record in steps] == list(range(1, STEPS + 1))


@pytest.mark.usefixtures("few_digits", "_look_every_three_steps")
def test_curves_in_tensorboard_have_every_step_once_though_the_run_was_killed(tmp_path, listen):
    """Killed by an error after step 3 of epoch 2, before it is saved: the step is trained, and written, twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(record):
        if (record["epoch"], record["step"]) == (2, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.train(config(), tmp_path, device="cpu", tensorboard=True, on_step=stop, engine=EVERY_STEP)
    run = rm.train(config(), tmp_path, device="cpu", tensorboard=True)
    assert len(list(run.folder.glob("events*"))) == 2
    events = EventAccumulator(str(run.folder)).Reload()
    curves = {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert {"epoch/loss", "epoch/seconds", "step/clean", "step/lr", "step/images_per_second"} <= curves.keys()
    assert not {"step/epoch", "step/step", "step/steps", "epoch/epoch"} & curves.keys()
    assert [step for step, _ in curves["step/loss"]] == [3, 4, 7, 8, 11, 12]
    losses = [record["loss"] for record in run.history()]
    assert [step for step, _ in curves["epoch/loss"]] == [4, 8, 12]
    assert [loss for _, loss in curves["epoch/loss"]] == pytest.approx(losses, rel=1e-6)  # float32 in the file
    assert [loss for _, loss in curves["step/loss"][1::2]] == pytest.approx(losses, rel=1e-6)


def test_missing_tensorboard_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("regmixup.training.train.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"need TensorBoard: pip install 'regmixup\[tensorboard\]'"):
        rm.train(config(members=2), tmp_path, device="cpu", tensorboard=True)
    assert not list(tmp_path.iterdir())


def test_restoring_forgets_what_was_there_and_keeps_the_tensors():
    """A captured step adds to the tensors that it was captured with."""
    tally = Tally(CPU)
    tally.add(("loss",), torch.tensor([3.0]), 1)
    tally.add(("loss", "clean"), torch.tensor([4.0, 5.0]), 2)
    tensors = {names: tensor.data_ptr() for names, tensor in tally._sums.items()}
    tally.restore({("loss",): [8.0, 4.0]})
    assert tally.totals() == {("loss",): [8.0, 4.0]}
    assert {names: tensor.data_ptr() for names, tensor in tally._sums.items()} == tensors
    tally.restore({})
    assert tally.totals() == {}
    assert means(tally.totals()) == {}
