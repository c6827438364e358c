"""A predictor for a model from anywhere, and predictors on disk: weights and JSON, or an exported program."""

import copy
import json
from dataclasses import replace
from inspect import Parameter, signature
from typing import get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.utils import ModelEmaV2, ModelEmaV3
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm
from regmixup.data.decode import EvalTransform
from regmixup.deployment.calibration import Calibration, choose_score, fit_temperature
from regmixup.networks.gp_head import GPHead
from regmixup.posthoc import Conformal
from regmixup.storage import read_table, write_table
from regmixup.types import Predictions

MEAN, STD = (0.25,), (0.5,)


def normalised(images):
    return (images.float() / 255 - MEAN[0]) / STD[0]


def network(width=64):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10)
    )


def loader(images, labels, batch_size=100):
    return DataLoader(TensorDataset(images, labels), batch_size=batch_size)


@pytest.fixture(scope="module")
def digits():
    return {name: rm.data.load(f"digits/{name}") for name in ("train", "val", "test")}


@pytest.fixture(scope="module")
def model(digits):
    """A network of plain PyTorch, trained in a loop of its own on normalised images, and left in training mode."""
    torch.manual_seed(0)
    found, train = network(), digits["train"]
    optimizer = torch.optim.Adam(found.parameters(), 3e-3)
    for _ in range(15):
        for rows in torch.randperm(len(train.labels)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(found(normalised(train.images[rows])), train.labels[rows]).backward()
            optimizer.step()
    return found


@pytest.fixture(scope="module")
def validation(digits):
    return loader(normalised(digits["test"].images), digits["test"].labels)


@pytest.fixture(scope="module")
def fitted(model, validation):
    sets = Conformal(method="aps", level=0.9)
    return rm.Predictor.fit(model, validation, normalize=(MEAN, STD), risk=0.05, sets=sets, class_names="abcdefghij")


def logits_of(model, images):
    with torch.no_grad():
        return copy.deepcopy(model).eval()(images)


class TestFitting:
    def test_its_numbers_are_those_of_the_model_and_the_fitted_temperature(self, model, digits, validation):
        predictor = rm.Predictor.fit(model, validation, acceptance=0.9)
        logits, labels = logits_of(model, normalised(digits["test"].images)), digits["test"].labels
        assert predictor.temperature == pytest.approx(fit_temperature(Predictions(logits, labels)), abs=1e-4)
        assert (predictor.images, predictor.errors) == (899, int((logits.argmax(1) != labels).sum()))
        decision = predictor(normalised(digits["test"].images))
        expected = (logits.double() / predictor.temperature).softmax(dim=1)
        torch.testing.assert_close(decision.probs, expected, rtol=0, atol=1e-6)
        assert int(decision.accepted.sum()) == 810  # ceil(0.9 * 899)
        assert decision.sets is None
        assert decision.class_names == tuple("0123456789")

    def test_ood_images_choose_the_score_which_is_stored_with_the_model(self, model, digits, validation, tmp_path):
        noise = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        predictor = rm.Predictor.fit(model, validation, score="auto", ood=[noise[:30], (noise[30:], None)])
        known, strange = (logits_of(model, x) for x in (normalised(digits["test"].images), noise))
        assert predictor.choice == choose_score(known, strange)
        assert (predictor.choice.images, predictor.choice.ood_images) == (899, 40)
        assert predictor.score == predictor.choice.name
        expected = rm.scores.SCORES[predictor.score](known)
        torch.testing.assert_close(predictor(normalised(digits["test"].images)).score, expected)
        predictor.save(tmp_path)
        assert rm.Predictor.load(tmp_path, model=model).choice == predictor.choice
        unlabelled = TensorDataset(noise)
        assert rm.Predictor.fit(model, validation, score="auto", ood=unlabelled).choice == predictor.choice

    def test_ood_images_are_some_and_of_the_same_shape(self, model, validation):
        for wrong, got in (([], "at least one batch"), ([torch.zeros(2, 3, 8, 8)], r"\(1, 8, 8\) .* got \(3, 8, 8\)")):
            with pytest.raises(ValueError, match=f"ood must hold .*{got}"):
                rm.Predictor.fit(model, validation, score="auto", ood=wrong)

    def test_a_warning_names_the_line_of_the_user(self, model, validation):
        with pytest.warns(UserWarning, match="no out-of-distribution validation images") as warned:
            rm.Predictor.fit(model, validation, score="auto")
        assert warned[0].filename == __file__

    def test_the_model_stays_as_it_is(self, model, validation):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        rm.Predictor.fit(model, validation)
        assert model.training
        assert all(p.requires_grad for p in model.parameters())
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    def test_a_model_with_parametrizations_stays_as_it_is_and_is_fitted_again(self, digits, validation, tmp_path):
        model = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, 10)))
        images = normalised(digits["val"].images[:3])
        before = logits_of(model, images)
        found = rm.Predictor.fit(model, validation)
        assert torch.equal(logits_of(model, images), before)
        assert found.temperature == rm.Predictor.fit(model, validation).temperature
        found.save(tmp_path)
        assert torch.equal(rm.Predictor.load(tmp_path, model=model)(images).probs, found(images).probs)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_a_model_of_another_precision_takes_what_any_other_does(self, model, digits, dtype):
        converted, test = copy.deepcopy(model).to(dtype), digits["test"]
        images = normalised(test.images).to(dtype)
        predictor = rm.Predictor.fit(converted, loader(images, test.labels), normalize=(MEAN, STD))
        expected = logits_of(converted, images).argmax(dim=1)
        assert torch.equal(predictor(images).label, expected)
        assert torch.equal(predictor(test.images).label, expected)

    def test_the_promise_is_about_half_of_the_images_and_holds_on_others(self, fitted, digits):
        assert fitted.promise.images == 449
        decision, labels = fitted(digits["val"].images), digits["val"].labels
        assert 0.3 < float(decision.accepted.double().mean()) < 1
        assert float((decision.label != labels)[decision.accepted].double().mean()) <= 0.05
        assert float(decision.sets.gather(1, labels[:, None]).double().mean()) > 0.87

    def test_parallel_averaged_and_compiled_models_are_unwrapped(self, model, validation):
        wrapped = torch.compile(nn.DataParallel(AveragedModel(model)), backend="eager")
        found = rm.Predictor.fit(wrapped, validation)
        assert found.temperature == rm.Predictor.fit(model, validation).temperature
        assert found.module.network.state_dict().keys() == model.state_dict().keys()

    @pytest.mark.parametrize("averaging", [ModelEmaV2, ModelEmaV3, AveragedModel])
    def test_the_average_of_a_model_is_saved_as_the_model(self, model, validation, tmp_path, averaging):
        found = rm.Predictor.fit(averaging(model), validation)
        found.save(tmp_path)
        assert rm.Predictor.load(tmp_path, model=model).temperature == found.temperature

    def test_inputs_need_not_be_images(self):
        x, y = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
        found = rm.Predictor.fit(nn.Linear(5, 3), [(x, y)])
        assert found(x).probs.shape == (60, 3)
        assert found(x[0]).probs.shape == (3,)
        with pytest.raises(ValueError, match=r"files need a model of images .* takes inputs of \(5,\)"):
            found.predict_file(b"")

    def test_inputs_that_the_predictor_would_refuse_do_not_fit_it(self, model, validation, digits):
        whole, labels = digits["val"].images.long(), digits["val"].labels
        with pytest.raises(ValueError, match=r"validation_loader must be uint8 or floating point, got torch\.int64"):
            rm.Predictor.fit(model, [(whole, labels)])
        with pytest.raises(ValueError, match=r"ood must be uint8 or floating point, got torch\.int64"):
            rm.Predictor.fit(model, validation, score="auto", ood=[whole])

    def test_probabilities_in_place_of_logits_are_refused(self, model, validation):
        with pytest.raises(ValueError, match=r"the model's logits look like probabilities, .*: leave out its softmax"):
            rm.Predictor.fit(nn.Sequential(model, nn.Softmax(dim=1)), validation)

    def test_what_cannot_be_fitted_is_named(self, model, digits):
        x, y = normalised(digits["val"].images), digits["val"].labels
        for batches, contract in [
            ([], "validation_loader must hold at least one batch, got none"),
            ([x], r"batches of validation_loader must be .*pairs of tensors"),
            ([(x / 0, y)], "logits must be finite"),
            ([(x, y + 1)], r"labels must lie in \[0, 10\)"),
            ([(x, y), (x[:, :, :4], y)], r"inputs of one shape, \(1, 8, 8\) .* got \(1, 4, 8\)"),
        ]:
            with pytest.raises(ValueError, match=contract):
                rm.Predictor.fit(model if batches[1:] == [] else nn.Sequential(nn.AdaptiveAvgPool2d(8), model), batches)
        with pytest.raises(ValueError, match="class_names must be the model's 10 classes, got 2 names"):
            rm.Predictor.fit(model, [(x, y)], class_names=["cat", "dog"])
        with pytest.raises(ValueError, match=r"model must be a torch\.nn\.Module, got function"):
            rm.Predictor.fit(normalised, [(x, y)])
        with pytest.raises(ValueError, match=r"normalize must be .* for 1 channel with"):  # not an error of torch
            rm.Predictor.fit(model, [(digits["val"].images, y)], normalize=((0.5,) * 3, (0.5,) * 3))


