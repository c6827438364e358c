"""`regmixup predict`, after `train` and before `evaluate`."""

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import regmixup as rm
from regmixup.data.decode import EvalTransform
from regmixup.storage import read_rows
from tests.cli.running import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder, made by the train verb."""
    runs = tmp_path_factory.mktemp("runs")
    assert run("train", "--method", "mixup", "--epochs", 2, "--seed", 7, "--device", "cpu", "--runs", runs) == 0
    (folder,) = runs.iterdir()
    return folder


def test_train_then_predict_then_evaluate(trained, capsys, tmp_path):
    assert run("predict", trained, "digits/test", "digits/val", "photographs/test", "--device", "cpu") == 0
    stored = trained / "predictions"
    assert "899 x 10" in capsys.readouterr().out
    out = tmp_path / "rows.csv"
    words = ("--ood", stored / "photographs__test.safetensors", "--val", stored / "digits__val.safetensors")
    assert run("evaluate", "--predictions", stored / "digits__test.safetensors", *words, "--out", out) == 0
    assert "AUROC by entropy, photographs" in capsys.readouterr().out
    rows = read_rows(out)
    assert {row.dataset for row in rows} == {"digits/test", "photographs/test"}
    assert {row.posthoc for row in rows} == {"none", "temperature"}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The folder of a run that knows digits."""
    config = rm.configure("digits", "regmixup", epochs=8, lr=0.05)
    return rm.train(config, tmp_path_factory.mktemp("runs"), device="cpu").folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory, good):
    """A folder with the first test digits, the least familiar one (odd.png), and a file that is no image."""
    folder = tmp_path_factory.mktemp("photos")
    test = rm.data.load("digits/test")
    for index in range(5):
        Image.fromarray(test.images[index, 0].numpy()).save(folder / f"{index}.png")
    odd = int(rm.Predictor.from_run(good, device="cpu")(test.images).score.argmax())
    Image.fromarray(test.images[odd, 0].numpy()).save(folder / "odd.png")
    (folder / "broken.jpg").write_bytes(b"nothing")
    return folder


def read_csv(path):
    with path.open(newline="") as file:
        return {Path(row["file"]).name: row for row in csv.DictReader(file)}


