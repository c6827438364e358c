"""Photographs whose EXIF orientation says how to turn them: upright with `orient`, as they are stored without."""

import csv
import dataclasses
import io
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import regmixup as rm
from regmixup import data
from regmixup.cli import main
from regmixup.data.decode import CustomTransform, EvalTransform, TrainTransform, open_rgb, upright
from regmixup.data.inventory import contact_sheet
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


def files_of(folder):
    return sorted(folder.glob("*/*.png"))


def trained(runs, folder, **changes):
    return rm.train(config(folder, **changes), runs, device="cpu", workers=0)


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), folders / "camera", orient=True)


@pytest.fixture(scope="module")
def predictor(run, folders):
    return rm.Predictor.from_run(run, validation=run.predict(f"folder:{folders / 'upright'}"), calibrate=False)


class TestPixels:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", ["png", "webp", "jpg"])
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

    def test_an_image_of_16_bits_and_an_orientation_in_xmp(self, tmp_path):
        grey = np.arange(12, dtype=np.uint16).reshape(3, 4) << 12
        Image.fromarray(np.rot90(grey).copy()).save(tmp_path / "deep.png", exif=tag(6))
        assert (np.asarray(upright(open_rgb(tmp_path / "deep.png")))[..., 0] == grey >> 8).all()
        note = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><d tiff:Orientation="3"/></x:xmpmeta>'
        as_stored(picture(), 3).save(tmp_path / "edited.webp", lossless=True, xmp=note)
        assert upright(open_rgb(tmp_path / "edited.webp")).tobytes() == picture().tobytes()

    @pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about the metadata
    @pytest.mark.parametrize(
        ("exif", "turned"),
        [
            (b"", False),
            (b"Exif\0\0nonsense", False),
            (tag(6)[:14], False),
            (tag(9), False),
            (tag(0), False),
            # An orientation, and a second tag whose values lie beyond the end of the file.
            (b"Exif\0\0II*\0" + struct.pack("<IHHHIIHHIII", 8, 2, ORIENTATION, 3, 1, 6, 0x829A, 5, 9, 9999, 0), True),
        ],
        ids=["none", "nonsense", "cut", "nine", "zero", "other tag"],
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

    def test_so_does_a_transform_of_the_users(self, folders):
        sizes = []
        for orient in (False, True):
            transform = CustomTransform(
                "mine", lambda image: sizes.append(image.size) or image.resize((8, 8)), (8, 8), orient
            )
            transform.build()(open_rgb(folders / "camera" / "a" / "6.png"))
        assert sizes == [(20, 28), (28, 20)]

    def test_training_on_turned_files_is_training_on_upright_ones(self, run, folders, tmp_path):
        other = trained(tmp_path, folders / "upright")
        for ours, theirs in zip(
            run.model(device="cpu").parameters(), other.model(device="cpu").parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)

    def test_transforms_leave_pixels_as_they_are_by_default(self):
        assert [one.orient for one in (TrainTransform(), EvalTransform(), rm.configure())] == [False] * 3
        with pytest.raises(ValueError, match="orient must be true or false, got 1"):
            rm.configure(orient=1)


class TestUse:
    def logits(self, run, folder):
        return run.predict(f"folder:{folder}", device="cpu").logits

    def test_predictions_see_upright_images(self, run, folders):
        assert torch.equal(self.logits(run, folders / "camera"), self.logits(run, folders / "upright"))
        assert not torch.equal(self.logits(run, folders / "bare"), self.logits(run, folders / "upright"))

    def test_predictors_see_them_too_also_saved_exported_and_published(self, run, predictor, folders, tmp_path):
        predictor.save(tmp_path / "saved")
        predictor.export(tmp_path / "model.pt2")
        publish(run, tmp_path / "hub", predictor=predictor)
        assert "rotated by their EXIF orientation" in (tmp_path / "hub" / "README.md").read_text()
        camera, plain = files_of(folders / "camera"), files_of(folders / "upright")
        expected = torch.stack([predictor.predict_file(file).probs for file in plain])
        for name in ("", "saved", "model.pt2", "hub"):
            found = rm.Predictor.load(tmp_path / name, device="cpu") if name else predictor
            assert found.transform == run.transform() == EvalTransform(size=14, resize=16, orient=True)
            assert all(
                torch.equal(found.read(one), found.read(other)) for one, other in zip(camera, plain, strict=True)
            )
            torch.testing.assert_close(torch.stack([found.predict_file(file).probs for file in camera]), expected)
        assert torch.equal(predictor.read(Image.open(camera[5])), predictor.read(camera[5].read_bytes()))

    def test_the_command_line_answers_alike(self, predictor, folders, tmp_path, capsys):
        predictor.save(tmp_path / "saved")
        answers = []
        for kind in ("camera", "upright"):
            out = str(tmp_path / f"{kind}.csv")
            assert main(["predict", str(tmp_path / "saved"), *map(str, files_of(folders / kind)), "--out", out]) == 0
            answers.append([row["score"] for row in csv.DictReader(io.StringIO(Path(out).read_text()))])
        assert answers[0] == answers[1]
        assert len(set(answers[0])) == 16

    def test_a_run_of_an_earlier_version_sees_pixels_as_they_are_stored(self, folders, tmp_path):
        run = trained(tmp_path, folders / "bare")
        before = run.predict(f"folder:{folders / 'camera'}", device="cpu")
        for name, inner in (("config.json", ()), ("provenance.json", ("transform",))):
            path = run.folder / name
            record = json.loads(path.read_text())
            record.pop("checksum", None)
            part = record["transform"] if inner else record
            assert part.pop("orient") is False
            path.write_text(json.dumps(record))
        old = rm.Run.open(run.folder)
        assert old.fingerprint == run.fingerprint
        assert (
            before.info["transform"]
            == "EvalTransform(size=14, resize=16, interpolation='bilinear')"
            == str(old.transform())
        )
        shutil.rmtree(run.folder / "predictions")
        again = old.predict(f"folder:{folders / 'camera'}", device="cpu")
        assert torch.equal(again.logits, before.logits)
        assert torch.equal(again.logits, old.predict(f"folder:{folders / 'bare'}", device="cpu").logits)
        found = rm.Predictor.from_run(old, validation=again, calibrate=False)
        found.save(tmp_path / "saved")
        table = json.loads((tmp_path / "saved" / "predictor.json").read_text())
        table.pop("checksum", None)
        assert table["transform"].pop("orient") is False
        (tmp_path / "saved" / "predictor.json").write_text(json.dumps(table))
        found, file = rm.Predictor.load(tmp_path / "saved", device="cpu"), Path("a") / "6.png"
        assert torch.equal(found.read(folders / "camera" / file), found.read(folders / "bare" / file))


def test_contact_sheets_show_photographs_upright(folders, tmp_path):
    """The captions name the folder, so all folders of the comparison are shown under one name."""
    drawn = {}
    for kind in ("upright", "camera", "bare"):
        shutil.copytree(folders / kind, tmp_path / kind / "photos")
        photos = data.load(f"folder:{tmp_path / kind / 'photos'}")
        contact_sheet(dataclasses.replace(photos, name="photos"), tmp_path / f"{kind}.png", 2, 8)
        drawn[kind] = (tmp_path / f"{kind}.png").read_bytes()
    assert drawn["camera"] == drawn["upright"] != drawn["bare"]
