"""Deploying a run: fitted on validation images, called on images, exported to files that give the same numbers."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import regmixup as rm
from regmixup.data.decode import EvalTransform
from regmixup.deployment import export as exporting
from regmixup.deployment.calibration import accepting_thresholds, fit_temperature
from regmixup.deployment.export import export
from regmixup.deployment.module import Deployable
from regmixup.networks.gp_head import GPHead
from regmixup.posthoc import MeanField

GP = GPHead(num_features=64)
VARIANTS = {"plain": {}, "gp": {"head": GP}, "spectral": {"constraint": "spectral_norm"}}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Short runs on digits, trained when first asked for: three epochs of the plain one, one of every other."""
    folder = tmp_path_factory.mktemp("deployed")

    def get(variant="plain", method="regmixup"):
        epochs = 3 if (variant, method) == ("plain", "regmixup") else 1
        config = rm.configure("digits", method, epochs=epochs, lr=0.05, **VARIANTS[variant])
        return rm.train(config, folder, device="cpu")

    return get


@pytest.fixture(scope="session")
def predictor(run_of):
    return rm.Predictor.from_run(run_of())


@pytest.fixture(scope="session")
def exported(predictor, tmp_path_factory):
    """A folder with the plain predictor as model.pt2 and model.onnx, both for uint8."""
    folder = tmp_path_factory.mktemp("exported")
    for suffix in ("pt2", "onnx"):
        predictor.export(folder / f"model.{suffix}", pixels="uint8")
    return folder


@pytest.fixture(scope="module")
def val():
    return rm.data.load("digits/val")


@pytest.fixture(scope="module")
def test_images():
    return rm.data.load("digits/test").images


class TestFitting:
    @pytest.mark.parametrize(("score", "acceptance"), [("entropy", 0.5), ("max_logit", 0.95), ("energy", 1.0)])
    def test_it_accepts_the_asked_share_of_the_validation_images(self, run_of, val, acceptance, score):
        found = rm.Predictor.from_run(run_of(), acceptance=acceptance, score=score)
        needed = -(-len(val) * round(100 * acceptance) // 100)
        for batch_size in (7, 1000):
            assert int(found(val.images, batch_size=batch_size).accepted.sum()) == needed

    def test_its_numbers_are_those_of_predictions_and_posthoc(self, run_of, predictor, test_images):
        validation, test = run_of().predict_all(["digits/val", "digits/test"])
        assert predictor.temperature == fit_temperature(validation) != 1
        decision = predictor(test_images)
        probs = (test.logits.double() / predictor.temperature).softmax(dim=1)
        torch.testing.assert_close(decision.probs, probs, rtol=0, atol=1e-6)
        torch.testing.assert_close(decision.score, rm.scores.entropy(test.logits).double(), rtol=0, atol=1e-6)
        assert torch.equal(decision.accepted, decision.score <= predictor.threshold)
        assert torch.equal(decision.label, probs.argmax(dim=1))
        assert decision.class_names == tuple("0123456789")

    def test_a_folder_gives_the_same_predictor_as_its_run(self, run_of, predictor):
        assert repr(rm.Predictor.from_run(str(run_of().folder))) == repr(predictor)

    @pytest.mark.parametrize(("method", "score"), [("dnn", "entropy"), ("duq", "max_logit")])
    def test_the_score_is_entropy_unless_it_is_named(self, run_of, method, score):
        run = run_of("plain", method)
        assert rm.Predictor.from_run(run).score == score
        assert rm.Predictor.from_run(run, score="energy").score == "energy"

    @pytest.mark.parametrize("variant", ["plain", "gp"])
    def test_ood_images_by_name_or_in_batches_choose_the_same_score(self, run_of, tmp_path, variant):
        strange = rm.data.load("photographs/test").images[:20]
        (tmp_path / "things").mkdir()
        for place, image in enumerate(strange):
            Image.fromarray(image[0].numpy()).save(tmp_path / "things" / f"{place:02}.png")
        by_name, in_batches = (
            rm.Predictor.from_run(run_of(variant), score="auto", ood=ood).choice
            for ood in (f"folder:{tmp_path}", [strange[:15], strange[15:]])
        )
        assert by_name.aurocs == pytest.approx(in_batches.aurocs, abs=1e-3)
        assert (by_name.images, by_name.ood_images, by_name.name) == (448, 20, in_batches.name)

    def test_no_test_set_chooses_the_score(self, run_of):
        with pytest.raises(ValueError, match=r"ood must be no test set, .* got 'photographs/test'"):
            rm.Predictor.from_run(run_of(), score="auto", ood="photographs/test")

    def test_the_threshold_is_the_smallest_that_reaches_the_share(self):
        scores = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0])
        for acceptance, accepted in [(0.2, 1), (0.21, 3), (0.6, 3), (0.61, 4), (1.0, 5)]:
            threshold = float(accepting_thresholds(scores, [acceptance]))
            assert int((scores <= threshold).sum()) == accepted
            assert threshold - 0.0006 < float(scores.sort().values[accepted - 1]) < threshold
        # Closer neighbours than the margin are told apart all the same, below zero too.
        close = torch.tensor([-1.0, -1 + 1e-9], dtype=torch.float64)
        assert (close <= accepting_thresholds(close, [0.5])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("digits/test", "must not be a test, shifted or OOD set for a model of digits/train, got 'digits/test'"),
        ("digits-c/contrast/3", "must not be a test, shifted or OOD set"),
        ("photographs/test", "must not be a test, shifted or OOD set"),
        ("digits/train", "must be images that were not trained on, got 'digits/train'"),
    ],
)
def test_only_validation_sets_fit_a_predictor(run_of, name, contract):
    with pytest.raises(ValueError, match=f"validation {contract}"):
        rm.Predictor.from_run(run_of(), validation=name)