class TestFiles:
    def test_files_become_answers(self, good, photos, capsys, tmp_path):
        out = tmp_path / "answers.csv"
        words = (photos / "0.png", photos / "3.png", "--out", out, "--device", "cpu")
        assert run("predict", good, *words) == 0
        assert f"{out}  2 images" in capsys.readouterr().out
        rows = read_csv(out)
        predictor = rm.Predictor.from_run(good, device="cpu")
        for name, row in rows.items():
            decision = predictor.predict_file(photos / name)
            label = int(decision.label)
            assert row["class"] == decision.class_names[label]
            assert float(row["probability"]) == pytest.approx(float(decision.probs[label]), abs=1e-6)
            assert row["accepted"] == str(bool(decision.accepted))
        assert list(rows) == ["0.png", "3.png"]

    def test_a_folder_is_its_files_and_one_that_cannot_be_read_stops_nothing(self, good, photos, capsys, tmp_path):
        out = tmp_path / "answers.csv"
        assert run("predict", good, photos, "--out", out, "--device", "cpu") == 1
        rows = read_csv(out)
        assert list(rows) == ["0.png", "1.png", "2.png", "3.png", "4.png", "broken.jpg", "odd.png"]
        assert rows["odd.png"]["accepted"] == "False"
        assert "broken.jpg as an image" in rows["broken.jpg"]["error"]
        assert rows["broken.jpg"]["class"] == ""
        printed = capsys.readouterr()
        assert "1 of 7 image files could not be read; the last one: cannot read " in printed.err
        assert re.search(r"broken\.jpg  unreadable: (?!cannot read)", printed.out)
        assert printed.out.endswith(" unsure, 1 unreadable\n")
        assert run("predict", good, photos / "broken.jpg", photos / "gone.png", "--device", "cpu") == 2
        assert "2 of 2 image files could not be read" in capsys.readouterr().err

    def test_without_a_file_to_write_the_answers_are_printed(self, good, photos, capsys):
        assert run("predict", good, photos / "0.png", photos / "odd.png", "--device", "cpu") == 0
        lines = capsys.readouterr().out.splitlines()
        assert re.search(r"0\.png  0  \d+\.\d %  accepted$", lines[0])
        assert re.search(r"odd\.png  \d  \d+\.\d %  unsure$", lines[1])
        assert lines[2] == "1 accepted, 1 unsure"
        assert run("predict", good, photos / "0.png", "--device", "cpu") == 0
        assert capsys.readouterr().out.splitlines()[1] == "1 accepted, none unsure"

    def test_after_an_interruption_the_answers_until_then_are_written(
        self, good, photos, tmp_path, monkeypatch, capsys
    ):
        predict, files = rm.Predictor.predict_file, [photos / f"{index}.png" for index in range(5)]

        def interrupted(predictor, file):
            if file == files[2]:
                raise KeyboardInterrupt
            return predict(predictor, file)

        monkeypatch.setattr(rm.Predictor, "predict_file", interrupted)
        assert run("predict", good, *files, "--out", tmp_path / "answers.csv", "--device", "cpu") == 130
        assert "answers.csv  2 of 5 images" in capsys.readouterr().out
        assert [*read_csv(tmp_path / "answers.csv")] == ["0.png", "1.png"]

    def test_a_line_break_in_a_name_is_written_out_as_in_the_table(self, good, photos, capsys, tmp_path):
        file = tmp_path / "two\nlines.png"
        file.write_bytes((photos / "0.png").read_bytes())
        assert run("predict", good, file, "--device", "cpu") == 0
        assert "two\\nlines.png  " in capsys.readouterr().out

    def test_a_saved_predictor_is_used_as_it_was_fitted(self, good, photos, capsys, tmp_path):
        rm.Predictor.from_run(good, acceptance=0.5, device="cpu").save(tmp_path / "saved")
        out = tmp_path / "answers.csv"
        assert run("predict", tmp_path / "saved", photos, "--out", out, "--device", "cpu") == 1
        found = rm.Predictor.from_run(good, acceptance=0.5, device="cpu")
        assert float(read_csv(out)["1.png"]["score"]) == pytest.approx(
            float(found.predict_file(photos / "1.png").score), abs=1e-6
        )
        assert run("predict", tmp_path / "saved", photos, "--acceptance", 0.9) == 2
        assert "--acceptance is for run folders" in capsys.readouterr().err

    def test_an_image_too_thin_to_resize_stops_nothing(self, tmp_path, capsys):
        """Its 100,000 pixels would become 6,500,000,000."""
        torch.manual_seed(0)  # random logits of two classes may happen to sum to nearly 1, as probabilities do
        network = torch.nn.Sequential(torch.nn.AvgPool2d(224), torch.nn.Flatten(), torch.nn.Linear(3, 2))
        validation = [(torch.rand(9, 3, 224, 224), torch.arange(9) % 2)]
        rm.Predictor.fit(network, validation, transform=EvalTransform()).export(tmp_path / "model.onnx")
        (tmp_path / "photos").mkdir()
        for width in (100, 100_000):
            Image.new("RGB", (width, 1)).save(tmp_path / "photos" / f"{width}.png")
        out = tmp_path / "answers.csv"
        assert run("predict", tmp_path / "model.onnx", tmp_path / "photos", "--out", out) == 1
        rows = read_csv(out)
        assert rows["100.png"]["class"] in "01"
        assert rows["100000.png"]["error"].endswith("pixels at a shorter side of 256, found 100000x1")

    def test_an_exported_file_gives_the_answers_of_the_folder(self, good, photos, capsys, tmp_path):
        predictor = rm.Predictor.from_run(good, risk=0.2, device="cpu")
        predictor.save(tmp_path / "saved")
        predictor.export(tmp_path / "model.onnx", pixels="uint8")
        capsys.readouterr()  # some versions of the exporter print
        printed, tables = [], []
        for model in ("saved", "model.onnx"):
            out = tmp_path / "answers.csv"
            assert run("predict", tmp_path / model, photos, "--out", out, "--device", "cpu") == 1
            printed.append(capsys.readouterr())
            tables.append(read_csv(out))
        assert printed[0] == printed[1]
        assert printed[0].out.startswith("promise: at most 0.2 errors")
        for name, row in tables[0].items():
            for column in row:
                expected = row[column]
                if column in ("probability", "score") and expected:
                    expected = pytest.approx(float(expected), abs=1e-6)
                    assert float(tables[1][name][column]) == expected
                else:
                    assert tables[1][name][column] == expected
        assert run("predict", tmp_path / "model.onnx", photos, "--acceptance", 0.9) == 2
        assert "--acceptance is for run folders" in capsys.readouterr().err
        assert run("predict", tmp_path / "model.onnx", "digits/test") == 2
        assert "model.onnx" in capsys.readouterr().err

    def test_risk_is_promised_or_refused(self, good, photos, capsys):
        assert run("predict", good, photos / "0.png", "--risk", 0.2, "--device", "cpu") == 0
        assert "promise: at most 0.2 errors among the accepted, with 0.95 confidence" in capsys.readouterr().out
        assert run("predict", good, photos / "0.png", "--risk", 0.001, "--device", "cpu") == 2
        assert "nothing can be promised" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "contract"),
        [
            (["digits/test", "0.png"], "got both: digits/test is no file"),
            (["digits/test", "--out", "x.csv"], "--out is for image files, and the words given are dataset names"),
            (["."], ". must hold image files"),
            (["phone"], "files of formats that are not read were left out (2 .heic): convert them to .png"),
        ],
    )
    def test_wrong_words(self, good, capsys, words, contract, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "phone").mkdir()
        for name in ("1.HEIC", "2.heic"):
            (tmp_path / "phone" / name).write_bytes(b"")
        assert run("predict", good, *words) == 2
        assert contract in capsys.readouterr().err


