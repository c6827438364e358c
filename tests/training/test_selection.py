"""The best epoch on a validation set is the model, as in a plain loop; never by a test set; the same after a resume."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup import data
from regmixup.data.images import ImageSet
from regmixup.data.loader import epoch_batches
from regmixup.data.splits import seed_for
from regmixup.training.distributed import Ranks
from regmixup.training.optim import Average
from regmixup.training.run import Run
from regmixup.training.selection import METRICS, Selection
from regmixup.training.stopping import Interrupted
from tests.training.short import (
    BATCH,
    IMAGES,
    STEPS,
    assert_same_ending,
    config,
    ending,
    load_few,
    same_bits,
    signal_after,
    tensors_of,
)

pytestmark = pytest.mark.usefixtures("few_digits")

UNSTEADY = {"lr": 0.1, "epochs": 3, "dropout": 0.0, "schedule": "step", "milestones": (2,), "lr_decay": 20.0}
"""So that the last epoch is not the best: its learning rate is far too large."""


def trained_by_hand(settings, model):
    """A plain loop; returns the value of every epoch, and copies of what the model was after each."""
    train, val = load_few("digits/train"), load_few("digits/val")
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True, weight_decay=settings.weight_decay)
    values, states = [], []
    for epoch in range(settings.epochs):
        model.train()
        optimizer.param_groups[0]["lr"] = settings.lr * (20 if epoch >= 2 else 1)
        for index in epoch_batches(IMAGES, BATCH, settings.seed, epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train.images[index]), train.labels[index]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(val.images)
        one_hot = nn.functional.one_hot(val.labels, 10)
        values.append(
            {
                "val-accuracy": (logits.argmax(1) == val.labels).double().mean().item(),
                "val-nll": nn.functional.cross_entropy(logits, val.labels).item(),
                "val-brier": (logits.softmax(1) - one_hot).square().sum(1).mean().item(),
            }
        )
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    return values, states


@pytest.mark.parametrize("metric", ["val-accuracy", "val-nll"])
def test_the_model_is_that_of_the_best_epoch_of_a_plain_loop(tmp_path, monkeypatch, metric):
    """In float64: the values of all epochs, the weights of the best one, and the last beside them."""
    build = Run.build
    monkeypatch.setattr(Run, "build", lambda run, **shape: build(run, **shape).double())
    settings = config("dnn", select=metric, crop_padding=0, **UNSTEADY)
    run = rm.train(settings, tmp_path, device="cpu")
    torch.manual_seed(seed_for(settings.seed, "init"))
    values, states = trained_by_hand(settings, run.build(num_classes=10, input_shape=(1, 8, 8)))
    found = [[record[name.replace("-", "_")] for name in METRICS] for record in run.history()]
    for ours, theirs in zip(found, values, strict=True):
        assert ours == pytest.approx([theirs[name] for name in METRICS], abs=1e-6)
    own = [value[metric] for value in values]
    best = own.index(max(own) if metric == "val-accuracy" else min(own))
    assert best < settings.epochs - 1
    assert run.provenance()["selected"] == {
        "epoch": best + 1, "by": metric, "value": pytest.approx(own[best], abs=1e-6), "on": "digits/val",
    }  # fmt: skip
    model, last = run.model(device="cpu").state_dict(), tensors_of(run, "model.")
    for name in last:
        torch.testing.assert_close(model[name], states[best][name], rtol=1e-9, atol=1e-11, msg=name)
        torch.testing.assert_close(last[name], states[-1][name], rtol=1e-9, atol=1e-11, msg=name)
    assert not torch.equal(model["head.weight"], last["head.weight"])
    stored = run.predict("digits/val", device="cpu")
    assert METRICS[metric](stored.logits.double(), stored.labels) == pytest.approx(own[best], abs=1e-5)


def test_selecting_changes_no_weight_of_the_last_epoch(tmp_path):
    plain, selected = (
        rm.train(config(epochs=2, **more), tmp_path, device="cpu") for more in ({}, {"select": "val-nll"})
    )
    last = tensors_of(selected, "model.")
    assert all(same_bits(value, last[name]) for name, value in tensors_of(plain, "model.").items())
    assert plain.fingerprint != selected.fingerprint
    assert selected.config.validation == "digits/val"
    assert set(selected.provenance()["data"]) == {"digits/train", "digits/val"}


@pytest.mark.parametrize(("steps", "ema"), [(STEPS, 0.0), (2 * STEPS + 1, 0.8)], ids=["at an end", "after the best"])
def test_resuming_anywhere_selects_the_same_bits(tmp_path, steps, ema):
    settings = config(select="val-nll", ema=ema, random_erasing=0.4, sampling="balanced", **UNSTEADY)
    whole = rm.train(settings, tmp_path / "whole", device="cpu")
    with signal_after(steps), pytest.raises(Interrupted):
        rm.train(settings, tmp_path / "cut", device="cpu")
    resumed = rm.train(settings, tmp_path / "cut", device="cpu")
    assert_same_ending(ending(resumed), ending(whole))
    assert resumed.provenance()["selected"] == whole.provenance()["selected"]
    assert {name for name in ending(whole)[0] if "selected" in name} == {
        "0.best.selected_epoch",
        "0.best.selected_value",
    }


def test_each_member_of_an_ensemble_selects_its_own(tmp_path):
    run = rm.train(config(select="val-nll", members=2, epochs=1), tmp_path, device="cpu")
    assert all("selected" in member.provenance() for member in run.members())
    assert "selected" not in run.provenance()


def selection(model, metric="val-nll", **changes):
    """A selection on the digits; changes: of the train set, and the validation set."""
    val = load_few("digits/val")
    dataset = changes.pop("dataset", val)
    return Selection(model, config(select=metric), dataset, train_set=replace(val, **changes))


@pytest.mark.parametrize(
    ("metric", "values", "kept"),
    [
        ("val-accuracy", [0.2, 0.5, 0.5, 0.4], 2),
        ("val-nll", [2.0, 1.0, 1.0, 3.0], 2),
    ],
    ids=["the first of equal ones", "smaller is better"],
)
def test_which_epoch_is_kept(monkeypatch, metric, values, kept):
    model = nn.Linear(1, 1, bias=False)
    average = Average(model, 0.5)
    one = selection(model, metric)
    for epoch, value in enumerate(values, start=1):
        model.weight.data.fill_(epoch)
        average.values["weight"].fill_(10 * epoch)
        monkeypatch.setattr(one, "measure", lambda model, ranks, value=value: {metric: value})
        one.end_epoch(epoch, model, average, Ranks())
        assert model.weight.tolist() == [[epoch]]
    assert int(one.epoch) == kept
    assert float(one.state()["weight"]) == 10 * kept


def test_classes_are_matched_by_name():
    """A validation set with the classes in another order, and fewer of them."""
    val = load_few("digits/val")
    order = torch.tensor([7, 2, 5])
    kept = torch.isin(val.labels, order)
    labels = torch.stack([(order == label).nonzero()[0, 0] for label in val.labels[kept]])
    part = ImageSet(val.images[kept], labels, tuple(val.classes[i] for i in order.tolist()), "some/val")
    torch.manual_seed(0)
    model = rm.networks.build("small", num_classes=10, in_channels=1)
    ours = selection(model, dataset=part).measure(model, Ranks())
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model.eval()(val.images[kept]), val.labels[kept])
    assert ours["val-nll"] == pytest.approx(expected.item(), rel=1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"select": "val-nll", "validation": "digits/test"}, "validation must not be a test, shifted or OOD set"),
            ({"select": "val-nll", "validation": "digits/train"}, "validation must be images that were not trained on"),
            ({"validation": "digits/val"}, "validation must be empty where select is last, got 'digits/val'"),
        ],
    )
    def test_by_the_configuration(self, changes, message):
        with pytest.raises(ValueError, match=message):
            config(**changes)

    def test_other_classes_and_other_sizes(self):
        model, val = nn.Linear(1, 1), load_few("digits/val")
        with pytest.raises(ValueError, match="validation must have the classes of the train set, got digits/val with"):
            selection(model, classes=tuple("abcdefghij"))
        with pytest.raises(ValueError, match="validation must have images of 1x9x9, as the network sees, got 1x8x8"):
            selection(model, images=torch.zeros(len(val), 1, 9, 9, dtype=torch.uint8))
        assert selection(model, dataset=replace(val, images=val.images.expand(-1, 3, -1, -1)))  # becomes grey

    def test_going_on_with_another_validation_set(self, tmp_path, monkeypatch):
        settings = config(select="val-nll")
        with signal_after(STEPS + 1), pytest.raises(Interrupted):
            rm.train(settings, tmp_path, device="cpu")

        def changed(name, *, root=None):
            found = load_few(name, root=root)
            return found.select(torch.arange(20)) if name == "digits/val" else found

        monkeypatch.setattr(data, "load", changed)
        with pytest.raises(ValueError, match="digits/train or digits/val has changed since"):
            rm.train(settings, tmp_path, device="cpu")
