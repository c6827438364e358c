"""What a run reports: means over an epoch, throughput, and curves in which an interruption does not show."""

import json
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regmixup as rm
from regmixup.training import loop, reporting
from regmixup.training.reporting import Tally, Throughput, means

STEPS = 8  # of 64 images in an epoch of 450; the last has 2
LOOKS = (3, 6, 8)
CPU = torch.device("cpu")
BRANCHES = [("loss", "clean"), ("loss",), ("loss", "mixed", "train_accuracy")]
REPORTED = st.lists(
    st.tuples(st.sampled_from(BRANCHES), st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)


@pytest.fixture(autouse=True)
def _look_every_three_steps(monkeypatch):
    monkeypatch.setattr(loop, "READ_EVERY", 3)


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


def test_missing_tensorboard_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))
    with pytest.raises(ValueError, match=r"need TensorBoard: pip install 'regmixup\[tensorboard\]'"):
        rm.train(config(members=2), tmp_path, device="cpu", tensorboard=True)
    assert not list(tmp_path.iterdir())


def test_a_cpu_is_looked_at_by_the_clock_and_loggers_at_fixed_steps(tmp_path, monkeypatch):
    recorder, seen = Recorder(), []
    monkeypatch.setattr(Throughput, "due", lambda self: True)
    rm.train(config(epochs=1), tmp_path, device="cpu", loggers=[recorder], on_step=seen.append)
    assert [record["step"] for record in seen] == list(range(1, STEPS + 1))
    assert [step for step, _ in recorder.curve("step/loss")] == list(LOOKS)


def test_what_cannot_log_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"loggers must have a method log\(values, step\), .*, got <built-in function"):
        rm.train(config(), tmp_path / "runs", device="cpu", loggers=[len])
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(reporting, "time", clock)
    return clock


def test_the_first_update_only_starts_the_clock(clock):
    found = Throughput(images=1000)
    clock.now += 60  # compilation
    assert found.update(500) == {}
    clock.now += 2
    assert found.update(700) == {"images_per_second": 100.0, "seconds_per_epoch": 10.0}


def test_the_rate_is_that_of_the_last_updates(clock):
    """Ten images a second for a minute, then two: twenty updates later nothing is left of the first rate."""
    found, seen, rates = Throughput(images=100), 0, []
    for second in range(1, 101):
        clock.now += 1
        seen += 10 if second <= 60 else 2
        rates.append(found.update(seen).get("images_per_second"))
    assert rates[59] == pytest.approx(10)
    assert rates[64] == pytest.approx((14 * 10 + 5 * 2) / 19)
    assert rates[80:] == pytest.approx([2] * 20)


def add(tally, steps):
    for names, values, count in steps:
        tally.add(names, torch.tensor(values[: len(names)], dtype=torch.float64), count)


@settings(deadline=None, max_examples=60)
@given(steps=REPORTED, cut=st.integers(0, 12))
def test_going_on_from_stored_totals_gives_the_same_bits(steps, cut):
    """Sums of floats depend on their order; a resumed run adds in the same one."""
    whole, before, after = Tally(CPU), Tally(CPU), Tally(CPU)
    add(whole, steps)
    add(before, steps[:cut])
    stored = json.loads(json.dumps(list(before.totals().items())))
    after.restore({tuple(names): values for names, values in stored})
    add(after, steps[cut:])
    assert list(means(after.totals()).items()) == list(means(whole.totals()).items())


def test_restoring_forgets_what_was_there_and_keeps_the_tensors():
    """A captured step adds to the tensors that it was captured with."""
    tally = Tally(CPU)
    add(tally, [(("loss",), [3.0], 1), (("loss", "clean"), [4.0, 5.0], 2)])
    tensors = {names: tensor.data_ptr() for names, tensor in tally._sums.items()}
    tally.restore({("loss",): [8.0, 4.0]})
    assert tally.totals() == {("loss",): [8.0, 4.0]}
    assert {names: tensor.data_ptr() for names, tensor in tally._sums.items()} == tensors
    tally.restore({})
    assert tally.totals() == {}
    assert means(tally.totals()) == {}
