"""Photographs whose EXIF orientation says how to turn them: upright with `orient`, as they are stored without."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import regmixup as rm
from regmixup import data
from regmixup.data.decode import EvalTransform, open_rgb, upright
from regmixup.deployment.publish import publish
from regmixup.evaluation.curves import thumbnail
from regmixup.training.config import resolve
from regmixup.training.loading import make_loaders

ORIENTATION = 0x0112
STORED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""What a camera with this orientation does to the upright picture."""


def picture(seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8))


def tag(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif.tobytes()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same pictures three times: upright, as a camera stores them, and that without EXIF."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(12):
        orientation, image = [*STORED][number % 3], picture(number)
        for kind in ("upright", "camera", "bare"):
            path = folder / kind / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            stored = image if kind == "upright" else image.transpose(STORED[orientation])
            stored.save(path, **({"exif": tag(orientation)} if kind == "camera" else {}))
    return folder


def config(folder, **changes):
    settings = {"train_set": f"folder:{folder}", "epochs": 1, "batch_size": 6, "image_size": 14, "precision": "float32"}
    return rm.configure("digits", "dnn", mean=(0.5,) * 3, std=(0.25,) * 3, **settings, **changes)


def logits(run, folder):
    return run.predict(f"folder:{folder}", device="cpu").logits


@pytest.mark.parametrize(
    ("kind", "orientation", "options"),
    [("png", 3, {}), ("webp", 6, {"lossless": True}), ("jpg", 8, {"quality": 95, "subsampling": 0})],
)
def test_a_file_is_turned_once_and_only_when_asked(tmp_path, kind, orientation, options):
    path = tmp_path / f"photo.{kind}"
    lying = picture().transpose(STORED[orientation])
    lying.save(path, exif=tag(orientation), **options)
    with Image.open(path) as opened:
        expected = ImageOps.exif_transpose(opened).convert("RGB")
        for source in (path, path.read_bytes(), opened):
            found = upright(open_rgb(source))
            assert found.tobytes() == upright(found).tobytes() == expected.tobytes()
    if kind != "jpg":
        assert found.tobytes() == picture().tobytes()
    assert open_rgb(path).size == lying.size


def test_a_tiff_is_turned_once(tmp_path):
    """Pillow turns it when it reads it; `orient` must not turn it again."""
    picture().transpose(STORED[6]).save(tmp_path / "photo.tif", tiffinfo={ORIENTATION: 6})
    for turned in (open_rgb(tmp_path / "photo.tif"), upright(open_rgb(tmp_path / "photo.tif"))):
        np.testing.assert_array_equal(np.asarray(turned), np.asarray(picture()))


@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", tag(9)])
def test_damaged_metadata_keep_no_image_from_being_read(tmp_path, exif):
    picture().save(tmp_path / "photo.png", exif=exif)
    assert upright(open_rgb(tmp_path / "photo.png")).tobytes() == picture().tobytes()


def test_thumbnails_are_upright(folders):
    camera, plain = (thumbnail(folders / kind / "a" / "0.png") for kind in ("camera", "upright"))
    assert camera == plain


def test_the_training_loader_turns_only_where_it_is_told_to(folders):
    def images(kind, **changes):
        chosen = resolve(config(folders / kind, **changes), torch.device("cpu"))
        (loader,) = make_loaders(data.load(chosen.train_set), chosen, torch.device("cpu"), workers=0, mine=[0])
        return torch.cat([batch.x for batch in loader.epoch(0)])

    assert torch.equal(images("camera", orient=True), images("upright"))
    assert torch.equal(images("camera"), images("bare", orient=True))
    assert not torch.equal(images("camera"), images("upright"))


def test_predictions_and_predictors_see_upright_images_also_saved_and_published(folders, tmp_path):
    run = rm.train(config(folders / "camera", orient=True), tmp_path / "runs", device="cpu", workers=0)
    assert torch.equal(logits(run, folders / "camera"), logits(run, folders / "upright"))
    assert not torch.equal(logits(run, folders / "bare"), logits(run, folders / "upright"))
    predictor = rm.Predictor.from_run(run, validation=f"folder:{folders / 'upright'}")
    predictor.save(tmp_path / "saved")
    publish(run, tmp_path / "hub", predictor=predictor)
    assert "rotated by their EXIF orientation" in (tmp_path / "hub" / "README.md").read_text()
    saved, published = (rm.Predictor.load(tmp_path / name, device="cpu") for name in ("saved", "hub"))
    camera, plain = (folders / kind / "b" / "1.png" for kind in ("camera", "upright"))
    for loaded in (predictor, saved, published):
        assert loaded.transform == run.transform() == EvalTransform(size=14, resize=16, orient=True)
        assert torch.equal(loaded.read(camera), loaded.read(plain))
        assert torch.equal(loaded.read(Image.open(camera)), loaded.read(camera.read_bytes()))


def test_a_run_recorded_without_the_field_sees_pixels_as_they_are_stored(folders, tmp_path):
    run = rm.train(config(folders / "bare"), tmp_path, device="cpu", workers=0)
    for name in ("config.json", "provenance.json"):
        path = run.folder / name
        record = json.loads(path.read_text())
        record.pop("checksum", None)
        part = record if name == "config.json" else record["transform"]
        assert part.pop("orient") is False
        path.write_text(json.dumps(record))
    old = rm.Run.open(run.folder)
    assert old.fingerprint == run.fingerprint
    assert old.transform() == EvalTransform(size=14, resize=16, orient=False)
    assert torch.equal(logits(old, folders / "camera"), logits(old, folders / "bare"))
