"""Every method, as a user would run it: trained on real images, resumed, predicted, evaluated."""

import pytest
import torch

import regmixup as rm
from regmixup import data, posthoc
from regmixup.cli import main
from regmixup.methods import METHODS
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.training.run import Run
from tests.training import short

EPOCHS = 2


def some(names, *chosen):
    """Names of cases; all but the chosen ones are for `make soak`."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.soak) for name in names]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Runs by method, trained through the command line when first asked for."""
    found, folder = {}, tmp_path_factory.mktemp("methods")

    def get(method, capsys):
        if method not in found:
            members = ["--members", "2"] if method == "deep-ensemble" else []
            command = ["train", "--method", method, "--epochs", str(EPOCHS), *members, "--runs", str(folder)]
            assert main(command) == 0
            found[method] = Run.open(capsys.readouterr().out.split("run  ")[1].strip())
        return found[method]

    return get


@pytest.mark.filterwarnings("ignore:the best")  # temperature or prior variance, after so little training
@pytest.mark.parametrize("method", some(METHODS, "regmixup", "kfac-llla", "deep-ensemble", "regmixup+sngp", "rotation"))
def test_it_trains_predicts_and_evaluates(method, trained, capsys):
    run = trained(method, capsys)
    first, *_, last = run.history()
    assert last["loss"] < first["loss"]
    evaluate(method, run)


def evaluate(method, run):
    """Check the rows of a run."""
    names = ["digits/val", "digits/test", "photographs/test"]
    validation, test, ood = run.predict_all(names)
    fitted = None
    spec = METHODS[method].at("digits").posthoc
    if spec is not None:
        fields = spec.fields | ({"samples": 10} if "samples" in spec.fields else {})
        fitted = posthoc.build(spec.name, **fields).fit(train=run.predict("digits/train"), validation=validation)
    # A temperature is fitted to what a method does to its logits; where that is nothing, once is enough.
    plain = spec is None and run.config.head_name == "linear" and method != "regmixup"
    few, judge = Bootstrap(resamples=20), None if plain else validation
    rows = rm.evaluate(test, validation=judge, ood=[ood], posthoc=fitted, bootstrap=few)
    assert {row.score for row in rows} >= {METHODS[method].score}
    assert all(torch.isfinite(torch.tensor(row.value)) for row in rows)


def settings(method):
    """A configuration of a few steps; two models where there would be five."""
    return short.config(method, epochs=2, **({"members": 2} if method == "deep-ensemble" else {}))


CASES = {method: settings(method) for method in METHODS}


@pytest.mark.parametrize(
    "case", some(CASES, "regmixup", "regmixup+cutmix", "augmix", "duq", "deep-ensemble", "cutout", "pixmix", "rotation")
)
def test_it_resumes_exactly_from_within_an_epoch(case, tmp_path, monkeypatch):
    """Interrupted in the middle of the first epoch, again in the middle of the second, and, of an ensemble, once more
    in the second model."""
    config = CASES[case]
    monkeypatch.setattr(data, "load", short.load_few)
    whole = short.ending(rm.train(config, tmp_path / "whole", device="cpu"))
    for steps in [short.STEPS // 2, short.STEPS, short.STEPS][: config.members + 1]:
        short.interrupt(config, tmp_path / "cut", after=steps)
    short.assert_same_ending(short.ending(rm.train(config, tmp_path / "cut", device="cpu")), whole)


def test_a_network_that_predicts_rotations_is_a_linear_one_wherever_it_is_used(trained, capsys, tmp_path):
    """Its predictions have the linear head's weights, a Laplace approximation fits them, and exports have no more."""
    run = trained("rotation", capsys)
    assert {"clean", "rotation"} <= run.history()[0].keys()
    found = run.predict("digits/test", features=True)
    assert found.head_weight.shape == (10, 64)
    torch.testing.assert_close(found.features @ found.head_weight.T + found.head_bias, found.logits)
    laplace = posthoc.build("laplace", prior_variance=1.0, samples=10).fit(train=run.predict("digits/train"))
    assert laplace(found).probs.shape == found.logits.shape
    predictor = rm.Predictor.from_run(run, validation="digits/val")
    images = rm.data.load("digits/test").images[:5]
    predictor.save(tmp_path / "saved")
    assert torch.equal(rm.Predictor.load(tmp_path / "saved")(images).probs, predictor(images).probs)
    predictor.export(tmp_path / "exported.pt2")
    program = torch.export.load(tmp_path / "exported.pt2").module()
    torch.testing.assert_close(program(images.float() / 255)["probs"], predictor(images).probs)


def test_an_ensemble_is_the_mean_of_its_members_and_keeps_them(trained, capsys):
    run = trained("deep-ensemble", capsys)
    members = [member.predict("digits/test").logits for member in run.members()]
    found = run.predict("digits/test")
    assert torch.equal(found.member_logits, torch.stack(members))
    torch.testing.assert_close(found.logits, sum(members) / 2)
    assert found.info["run"] == run.fingerprint
    assert [member.config.seed for member in run.members()] == [0, 1]
    resolved = {"epochs": EPOCHS, "precision": "float32", "shards": 1}
    plain = [rm.configure("digits", "dnn", seed=seed, **resolved) for seed in (0, 1)]
    assert [member.config for member in run.members()] == plain
    with pytest.raises(ValueError, match=r"ensemble of 2 models: take one of run\.members"):
        run.model()


def test_mixed_images_stay_out_of_a_gaussian_process(trained, capsys):
    """The stored precision is that of one clean, unaugmented pass over the train images."""
    run = trained("regmixup+sngp", capsys)
    model = run.model()
    images = rm.data.load("digits/train").images
    with torch.no_grad():
        phi = model.head.random_features(model.features(images))
    torch.testing.assert_close(model.head.precision, phi.T @ phi, rtol=1e-4, atol=1e-3)
    assert run.predict("digits/test").logit_variance.shape == (len(run.predict("digits/test")), 10)
