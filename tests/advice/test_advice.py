"""Advice from end to end: the plan, equal compute, folds and left-out classes, going on, and the words."""

import json
import shlex
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from regmixup import advice, data
from regmixup.advice import Record, Request, carry_out, make_plan
from regmixup.advice.trainings import CORRUPTIONS, MARGIN, SEVERITY, Experiment, fit, leave_out
from regmixup.advice.verdict import CANDIDATES, PLAIN
from regmixup.cli import main
from regmixup.data.splits import generator_for
from regmixup.deployment.probe import Pace
from regmixup.metrics import accuracy, auroc, ece, nll
from regmixup.metrics.scores import entropy
from regmixup.training.run import Run
from tests.deployment.photos import BACKBONE, write_weights

NAMES = list(CANDIDATES)
LATER = 1e9


def write_photos(folder, classes=5, images=10, side=20):
    """Write noise around a colour for each class."""
    rng = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(images):
            pixels = np.clip(rng.normal((40 * c, 200 - 40 * c, 100), 40, (side, side, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"class{c}" / f"{i}.png")
    return folder


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(advice, "measure_pace", lambda *_: Pace(1e-3, 1e-4))
    return write_photos(tmp_path / "photos")


def fake(effect=0.0, calls=None, stop_after=None):
    """A trainer that gives made-up values; the first setting of RegMixup has `effect`."""

    def measure(name, fold):
        if calls is not None:
            if stop_after is not None and len(calls) == stop_after:
                raise KeyboardInterrupt
            calls.append((name, fold))
        rng = np.random.default_rng([fold, NAMES.index(name)])
        return {"accuracy": 0.6 + effect * (name == "regmixup-10") + rng.normal(0, 0.01), "ece": 0.1}

    return measure


def forwarded(objective):
    """Return how many images an objective sends through the network for a clean one."""
    model, rows = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3)), []
    model.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    objective(model, torch.rand(6, 3, 8, 8), torch.arange(6) % 3)
    return sum(rows) / 6


def images_of(name):
    return {path.rpartition("/")[2] for path in data.load(name, root="runs").paths}


def test_folds_cover_the_images_once_and_left_out_classes_are_never_trained_on(photos):
    plan = make_plan(Request(photos, 30, folds=5))
    away = [set(classes) for classes in plan.left_out]
    assert set.union(*away) == {f"class{c}" for c in range(5)}  # a fifth each, in turn
    tested = {}
    for fold in range(1, 6):
        sets = plan.sets(fold)
        known, novel = data.load(sets["train"], root="runs"), data.load(sets["novel"], root="runs")
        assert set(known.classes) == set(plan.classes) - away[fold - 1]
        assert set(novel.classes) == away[fold - 1]
        assert not images_of(sets["train"]) & (images_of(sets["test"]) | images_of(sets["novel"]))
        for image in images_of(sets["test"]):
            tested[image] = tested.get(image, 0) + 1
    assert set(tested.values()) == {1}  # of the folds that do not leave out its class, an image is in one
    assert sum(tested.values()) == plan.tested
    kept_for_test = set(data.load(f"folder:{photos}/val-15").digests)
    sources = {digest[:20] for digest in data.load(plan.photos).digests}
    assert not {digest[:20] for digest in kept_for_test} & sources
    assert {image.removesuffix(".png") for image in tested} <= sources


def test_every_training_sees_equally_many_images(photos):
    plan = make_plan(Request(photos, 30, folds=5, epochs=7))
    for fold in (1, 2):
        images = len(data.load(plan.sets(fold)["train"], root="runs"))
        configs = {name: plan.config(name, fold, images) for name in NAMES}
        seen = {n: c.epochs * images * forwarded(c.objective) for n, c in configs.items()}
        assert set(seen.values()) == {8 * images}  # 7 is made even
        assert configs[PLAIN].epochs == 2 * configs["regmixup-1"].epochs
        assert len({(c.seed, c.train_set, c.batch_size, c.lr) for c in configs.values()}) == 1


def test_without_four_classes_nothing_is_left_out(tmp_path, monkeypatch, photos):
    plan = make_plan(Request(write_photos(tmp_path / "three", classes=3), 30))
    assert plan.left_out == ()
    assert "novel" not in plan.sets(1)
    assert "no class: OOD needs 4 classes, found 3" in plan.describe()
    assert leave_out(["a", "b", "c", "d"], 5) == leave_out(["d", "c", "b", "a"], 5)
    assert [len(classes) for classes in leave_out(list("abcdefghijk"), 5)] == [2] * 5