@pytest.mark.parametrize("fit", [rm.Predictor.fit, rm.Predictor.from_run])
def test_a_fit_takes_the_settings_of_a_calibration(fit):
    """With its types and defaults, but for the score of a run, which depends on its objective."""
    taken, hints = signature(fit).parameters, get_type_hints(fit)
    for name, hint in get_type_hints(Calibration).items():
        if (fit, name) != (rm.Predictor.from_run, "score"):
            assert (hints[name], taken[name].default) == (hint, getattr(Calibration(), name))
    assert not {name for name in taken if taken[name].kind == Parameter.VAR_KEYWORD}


class TestInputs:
    def test_pixels_files_bytes_and_pillow_images_are_normalised(self, fitted, digits, tmp_path):
        images = digits["val"].images[:3]
        expected = fitted(normalised(images))
        torch.testing.assert_close(fitted(images).probs, expected.probs, rtol=0, atol=1e-6)
        pillow = [Image.fromarray(image[0].numpy()) for image in images]
        paths = [tmp_path / f"{index}.png" for index in range(3)]
        for image, path in zip(pillow, paths, strict=True):
            image.save(path)
        for files in (pillow, paths, [str(path) for path in paths], [path.read_bytes() for path in paths]):
            torch.testing.assert_close(fitted(files).probs, expected.probs, rtol=0, atol=1e-6)
            torch.testing.assert_close(fitted(files[1]).probs, expected.probs[1], rtol=0, atol=1e-6)
            torch.testing.assert_close(fitted.predict_file(files[1]).probs, expected.probs[1], rtol=0, atol=1e-6)

    def test_a_list_holds_images_of_one_shape(self, fitted, digits):
        pixels = digits["val"].images[:3]
        expected = fitted(pixels).probs
        for images in (list(pixels), [Image.fromarray(pixels[0, 0].numpy()), *pixels[1:]]):
            assert torch.equal(fitted(images).probs, expected)
        for images, contract in [
            ([], r"images must be \(N, 1, 8, 8\), N >= 1, .* got \(0,\)"),
            ([pixels[0], None], "images that are no path, bytes or .*, got None"),
            ([pixels[0], normalised(pixels[1])], "all uint8 or files, or all floating point, got a list of both"),
        ]:
            with pytest.raises(ValueError, match=contract):
                fitted(images)

    def test_pixels_are_refused_where_nobody_said_how_to_normalise_them(self, model, validation, digits):
        found = rm.Predictor.fit(model, validation)
        with pytest.raises(ValueError, match=r"must be floating point, as in the validation_loader.*normalize="):
            found(digits["val"].images)
        with pytest.raises(ValueError, match="images must be finite"):
            found(normalised(digits["val"].images) / 0)

    def test_a_loader_of_pixels_makes_a_predictor_of_pixels(self, model, digits):
        """In uint8, or as floats in [0, 1]: the same predictor, that refuses other floats."""
        labels = digits["val"].labels
        found = [rm.Predictor.fit(model, [(x, labels)]) for x in (digits["val"].images, digits["val"].images / 255)]
        assert repr(found[0]) == repr(found[1])
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
            found[0](digits["val"].images.float())
        wide = digits["val"].images / 100
        assert rm.Predictor.fit(model, [(wide, labels)])(wide).probs.shape == (len(labels), 10)
        both = rm.Predictor.fit(model, [(digits["val"].images, labels)], normalize=(MEAN, STD))
        assert both(normalised(digits["val"].images)).probs.shape == (len(labels), 10)

    def test_files_are_resized_as_the_transform_says(self, digits, tmp_path):
        pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        transform = EvalTransform(size=16, resize=20)
        x, y = torch.rand(20, 3, 16, 16), torch.arange(20) % 2
        found = rm.Predictor.fit(nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), [(x, y)], transform=transform)
        cropped = torch.from_numpy(np.array(transform.build()(Image.fromarray(pixels)))).permute(2, 0, 1)
        assert torch.equal(found(Image.fromarray(pixels)).probs, found(cropped).probs)
        Image.new("RGB", (1, 300_000)).save(tmp_path / "thin.png")
        with pytest.raises(ValueError, match=r"cannot read .*thin\.png as an image: expected at most .* 1x300000"):
            found(tmp_path / "thin.png")
        without = rm.Predictor.fit(nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), [(x, y)])
        contract = r"must have 16x16 pixels, as the images .* trained on, got 60x40: .*fit transform=Eval"
        with pytest.raises(ValueError, match=contract):
            without(Image.fromarray(pixels))


