"""Every warning names the line of the user, however deep below it the package finds the reason."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm
from regmixup.objectives import batch_transform
from regmixup.posthoc import LastLayerLaplace
from regmixup.study.runner import collect, run_study
from tests.posthoc.made_up import linear_head
from tests.study.mini import MINI, load_mini

GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(40) % 2
WRONG = 5.0 * nn.functional.one_hot(1 - LABELS)  # sure, and always wrong: the best temperature is the largest
TEST = rm.Predictions(torch.randn(40, 2, generator=GENERATOR), LABELS, dataset="toy/test")
LOADER = DataLoader(TensorDataset(torch.rand(40, 3, generator=GENERATOR), LABELS), batch_size=8)
MODEL = nn.Linear(3, 2)


def mixed_labels(_):
    batch_transform._warn_of_mixed_labels.cache_clear()
    rm.BatchTransform(rm.RegMixup(), num_classes=2)(torch.rand(4, 3, 8, 8), torch.full((4, 2), 0.5))


def probabilities_for_logits(_):
    rm.RegMixup()(nn.Sequential(nn.Flatten(), nn.Linear(12, 2), nn.Softmax(dim=1)), torch.rand(4, 3, 2, 2), LABELS[:4])


def wrong_temperature(_):
    rm.posthoc.TemperatureScaling(high=3.0).fit(WRONG, LABELS)


def wrong_temperature_within_evaluate(_):
    validation = rm.Predictions(WRONG, LABELS, dataset="toy/val")
    rm.evaluate(TEST, validation=validation, bootstrap=None)


def temperature_that_makes_the_nll_worse(_):
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(20, 5, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    rm.posthoc.TemperatureScaling().fit(logits, labels)


def few_images_for_label_sets(_):
    rm.posthoc.Conformal(level=0.99).fit(TEST.logits, LABELS)


def few_images_for_label_sets_within_fit(_):
    rm.Predictor.fit(MODEL, LOADER, sets=rm.posthoc.Conformal(level=0.99))


def narrow_grid(_):
    tuned = LastLayerLaplace(grid=(1e-6, 1e-5), predictive="mean_field")
    tuned.fit(train=linear_head(spread=3.0), validation=linear_head(150, seed=5, spread=3.0, dataset="toy/val"))


def score_without_ood(_):
    rm.Predictor.fit(MODEL, LOADER, score="auto")


def score_without_ood_within_from_run(run):
    rm.Predictor.from_run(run, score="auto")


def train_images(_):
    rm.evaluate(replace(TEST, role="train"), bootstrap=None)


def outputs_of_a_sigmoid(_):
    rm.evaluate(replace(TEST, logits=TEST.logits.sigmoid()), bootstrap=None)


def outputs_of_a_sigmoid_of_a_module(_):
    rm.evaluate(nn.Sequential(MODEL, nn.Sigmoid()), {"test": LOADER}, bootstrap=None)


def features_without_spread(_):
    rm.evaluate(replace(TEST, features=nn.functional.one_hot(LABELS).float()), bootstrap=None)


def features_without_spread_of_a_shifted_set(_):
    flat = replace(TEST, features=nn.functional.one_hot(LABELS).float(), dataset="toy-c/fog/1")
    rm.evaluate(TEST, shift=[flat], bootstrap=None)


def damaged_history(run):
    (run.folder / "history.jsonl").write_text("{\n")
    run.history()


def damaged_predictions(run):
    run.predict("digits/val")
    run.predictions_path("digits/val").write_bytes(b"")
    run.predict("digits/val")


def damaged_predictions_within_from_run(run):
    run.predict("digits/val")
    run.predictions_path("digits/val").write_bytes(b"")
    rm.Predictor.from_run(run)


def changed_source(run):
    """The run records a network of this file, when it was another."""
    rm.networks.register("mine", lambda **_: MODEL)
    path = run.folder / "config.json"
    origin = {"what": "network", "name": "mine", "module": __name__, "sha256": "0" * 64, "version": ""}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"plugins": [origin]}))
    rm.Run.open(run.folder)


def missing_archive(run):
    study = load_mini(run.folder.parent, 'reuses = ["othre"]\n' + MINI)
    with pytest.raises(ValueError, match="minutes must be enough"):
        run_study(study, run.folder.parent / "runs", device="cpu", archive=run.folder.parent / "mini", minutes=0)


@pytest.mark.parametrize(
    ("provoke", "message"),
    [
        (mixed_labels, "soft labels"),
        (probabilities_for_logits, "leave out its softmax"),
        (wrong_temperature, "the best temperature, 3, lies on the edge"),
        (wrong_temperature_within_evaluate, "the best temperature, 10, lies on the edge"),
        (temperature_that_makes_the_nll_worse, "makes the NLL of the 20 validation images worse"),
        (few_images_for_label_sets, "needs at least 99 images"),
        (few_images_for_label_sets_within_fit, "needs at least 99 images"),
        (narrow_grid, "the best prior variance"),
        (score_without_ood, 'score="auto" is'),
        (score_without_ood_within_from_run, 'score="auto" is'),
        (train_images, "are train images of the model"),
        (outputs_of_a_sigmoid, "as the outputs of a sigmoid do"),
        (outputs_of_a_sigmoid_of_a_module, "as the outputs of a sigmoid do"),
        (features_without_spread, "no Fisher criterion for toy/test"),
        (features_without_spread_of_a_shifted_set, "no Fisher criterion for toy-c/fog/1"),
        (damaged_history, "is damaged in line 1 of 1"),
        (damaged_predictions, "predicted again"),
        (damaged_predictions_within_from_run, "predicted again"),
        (changed_source, "the source has changed of the network 'mine'"),
        (missing_archive, "nothing is reused from"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_warning_names_the_line_of_the_user(run, forget, provoke, message):
    with pytest.warns(UserWarning, match=message) as said:
        provoke(run)
    assert {warning.filename for warning in said} == {__file__}


def test_a_warning_of_what_a_study_lacks_names_the_line_of_the_user(finished_study, tmp_path):
    study = load_mini(tmp_path, MINI.replace("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    with pytest.warns(UserWarning, match="left out of the table") as said:
        collect(study, finished_study.runs, tmp_path / "into")
    assert {warning.filename for warning in said} == {__file__}
