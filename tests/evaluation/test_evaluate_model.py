"""Evaluating any module with its loaders."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm
from regmixup.evaluation import evaluate as evaluation
from regmixup.predictions.forward import predict_batches


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 4))


def images(seed, count=30):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, 2, 2, generator=generator), torch.randint(4, (count,), generator=generator)


def loader(seed, **options):
    return DataLoader(TensorDataset(*images(seed)), batch_size=7, **options)


@pytest.mark.filterwarnings("ignore:the best temperature")
def test_a_module_and_its_loaders_give_the_rows_of_its_predictions():
    net = model().train()
    loaders = {
        "test": loader(0),
        "validation": loader(1),
        "shift": {"toy-c/fog/1": loader(2)},
        "ood": {"far": loader(3), "near": loader(4)},
    }
    rows = rm.evaluate(net, loaders, bootstrap=None)
    assert net.training

    def said(name, seed):
        return predict_batches(net, [images(seed)], dataset=name)

    expected = rm.evaluate(
        said("test", 0),
        validation=said("validation", 1),
        shift=[said("toy-c/fog/1", 2)],
        ood=[replace(said(name, seed), labels=torch.full((30,), -1)) for name, seed in (("far", 3), ("near", 4))],
        bootstrap=None,
    )
    assert rows == expected


def test_loaders_may_be_any_iterable_of_batches_and_give_more_than_a_pair():
    x, y = images(0)
    batches = [(x[:10], y[:10], "extra"), (x[10:], y[10:], "extra")]
    assert rm.evaluate(model(), {"test": batches}, bootstrap=None) == rm.evaluate(
        model(), {"test": [(x, y)]}, bootstrap=None
    )


def test_ood_loaders_may_give_images_alone_and_labels_may_be_a_list():
    x, y = images(0)
    one, other = (
        rm.evaluate(model(), {"test": [(x, labels)], "ood": {"far": [batch]}}, bootstrap=None)
        for labels, batch in ((y, (x / 2, y)), (y.tolist(), x / 2))
    )
    assert one == other


@pytest.mark.parametrize("shape", [(12,), (1, 3, 2, 2)])
def test_inputs_need_not_be_images(shape):
    (x, y), (other, _) = images(0), images(1)
    rows, expected = (
        rm.evaluate(model(), {"test": [(change(x), y)], "ood": {"far": [change(other)]}}, bootstrap=None)
        for change in (lambda values: values.reshape(-1, *shape), lambda values: values)
    )
    assert rows == expected


@pytest.mark.parametrize(
    ("subject", "loaders", "message"),
    [
        (torch.zeros(3, 4), None, "subject must be Predictions or an nn.Module, got Tensor"),
        (model(), {"val": []}, r"""loaders must be a table with at least "test", .*, got the keys \['val'\]"""),
        (model(), {"test": [], "val": []}, "unknown role in loaders 'val': Available: "),
        (
            model(),
            {"test": [("a.png", 1)]},
            r"batches of test must be \(images, labels\) pairs .* got tuple .'a.png', 1",
        ),
        (model(), {"test": loader(0), "ood": loader(1)}, "must be a table of names and loaders, got DataLoader"),
        (nn.Sequential(model(), nn.Softmax(dim=1)), {"test": loader(0)}, "the logits of test look like probabilities"),
        (
            predict_batches(model(), [images(0)]),
            {"test": loader(0)},
            "loaders must be left out where predictions are given",
        ),
    ],
)
def test_wrong_arguments_are_explained(subject, loaders, message):
    with pytest.raises(ValueError, match=message):
        rm.evaluate(subject, loaders)


def test_the_sets_of_a_module_come_from_its_loaders_alone():
    validation = predict_batches(model(), [images(1)], dataset="validation")
    with pytest.raises(ValueError, match="must be left out where a module is given: pass their loaders"):
        rm.evaluate(model(), {"test": loader(0)}, validation=validation)


@pytest.mark.filterwarnings("ignore:the best temperature")
def test_predicted_loaders_have_the_role_they_were_given_for(monkeypatch):
    roles = {}
    monkeypatch.setattr(evaluation, "_check_names", lambda model, groups: roles.update(
        {p.dataset: p.role for p in (model.test, model.validation, *model.shift, *model.ood)}
    ))  # fmt: skip
    loaders = {"test": loader(0), "validation": loader(1), "shift": {"a": loader(2)}, "ood": {"b": loader(3)}}
    rm.evaluate(model(), loaders, bootstrap=None)
    assert roles == {"test": "test", "validation": "validation", "a": "shifted", "b": "ood"}
