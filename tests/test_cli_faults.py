"""Commands that cannot be carried out, and output that cannot be written: said in a line, with nothing left behind."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import regmixup as rm
from tests.test_cli import _keep_warnings_as_they_are, run  # noqa: F401

MODULE = [sys.executable, "-m", "regmixup"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Two classes of RGB files."""
    folder = tmp_path_factory.mktemp("images")
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        for index in range(3):
            pixels = np.full((40, 36 + index, 3), 60 * index, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return f"folder:{folder}"


ABSENT = "meta:0" if torch.cuda.is_available() else "cuda:0"

FAILING = {
    "no such data": (["--recipe", "cifar10-resnet50", "--network", "small"], "cifar10/train is not complete under"),
    "no such folder": (["--train-set", "folder:nowhere", "--network", "small"], "found no folder"),
    "channels": (["--train-set", "IMAGES", "--recipe", "digits"], "one value for each of the 3 channels of folder:"),
    "network": (["--network", "timm/test_vit"], r"image_size=(8, 8)"),
    "device": (["--device", ABSENT], "device must be one of this machine"),
    "engine": (["--graphs", "on"], "there are no CUDA graphs on cpu"),
    "shards": (["--shards", "100"], "shards must be at most batch_size"),
}


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("dry_run", [False, True], ids=["run", "dry-run"])
@pytest.mark.parametrize("case", FAILING)
def test_what_cannot_be_trained_leaves_no_folder_and_a_dry_run_finds_it(
    capsys, tmp_path, images, case, dry_run, members
):
    words, message = FAILING[case]
    words = ["--device", "cpu", *words, *(["--dry-run"] if dry_run else []), "--members", members, "--epochs", 5]
    words = [images if word == "IMAGES" else word for word in words]
    assert run("train", *words, "--root", tmp_path, "--runs", tmp_path / "runs") == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_runs_that_cannot_be_written_are_found_by_a_dry_run(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert run("train", "--runs", tmp_path / "file", "--device", "cpu", "--dry-run") == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_first_command_on_a_folder_works(capsys, tmp_path, images):
    """Without a recipe, one for image files."""
    words = ["--train-set", images, "--network", "timm/test_resnet", "--image-size", 32, "--epochs", 3]
    words += ["--cooldown-epochs", 0, "--runs", tmp_path, "--device", "cpu", "--workers", 0]
    assert run("train", *words, "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["mean"] == [0.485, 0.456, 0.406]
    assert not list(tmp_path.iterdir())
    assert run("train", *words) == 0
    (folder,) = tmp_path.iterdir()
    assert rm.Run.open(folder).provenance()["classes"] == ["cats", "dogs"]


def test_a_dry_run_of_a_finished_run_needs_no_data(tmp_path, monkeypatch):
    config = rm.configure("digits", "dnn", epochs=1, members=2)
    rm.train(config, tmp_path, device="cpu")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("regmixup.data.load", None)
    assert rm.train(config, tmp_path, device="cpu", dry_run=True).finished
    assert sorted(tmp_path.rglob("*")) == before


def test_predicting_with_an_unfinished_run_writes_nothing(tmp_path):
    unfinished = rm.Run(tmp_path / "none", rm.configure())
    with pytest.raises(ValueError, match="is not finished"):
        unfinished.predict("digits/val")
    assert not list(tmp_path.iterdir())


def test_characters_that_the_output_does_not_have_are_escaped():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*MODULE, "data", "list"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"sha256 561f48e52da983c5\u2026" in done.stdout


@pytest.mark.parametrize("closed", ["1", "2", "1 2", "0 1 2"])
@pytest.mark.parametrize(("word", "status"), [("list", 0), ("lisp", 2)])
def test_closed_streams_are_no_error(closed, word, status, tmp_path):
    """A file that is opened later must not get the number of a stream, where anybody's output would end."""
    redirections = " ".join(f"{number}>&-" for number in closed.split())
    code = f'from regmixup.cli import main; s = main(["{word}"]); exit(s if open("new", "w").fileno() > 2 else 9)'
    command = ["sh", "-c", f"\"$0\" -c '{code}' {redirections}", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert ("lisp" in done.stderr) == (status == 2 and "2" not in closed)


def test_ctrl_c_finds_main_ready_for_it_as_soon_as_python_is():
    """What is imported before `main` is called: nothing that takes time. Within it, every import may be interrupted."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from regmixup.cli import main\n"
        "print(sorted(set(sys.modules) - before - {'__future__'}))\n"
        "class Finder:\n"
        "    def find_spec(self, *args): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(main(['train']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['regmixup', 'regmixup.cli']"], done.stderr
    assert (done.returncode, done.stderr) == (130, "interrupted; the same command goes on from here\n")