class TestCalling:
    def test_a_single_image_is_a_batch_of_one_without_its_dimension(self, predictor, test_images):
        batch, single = predictor(test_images[:4]), predictor(test_images[2])
        assert single.probs.shape == (10,)
        assert single.label.shape == single.score.shape == single.accepted.shape == ()
        torch.testing.assert_close(single.probs, batch.probs[2], rtol=0, atol=1e-6)
        torch.testing.assert_close(single.score, batch.score[2], rtol=0, atol=1e-6)
        assert (single.label, single.accepted) == (batch.label[2], batch.accepted[2])

    def test_what_is_not_such_images_is_named(self, predictor, test_images):
        x = test_images[:2]
        for wrong in (x[:, :, :7], x[:0]):
            with pytest.raises(ValueError, match=r"images must be \(N, 1, 8, 8\), N >= 1, or \(1, 8, 8\), got"):
                predictor(wrong)
        with pytest.raises(ValueError, match=r"uint8 or floating point, got torch\.int64"):
            predictor(x.long())
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got 0 to 255"):
            predictor(x.float())
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got nan to nan"):
            predictor(x.float() * float("nan"))
        with pytest.raises(ValueError, match="batch_size must be an integer"):
            predictor(x, batch_size=0)


class TestFiles:
    def test_a_file_of_a_digit_gives_exactly_what_its_pixels_give(self, run_of, predictor, test_images, tmp_path):
        """As grey or RGB file, and through `folder:`."""
        (tmp_path / "3").mkdir()
        for index, pixels in enumerate(test_images[:20]):
            path = tmp_path / "3" / f"{index:02}.png"
            Image.fromarray(pixels[0].numpy()).convert("L" if index % 2 else "RGB").save(path)
            assert torch.equal(predictor.predict_file(path).probs, predictor(pixels).probs)
        folder, memory = run_of().predict(f"folder:{tmp_path}"), run_of().predict("digits/test")
        torch.testing.assert_close(folder.logits, memory.logits[:20], rtol=0, atol=1e-5)

    def test_a_model_of_files_treats_a_file_as_its_run_does(self, tmp_path):
        rng = np.random.default_rng(0)
        for name in ("train/a", "train/b", "val/a", "val/b"):
            (tmp_path / name).mkdir(parents=True)
            for index in range(4):
                pixels = rng.integers(0, 256, (20 + index, 17 + len(name), 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / name / f"{index}.png")
        colour = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "image_size": 14, "batch_size": 8}
        config = rm.configure("digits", "dnn", train_set=f"folder:{tmp_path / 'train'}", epochs=2, **colour)
        run = rm.train(config, tmp_path / "runs", device="cpu", workers=0)
        validation = run.predict(f"folder:{tmp_path / 'val'}")
        files = [tmp_path / "val" / name / f"{index}.png" for name in "ab" for index in range(4)]
        predictor = rm.Predictor.from_run(run, validation=validation.dataset)
        assert predictor.transform == EvalTransform(size=14, resize=16)
        probs = torch.stack([predictor.predict_file(file).probs for file in files])
        expected = (validation.logits.double() / predictor.temperature).softmax(dim=1)
        torch.testing.assert_close(probs, expected, rtol=0, atol=1e-6)
        shutil.copytree(tmp_path / "train", tmp_path / "copy")
        message = "copy has the images of .*train, or files of the same names and sizes: if they are copies"
        with pytest.warns(UserWarning, match=message) as said:
            rm.Predictor.from_run(run, validation=f"folder:{tmp_path / 'copy'}")
        assert said[0].filename == __file__

    def test_a_copy_in_memory_has_the_same_pixels(self, tmp_path, forget):
        for name in ("copied/train", "copied/val"):
            rm.data.register(name, lambda: rm.data.load("digits/train"))
        run = rm.train(rm.configure("digits", "dnn", train_set="copied/train", epochs=1), tmp_path, device="cpu")
        with pytest.warns(UserWarning, match="copied/val has the images of copied/train, or files"):
            rm.Predictor.from_run(run, validation="copied/val")


