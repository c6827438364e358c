"""Every method, as a user would run it: trained on real images, resumed, predicted, evaluated."""

import pytest
import torch

import regmixup as rm
from regmixup import posthoc
from regmixup.cli import main
from regmixup.methods import METHODS
from regmixup.training.run import Run

EPOCHS = 6
# Members of an ensemble are runs of plain training; two of three epochs each show what there is to show.
QUICKER = {"deep-ensemble": ["--members", "2", "--epochs", "3"]}


def flags(method):
    return ["train", "--method", method, "--epochs", str(EPOCHS), *QUICKER.get(method, [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("methods")


@pytest.fixture(scope="module")
def trained(folder):
    """Runs by method, trained through the command line when first asked for."""
    found = {}

    def get(method, capsys):
        if method not in found:
            assert main([*flags(method), "--runs", str(folder)]) == 0
            found[method] = Run.open(capsys.readouterr().out.split("run  ")[1].strip())
        return found[method]

    return get


@pytest.mark.parametrize("method", METHODS)
def test_it_learns_predicts_and_evaluates(method, trained, capsys):
    run = trained(method, capsys)
    names = ["digits/val", "digits/test", "photographs/test"]
    validation, test, ood = run.predict_all(names)
    fitted = None
    spec = METHODS[method].posthoc
    if spec is not None:
        fitted = posthoc.build(spec.name, **spec.fields).fit(train=run.predict("digits/train"), validation=validation)
    rows = rm.evaluate(test, validation=validation, ood=[ood], posthoc=fitted)
    accuracy = next(row.value for row in rows if row.metric == "accuracy" and row.posthoc == "none")
    assert accuracy > 0.6, "ten classes: chance is 0.1"
    assert {row.score for row in rows} >= {METHODS[method].score}
    assert all(torch.isfinite(torch.tensor(row.value)) for row in rows)


@pytest.mark.parametrize("method", METHODS)
def test_it_resumes_exactly(method, trained, tmp_path, capsys):
    """Interrupted after two epochs of the (first) model, and taken up again."""
    whole = trained(method, capsys)

    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.train(whole.config, tmp_path, on_epoch=stop)
    resumed = rm.train(whole.config, tmp_path)
    assert resumed.finished
    for a, b in zip(whole.members(), resumed.members(), strict=True):
        expected, found = a.model().state_dict(), b.model().state_dict()
        assert expected.keys() == found.keys()
        for name in expected:
            assert torch.equal(expected[name], found[name]), name


def test_an_ensemble_is_the_mean_of_its_members_and_keeps_them(trained, capsys):
    run = trained("deep-ensemble", capsys)
    members = [member.predict("digits/test").logits for member in run.members()]
    found = run.predict("digits/test")
    assert torch.equal(found.member_logits, torch.stack(members))
    torch.testing.assert_close(found.logits, sum(members) / 2)
    assert [member.config.seed for member in run.members()] == [0, 1]
    assert all(
        member.config == rm.configure("digits", "dnn", epochs=3, seed=i) for i, member in enumerate(run.members())
    )
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
