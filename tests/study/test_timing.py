"""The cost of an epoch, from histories."""

import json

import torch

from regmixup.study.plan import load_study
from regmixup.study.timing import epoch_seconds, timing_lines
from regmixup.training.config import resolve
from tests.study.mini import MINI, write_mini

CPU = torch.device("cpu")


def test_the_median_epoch_without_the_first_relative_to_plain_training(tmp_path):
    text = MINI.replace('"regmixup"]', '"mixup", "deep-ensemble"]').replace("[0, 1]", "[0]")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    for planned, seconds in zip(plan[:2], ([9.0, 1.0, 2.0, 3.0], [9.0, 5.0]), strict=True):
        _write_history(tmp_path, planned.config, seconds)
    for member in range(1, 5):  # the first is the plain run
        _write_history(tmp_path, plan[2].config.member(member), [9.0, 2.0])
    assert epoch_seconds(plan, tmp_path, CPU) == {
        ("digits", "dnn"): 2.0,
        ("digits", "mixup"): 5.0,
        ("digits", "deep-ensemble"): 10.0,
    }
    assert [line[1:] for line in timing_lines(plan, tmp_path, CPU)] == [
        ("dnn", "2", "1.00"),
        ("mixup", "5", "2.50"),
        ("deep-ensemble", "10", "5.00"),
    ]


def test_without_histories_there_is_nothing_to_say(tmp_path):
    assert timing_lines(list(load_study(str(write_mini(tmp_path))).runs()), tmp_path, CPU) == []


def _write_history(runs, config, seconds):
    folder = runs / resolve(config, CPU).name
    folder.mkdir()
    records = [{"epoch": epoch, "loss": 1.0, "seconds": own} for epoch, own in enumerate(seconds, start=1)]
    (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