class TestVariants:
    def test_a_gaussian_process_is_shrunk_by_its_variance(self, run_of, test_images):
        run = run_of("gp")
        predictor = rm.Predictor.from_run(run)
        validation, test = map(MeanField(), run.predict_all(["digits/val", "digits/test"]))
        assert predictor.temperature == fit_temperature(validation)
        decision = predictor(test_images)
        torch.testing.assert_close(decision.score, rm.scores.entropy(test.logits).double(), rtol=0, atol=1e-6)
        probs = (test.logits.double() / predictor.temperature).softmax(dim=1)
        torch.testing.assert_close(decision.probs, probs, rtol=0, atol=1e-6)

    def test_a_constraint_is_baked_and_the_run_keeps_its_own(self, run_of, test_images):
        run = run_of("spectral")
        found = rm.Predictor.from_run(run)
        assert not [name for name in found.module.state_dict() if "parametrizations" in name]
        assert [name for name in run.model().state_dict() if "parametrizations" in name]
        probs = (run.predict("digits/test").logits.double() / found.temperature).softmax(dim=1)
        torch.testing.assert_close(found(test_images).probs, probs, rtol=0, atol=1e-6)


class TestExports:
    def check(self, predictor, folder, images):
        """Both files against PyTorch, in batches of several sizes."""
        program = torch.export.load(folder / "model.pt2").module()
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        names = [output.name for output in session.get_outputs()]
        for count in (1, 3, 7):
            x = images[:count]
            expected = predictor(x)
            from_onnx = dict(zip(names, map(torch.from_numpy, session.run(None, {"images": x.numpy()})), strict=True))
            for found in (program(x), from_onnx):
                assert found.keys() == {"probs", "score", "accepted"}
                for name in ("probs", "score"):
                    torch.testing.assert_close(found[name], getattr(expected, name), rtol=0, atol=1e-5)
                assert torch.equal(found["accepted"], expected.accepted)

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({"head": GP, "constraint": "spectral_norm"}, id="gp"),
            pytest.param({"head": "rbf"}, id="rbf", marks=pytest.mark.soak),
        ],
    )
    def test_both_files_give_the_same_numbers(self, test_images, tmp_path, fields):
        torch.manual_seed(0)
        network = rm.networks.build("small", num_classes=10, in_channels=1, **fields)
        module = Deployable(network, temperature=2.0, score="entropy", threshold=2.0)
        for suffix in ("pt2", "onnx"):
            export(module, tmp_path / f"model.{suffix}", input_shape=(1, 8, 8), pixels="float32", facts={})
        self.check(lambda x: SimpleNamespace(**module(x)), tmp_path, test_images.float() / 255)

    def test_every_score_can_be_exported(self, tmp_path):
        """All of them side by side, with the smallest network there is."""

        class EveryScore(Deployable):
            def forward(self, images):
                logits = self.logits(images)
                scores = torch.stack([score(logits) for score in rm.scores.SCORES.values()], dim=1)
                return {**super().forward(images), "score": scores}

        module = EveryScore(torch.nn.Linear(3, 4), temperature=2.0, score="energy", threshold=0.5)
        export(module, tmp_path / "model.onnx", input_shape=(3,), pixels="float32", facts={})
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        found = dict(zip(("probs", "score", "accepted"), session.run(None, {"images": x.numpy()}), strict=True))
        for name, expected in module(x).items():
            np.testing.assert_allclose(found[name], expected.numpy(), rtol=0, atol=1e-6)

    def test_decisions_about_the_validation_images_survive_export(self, predictor, exported, val):
        """The image that sets the threshold is among them."""
        session = onnxruntime.InferenceSession(exported / "model.onnx")
        accepted = session.run(["accepted"], {"images": val.images.numpy()})[0]
        assert 0 < int(accepted.sum()) < len(val)
        assert np.array_equal(accepted, predictor(val.images).accepted.numpy())

    def test_the_files_say_what_they_are(self, predictor, exported):
        facts = {**exporting.encode_facts(predictor), "architecture": None, "pixels": "uint8"}
        assert {"class_names", "input_shape", "transform", "temperature", "score", "threshold"} <= facts.keys()
        extra = {"metadata.json": ""}
        torch.export.load(exported / "model.pt2", extra_files=extra)
        assert json.loads(extra["metadata.json"]) == facts
        properties = onnxruntime.InferenceSession(exported / "model.onnx").get_modelmeta().custom_metadata_map
        assert {name: json.loads(value) for name, value in properties.items()} == facts
        assert sorted(path.name for path in exported.iterdir()) == ["model.onnx", "model.pt2"]

    @pytest.mark.parametrize(
        "code",
        [
            "import onnxruntime; session = onnxruntime.InferenceSession('model.onnx'); "
            "probs = session.run(['probs'], {'images': images})[0]; assert 'torch' not in sys.modules",
            "import torch; program = torch.export.load('model.pt2').module(); "
            "probs = program(torch.from_numpy(images))['probs']",
        ],
        ids=["onnx", "pt2"],
    )
    def test_the_files_need_no_regmixup(self, predictor, exported, test_images, tmp_path, code):
        np.save(tmp_path / "images.npy", test_images[:5].numpy())
        code = f"import sys, numpy; images = numpy.load(sys.argv[1]); {code}; print(probs.tolist())"
        code += "; assert 'regmixup' not in sys.modules"
        command = [sys.executable, "-c", code, tmp_path / "images.npy"]
        done = subprocess.run(command, cwd=exported, check=True, capture_output=True, text=True)
        found = torch.tensor(json.loads(done.stdout), dtype=torch.float64)
        torch.testing.assert_close(found, predictor(test_images[:5]).probs, rtol=0, atol=1e-5)

    def test_what_cannot_be_written_is_named(self, predictor, tmp_path, monkeypatch):
        with pytest.raises(ValueError, match=r"unknown export format of .*model\.onxx '\.onxx': did you mean '\.onnx'"):
            predictor.export(tmp_path / "model.onxx")
        with pytest.raises(ValueError, match="unknown pixels 'float23': did you mean 'float32'"):
            predictor.export(tmp_path / "model.pt2", pixels="float23")
        monkeypatch.setattr(exporting, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"needs onnx and onnxscript: pip install 'regmixup\[onnx\]'"):
            predictor.export(tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())


def test_a_saved_network_of_a_plugin_that_is_not_loaded_says_how_to_load_it(predictor, tmp_path):
    replace(predictor, architecture=replace(predictor.architecture, network="mine")).save(tmp_path)
    told = r"unknown network 'mine': .*what a plugin registers \(--plugin MODULE\)"
    with pytest.raises(ValueError, match=told):
        rm.Predictor.load(tmp_path)
