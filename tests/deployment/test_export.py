"""An .onnx file: its images prepared as the page on deployment says, and its answers those of the predictor."""

import json
import re
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch import nn

import regmixup as rm
from regmixup.config import encode
from regmixup.data.decode import EXTENSIONS, EvalTransform
from regmixup.deployment import export

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def noise(width, height, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def rotated(orientation):
    exif = Image.Exif()
    exif[274] = orientation
    return {"exif": exif}


def odd_images():
    """Yield file names, images and how they are saved; a crop of 32 pixels from a shorter side of 37."""
    for width, height in [
        (37, 37),
        (38, 37),
        (37, 38),
        (41, 37),
        (43, 37),
        (37, 43),
        (300, 10),
        (9, 280),
        (1, 1),
        (2, 1),
    ]:
        yield f"{width}x{height}.png", noise(width, height), {}
    yield "photo.jpg", noise(321, 239), {}
    for orientation in (3, 6, 8):
        yield f"rotated {orientation}.jpg", noise(60, 43), rotated(orientation)
    yield "grey.jpg", noise(50, 43, 1), {}
    yield "cmyk.jpg", noise(50, 43).convert("CMYK"), {}
    yield "palette.png", noise(50, 43).quantize(17), {"transparency": 3}
    yield "alpha.png", noise(50, 43, 4), {}
    yield "grey and alpha.png", noise(50, 43, 4).convert("LA"), {}
    yield "bits.png", noise(50, 43).convert("1"), {}
    deep = Image.fromarray(np.random.default_rng(1).integers(0, 65536, (43, 50)).astype(np.uint16))
    yield "deep.png", deep, {}
    yield "deep and rotated.png", deep, rotated(6)
    yield "rotated.webp", noise(50, 43), {"lossless": True, **rotated(5)}
    yield "old.bmp", noise(50, 43), {}
    yield "moving.gif", noise(50, 43), {"save_all": True, "append_images": [noise(50, 43, seed=1)]}
    yield "scan.tiff", noise(50, 43), {}
    yield "rotated scan.tiff", noise(50, 43), rotated(6)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The odd images, as files of the formats that are read."""
    folder = tmp_path_factory.mktemp("odd")
    for name, image, options in odd_images():
        if name.endswith(EXTENSIONS):
            image.save(folder / name, **options)
    files = sorted(folder.iterdir())
    assert len(files) >= 22
    return files


def fitted(**settings):
    """A predictor of a small network for files."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 3))
    x, y = torch.rand(40, 3, 32, 32), torch.arange(40) % 3
    settings = {"transform": EvalTransform(size=32, resize=37, orient=True), "class_names": "abc", **settings}
    return rm.Predictor.fit(network, [(x, y)], acceptance=0.6, **settings)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A predictor, and the file that it was exported to."""
    path, predictor = tmp_path_factory.mktemp("exported") / "model.onnx", fitted()
    predictor.export(path)
    return predictor, path


class TestPreparing:
    def snippet(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
        (block,) = (block for block in blocks if "def prepare" in block)
        assert "regmixup" not in block
        return block

    def differing(self, code, images, transform, pixels):
        """The images that the code prepares otherwise than the predictor, by more than 1e-6."""
        names: dict = {}
        exec(compile(code, str(PAGE), "exec"), names)
        facts = {"transform": encode(transform), "pixels": pixels}
        predictor, scale, differing = fitted(transform=transform), {"uint8": 1, "float32": 255}[pixels], []
        for file in images:
            prepared, expected = names["prepare"](file, facts), predictor.read(file)[None].numpy() / scale
            assert (prepared.dtype, prepared.shape) == (pixels, (1, 3, 32, 32))
            if np.abs(prepared - expected).max() > 1e-6:
                differing.append(file.name)
        return differing

    @pytest.mark.parametrize(("interpolation", "orient"), [("bilinear", True), ("bicubic", False)])
    @pytest.mark.parametrize("pixels", ["float32", "uint8"])
    def test_the_page_prepares_files_as_the_predictor_does(self, images, interpolation, orient, pixels):
        transform = EvalTransform(size=32, resize=37, interpolation=interpolation, orient=orient)
        assert self.differing(self.snippet(), images, transform, pixels) == []

    @pytest.mark.parametrize(
        ("right", "wrong", "noticed"),
        [
            ('round((side - how["size"]) / 2)', '(side - how["size"]) // 2', {"37x43.png", "43x37.png"}),
            ("I;16", "none", {"deep.png", "deep and rotated.png"}),
            ('if how["orient"]', "if None", {"rotated 6.jpg", "deep and rotated.png", "rotated.webp"}),
            ('.convert("RGB").resize', ".resize", {"palette.png", "bits.png"}),
        ],
    )
    def test_the_images_notice_what_goes_wrong(self, images, right, wrong, noticed):
        code = self.snippet()
        assert right in code
        code = code.replace(right, wrong).replace("np.asarray(image).t", 'np.asarray(image.convert("RGB")).t')
        assert {*self.differing(code, images, EvalTransform(size=32, resize=37, orient=True), "uint8")} >= noticed


class TestLoading:
    def test_it_answers_as_the_predictor_that_was_exported(self, exported, images):
        predictor, path = exported
        program = rm.Predictor.load(path)
        expected, answers = predictor(images), program(images)
        assert 0 < int(answers.accepted.sum()) < len(images)
        for name in ("probs", "score"):
            torch.testing.assert_close(getattr(answers, name), getattr(expected, name), rtol=0, atol=1e-6)
        assert torch.equal(answers.accepted, expected.accepted)
        assert torch.equal(answers.label, expected.label)
        assert repr(program) == repr(predictor)

    def test_a_file_names_no_folder_of_this_machine(self, exported, tmp_path):
        """torch notes for each operation which line of which file has asked for it."""
        package = str(Path(rm.__file__).parent).encode()
        predictor, path = exported
        predictor.export(tmp_path / "model.pt2")
        with ZipFile(tmp_path / "model.pt2") as stored:
            contents = [path.read_bytes(), *map(stored.read, stored.namelist())]
        assert not [content for content in contents if package in content]

    @pytest.mark.parametrize("pixels", [pytest.param("float32", marks=pytest.mark.soak), "uint8"])
    def test_files_are_normalised_once(self, images, tmp_path, pixels):
        predictor = fitted(normalize=(MEAN, STD))
        predictor.export(tmp_path / "model.onnx", pixels=pixels)
        program = rm.Predictor.load(tmp_path / "model.onnx")
        torch.testing.assert_close(program(images).probs, predictor(images).probs, rtol=0, atol=1e-6)
        if pixels == "uint8":
            with pytest.raises(ValueError, match=r"images must be uint8, which .*model\.onnx was exported for, got"):
                program(torch.rand(3, 32, 32))

    def test_label_sets_come_with_the_answers(self, images, tmp_path):
        predictor = fitted(sets=rm.posthoc.Conformal(level=0.8))
        path = tmp_path / "MODEL.ONNX"  # also in capitals, as some systems write it
        predictor.export(path)
        assert torch.equal(rm.Predictor.load(path)(images).sets, predictor(images).sets)

    def test_what_it_cannot_do_is_refused(self, exported, tmp_path, monkeypatch):
        path = exported[1]
        program = rm.Predictor.load(path, device="cpu")
        with pytest.raises(ValueError, match=r"model\.onnx is an exported program, without weights to write"):
            program.save(tmp_path)
        with pytest.raises(ValueError, match=r"model\.onnx is an exported program, without weights to write"):
            program.export(tmp_path / "model.pt2")
        with pytest.raises(ValueError, match=r"model\.onnx .* runs on the CPU"):
            rm.Predictor.load(path, device="cuda")
        monkeypatch.setattr(export, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"model\.onnx needs onnxruntime to run: pip install onnxruntime"):
            rm.Predictor.load(path)


SETS = encode(rm.posthoc.Conformal().fit(torch.eye(3).repeat(9, 1) * 9, torch.arange(3).repeat(9)))


class TestStrangers:
    def changed(self, path, folder, **changes):
        """The file with other metadata; None leaves one out, and text is written as it is."""
        model = onnx.load(path)
        properties = {entry.key: entry.value for entry in model.metadata_props} | changes
        del model.metadata_props[:]
        for name, fact in properties.items():
            if fact is not None:
                text = fact if isinstance(fact, str) else json.dumps(fact)
                model.metadata_props.append(onnx.StringStringEntryProto(key=name, value=text))
        onnx.save(model, folder / "strange.onnx")
        return folder / "strange.onnx"

    @pytest.mark.parametrize(
        ("changes", "contract"),
        [
            ({"temperature": -1.0}, "temperature must be a finite number > 0, got -1"),
            ({"threshold": float("nan")}, "threshold must be a finite number, got nan"),
            ({"transform": {"size": 10**9}}, "transform must crop to the model's .3, 32, 32., got Eval.*1000000000"),
            ({"normalize": [[0.0], [0.0]]}, "normalize must be finite .mean, std. .* with std > 0"),
            ({"normalize": [[0.5, 0.5], [0.2, 0.2]]}, "normalize must be .* for 1 channel or 3 channels"),
            ({"normalize": [[float("nan")], [0.2]]}, "normalize must be finite"),
            ({"sets": {**SETS, "num_classes": 2}}, "sets must be of the 3 classes, got sets of 2"),
            (
                {"class_names": ["a", "b"]},
                "its metadata describe .*'probs': \\[2\\].* the graph has .*'probs': \\[3\\]",
            ),
            ({"input_shape": [10**9, 32, 32]}, "its metadata describe .*1000000000, 32.* the graph has"),
            ({"pixels": '"uint8"'}, "its metadata describe .*uint8"),
            ({"pixels": None}, "unknown pixels in .*strange.onnx ''"),
            ({"treshold": 1}, "'treshold': did you mean 'threshold'"),
            ({"threshold": None}, "must have the fields .*threshold.*, got no threshold$"),
            ({"transform": "[" * 10**5}, "cannot read .*strange.onnx as a file of Predictor.export"),
        ],
        ids=lambda argument: ", ".join(argument) if isinstance(argument, dict) else "",
    )
    def test_facts_that_no_predictor_has_are_refused_with_the_file(self, exported, tmp_path, changes, contract):
        strange = self.changed(exported[1], tmp_path, **changes)
        with pytest.raises(ValueError, match=contract) as refused:
            rm.Predictor.load(strange)
        assert str(strange) in str(refused.value)

    def test_what_is_no_such_file_is_named(self, tmp_path):
        (tmp_path / "text.onnx").write_text("nothing")
        for name in ("text.onnx", "gone.onnx"):
            with pytest.raises(ValueError, match=f"cannot read .*{name} as a file of Predictor.export"):
                rm.Predictor.load(tmp_path / name)