def test_folds_and_epochs_follow_the_time():
    def scope(minutes, **given):
        pace = Pace(0.01, 0.011)
        return fit(400, minutes, pace, most=10, **{"folds": None, "epochs": None, "pretrained": False, **given})

    assert (scope(1e4).folds, scope(1e4).epochs) == (10, 50)
    assert scope(160).folds in range(6, 10)
    assert scope(160).epochs == 50
    few = scope(50)
    assert few.folds == 5
    assert 12 < few.epochs < 50
    assert 6 * 5 * few.seconds * MARGIN <= 50 * 60
    assert (scope(1).folds, scope(1).epochs) == (5, 12)  # more than one call
    assert scope(1, folds=7, epochs=9)[:2] == (7, 10)
    assert scope(1e4, pretrained=True).epochs == 20


def test_a_second_call_goes_on_with_the_plan_and_repeats_nothing(photos):
    first, again = [], []
    plan = make_plan(Request(photos, 30))
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan, fake(calls=first, stop_after=8), "runs", end=LATER)
    assert make_plan(Request(photos, 3)) == plan  # the minutes of a later call do not change it
    stopped = carry_out(plan, fake(calls=again), "runs", end=time.monotonic() - 1)
    assert again == []
    assert (stopped.done, stopped.verdict.decision, stopped.command) == (8, "undecided", "")
    assert str(stopped).startswith(f"undecided: 1 of {plan.folds} folds are done by every candidate")
    assert f"{plan.trainings - 8} of {plan.trainings} trainings are left" in str(stopped)
    whole = carry_out(plan, fake(calls=again), "runs", end=LATER)
    assert len(set(first + again)) == len(first + again) == plan.trainings == whole.done
    assert whole.verdict.decision == "plain"
    assert f"{plan.trainings} are done, 0 of the other 0 fit now" in plan.scope("runs", 60)


