"""Two methods on the same folds: the interval, the verdict, and trainings that go on where they stopped."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from regmixup.cli import main
from regmixup.data import load
from regmixup.deployment import against
from regmixup.deployment.against import FOLDS, METRICS, Comparison, compare
from regmixup.deployment.calibration import fit_temperature
from regmixup.metrics import accuracy, nll
from regmixup.storage import read_table
from regmixup.training.run import Run
from regmixup.types import Predictions

from .photos import BACKBONE, COLOURS, write_photos, write_weights

SIMULATIONS = 500


def comparison(first, second, metric="accuracy", images=4000):
    """Values of one metric in each fold; the others are constant."""
    constant = {name: [0.5] * len(first) for name in METRICS}
    return Comparison({"dnn": {**constant, metric: first}, "regmixup": {**constant, metric: second}}, images)


def correlated(rng, effect=0.0, noise=0.02):
    """Differences with the correlation 1 / k that Nadeau and Bengio assume."""
    shared = rng.normal(0, math.sqrt(1 / FOLDS) * noise)
    return 0.7 + effect + shared + rng.normal(0, math.sqrt(1 - 1 / FOLDS) * noise, FOLDS)


def test_the_interval_is_the_corrected_t():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.7, 0.1, (2, FOLDS))
    effect = comparison(first, second, "nll").effect("nll")
    d = second - first
    low, high = stats.t.interval(0.95, 4, loc=d.mean(), scale=math.sqrt(d.var(ddof=1) * (1 / 5 + 1 / 4)))
    assert (effect.mean, effect.low, effect.high) == pytest.approx((d.mean(), low, high))


def test_the_nll_of_a_fold_is_finite_where_probabilities_are_not(monkeypatch):
    """One of two labels lies 4,000 below the largest logit: 800 nats at a temperature of 5."""
    sure = Predictions(torch.tensor([[4000.0, 0.0], [4000.0, 0.0]]), torch.tensor([1, 0]))
    photos = SimpleNamespace(name="fold")
    run = SimpleNamespace(predict_all=lambda *args, **options: (sure, sure))
    fold = SimpleNamespace(
        photos=SimpleNamespace(parts={"validation": photos, "test": photos}),
        device="cpu",
        request=SimpleNamespace(score="max_probability"),
    )
    monkeypatch.setattr(against, "fit_temperature", lambda validation: 5.0)
    assert against._measure(run, fold)["nll"] == 400.0


@pytest.mark.parametrize("effect", [0.0, 0.05])
def test_the_interval_covers_and_the_usual_one_does_not(effect):
    rng = np.random.default_rng(1)
    covered = usual = 0
    for _ in range(SIMULATIONS):
        second = correlated(rng, effect)
        interval = comparison([0.7] * FOLDS, second).effect("accuracy")
        covered += interval.low <= effect <= interval.high
        half = stats.t.isf(0.025, 4) * second.std(ddof=1) / math.sqrt(FOLDS)
        usual += abs(second.mean() - 0.7 - effect) <= half
    assert covered >= 0.94 * SIMULATIONS
    assert usual < 0.93 * SIMULATIONS


def test_the_same_small_difference_in_every_fold_is_no_proof():
    """One image of twelve more in each of five folds has no spread at all: t is infinite, McNemar's z is 2.2."""
    first, second = [6 / 12] * FOLDS, [7 / 12] * FOLDS
    assert comparison(first, second, images=60).effect("accuracy").low == pytest.approx(1 / 12 - 0.0802, abs=1e-3)
    assert comparison(first, first, images=60).effect("accuracy").low < 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (0.2, "regmixup is more accurate than dnn on these images: +20.0 points [+"),
        (-0.2, "regmixup is less accurate than dnn on these images: -20.0 points [-"),
        (0.0, "We could not show a difference in accuracy between regmixup and dnn: +0.0 points [-"),
    ],
)
def test_a_line_for_each_metric_and_one_sentence_about_accuracy(change, said):
    values = np.array([0.6, 0.61, 0.6, 0.59, 0.6])
    accuracy, nll, augrc, verdict = comparison(values, values[::-1] + change).describe().splitlines()
    assert accuracy.startswith(
        f"accuracy %   dnn 60.0, regmixup {60 + 100 * change:.1f}; difference {100 * change:+.1f}"
    )
    assert nll == "NLL          dnn 0.500, regmixup 0.500; difference +0.000 [+0.000, +0.000]"
    assert augrc.startswith("AUGRC x 1000 dnn 500.0, ")
    assert verdict.startswith(said)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    close = {name: tuple(110 + (value - 110) // 4 for value in colour) for name, colour in list(COLOURS.items())[:2]}
    write_weights(folder / "weights.pth")
    return write_photos(folder / "fruit", 8, colours=close)


def options(photos):
    weights = photos.parent / "weights.pth"
    return {"backbone": BACKBONE, "init": str(weights), "image_size": 32, "workers": 0, "device": "cpu", "epochs": 1}


def test_both_methods_train_on_the_same_folds_from_the_same_weights_and_go_on(photos, tmp_path, monkeypatch, capsys):
    """Interrupted in the third training; then finished by the command line, which trains the others alone."""
    trained, train = [], against.train

    def interrupted(config, *args, **rest):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(config)
        return train(config, *args, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(against, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compare(photos, tmp_path, against="regmixup", say=lambda _: None, **options(photos))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint.safetensors")}
    words = [word for name, value in options(photos).items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["finetune", str(photos), "--against", "regmixup", "--runs", str(tmp_path), *words]) == 0
    shown = capsys.readouterr().out
    assert "dnn and regmixup on 5 folds: 10 trainings of 1 epochs; the same command goes on" in shown
    assert shown.count("right: dnn ") == FOLDS
    assert len(before) == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
    runs = [Run.open(path.parent) for path in tmp_path.glob("*/config.json")]
    assert len(runs) == 10
    kept = {
        path for name in ("without-1-of-5", "fold-1-of-5") for path in load(f"folder:{photos}/train-85/{name}").paths
    }
    tested = set()
    for number in range(1, FOLDS + 1):
        pair = [run for run in runs if f"without-{number}-of-5" in run.config.train_set]
        assert sorted(type(run.config.objective).__name__ for run in pair) == ["ERM", "RegMixup"]
        assert len({(run.config.seed, run.config.init, run.config.train_set) for run in pair}) == 1
        assert pair[0].config.seed == number - 1
        fold = set(load(f"folder:{photos}/train-85/fold-{number}-of-5").paths)
        assert not fold & (tested | set(load(pair[0].config.train_set).paths))
        tested |= fold
    assert tested == kept
    (path,) = tmp_path.glob("finetune-fruit-*/comparison.json")
    values = read_table(path)["values"]
    assert list(values) == ["dnn", "regmixup"]
    run = next(
        run for run in runs if "without-2" in run.config.train_set and type(run.config.objective).__name__ == "ERM"
    )
    validation = run.predict(f"folder:{photos}/train-85/without-2-of-5/val-15")
    test = run.predict(f"folder:{photos}/train-85/fold-2-of-5")
    probs = (test.logits.double() / fit_temperature(validation)).softmax(dim=1)
    assert values["dnn"]["accuracy"][1] == accuracy(probs, test.labels)
    assert values["dnn"]["nll"][1] == pytest.approx(nll(probs, test.labels))
    assert Comparison(values, read_table(path)["images"]).describe() in shown


def test_the_epochs_are_those_that_fit_and_at_least_five(photos, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise InterruptedError

    said = []
    monkeypatch.setattr("regmixup.deployment.job.measure_pace", lambda *_: 0.5)
    monkeypatch.setattr(against, "train", stop)
    for minutes, told in (
        (1.0, "10 trainings of 5 epochs, about 4 min"),
        (1000.0, "10 trainings of 30 epochs, about "),
    ):
        asked = {**options(photos), "epochs": None, "minutes": minutes}
        with pytest.raises(InterruptedError):
            compare(photos, tmp_path, against="mixup", say=said.append, **asked)
        assert told in "\n".join(said)


def test_the_pace_is_the_mean_of_both_methods(photos, tmp_path, monkeypatch):
    """RegMixup forwards twice the images: at the pace of plain training, a comparison takes longer than asked for."""
    said, trained = [], []
    paces = {"ERM": 0.5, "RegMixup": 1.0}
    monkeypatch.setattr(
        "regmixup.deployment.job.measure_pace", lambda config, *_: paces[type(config.objective).__name__]
    )
    monkeypatch.setattr(against, "train", lambda config, *_, **__: trained.append(config) or 1 / 0)
    asked = {**options(photos), "epochs": None, "minutes": 20.0}
    with pytest.raises(ZeroDivisionError):
        compare(photos, tmp_path, against="regmixup", say=said.append, **asked)
    (images,) = [len(load(config.train_set)) for config in trained]
    epochs = int(0.85 * 20 * 60 / 10 / (images * 0.75))
    assert f"10 trainings of {epochs} epochs, about {10 * epochs * images * 0.75 / 60:.0f} min" in "\n".join(said)


@pytest.mark.parametrize(
    ("changes", "contract"),
    [
        ({"against": "dnn"}, "against must be another method than dnn"),
        ({"epochs": 0}, "trained for 1 epoch or more"),
        ({"against": "regmix"}, "did you mean 'regmixup'"),
        ({"against": "sngp"}, "single network with a linear head"),
        (
            {"epochs": None, "freeze": True},
            "trained for 1 epoch or more: leave out --freeze and --epochs 0, got freeze True and epochs None",
        ),
        ({"export": "model.pt2"}, "export, risk, ood and acceptance must be left out with against"),
        ({"ood": "other"}, "export, risk, ood and acceptance must be left out with against"),
        ({"acceptance": 0.5}, "export, risk, ood and acceptance must be left out with against"),
        ({"score": "entropie"}, "did you mean 'entropy'"),
        ({"score": "auto"}, "score must be named for a comparison, such as max_probability, got auto"),
    ],
)
def test_what_cannot_be_compared_is_refused(photos, tmp_path, changes, contract):
    with pytest.raises(ValueError, match=contract):
        compare(photos, tmp_path, **{**options(photos), "against": "regmixup", **changes})


def test_too_few_images_for_five_folds_are_refused(photos, tmp_path):
    few = write_photos(tmp_path / "few", 5)
    with pytest.raises(ValueError, match="at least 5 different images of every class, one for each fold"):
        compare(few, tmp_path / "runs", against="regmixup", say=lambda _: None, **options(photos))
