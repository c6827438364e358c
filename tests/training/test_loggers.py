"""Curves: what loggers are told, and that an interruption does not show in them."""

from importlib.util import find_spec

import pytest

import regmixup as rm
from regmixup.training import loggers as loggers_module
from regmixup.training import loop

STEPS = 8  # of 64 images in an epoch of 450; the last has 2
LOOKS = (3, 6, 8)


@pytest.fixture(autouse=True)
def _look_every_three_steps(monkeypatch):
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)


def config(**changes):
    return rm.configure("digits", **{"method": "regmixup", "epochs": 2, "dropout": 0.2, **changes})


class Recorder:
    """Shaped like a run of W&B: further optional arguments, values read later."""

    def __init__(self):
        self.logged, self.started, self.closed = [], [], 0

    def log(self, data, step=None, commit=None):
        self.logged.append((step, dict(data)))

    def start(self, step, steps):
        self.started.append((step, steps))

    def close(self):
        self.closed += 1

    def curve(self, name):
        return [(step, values[name]) for step, values in self.logged if name in values]


def test_looks_add_up_to_epochs_and_epochs_are_those_of_the_history(tmp_path):
    recorder = Recorder()
    run = rm.train(config(warmup_epochs=1.0), tmp_path, device="cpu", loggers=[recorder])
    history = run.history()
    assert recorder.curve("epoch") == [(STEPS, 1), (2 * STEPS, 2)]
    for name in set(history[0]) - {"epoch"}:
        assert recorder.curve(f"epoch/{name}") == [(STEPS * r["epoch"], r[name]) for r in history]
    for epoch, record in enumerate(history):
        for name in ("loss", "clean", "mixed", "train_accuracy"):
            points = recorder.curve(f"step/{name}")[3 * epoch : 3 * epoch + 3]
            assert [step - epoch * STEPS for step, _ in points] == list(LOOKS)
            counts = [3 * 64, 3 * 64, 64 + 2]
            mean = sum(value * count for (_, value), count in zip(points, counts, strict=True)) / 450
            assert mean == pytest.approx(record[name], rel=1e-12)
    rates = [run.config.lr_at((step - 1) / STEPS) for step, _ in recorder.curve("step/lr")]
    assert [lr for _, lr in recorder.curve("step/lr")] == rates
    speeds = recorder.curve("step/images_per_second")
    assert [step for step, _ in speeds] == [6, 8, 11, 14, 16]  # nothing is known at the first look
    assert all(speed > 0 for _, speed in speeds)


def test_a_plain_function_is_called_as_mlflow_s_is(tmp_path):
    calls = []

    def log_metrics(metrics, step=None, synchronous=None):
        assert type(metrics) is dict
        calls.append((metrics, step))

    run = rm.train(config(epochs=1), tmp_path, device="cpu", loggers=[rm.FunctionLogger(log_metrics)])
    assert [step for _, step in calls] == [*LOOKS, STEPS]
    assert calls[-1][0]["epoch/loss"] == run.history()[0]["loss"]