def test_no_training_is_started_that_would_not_end_in_time(photos, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    plan = replace(make_plan(Request(photos, 30)), seconds=10.0)

    def slow(name, fold):
        now[0] += 10
        return {"accuracy": 0.5}

    assert carry_out(plan, slow, "runs", end=35).done == 3
    assert "3 of the other" in plan.scope("runs", 35)


def test_an_effect_gives_a_page_and_a_command_that_trains_the_same(photos, capsys):
    plan = make_plan(Request(photos, 30, folds=5, epochs=6))
    found = carry_out(plan, fake(effect=0.3), "runs", end=LATER)
    assert found.verdict.choice == "regmixup-10"
    assert "use RegMixup (alpha 10, eta 1): accuracy +" in found.page.read_text()
    assert json.loads(found.page.with_suffix(".json").read_text())["decision"] == "use"
    words = shlex.split(found.command)
    assert main([*words[1:], "--device", "cpu", "--dry-run"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    config = plan.config("regmixup-10", 1, plan.images)
    assert told["orient"]
    for name in ("network", "epochs", "lr", "optimizer", "weight_decay", "image_size", "warmup_epochs", "mean"):
        value = getattr(config, name)
        assert told[name] == (list(value) if isinstance(value, tuple) else value), name
    assert (told["objective"]["alpha"], told["objective"]["eta"]) == (10.0, 1.0)
    assert told["train_set"] == f"folder:{photos}/train-85"


def test_a_plan_of_an_earlier_version_is_carried_out_as_it_was(photos):
    """It did not rotate photographs: neither do its other trainings, nor the command."""
    request = Request(photos, 30, folds=5, epochs=6)
    plan = make_plan(request)
    path = Path("runs", plan.folder, "plan.json")
    stored = json.loads(path.read_text())
    assert stored.pop("orient") is True
    stored.pop("checksum", None)
    path.write_text(json.dumps(stored))
    old = make_plan(request)
    assert old == replace(plan, orient=False)
    assert old.config(PLAIN, 1, 40) == replace(plan.config(PLAIN, 1, 40), orient=False)
    assert "--orient" in plan.command(PLAIN)
    assert "--orient" not in old.command(PLAIN)


def test_pretrained_weights_see_the_pixels_they_expect_also_in_the_command(photos, tmp_path, capsys):
    weights = write_weights(tmp_path / "weights.pth")
    plan = replace(make_plan(Request(photos, 30, folds=5)), network=BACKBONE, init=str(weights), lr=1e-3, size=32)
    config = plan.config("regmixup-10", 1, plan.images)
    assert (config.mean, config.std, config.layer_decay) == ((0.5,) * 3, (0.5,) * 3, 0.9)
    assert main([*shlex.split(plan.command("regmixup-10"))[1:], "--device", "cpu", "--dry-run"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    for name in (
        "mean",
        "std",
        "eval_interpolation",
        "layer_decay",
        "crop_area",
        "clip_norm",
        "lr",
        "min_lr",
        "epochs",
    ):
        value = getattr(config, name)
        assert told[name] == (list(value) if isinstance(value, tuple) else value), name


def test_photos_that_changed_are_noticed_and_few_images_are_told(photos, tmp_path):
    make_plan(Request(photos, 30))
    (photos / "class0" / "1.png").write_bytes((photos / "class1" / "1.png").read_bytes())
    with pytest.raises(ValueError, match=r"has changed since .* delete that folder to plan anew"):
        make_plan(Request(photos, 30))
    with pytest.raises(ValueError, match="folds must be at most 8, the images of the smallest class, got 9"):
        make_plan(Request(write_photos(tmp_path / "other"), 30, folds=9))
    with pytest.raises(ValueError, match="at least two classes with 5 different images each"):
        make_plan(Request(write_photos(tmp_path / "few", images=4), 30))
    with pytest.raises(ValueError, match="goal must be one of accuracy"):
        make_plan(Request(photos, 30, goal="speed"))


def test_a_real_training_is_an_ordinary_run_and_measured_as_stated(photos):
    plan = make_plan(Request(photos, 30, folds=2, epochs=2, size=32))
    measure = Experiment(plan, advice.Path("runs"), "cpu")
    found = measure("regmixup-10", 1)
    assert measure("regmixup-10", 1) == found
    (folder,) = (path for path in advice.Path("runs").iterdir() if path.name.startswith("regmixup-"))
    run, sets = Run.open(folder), plan.sets(1)
    assert run.finished
    clean, novel = run.predict_all([sets["test"], sets["novel"]], root="runs", device="cpu")
    probs = clean.logits.double().softmax(1)
    assert found["accuracy"] == accuracy(probs, clean.labels)
    assert found["nll"] == pytest.approx(nll(probs, clean.labels))
    assert found["ece"] == pytest.approx(ece(probs, clean.labels))
    assert found["ood"] == auroc(entropy(clean.logits), entropy(novel.logits))
    (images,) = data.load(sets["test"], root="runs").parts(lambda p: run.transform().build()(Image.open(p)), size=99)
    right = []
    for name in CORRUPTIONS:
        shifted = data.corrupt(images.images, name, severity=SEVERITY, generator=generator_for(0, "advise", name, 1))
        with torch.no_grad():
            right.append((run.model(device="cpu")(shifted.float() / 255).argmax(1) == clean.labels).double().mean())
    assert found["shift"] == pytest.approx(float(sum(right)) / len(CORRUPTIONS))


def test_the_verb_prints_the_plan_first_and_stops_in_time(photos, capsys):
    words = ["advise", str(photos), "--minutes", "0.0001", "--runs", "runs", "--device", "cpu", "--epochs", "2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "0 of the other 30 fit now" in out
    assert "has 1 epoch, all others 2\n" in out
    assert out.index("rule        accuracy decides") < out.index("undecided: 0 of 5 folds")
    words.remove("--minutes")
    words.remove("0.0001")  # with which no training would ever fit
    assert "no training fits into 0.0001 minutes: give --minutes 1 or more" in out
    assert f"next  regmixup {' '.join(words)} --minutes 1\n" in out
    assert PLAIN in Record.read(next(advice.Path("runs").glob("advise-photos-*"))).values


def test_the_commands_to_run_next_name_the_plugins(photos, capsys, forget, monkeypatch):
    """A shell that runs them later has not loaded what this process has."""
    linear = "nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))"
    plugin = Path("mine.py").absolute()
    plugin.write_text(
        f"import regmixup as rm\nfrom torch import nn\nrm.networks.register('mine', lambda num_classes: {linear})\n"
    )
    words = ["advise", str(photos), "--minutes", "0.0001", "--device", "cpu", "--epochs", "2", "--backbone", "mine"]
    assert main([*words, "--plugin", "mine.py"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("next  "))
    assert line.endswith(f" --plugin {plugin}")
    command = shlex.split(make_plan(Request(photos, 1, backbone="mine", epochs=2)).command(PLAIN))
    forget()
    monkeypatch.setenv("REGMIXUP_PLUGINS", "")
    assert main([*command[1:], "--device", "cpu", "--dry-run"]) == 0
    assert '"network": "mine"' in capsys.readouterr().out
