"""What people see while something trains."""

import io

import pytest
from rich.console import Console

from regmixup.cli import progress
from regmixup.cli.progress import LiveProgress

LOSSES = {"loss": 0.5, "clean": 0.25, "mixed": 0.75, "train_accuracy": 0.98}
STEP = {"epoch": 3, "step": 50, "steps": 200, **LOSSES, "images_per_second": 5123.4, "seconds_per_epoch": 60.0}
EPOCH = {"epoch": 3, **LOSSES, "seconds": 61.0}


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def display(*, terminal, total=1, width=160):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, color_system=None, legacy_windows=False)
    return LiveProgress(console, total=total), text


def rendered(live):
    """The bars as they stand."""
    console = Console(file=io.StringIO(), width=live.console.width, color_system=None)
    console.print(live.bars.get_renderable())
    return console.file.getvalue()


def test_the_live_line_has_epoch_step_losses_accuracy_speed_and_time_left(clock):
    live, _ = display(terminal=True)
    live.begin("regmixup seed 0", 40)
    live.epoch("regmixup seed 0", {**EPOCH, "epoch": 2})
    clock.now = 15.0
    live.step("regmixup seed 0", STEP)
    line = " ".join(rendered(live).split())
    assert line.startswith("regmixup seed 0 ")
    # A quarter of an epoch took 15 s; 37.75 epochs are left.
    expected = "2/40 0:37:45 step 50/200, loss 0.500, clean 0.250, mixed 0.750, train accuracy 98.0 %, 5,123 images/s"
    assert line.endswith(expected)


def test_a_narrow_terminal_shows_all_numbers_in_two_lines():
    live, _ = display(terminal=True, width=80)
    live.begin("regmixup seed 0", 40)
    live.step("regmixup seed 0", STEP)
    assert len(rendered(live).splitlines()) == 2
    assert {"2/40", "50/200,", "0.500,", "0.250,", "0.750,", "98.0", "5,123"} <= set(rendered(live).split())


def test_in_a_pipe_there_is_a_line_a_minute_and_one_for_every_run(clock):
    live, text = display(terminal=False, total=2)
    with live:
        live.begin("a", 40)
        for second in range(0, 150, 10):
            clock.now = float(second)
            live.step("a", {**STEP, "step": second})
        live.end("a", "done")
        clock.now += 59
        live.begin("b", 40)
        live.epoch("b", EPOCH)
        live.end("b", "done, too")
    lines = text.getvalue().splitlines()
    assert [line.split(", loss")[0] for line in lines[:2]] == [
        "a: 2 of 40 epochs, step 60/200",
        "a: 2 of 40 epochs, step 120/200",
    ]
    assert lines[0].endswith("5,123 images/s, 2:05:41 left")  # 37.7 epochs of 200 s, rounded up
    assert lines[2:] == ["[1/2] a: done", "[2/2] b: done, too"]


@pytest.mark.parametrize("terminal", [True, False])
def test_images_are_counted_with_the_time_left(clock, terminal):
    live, text = display(terminal=terminal)
    live.advance("features", 0, 3000)
    shown = [rendered(live)]
    for second in (30, 60):
        clock.now = float(second)
        live.advance("features", 1000, 3000)
        shown.append(rendered(live))
    if terminal:
        assert "0/3000" in shown[0]
        assert "1000/3000 -:--:--" in " ".join(shown[1].split())
        assert "2000/3000 0:00:30" in " ".join(shown[2].split())
        live.advance("features", 1000, 3000)
        assert not live.bars.tasks
    else:
        assert text.getvalue() == "features: 2,000 of 3,000 images, 0:00:30 left\n"


def test_every_run_under_way_has_a_bar_until_it_ends():
    live, _ = display(terminal=True, total=3)
    live.begin("a", 5)
    live.begin("b", 40)
    live.epoch("b", EPOCH)
    live.begin("b", 40)  # as when its worker was lost: nothing is shown twice
    shown = [(bar.description, bar.completed, bar.total) for bar in live.bars.tasks]
    assert shown == [("runs", 0, 3), ("a", 0, 5), ("b", 3, 40)]
    live.end("b", "done")
    assert [(bar.description, bar.completed) for bar in live.bars.tasks] == [("runs", 1), ("a", 0)]
    live.end("c", "never shown as under way, and yet ended")


def test_no_bar_stays_below_the_line_after_its_work():
    live, text = display(terminal=True)
    with live:
        live.hooks("fine-tuning", 5)["on_epoch"]({**EPOCH, "epoch": 5})
        live.bars.refresh()
        live.clear()
        text.truncate(0)
        live.console.print("finishing")
        assert "fine-tuning" not in text.getvalue()
    assert not live.bars.tasks


def test_how_runs_are_carried_out_is_said_once(clock):
    live, text = display(terminal=False, total=3)
    for execution in ("cpu: float32", "cpu: float32", "cuda: bfloat16 (graphs off: why)"):
        live.start(execution)
    assert text.getvalue().splitlines() == ["cpu: float32", "cuda: bfloat16 (graphs off: why)"]


def test_a_run_that_begins_again_with_fewer_epochs_is_shown_with_these():
    live, _ = display(terminal=True)
    for epochs in (7, 3):
        hooks = live.hooks("fine-tuning", epochs)
    hooks["on_epoch"]({**EPOCH, "epoch": 2})
    assert "2/3" in rendered(live)
    live.advance("finishing", 0, 12)
    assert [bar.description for bar in live.bars.tasks] == ["finishing"]