def test_a_logger_is_told_where_training_goes_on_and_when_it_ends(tmp_path):
    def stop(record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    first, second, third = Recorder(), Recorder(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        rm.train(config(epochs=4, cooldown_epochs=1), tmp_path, device="cpu", loggers=[first], on_epoch=stop,
                 engine=rm.Engine(checkpoint_epochs=2))  # fmt: skip
    rm.train(config(epochs=4, cooldown_epochs=1), tmp_path, device="cpu", loggers=[second])
    rm.train(config(epochs=4, cooldown_epochs=1), tmp_path, device="cpu", loggers=[third])
    assert (first.started, second.started, third.started) == ([(0, 5 * STEPS)], [(2 * STEPS, 5 * STEPS)], [])
    assert (first.closed, second.closed) == (1, 1)
    assert [step for step, _ in second.curve("epoch")] == [STEPS * epoch for epoch in (3, 4, 5)]
    again = {name: value for name, value in first.logged[-1][1].items() if name != "epoch/seconds"}
    assert again.items() <= dict(second.logged[3][1]).items()
    assert third.logged == []  # it was finished


def test_members_of_an_ensemble_follow_each_other(tmp_path):
    recorder, steps, ensemble = Recorder(), [], config(epochs=1, members=3)
    run = rm.train(ensemble, tmp_path, device="cpu", loggers=[recorder], on_step=steps.append, tensorboard=True)
    losses = [member.history()[0]["loss"] for member in run.members()]
    assert recorder.curve("epoch/loss") == [(STEPS * (m + 1), loss) for m, loss in enumerate(losses)]
    assert [step for step, _ in recorder.curve("step/loss")] == [STEPS * m + look for m in range(3) for look in LOOKS]
    assert recorder.started == [(STEPS * m, STEPS * (m + 1)) for m in range(3)]
    assert recorder.closed == 1
    assert [(s["epoch"], s["step"]) for s in steps if s["step"] == STEPS] == [(1, STEPS), (2, STEPS), (3, STEPS)]
    assert not list(run.folder.glob("events*"))
    assert all(len(list(member.folder.glob("events*"))) == 1 for member in run.members())


def test_a_logger_that_fails_is_left_out_and_training_goes_on(tmp_path):
    class Offline(Recorder):
        def log(self, data, step=None):
            super().log(data, step)
            raise ConnectionError("no network")

    offline, recorder = Offline(), Recorder()
    with pytest.warns(UserWarning, match=r"Offline is left out .* ConnectionError\('no network'\)"):
        run = rm.train(config(), tmp_path, device="cpu", loggers=[offline, recorder])
    assert len(offline.logged) == 1
    assert len(recorder.logged) == 2 * len(LOOKS) + 2
    assert run.finished


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_curves_in_tensorboard_have_every_step_once_though_the_run_was_killed(tmp_path):
    """Killed in epoch 3, with a checkpoint after epoch 2: epoch 3 is trained, and logged, twice."""
    recorder, whole = Recorder(), config(epochs=4)

    def stop(record):
        if (record["epoch"], record["step"]) == (3, 6):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.train(whole, tmp_path / "a", device="cpu", tensorboard=True, on_step=stop,
                 engine=rm.Engine(checkpoint_epochs=2))  # fmt: skip
    run = rm.train(whole, tmp_path / "a", device="cpu", tensorboard=True)
    assert len(list(run.folder.glob("events*"))) == 2
    rm.train(whole, tmp_path / "b", device="cpu", loggers=[recorder])
    found = read_events(run.folder)
    assert {"epoch", "epoch/loss", "step/clean", "step/lr"} <= found.keys()
    for name in ("epoch", "epoch/loss", "epoch/train_accuracy", "step/loss", "step/mixed", "step/lr"):
        expected = recorder.curve(name)
        assert [step for step, _ in found[name]] == [step for step, _ in expected]
        assert [v for _, v in found[name]] == pytest.approx([v for _, v in expected], rel=1e-6)  # float32 in the file


def test_a_logger_of_one_s_own_folder_needs_no_training(tmp_path):
    logger = rm.TensorBoardLogger(tmp_path)
    logger.log({"a": 1.0}, 3)
    logger.close()
    assert read_events(tmp_path) == {"a": [(3, 1.0)]}


@pytest.mark.parametrize("members", [1, 2])
def test_missing_tensorboard_is_noticed_before_anything_is_written(tmp_path, monkeypatch, members):
    monkeypatch.setattr(loggers_module, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))
    with pytest.raises(ValueError, match=r"need TensorBoard: pip install 'regmixup\[tensorboard\]'"):
        rm.train(config(members=members), tmp_path, device="cpu", tensorboard=True)
    assert not list(tmp_path.iterdir())


def test_logging_changes_neither_the_weights_nor_the_fingerprint(tmp_path):
    plain = rm.train(config(), tmp_path / "a", device="cpu")
    logged = rm.train(config(), tmp_path / "b", device="cpu", loggers=[Recorder()], tensorboard=True)
    assert plain.fingerprint == logged.fingerprint
    states = [run.model(device="cpu").state_dict() for run in (plain, logged)]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])


def test_a_cpu_is_looked_at_by_the_clock_and_loggers_at_fixed_steps(tmp_path, monkeypatch):
    recorder, seen = Recorder(), []
    monkeypatch.setattr(loop.Pace, "due", lambda self: True)
    rm.train(config(epochs=1), tmp_path, device="cpu", loggers=[recorder], on_step=seen.append)
    assert [record["step"] for record in seen] == list(range(1, STEPS + 1))
    assert [step for step, _ in recorder.curve("step/loss")] == list(LOOKS)


def test_what_cannot_log_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"loggers must have a method log\(values, step\), .*, got <built-in function"):
        rm.train(config(), tmp_path / "runs", device="cpu", loggers=[len])
    assert not (tmp_path / "runs").exists()