NAMES = {
    "café.png": "café.png",
    b"caf\xe9.png": r"caf\xe9.png",
    "cr\r=cmd().png": r"cr\r=cmd().png",
    "lf\n=cmd().png": r"lf\n=cmd().png",
    "red\x1b[31m.png": r"red\x1b[31m.png",
    b"csi\xc2\x9b31m.png": r"csi\x9b31m.png",
}
"""Names of files, and how a table shows them."""


class TestNames:
    @pytest.fixture
    def named(self, tmp_path):
        """A folder of images with these names."""
        folder = tmp_path / "named"
        folder.mkdir()
        for name in NAMES:
            with open(os.fsencode(folder) + b"/" + os.fsencode(name), "wb") as file:  # noqa: PTH123
                Image.fromarray(rm.data.load("digits/test").images[0, 0].numpy()).save(file, "PNG")
        return folder

    def check(self, out, shown, folder):
        """One line an image in the table and in what was printed, and no character that commands a terminal."""
        text = out.read_bytes().decode("utf-8")
        lines = text.split("\n")
        assert len(lines) == len(NAMES) + 2
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text + shown)
        rows = list(csv.DictReader(lines))
        assert {row["file"] for row in rows} == {f"{folder}/{name}" for name in NAMES.values()}
        assert {row["class"] for row in rows} == {"0"}
        assert len([line for line in shown.splitlines() if line.startswith(str(folder))]) == len(NAMES)

    def test_names_are_escaped_and_no_answer_is_lost(self, good, named, tmp_path, capsys):
        out = tmp_path / "answers.csv"
        assert run("predict", good, named, "--out", out, "--device", "cpu") == 0
        shown = capsys.readouterr().out
        self.check(out, shown, named)
        assert f"{named}/red\\x1b[31m.png  0  " in shown

    @pytest.mark.soak
    def test_a_locale_without_letters_gives_the_same_table(self, good, named, tmp_path):
        out = tmp_path / "answers.csv"
        words = ["predict", good, named, "--out", out, "--device", "cpu"]
        environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        command = [sys.executable, "-m", "regmixup", *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        self.check(out, done.stdout.decode("ascii"), named)

    def test_a_class_of_a_stranger_is_text(self, good, photos, tmp_path, capsys):
        predictor = rm.Predictor.from_run(good, device="cpu")
        names = ("=cmd()\x1b[2J", *predictor.class_names[1:])
        replace(predictor, class_names=names).save(tmp_path / "saved")
        out = tmp_path / "answers.csv"
        assert run("predict", tmp_path / "saved", photos / "0.png", "--out", out, "--device", "cpu") == 0
        assert read_csv(out)["0.png"]["class"] == r"'=cmd()\x1b[2J"
        assert r"0.png  =cmd()\x1b[2J  " in capsys.readouterr().out
