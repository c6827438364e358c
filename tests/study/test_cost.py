"""Cost estimates: arithmetic on the tables, models counted once, what is left of a study."""

import pytest
import torch

from regmixup.data import load
from regmixup.methods import METHODS
from regmixup.study.cost import SPEEDS, Estimate, estimate, images, models, training_minutes
from regmixup.study.plan import load_study
from regmixup.training.config import configure
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR

CPU = torch.device("cpu")


def test_a_training_costs_its_images_times_the_time_of_a_step():
    found = training_minutes("regmixup", configure("cifar10-wrn28-10", "regmixup"))
    assert found == pytest.approx(350 * 50_000 / 128 * 10.9 * 1.87 / 60_000)
    assert 45 < found < 48  # 20.4 ms, 391 steps, 350 epochs
    sngp = configure("cifar10-wrn28-10", "sngp")  # its batches are twice as large, its steps half as many
    assert training_minutes("sngp", sngp) == pytest.approx(250 * 50_000 / 128 * 10.9 * 2.81 / 60_000)


def test_what_is_not_known_is_not_invented(tmp_path):
    assert training_minutes("dnn", configure("digits", "dnn", network="timm/resnet18")) is None
    text = MINI.replace("epochs = 5", 'network = "timm/resnet18"')
    assert "time unknown" in str(estimate(load_study(str(write_mini(tmp_path, text))).runs()))


def test_every_factor_belongs_to_a_method_and_sizes_are_those_of_the_data():
    for speed in SPEEDS.values():
        assert set(speed.factors) <= set(METHODS)
    for name in ("digits/train", "digits/val", "digits/test", "digits-c/contrast/1", "photographs/test"):
        assert images(name) == len(load(name))
    assert images("digits-mirrored/test") == len(load("digits-mirrored/test"))
    assert images("path:digits/test") == len(load("path:digits/test"))
    assert images("folder:x") is None
    assert images("cifar10/train-90") + images("cifar10/val-10") == images("cifar10/train")


def test_an_ensemble_shares_its_models_with_plain_training_and_companions_count(tmp_path):
    text = CIFAR.replace('["dnn", "regmixup"]', '["dnn", "deep-ensemble"]').replace("regmixup = [", "dnn = [")
    text = text.replace("seeds = [3, 4]", "seeds = [0, 1]").replace(', "cifar10-resnet50"]', "]")
    text = text.replace("[train.cifar10-resnet50]\nepochs = 9\nmilestones = [4]\n", "")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    # Each of two recipes: 10 members of two ensembles, two of which are plain runs; companions: 5 members, one plain.
    assert estimate(plan).networks == 2 * (10 + 5)
    ensemble = next(planned for planned in plan if planned.method == "deep-ensemble")
    assert [config.seed for config in models(ensemble)] == [0, 1, 2, 3, 4] * 2


def test_nothing_is_left_of_a_finished_study_and_half_of_one_half_done(finished_study, tmp_path):
    plan = list(finished_study.study.runs())
    assert str(estimate(plan, finished_study.runs, CPU)) == "0 networks to train, no time"
    whole = estimate(plan, tmp_path, CPU)
    assert whole == estimate(plan)
    name = plan[0].config.name
    (folder,) = [path for path in finished_study.runs.iterdir() if path.name.startswith(name.rpartition("-")[0])]
    (tmp_path / folder.name).mkdir()
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / folder.name / "history.jsonl").write_text("".join(lines[:3]))
    (tmp_path / folder.name / "checkpoint.safetensors").touch()
    left = estimate(plan, tmp_path, CPU)
    assert left.networks == 4
    assert whole.minutes - left.minutes == pytest.approx(3 / 5 * training_minutes("dnn", plan[0].config))


def test_an_estimate_is_rounded_and_says_on_what():
    assert str(Estimate(1, 0.2, "2 CPU cores")) == "1 network to train, about 1 minute on 2 CPU cores"
    assert (
        str(Estimate(3, 20_000.0, "one H200")) == "3 networks to train, about 20,000 GPU minutes (14 days) on one H200"
    )
