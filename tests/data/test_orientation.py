"""Photographs whose EXIF orientation says how to turn them: upright with `orient`, as they are stored without."""

import json
import struct
from pathlib import Path

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
TURNS = Image.Transpose
STORED = {
    1: None, 2: TURNS.FLIP_LEFT_RIGHT, 3: TURNS.ROTATE_180, 4: TURNS.FLIP_TOP_BOTTOM, 5: TURNS.TRANSPOSE,
    6: TURNS.ROTATE_90, 7: TURNS.TRANSVERSE, 8: TURNS.ROTATE_270,
}  # fmt: skip
"""What a camera with this orientation does to the upright picture."""
CPU = torch.device("cpu")


def picture(seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8))


def as_stored(image, orientation):
    turn = STORED[orientation]
    return image if turn is None else image.transpose(turn)


def tag(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif.tobytes()


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("orientation", [3, 6])
def test_a_tiff_is_turned_once(tmp_path, orientation, compression):
    """Pillow turns it when it reads it; `orient` must not turn it again."""
    path = tmp_path / "photo.tif"
    as_stored(picture(), orientation).save(path, compression=compression, tiffinfo={ORIENTATION: orientation})
    for turned in (open_rgb(path), upright(open_rgb(path))):
        np.testing.assert_array_equal(np.asarray(turned), np.asarray(picture()))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same pictures three times, in every orientation: upright, as a camera stores them, and that without EXIF."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(16):
        orientation, image = number % 8 + 1, picture(number)
        name = Path("ab"[number // 8]) / f"{orientation}.png"
        lying = as_stored(image, orientation)
        for kind, pixels, more in (
            ("upright", image, {}), ("camera", lying, {"exif": tag(orientation)}), ("bare", lying, {}),
        ):  # fmt: skip
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
            pixels.save(folder / kind / name, **more)
    return folder


def config(folder, **changes):
    settings = {"train_set": f"folder:{folder}", "epochs": 1, "batch_size": 8, "image_size": 14, "precision": "float32"}
    return rm.configure("digits", "dnn", mean=(0.5,) * 3, std=(0.25,) * 3, **settings, **changes)


def trained(runs, folder, **changes):
    return rm.train(config(folder, **changes), runs, device="cpu", workers=0)


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), folders / "camera", orient=True)


class TestPixels:
    @pytest.mark.parametrize(
        ("orientation", "kind"), [*zip(range(1, 9), ["png", "webp", "jpg"] * 3, strict=False), (6, "jpg")]
    )
    def test_every_orientation_gives_the_upright_pixels(self, tmp_path, kind, orientation):
        options = {"png": {}, "webp": {"lossless": True}, "jpg": {"quality": 95, "subsampling": 0}}[kind]
        path, image = tmp_path / f"photo.{kind}", picture()
        as_stored(image, orientation).save(path, exif=tag(orientation), **options)
        with Image.open(path) as opened:
            expected = ImageOps.exif_transpose(opened).convert("RGB")
            for source in (path, str(path), path.read_bytes(), opened):
                found = upright(open_rgb(source))
                assert found.size == (28, 20)
                assert found.tobytes() == expected.tobytes()
                assert upright(found).tobytes() == found.tobytes()  # once is enough
        if kind != "jpg":
            assert found.tobytes() == image.tobytes()
        assert open_rgb(path).size == as_stored(image, orientation).size

    @pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about the metadata
    @pytest.mark.parametrize(
        ("exif", "turned"),
        [
            (b"", False),
            (b"Exif\0\0nonsense", False),
            (tag(9), False),
            # An orientation, and a second tag whose values lie beyond the end of the file.
            (b"Exif\0\0II*\0" + struct.pack("<IHHHIIHHIII", 8, 2, ORIENTATION, 3, 1, 6, 0x829A, 5, 9, 9999, 0), True),
        ],
        ids=["none", "nonsense", "nine", "other tag"],
    )
    def test_damaged_metadata_keep_no_image_from_being_read(self, tmp_path, exif, turned):
        path = tmp_path / "photo.jpg"
        picture().save(path, quality=95, exif=exif)
        found = upright(open_rgb(path))
        expected = open_rgb(path).transpose(TURNS.ROTATE_270) if turned else open_rgb(path)
        assert found.tobytes() == expected.tobytes()

    def test_thumbnails_are_upright(self, folders):
        file = folders / "camera" / "a" / "6.png"
        assert thumbnail(file) == thumbnail(folders / "upright" / "a" / "6.png") != thumbnail(folders / "bare/a/6.png")


class TestTraining:
    def batches(self, folder, **changes):
        chosen = resolve(config(folder, **changes), CPU)
        images = data.load(chosen.train_set)
        return torch.cat([b.x for b in make_loaders(images, chosen, CPU, workers=0, mine=[0])[0].epoch(0)])

    def test_the_training_loader_turns_only_where_it_is_told_to(self, folders):
        turned, asked = self.batches(folders / "camera", orient=True), self.batches(folders / "upright")
        stored, today = self.batches(folders / "camera"), self.batches(folders / "bare", orient=True)
        assert torch.equal(turned, asked)
        assert torch.equal(stored, today)
        assert not torch.equal(turned, stored)


class TestUse:
    def logits(self, run, folder):
        return run.predict(f"folder:{folder}", device="cpu").logits

    def test_predictions_see_upright_images(self, run, folders):
        assert torch.equal(self.logits(run, folders / "camera"), self.logits(run, folders / "upright"))
        assert not torch.equal(self.logits(run, folders / "bare"), self.logits(run, folders / "upright"))

    def test_predictors_see_them_too_also_saved_and_published(self, run, folders, tmp_path):
        predictor = rm.Predictor.from_run(run, validation=f"folder:{folders / 'upright'}")
        predictor.save(tmp_path / "saved")
        publish(run, tmp_path / "hub", predictor=predictor)
        assert "rotated by their EXIF orientation" in (tmp_path / "hub" / "README.md").read_text()
        saved, published = (rm.Predictor.load(tmp_path / name, device="cpu") for name in ("saved", "hub"))
        camera, plain = (folders / kind / "a" / "6.png" for kind in ("camera", "upright"))
        for loaded in (predictor, saved, published):
            assert loaded.transform == run.transform() == EvalTransform(size=14, resize=16, orient=True)
            assert torch.equal(loaded.read(camera), loaded.read(plain))
            assert torch.equal(loaded.read(Image.open(camera)), loaded.read(camera.read_bytes()))

    def test_a_run_recorded_without_the_field_sees_pixels_as_they_are_stored(self, folders, tmp_path):
        run = trained(tmp_path, folders / "bare")
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
        assert torch.equal(self.logits(old, folders / "camera"), self.logits(old, folders / "bare"))
