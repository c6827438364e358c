"""Cost estimates: arithmetic on the tables, shared models counted once, what is left of a study; epoch times."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from regmixup.study.cost import (
    PASSES,
    Estimate,
    estimate,
    spent,
    step_milliseconds,
    step_times,
    timing_lines,
    training_minutes,
)

from regmixup.data import load
from regmixup.data.catalogue import find
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.study.plan import load_study
from regmixup.study.tasks import find_tasks
from regmixup.training.config import configure, resolve
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR

CPU = torch.device("cpu")


def test_a_training_costs_its_images_times_the_time_of_a_step():
    found = training_minutes("regmixup", configure("cifar10-wrn28-10", "regmixup"))
    assert found == pytest.approx(350 * 50_000 / 128 * 20.31 / 60_000)
    assert 45 < found < 48  # 391 steps, 350 epochs
    clean = replace(configure("cifar10-wrn28-10", "regmixup"), objective=RegMixup(passes="separate-clean"))
    assert training_minutes("regmixup", clean) == pytest.approx(found * 2 * 10.89 / 20.31)
    sngp = configure("cifar10-wrn28-10", "sngp")  # its batches are twice as large, its steps half as many
    assert training_minutes("sngp", sngp) == pytest.approx(250 * 50_000 / 128 * 10.89 * 48.5 / 17.3 / 60_000)


def test_a_step_time_is_the_measured_one_or_follows_from_measured_ones():
    assert step_milliseconds("resnet50", "regmixup") == 11.16
    assert step_milliseconds("wrn28-10", "mixup") == step_milliseconds("wrn28-10-sngp", "dnn") == 10.89
    assert step_milliseconds("wrn28-10", "regcutmix") == pytest.approx(20.31)  # two passes, as RegMixup
    assert step_milliseconds("wrn28-10", "regmixup+cutmix") == pytest.approx((10.89 + 20.31) / 2)
    assert step_milliseconds("wrn28-10", "dnn-sn") == pytest.approx(10.89 * 46.6 / 17.3)  # eager times give the ratio
    assert step_milliseconds("resnet18", "regmixup") == pytest.approx(2.5 * 11.16 / 6.66)  # the ratio of ResNet-50
    assert step_milliseconds("resnet50", "regmixup", apart=True) == 2 * 6.66  # two passes, each a plain step
    assert step_milliseconds("small", "kfac-llla") == 40.0  # trains as dnn does
    assert step_milliseconds("timm/resnet18", "dnn") is None


def test_documents_and_the_cost_table_have_the_same_step_times():
    """Compiled: rows `| network | method | ours | ms |`. Eager: rows `| method | ms | relative | ms | relative |`."""
    text = "".join(path.read_text() for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")))
    rows = re.findall(r"\| (\S+) \| (\S+) \| ours \| ([\d.]+) ", text)
    compiled = {(network, method): float(ms) for network, method, ms in rows}
    times = {(n, m): ms for n, own in step_times()["compiled"].items() if n != "how" for m, ms in own.items()}
    assert len(compiled.keys() & times.keys()) == 4
    assert all(compiled[place] == times[place] for place in compiled.keys() & times.keys())
    (table,) = re.findall(r"\| method \| WRN-28-10, ms \| relative \| ResNet-50, ms .*\n((?:\|.*\n)*)", text)
    eager = re.findall(r"(?m)^\| (\S+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| ", table)
    assert len(eager) == len(step_times()["eager"]["resnet50"])
    for method, wide, deep in eager:
        assert step_times()["eager"]["wrn28-10"][method] == float(wide)
        assert step_times()["eager"]["resnet50"][method] == float(deep)


def test_what_is_not_known_is_not_invented(tmp_path):
    assert training_minutes("dnn", configure("digits", "dnn", network="timm/resnet18")) is None
    text = MINI.replace("epochs = 5", 'network = "timm/resnet18"')
    assert "time unknown" in str(estimate(load_study(str(write_mini(tmp_path, text))).runs()))


def test_every_factor_belongs_to_a_method_and_sizes_are_those_of_the_data():
    for table in step_times().values():
        for times in (own for name, own in table.items() if name != "how"):
            assert set(times) <= set(METHODS)
    assert set(PASSES) <= set(METHODS)
    assert find("path:digits/test").images == len(load("path:digits/test"))
    assert find("folder:x").images is None
    assert find("cifar10/train-90").images + find("cifar10/val-10").images == find("cifar10/train").images


def test_an_ensemble_shares_its_models_with_plain_training_and_companions_count(tmp_path):
    text = CIFAR.replace('["dnn", "regmixup"]', '["dnn", "deep-ensemble"]').replace("regmixup = [", "dnn = [")
    text = text.replace("seeds = [3, 4]", "seeds = [0, 1]").replace(', "cifar10-resnet50"]', "]")
    text = text.replace("[train.cifar10-resnet50]\nepochs = 9\nmilestones = [4]\n", "")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    # Each of two recipes: 10 members of two ensembles, two of which are plain runs; companions: 5 members, one plain.
    assert estimate(plan).networks == 2 * (10 + 5)
    ensemble = next(planned for planned in plan if planned.method == "deep-ensemble")
    assert [config.seed for config in ensemble.models()] == [0, 1, 2, 3, 4] * 2


def tasks(plan, runs):
    return find_tasks(plan, runs, CPU, [runs])


def test_nothing_is_left_of_a_finished_study_and_half_of_one_half_done(finished_study, tmp_path):
    plan = list(finished_study.study.runs())
    assert str(estimate(tasks(plan, finished_study.runs))) == "0 networks to train, no time"
    whole = estimate(tasks(plan, tmp_path))
    assert whole == estimate(plan)
    name = plan[0].config.name
    (folder,) = [path for path in finished_study.runs.iterdir() if path.name.startswith(name.rpartition("-")[0])]
    (tmp_path / folder.name).mkdir()
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / folder.name / "history.jsonl").write_text("".join(lines[:3]))
    (tmp_path / folder.name / "checkpoint.safetensors").touch()
    left = estimate(tasks(plan, tmp_path))
    assert left.networks == 4
    assert whole.minutes - left.minutes == pytest.approx(3 / 5 * training_minutes("dnn", plan[0].config))


def test_an_estimate_is_rounded_and_says_on_what():
    assert str(Estimate(1, 0.2, "2 CPU cores")) == "1 network to train, about 1 minute on 2 CPU cores"
    assert (
        str(Estimate(3, 20_000.0, "one H200")) == "3 networks to train, about 20,000 GPU minutes (14 days) on one H200"
    )


CPU = torch.device("cpu")


def test_the_median_epoch_without_the_first_relative_to_plain_training(tmp_path):
    text = MINI.replace('"regmixup"]', '"mixup", "deep-ensemble"]').replace("[0, 1]", "[0]")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    for planned, seconds in zip(plan[:2], ([9.0, 1.0, 2.0, 3.0], [9.0, 5.0]), strict=True):
        _write_history(tmp_path, planned.config, seconds)
    for member in range(1, 5):  # the first is the plain run
        _write_history(tmp_path, plan[2].config.member(member), [9.0, 2.0])
    assert timing_lines(plan, tmp_path, CPU) == [
        ("digits", "dnn", "2", "1.00"),
        ("digits", "mixup", "5", "2.50"),
        ("digits", "deep-ensemble", "10", "5.00"),
    ]


def test_without_histories_there_is_nothing_to_say(tmp_path):
    assert timing_lines(list(load_study(str(write_mini(tmp_path))).runs()), tmp_path, CPU) == []


def _write_history(runs, config, seconds):
    folder = runs / resolve(config, CPU).name
    folder.mkdir()
    records = [{"epoch": epoch, "loss": 1.0, "seconds": own} for epoch, own in enumerate(seconds, start=1)]
    (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_what_runs_cost_counts_each_network_once(tmp_path):
    records = {
        "a": {"device": "GPU one", "seconds": 90.0},
        "b": {"device": "GPU one", "seconds": 150.0},
        "ab": {"device": "GPU one", "seconds": 240.0, "members": ["a", "b"]},
        "c": {"device": "GPU two", "seconds": 60.0},
    }
    for name, record in records.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.json").write_text(json.dumps(record))
    a, b, ab, c = (tmp_path / name for name in records)
    assert spent([]) == "0 networks, no time"
    assert spent([c]) == "1 network, 1 minute of training on GPU two"
    assert spent([a, b, a, ab]) == "2 networks, 4 minutes of training on GPU one"
    assert spent([a, ab]) == spent([a, b])  # the other member was trained, too
    assert spent([ab], [a, ab]) == spent([b])  # and the first is counted elsewhere
    assert spent([ab, c]) == "3 networks, 4 minutes of training on GPU one, 1 minute of training on GPU two"
