"""What is shown while runs are under way."""

from io import StringIO

from rich.console import Console

from regmixup.progress import LiveProgress

RECORD = {"epoch": 2, "loss": 0.5, "train_accuracy": 0.75, "seconds": 1.0}


def test_every_run_under_way_has_a_bar_until_it_ends():
    with LiveProgress(Console(file=StringIO(), force_terminal=True, width=100), total=3) as progress:
        progress.begin("dnn seed 0", 5)
        progress.begin("dnn seed 1", 5)
        progress.epoch("dnn seed 1", RECORD)
        progress.begin("dnn seed 1", 5)  # as when its worker was lost: nothing is shown twice
        shown = [(bar.description, bar.completed, bar.total) for bar in progress.bars.tasks]
        assert shown == [("runs", 0, 3), ("dnn seed 0", 0, 5), ("dnn seed 1", 2, 5)]
        progress.end("dnn seed 1", "done")
        shown = [(bar.description, bar.completed) for bar in progress.bars.tasks]
        assert shown == [("runs", 1), ("dnn seed 0", 0)]


def test_a_file_gets_a_line_per_finished_run():
    text = StringIO()
    with LiveProgress(Console(file=text, width=100), total=2) as progress:
        progress.begin("dnn seed 0", 5)
        progress.epoch("dnn seed 0", RECORD)
        progress.end("dnn seed 0", "loss 0.5")
        progress.end("dnn seed 1", "never shown as under way, and yet ended")
    assert text.getvalue() == "[1/2] dnn seed 0: loss 0.5\n[2/2] dnn seed 1: never shown as under way, and yet ended\n"
