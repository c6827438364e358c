"""Frozen features of a transformer: a probe on them, and nearest neighbours beside its own score."""

import re
import shutil

import numpy as np
import pytest
import timm
import torch

import regmixup as rm
from regmixup.cli import main
from regmixup.deployment import detection
from regmixup.deployment.detection import describe_detection
from regmixup.deployment.folder import find_outliers
from regmixup.networks.timm_models import published
from regmixup.storage import load_tensors, read_table

from .photos import COLOURS, write_photo, write_photos

VIT = "timm/test_vit"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "vit.pth"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(timm.create_model("test_vit", num_classes=0).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Class folders of which two look alike, so that not everything is right, and other images in any folders."""
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder / "fruit", 14, colours={**COLOURS, "plum": COLOURS["apple"]})
    for number in range(6):
        path = folder / "other" / f"{number % 2}" / f"{number}.jpg"
        write_photo(path, (128, 120 - number, 10 * number), 900 + number)
    return folder


def finetune(folders, weights, runs, **changes):
    lines = []
    asked = {"backbone": VIT, "init": str(weights), "freeze": True, "image_size": 96, "device": "cpu", **changes}
    return rm.finetune(folders / "fruit", runs, say=lines.append, **asked), "\n".join(lines)


@pytest.fixture(scope="module")
def finished(folders, weights, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    run, lines = finetune(folders, weights, runs, ood=folders / "other")
    return run, lines, runs, read_table(run.folder / "finetune.json")


def knn_score(train, x, k):
    """The distance to the k-th nearest of vectors of length 1, in plain NumPy."""
    train, x = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (train.double().numpy(), x.double().numpy()))
    return np.sort(np.linalg.norm(x[:, None] - train[None], axis=2), axis=1)[:, k - 1]


def auroc(inside, outside):
    return float(np.mean(outside[:, None] > inside[None]) + np.mean(outside[:, None] == inside[None]) / 2)


def test_a_frozen_transformer_has_the_pixels_of_its_weights_and_is_used_as_any_model(finished, folders, capsys):
    run, lines = finished[:2]
    assert (run.config.image_size, run.config.epochs) == (96, 0)
    assert (run.config.mean, run.config.std) == (tuple(published(VIT).mean), tuple(published(VIT).std))
    assert "initialised: head.weight, head.bias" in lines
    photo = folders / "fruit" / "lime" / "0.jpg"
    decision = rm.Predictor.load(run.folder / "predictor", device="cpu")(photo)
    assert main(["predict", str(run.folder), str(photo), "--device", "cpu"]) == 0
    assert f"{100 * float(decision.probs.max()):.1f} %" in capsys.readouterr().out


def stricter(run, record):
    """The threshold that accepts 80 % of the validation images, or 50 % where that is not stricter."""
    score = rm.scores.entropy(run.predict(record["photos"]["validation"], device="cpu").logits.double()).sort().values
    return next(
        float(score[round(share * len(score) + 0.499) - 1]) * 1.0001
        for share in (0.8, 0.5)
        if round(share * len(score) + 0.499) < len(score)
    )


def test_the_scores_are_those_of_the_logits_and_of_the_stored_features(finished, folders):
    run, lines, runs, record = finished
    (file,) = runs.glob("finetune-fruit-*/features.safetensors")
    stored, _ = load_tensors(file)
    train, test = (run.predict(record["photos"][role], device="cpu") for role in ("train", "test"))
    torch.testing.assert_close(stored["features"], train.features, rtol=1e-4, atol=1e-5)
    assert torch.equal(stored["labels"], train.labels)
    outliers = find_outliers(folders / "other")
    predictor = rm.Predictor.load(run.folder / "predictor", device="cpu")
    decisions = predictor(list(outliers.paths))
    model = run.model(device="cpu")
    with torch.no_grad():
        features = model.features(torch.stack([predictor.read(path) for path in outliers.paths]))
    found = record["detection"]
    assert found["k"] == 1
    expected = {
        "entropy": auroc(rm.scores.entropy(test.logits).numpy(), decisions.score.double().numpy()),
        "knn": auroc(knn_score(train.features, test.features, 1), knn_score(train.features, features, 1)),
    }
    for name, value in expected.items():
        assert found["auroc"][name] == pytest.approx(value, abs=0.02)
    assert set(found["auroc"]) == {"entropy", "max_probability", "knn"}
    assert found["accepted"] == int(decisions.accepted.sum())
    assert f"detection    {describe_detection(found)}" in lines
    share = f"{100 * found['auroc']['entropy']:.1f} % of pairs (AUROC by entropy; 6 and {len(test)} images)"
    assert f"the model is less sure of the out-of-distribution image than of the test image in {share}" in lines
    assert f"the threshold accepts {found['accepted']} of the 6" in lines
    page = (run.folder / "report.html").read_text()
    assert "by kNN (k = 1)" in page
    assert f"It answers {found['accepted']} of 6 out-of-distribution images." in page
    column = [str(found["accepted"]), str(int((decisions.score <= stricter(run, record)).sum())), "6"]
    assert re.findall(r"<td>(\d+) <span class=\"std\">of 6<", page) == column


def test_images_of_no_class_choose_nothing_and_without_them_nothing_is_detected(finished, folders, weights):
    run, _, runs, record = finished
    before = {path.name: path.read_bytes() for path in (run.folder / "predictor").iterdir()}
    again, lines = finetune(folders, weights, runs)
    assert "detection" not in lines
    assert {path.name: path.read_bytes() for path in (again.folder / "predictor").iterdir()} == before
    found = read_table(again.folder / "finetune.json")
    assert found["detection"] == {}
    assert {key: found[key] for key in ("score", "validation", "test")} == {
        key: record[key] for key in ("score", "validation", "test")
    }


def test_a_trained_backbone_is_measured_on_its_own_features(folders, weights, tmp_path, monkeypatch):
    """Not on those of the probe, which are stored. At this rate both are equally right, and the trained one is kept."""
    sets, predict = [], detection.predict_files
    monkeypatch.setattr(detection, "predict_files", lambda *args: sets.append(args[1].name) or predict(*args))
    run, _ = finetune(folders, weights, tmp_path, ood=folders / "other", freeze=False, epochs=1, workers=0, lr=1e-9)
    record = read_table(run.folder / "finetune.json")
    assert record["chosen"] == "fine-tuned"
    assert sets == [f"folder:{folders / 'other'}", record["photos"]["train"]]
    run, lines = finetune(folders, weights, tmp_path, freeze=False, epochs=1, workers=0, lr=1e-9)
    assert read_table(run.folder / "finetune.json")["detection"] == {}
    assert "kNN" not in lines


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 90}, r"image_size .* must suit timm/test_vit, .*90.* divisible by patch size \(16\)"),
        (
            {"image_size": 90, "backbone": "timm/vit_tiny_patch16_224"},
            "image_size must be a multiple of 16, the patches of timm/vit_tiny_patch16_224, such as 96, got 90",
        ),
        ({"ood": "nowhere"}, "ood must be a folder of images, found none in .*nowhere"),
        ({"ood": "fruit/lime"}, r"ood must hold images that .*, 14 of 14 are .* among the photos: .*0\.jpg"),
        ({"ood": "copies"}, r"ood must hold .*, 1 of 2 are .* among the photos: .*copies/other-name\.jpg"),
        ({"ood": "broken"}, r"images that can be decoded, 1 of 1 are damaged .*broken/x\.png"),
    ],
)
def test_what_would_mislead_is_refused(folders, weights, tmp_path, changes, message):
    (folders / "broken").mkdir(exist_ok=True)
    (folders / "broken" / "x.png").write_bytes(b"no image")
    write_photo(folders / "copies" / "strange.jpg", (1, 2, 3), 1)
    shutil.copy(folders / "fruit" / "lime" / "0.jpg", folders / "copies" / "other-name.jpg")
    changes = {name: folders / value if name == "ood" else value for name, value in changes.items()}
    with pytest.raises(ValueError, match=message):
        finetune(folders, weights, tmp_path, **changes)


def test_weights_must_hold_the_whole_backbone(folders, weights, tmp_path):
    """A few random tensors would pass the check of the architecture and spoil all features."""
    tensors = torch.load(weights, weights_only=True)
    del tensors["pos_embed"]
    torch.save(tensors, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"all weights of timm/test_vit for .* fit backbone\.0\.pos_embed"):
        finetune(folders, tmp_path / "weights.pth", tmp_path / "runs")