class TestSaving:
    def check(self, found, other, images):
        assert repr(other) == repr(found)
        expected, decision = found(images), other(images)
        assert torch.equal(decision.probs, expected.probs)
        for name in ("label", "score", "accepted"):
            assert torch.equal(getattr(decision, name), getattr(expected, name))
        assert (decision.sets is None) == (expected.sets is None)
        assert decision.sets is None or torch.equal(decision.sets, expected.sets)

    @pytest.mark.parametrize(
        "fields",
        [{}, {"head": GPHead(num_features=32), "constraint": "spectral_norm"}, {"head": "rbf"}],
        ids=["plain", "sngp", "rbf"],
    )
    def test_a_run_is_loaded_without_its_folder_or_a_model(self, digits, tmp_path, fields):
        config = rm.configure("digits", "dnn", epochs=1, lr=0.05, **fields)
        found = rm.Predictor.from_run(rm.train(config, tmp_path / "runs", device="cpu"), sets=Conformal())
        found.save(tmp_path / "saved")
        self.check(found, rm.Predictor.load(tmp_path / "saved", device="cpu"), digits["test"].images[:50])
        assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["predictor.json", "weights.safetensors"]

    def test_any_model_is_loaded_into_a_module_of_its_architecture(self, fitted, digits, tmp_path):
        fitted.save(tmp_path)
        torch.manual_seed(1)
        fresh = network()
        before = fresh[1].weight.clone()
        self.check(fitted, rm.Predictor.load(tmp_path, model=fresh, device="cpu"), digits["test"].images[:50])
        assert torch.equal(fresh[1].weight, before)
        with pytest.raises(ValueError, match=r"model must be given for .* not a network of this package"):
            rm.Predictor.load(tmp_path)
        with pytest.raises(ValueError, match=r"(?s)architecture that was saved in .*size mismatch for 1"):
            rm.Predictor.load(tmp_path, model=network(8))

    def test_what_was_changed_or_is_missing_is_named(self, fitted, tmp_path):
        with pytest.raises(ValueError, match=r"must be a folder of Predictor\.save, .* it has no predictor\.json"):
            rm.Predictor.load(tmp_path)
        fitted.save(tmp_path / "predictor")
        with pytest.raises(ValueError, match=r"it has no predictor\.json: name .*/predictor$"):
            rm.Predictor.load(tmp_path)
        fitted.save(tmp_path)
        text = (tmp_path / "predictor.json").read_text()
        (tmp_path / "predictor.json").write_text(text.replace('"risk": 0.05', '"risk": 0.01'))
        with pytest.raises(ValueError, match=r"cannot read .*predictor\.json: its content has changed"):
            rm.Predictor.load(tmp_path, model=network())
        table = {name: value for name, value in json.loads(text).items() if name != "checksum"}
        (tmp_path / "predictor.json").write_text(json.dumps({**table, "treshold": 1}))
        with pytest.raises(ValueError, match="'treshold': did you mean 'threshold'"):
            rm.Predictor.load(tmp_path, model=network())
        (tmp_path / "predictor.json").write_text(text)
        weights = load_file(tmp_path / "weights.safetensors")
        save_file({name: value + 1 for name, value in weights.items()}, tmp_path / "weights.safetensors")
        with pytest.raises(ValueError, match=r"weights\.safetensors: it is not the file that the facts"):
            rm.Predictor.load(tmp_path, model=network())

    @pytest.mark.parametrize(
        ("changes", "contract"),
        [
            ({"temperature": -1.0}, "temperature must be a finite number > 0, got -1"),
            ({"threshold": float("nan")}, "threshold must be a finite number, got nan"),
            ({"class_names": ["a", "b"]}, "must take inputs .1, 8, 8. and have 2 logits, as named"),
            ({"architecture": {"input_shape": [1, 9, 9]}}, "must take inputs .1, 8, 8. and have 10 logits"),
            ({"architecture": {"members": 10**9}}, "unknown field of Architecture in .* 'members'"),
            ({"architecture": {"mean": [float("nan")]}}, "normalize must be finite .* for 1 channel .* got .*nan"),
            ({"architecture": {"std": [0.0]}}, "normalize must be finite .mean, std. .* with std > 0"),
        ],
    )
    def test_facts_that_no_predictor_has_are_refused_before_anything_is_built(
        self, tmp_path, monkeypatch, changes, contract
    ):
        config = rm.configure("digits", "dnn", epochs=1, lr=0.05)
        predictor = rm.Predictor.from_run(rm.train(config, tmp_path / "runs", device="cpu"))
        predictor.save(tmp_path)
        table = {name: value for name, value in read_table(tmp_path / "predictor.json").items() if name != "checksum"}
        for name, value in changes.items():
            table[name] = {**table[name], **value} if isinstance(value, dict) else value
        write_table(tmp_path / "predictor.json", table)
        monkeypatch.setattr(type(predictor.architecture), "build", lambda self: pytest.fail("built"))
        with pytest.raises(ValueError, match=contract):
            rm.Predictor.load(tmp_path)

    def test_names_of_a_given_model_are_compared_with_its_logits(self, fitted, digits, tmp_path):
        replace(fitted, class_names=("a", "b"), sets=None).save(tmp_path)
        with pytest.raises(ValueError, match="class_names must be the model's 10 classes, got 2"):
            rm.Predictor.load(tmp_path, model=network())(digits["val"].images)

    def test_loading_a_folder_reads_no_pickle(self, fitted, tmp_path, monkeypatch):
        fitted.save(tmp_path)

        def refuse(*args, **kwargs):
            raise AssertionError("unpickled")

        for name in ("torch.load", "pickle.load", "pickle.loads", "torch.export.load"):
            monkeypatch.setattr(name, refuse)
        rm.Predictor.load(tmp_path, model=network())
