"""Published runs: timm or this package loads them and gives the same logits; the card says what was measured."""

import json
import shutil

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from PIL import Image
from safetensors.torch import save_file

import regmixup as rm
from regmixup import networks
from regmixup.deployment import publish as module
from regmixup.deployment.publish import load, publish
from regmixup.networks.gp_head import GPHead
from regmixup.posthoc import MeanField
from tests.cli.running import run as command
from tests.deployment.photos import write_photos

SHIFTED = ("digits-c/contrast/1", "digits-c/contrast/3")
VARIANTS = {
    "small": {"epochs": 2, "lr": 0.05},
    "resnet18": {"epochs": 0, "network": "resnet18"},
    "spectral": {"epochs": 1, "constraint": "spectral_norm"},
    "gp": {"epochs": 1, "head": GPHead(num_features=32)},
    "timm": {"epochs": 1, "network": "timm/test_resnet.r160_in1k"},
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    weights = folder / "untrained.safetensors"  # a run of no epochs starts from a file
    save_file(networks.build("resnet18", num_classes=10, in_channels=1).state_dict(), weights)

    def get(variant):
        init = {} if VARIANTS[variant]["epochs"] else {"init": str(weights)}
        return rm.train(rm.configure("digits", "regmixup", **VARIANTS[variant], **init), folder, device="cpu")

    return get


@pytest.fixture(scope="module")
def digits():
    return rm.data.load("digits/test").images[:40]


@pytest.fixture(scope="module")
def run(run_of):
    found = run_of("small")
    found.predict_all(["digits/test", "photographs/test", *SHIFTED, "path:digits/test"], device="cpu")
    return found


@pytest.fixture(scope="module")
def predictor(run):
    return rm.Predictor.from_run(run, acceptance=0.9, device="cpu")


@pytest.fixture(scope="module")
def published(run, predictor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "digit-net"
    return publish(run, folder, predictor=predictor, license="mit")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A run on image files, of a transformer of fixed input size, started from a file of weights."""
    folder = tmp_path_factory.mktemp("secret-place")
    write_photos(folder / "fruit", 6)
    weights = folder / "start.safetensors"
    torch.manual_seed(0)  # others may classify every validation image right, of which from_run warns
    save_file(timm.create_model("test_vit", img_size=32, num_classes=3).state_dict(), weights)
    config = rm.configure(
        "digits", "regmixup", epochs=1, network="timm/test_vit", image_size=32, init=str(weights),
        train_set=f"folder:{folder / 'fruit'}/train-50", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4),
    )  # fmt: skip
    found = rm.train(config, folder / "runs", device="cpu")
    return folder, found, rm.Predictor.from_run(found, validation=f"folder:{folder / 'fruit'}/val-50", device="cpu")


def logits(model, images):
    with torch.no_grad():
        return model(images)


@pytest.mark.parametrize("variant", VARIANTS)
def test_our_loader_gives_the_logits_of_the_run(run_of, digits, tmp_path, variant):
    run = run_of(variant)
    publish(run, tmp_path / "out")
    expected = logits(networks.bake(run.model(device="cpu")), digits)
    assert torch.equal(logits(load(tmp_path / "out", device="cpu"), digits), expected)
    torch.testing.assert_close(logits(run.model(device="cpu"), digits), expected)
    with pytest.raises(ValueError, match=r"of publish with a predictor, it has no predictor\.json"):
        rm.Predictor.load(tmp_path / "out")


@pytest.mark.parametrize("variant", ["small", "gp"])
def test_the_published_predictor_decides_as_the_original(run_of, digits, tmp_path, variant, monkeypatch):
    run = run_of(variant)
    predictor = rm.Predictor.from_run(run, acceptance=0.8, device="cpu")
    test = run.predict("digits/test", device="cpu")
    measured, measure = [], module.measure_models
    monkeypatch.setattr(module, "measure_models", lambda sets: measured.append(sets) or measure(sets))
    publish(run, tmp_path / "out", predictor=predictor)
    again = rm.Predictor.load(tmp_path / "out", device="cpu")
    first, second = predictor(digits), again(digits)
    assert torch.equal(first.probs, second.probs)
    assert torch.equal(first.accepted, second.accepted)
    assert again.temperature == predictor.temperature
    assert again.fingerprint == run.fingerprint
    deployed = MeanField()(test) if variant == "gp" else test
    assert torch.equal(measured[0].test.logits, deployed.logits)


def test_timm_loads_its_networks_without_us(run_of, digits, tmp_path):
    """One channel: timm would sum the weights of a layer that it takes for one of three."""
    run = run_of("timm")
    publish(run, tmp_path / "out")
    model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    known = model.pretrained_cfg
    assert known["num_classes"] == 10
    assert known["label_names"] == [str(digit) for digit in range(10)]
    pixels = (digits / 255 - torch.tensor(known["mean"])) / torch.tensor(known["std"])
    torch.testing.assert_close(logits(model, pixels), logits(run.model(device="cpu"), digits))
    other = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True, num_classes=3)
    assert other.get_classifier().out_features == 3
    torch.testing.assert_close(other.conv1[0].weight, model.conv1[0].weight)


def test_timm_reads_image_files_as_the_run_does(photos, tmp_path):
    """A fixed input size, three channels, and the resizing of files: what timm derives from config.json is ours."""
    folder, run, predictor = photos
    publish(run, tmp_path / "out", predictor=predictor)
    model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    file = folder / "fruit" / "lime" / "0.jpg"
    theirs = logits(model, transform(Image.open(file))[None])
    torch.testing.assert_close(theirs, logits(run.model(device="cpu"), predictor.read(file)[None]))
    probs = (theirs.double() / predictor.temperature).softmax(dim=1)[0]
    torch.testing.assert_close(probs, rm.Predictor.load(tmp_path / "out", device="cpu").predict_file(file).probs)


@pytest.mark.parametrize(("size", "resize"), [(224, 256), (61, 70)])
def test_timm_resizes_to_the_same_side(size, resize, tmp_path):
    from regmixup.networks.timm_models import published_config

    config = published_config(
        "timm/test_resnet", input_shape=(3, size, size), num_classes=2, mean=(0.5,) * 3, std=(0.5,) * 3,
        interpolation="bilinear", crop=(size, resize),
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=False)
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    assert transform.transforms[0].size == resize


def test_no_file_tells_where_the_images_lay(photos, tmp_path):
    folder, run, predictor = photos
    write_photos(folder / "tested", 3, first=500)
    publish(run, tmp_path / "out", predictor=predictor, test=f"folder:{folder / 'tested'}")
    texts = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"README.md", "config.json", "predictor.json", "model.safetensors"} == texts.keys()
    for name, content in texts.items():
        assert b"secret-place" not in content, name
    assert b"Trained on folder:fruit/train-50." in texts["README.md"]
    assert b"folder:fruit/val-50" in texts["README.md"]
    assert b"On the test set folder:tested, 9 images:" in texts["README.md"]
    assert b"| initial weights | sha256:" in texts["README.md"]


def test_the_card_has_the_values_and_intervals_of_the_rows(run, predictor, published):
    test, ood = (run.predict(name, device="cpu") for name in ("digits/test", "photographs/test"))
    shift = [run.predict(name, device="cpu") for name in SHIFTED]
    rows = rm.evaluate(test, shift=shift, ood=[ood], temperature=predictor.temperature)
    card = ModelCard.load(published / "README.md")
    for title, place in {
        "accuracy": {"dataset": "digits/test", "corruption": "", "metric": "accuracy", "posthoc": "none"},
        "ECE with T": {"dataset": "digits/test", "corruption": "", "metric": "ece", "posthoc": "temperature"},
        "accuracy, digits-c": {"corruption": "mean", "metric": "accuracy", "posthoc": "none"},
        f"AUROC by {predictor.score}, photographs": {"metric": "auroc", "score": predictor.score},
    }.items():
        (row,) = [row for row in rows if all(getattr(row, key) == value for key, value in place.items())]
        value, low, high = (f"{100 * share:.2f}" for share in (row.value, row.low, row.high))
        assert f"| {title} | {value} | {low} to {high} |" in card.text
    assert "On the test set digits/test, 899 images:" in card.text
    assert f"| temperature | {predictor.temperature:.4g} |" in card.text
    assert f"{predictor.threshold:.6g}" in card.text
    assert (card.data.license, card.data.library_name) == ("mit", "regmixup")


def test_texts_of_users_do_not_break_the_card(run, tmp_path):
    publish(run, tmp_path / "a | *c*\n---", license='b: "c"\n---\nlicense: mit')
    card = ModelCard.load(tmp_path / "a | *c*\n---" / "README.md")
    assert card.data.license == 'b: "c"\n---\nlicense: mit'
    assert "\n# a \\| \\*c\\*" in card.content


class TestErrors:
    def test_a_run_that_has_not_finished(self, run, tmp_path):
        copy = tmp_path / run.folder.name
        shutil.copytree(run.folder, copy)
        (copy / "provenance.json").unlink()
        with pytest.raises(ValueError, match=r"is not finished .*: train it to the end"):
            publish(copy, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_folder_that_holds_something_and_stays_as_it_is(self, run, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(ValueError, match="folder must be new or empty, got"):
            publish(run, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_failure_leaves_an_empty_folder(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "render_card", lambda contents: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish(run, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_an_ensemble(self, tmp_path):
        config = rm.configure("digits", "regmixup", epochs=1, members=2)
        ensemble = rm.train(config, tmp_path / "runs", device="cpu")
        for use in (rm.Predictor.from_run, lambda run: publish(run, tmp_path / "out")):
            with pytest.raises(ValueError, match=r"must be one model, .* ensemble of 2: name one of its members, regm"):
                use(ensemble)

    def test_a_predictor_of_another_run(self, run_of, predictor, tmp_path):
        with pytest.raises(ValueError, match=r"predictor must be made from the run .*, got one of the run"):
            publish(run_of("spectral"), tmp_path / "out", predictor=predictor)

    @pytest.mark.parametrize(
        ("test", "role"), [("digits/val", "validation"), ("photographs/test", "ood"), ("digits/train", "train")]
    )
    def test_results_on_other_images_than_test_images(self, run, tmp_path, test, role):
        with pytest.raises(ValueError, match=f"test must name .*, got {test}, whose images have the role {role}"):
            publish(run, tmp_path / "out", test=test)

    def test_results_on_train_images_of_a_folder(self, photos, tmp_path):
        """Also where the folder has the validation images of the predictor, too."""
        folder, run, predictor = photos
        for fitted in (None, predictor):
            with pytest.raises(ValueError, match="whose images have the role train here"):
                publish(run, tmp_path / "out", predictor=fitted, test=f"folder:{folder / 'fruit'}")

    def test_results_on_a_part_of_the_folder_that_fitted_the_predictor(self, photos, tmp_path):
        """A part that nothing was fitted on is a test set, whoever cut it."""
        folder, _, _ = photos
        parts = f"folder:{folder / 'fruit'}"
        config = rm.configure(
            "imagenet-resnet50", "dnn", train_set=f"{parts}/train-70/train-60", network="timm/test_resnet", epochs=1,
            warmup_epochs=0, cooldown_epochs=0, image_size=32,
        )  # fmt: skip
        run = rm.train(config, tmp_path / "runs", device="cpu", workers=0)
        with pytest.raises(ValueError, match="whose images have the role validation here"):
            publish(run, tmp_path / "out", calibrate=True, test=f"{parts}/train-70/val-40")
        elsewhere = f"folder:{write_photos(tmp_path / 'elsewhere', 6, first=20)}"
        predictor = rm.Predictor.from_run(run, validation=elsewhere, device="cpu")
        with pytest.raises(ValueError, match="whose images have the role validation here"):
            publish(run, tmp_path / "out", predictor=predictor, test=elsewhere)
        publish(run, tmp_path / "out", calibrate=True, test=f"{parts}/val-30")
        assert "On the test set folder:fruit/val-30" in (tmp_path / "out" / "README.md").read_text()

    def test_weights_that_were_changed_or_a_folder_that_is_something_else(self, published, tmp_path):
        shutil.copytree(published, tmp_path / "copy")
        weights = tmp_path / "copy" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
        for read in (load, rm.Predictor.load):
            with pytest.raises(ValueError, match=r"cannot read .*model\.safetensors: it is not the file"):
                read(tmp_path / "copy")
        with pytest.raises(ValueError, match="must be a folder that `regmixup publish` has written"):
            load(tmp_path)


def test_the_command_prints_how_to_upload(run, tmp_path, capsys):
    assert command("publish", run.folder, tmp_path / "my net", "--calibrate", "--license", "mit") == 0
    assert f"hf upload YOUR_NAME/MODEL '{tmp_path / 'my net'}' .\n" in capsys.readouterr().out
    assert rm.Predictor.load(tmp_path / "my net").validation == "digits/val"


def test_the_card_says_what_it_lacks(run_of, tmp_path):
    text = (publish(run_of("timm"), tmp_path / "out") / "README.md").read_text()
    assert "Not measured: the run held no predictions" in text
    assert "The publisher has not chosen a licence." in text


def test_a_published_folder_is_not_taken_for_a_run(run_of, tmp_path, capsys):
    publish(run_of("timm"), tmp_path / "net")
    (tmp_path / "photo.jpg").touch()
    words = (("predict", tmp_path / "photo.jpg"), ("predict", "digits/test"), ("publish", tmp_path / "out"))
    for verb, last in words:
        assert command(verb, tmp_path / "net", last) == 2
        assert f"{tmp_path / 'net'} is not a run folder, `regmixup publish` has written it" in capsys.readouterr().err
