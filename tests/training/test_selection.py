"""The best epoch on a validation set is the model, as in a plain loop; never by a test set."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup import data
from regmixup.data.images import ImageSet
from regmixup.training.distributed import Ranks
from regmixup.training.selection import METRICS, Selection, Validation
from regmixup.training.weight_copies import running_mean
from regmixup.types import VALIDATED
from tests.training import short
from tests.training.short import STEPS, assert_same_ending, config, ending, interrupt, load_few, same_bits, tensors_of

pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.mark.parametrize("metric", ["val-accuracy", "val-nll"])
def test_the_model_is_that_of_the_best_epoch(tmp_path, metric):
    """As many runs that end after each epoch say it: the values of all epochs, and the weights of the best one."""
    settings = config("dnn", select=metric, **short.UNSTEADY)
    run = rm.train(settings, tmp_path, device="cpu")
    ended = [
        rm.train(replace(settings, select="last", epochs=epochs), tmp_path / "ended", device="cpu")
        for epochs in range(1, settings.epochs + 1)
    ]
    val, values = load_few("digits/val"), {name: [] for name in METRICS}
    for logits in (each.predict("digits/val", device="cpu").logits.double() for each in ended):
        values["val-accuracy"].append((logits.argmax(1) == val.labels).double().mean().item())
        values["val-nll"].append(nn.functional.cross_entropy(logits, val.labels).item())
        error = logits.softmax(1) - nn.functional.one_hot(val.labels, 10)
        values["val-brier"].append(error.square().sum(1).mean().item())
    for name, expected in values.items():
        assert [record[name.replace("-", "_")] for record in run.history()] == pytest.approx(expected, abs=1e-6)
    best = values[metric].index(max(values[metric]) if metric == "val-accuracy" else min(values[metric]))
    assert best < settings.epochs - 1
    assert set(run.provenance()["data"]) == {"digits/train", "digits/val"}
    assert run.provenance()["selected"] == {
        "epoch": best + 1, "by": metric, "value": pytest.approx(values[metric][best], abs=1e-6), "on": "digits/val",
    }  # fmt: skip
    assert {name for name in tensors_of(run, "best.") if "selected" in name} == {"selected_epoch", "selected_value"}
    model, last = run.model(device="cpu").state_dict(), tensors_of(run, "model.")
    for name in last:
        assert same_bits(model[name], tensors_of(ended[best], "model.")[name]), name
        assert same_bits(last[name], tensors_of(ended[-1], "model.")[name]), name
    assert not torch.equal(model["head.weight"], last["head.weight"])


def test_where_the_last_epoch_is_the_model_validation_only_adds_to_the_history(tmp_path):
    settings = config("dnn", epochs=2)
    plain = rm.train(settings, tmp_path, device="cpu")
    watched = rm.train(replace(settings, validation="digits/val"), tmp_path, device="cpu")
    selected = rm.train(replace(settings, select="val-nll"), tmp_path, device="cpu")
    names = [name.replace("-", "_") for name in METRICS]
    assert names == [*VALIDATED]
    for record, other in zip(watched.history(), selected.history(), strict=True):
        assert [record[name] for name in names] == [other[name] for name in names]
    assert "selected" not in watched.provenance()
    assert tensors_of(watched, "best.") == {}
    model = watched.model(device="cpu").state_dict()
    for name, tensor in tensors_of(plain, "model.").items():
        assert same_bits(tensor, model[name]), name


def test_a_head_that_is_finalized_may_be_watched(tmp_path):
    settings = config("sngp", epochs=1)
    plain = rm.train(settings, tmp_path, device="cpu")
    watched = rm.train(replace(settings, validation="digits/val"), tmp_path, device="cpu")
    assert_same_ending((ending(watched)[0], []), (ending(plain)[0], []))


def test_each_member_of_an_ensemble_selects_its_own(tmp_path):
    run = rm.train(config(select="val-nll", members=2, epochs=1), tmp_path, device="cpu")
    assert all("selected" in member.provenance() for member in run.members())
    assert "selected" not in run.provenance()


def validation(**changes):
    """Validation on the digits; changes: of the train set, and the validation set."""
    val = load_few("digits/val")
    dataset = changes.pop("dataset", val)
    return Validation(config(), dataset, torch.device("cpu"), train_set=replace(val, **changes))


@pytest.mark.parametrize(
    ("metric", "values", "kept"),
    [("val-accuracy", [0.2, 0.5, 0.5, 0.4], 2), ("val-nll", [2.0, 1.0, 1.0, 3.0], 2)],
    ids=["the first of equal ones", "smaller is better"],
)
def test_which_epoch_is_kept(metric, values, kept):
    model = nn.Linear(1, 1, bias=False)
    average = running_mean(model, 0.5)
    best = Selection(model, metric)
    for epoch, value in enumerate(values, start=1):
        model.weight.data.fill_(epoch)
        average.values["weight"].fill_(10 * epoch)
        with average.in_place():
            best.keep_best(epoch, {metric.replace("-", "_"): value})
        assert model.weight.tolist() == [[epoch]]
    assert best.record("some/val") == {"epoch": kept, "by": metric, "value": values[kept - 1], "on": "some/val"}
    assert float(best.state()["weight"]) == 10 * kept


def test_classes_are_matched_by_name():
    """A validation set with the classes in another order, and fewer of them."""
    val = load_few("digits/val")
    order = torch.tensor([7, 2, 5])
    kept = torch.isin(val.labels, order)
    labels = torch.stack([(order == label).nonzero()[0, 0] for label in val.labels[kept]])
    part = ImageSet(val.images[kept], labels, tuple(val.classes[i] for i in order.tolist()), "some/val")
    torch.manual_seed(0)
    model = rm.networks.build("small", num_classes=10, in_channels=1)
    ours = validation(dataset=part).measure(model, Ranks())
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model.eval()(val.images[kept]), val.labels[kept])
    assert ours["val_nll"] == pytest.approx(expected.item(), rel=1e-5)


def test_a_running_mean_is_measured_in_place_of_the_model():
    torch.manual_seed(0)
    model = rm.networks.build("small", num_classes=10, in_channels=1)
    average, measured = running_mean(model, 0.5), validation().measure(model, Ranks())
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    with average.in_place():
        assert validation().measure(model, Ranks()) == measured
    assert validation().measure(model, Ranks())["val_nll"] == pytest.approx(math.log(10))


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"select": "val-nll", "validation": "digits/test"}, "validation must not be a test, shifted or OOD set"),
            ({"select": "val-nll", "validation": "digits/train"}, "validation must be images that were not trained on"),
        ],
    )
    def test_by_the_configuration(self, changes, message):
        with pytest.raises(ValueError, match=message):
            config(**changes)

    def test_other_classes_and_other_sizes(self):
        val = load_few("digits/val")
        with pytest.raises(ValueError, match="validation must have the classes of the train set, got digits/val with"):
            validation(classes=tuple("abcdefghij"))
        with pytest.raises(
            ValueError, match=r"validation must have images of \(1, 9, 9\), as the network sees, got \(1, 8, 8\)"
        ):
            validation(images=torch.zeros(len(val), 1, 9, 9, dtype=torch.uint8))
        assert validation(dataset=replace(val, images=val.images.expand(-1, 3, -1, -1)))  # becomes grey

    def test_going_on_with_another_validation_set(self, tmp_path, monkeypatch):
        settings = config(select="val-nll")
        interrupt(settings, tmp_path, after=STEPS + 1)

        def changed(name, *, root=None):
            found = load_few(name, root=root)
            return found.select(torch.arange(20)) if name == "digits/val" else found

        monkeypatch.setattr(data, "load", changed)
        with pytest.raises(ValueError, match="digits/train or digits/val has changed since"):
            rm.train(settings, tmp_path, device="cpu")
