"""`regmixup train`: flags, choices, and commands that cannot be carried out."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from docstring_parser import parse_from_object
from PIL import Image

import regmixup as rm
from regmixup.config import decode
from regmixup.networks import GPHead, RBFHead, SpectralNorm, StableRank
from regmixup.objectives import OBJECTIVES
from tests.cli.running import run
from tests.study.mini import MINI, write_mini


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


def test_train_dry_run_prints_the_resolved_configuration_and_writes_nothing(capsys, tmp_path):
    words = ("--alpha", 7, "--eta", 0.5, "--lr", 0.02, "--seed", 3, "--device", "cpu", "--runs", tmp_path, "--dry-run")
    assert run("train", "--method", "regmixup", *words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objective"]["alpha"] == 7
    assert shown["objective"]["eta"] == 0.5
    assert (shown["lr"], shown["seed"], shown["precision"]) == (0.02, 3, "float32")
    assert not list(tmp_path.iterdir())


def test_of_a_choice_that_is_made_twice_the_last_counts(capsys):
    assert run("train", "--method", "dnn", "--seed", 1, "--method=mixup", "--seed", 2, "--dry-run") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["objective"]["kind"], shown["seed"]) == ("Mixup", 2)


def test_the_method_decides_which_flags_exist(capsys):
    assert run("train", "--method", "dnn", "--alpha", 1) == 2
    assert "--alpha" in capsys.readouterr().err


def test_flags_of_objective_head_and_constraint_reach_the_configuration(capsys):
    flags = ["--eta", 0.5, "--head", "gp", "--head.ridge", 2]
    flags += ["--constraint", "stable_rank", "--constraint.ratio", 0.5]
    assert run("train", "--method", "regmixup", *flags, "--dry-run") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["objective"]["kind"], found["objective"]["eta"]) == ("RegMixup", 0.5)
    assert (found["head"]["kind"], found["head"]["ridge"]) == ("GPHead", 2.0)
    assert (found["constraint"]["kind"], found["constraint"]["ratio"]) == ("StableRank", 0.5)


@pytest.mark.parametrize(
    "cls", [*OBJECTIVES.values(), GPHead, RBFHead, SpectralNorm, StableRank], ids=lambda c: c.__name__
)
def test_every_hyper_parameter_has_a_help_text(cls):
    """By a docstring below the field, here or in a base; the CLI library reads it there."""
    bases = [base for base in cls.__mro__ if dataclasses.is_dataclass(base)]
    texts = {param.arg_name: param.description for base in bases for param in parse_from_object(base).params}
    assert {f.name for f in dataclasses.fields(cls)} <= texts.keys()
    assert all(len(text) < 400 for text in texts.values())


def test_the_help_of_train_explains_flags_without_examples_in_python(capsys):
    assert run("train", "--method", "sngp", "--help-all") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "noise variance of the regression" in text
    assert ">>>" not in text


def test_the_short_help_has_the_first_flags_with_the_defaults_of_what_is_chosen(capsys):
    """Each of its flags is one of all flags, and it imports no torch (tests/test_architecture.py)."""
    assert run("train", "--method", "mixup", "--recipe", "cifar10-wrn28-10", "--help") == 0
    short = " ".join(capsys.readouterr().out.split())
    flags = re.findall(r"(?<= )--[a-z-]+(?= [A-Za-z>])", short.partition("what to train:")[2])
    assert len(flags) >= 20
    assert {"--alpha", "--epochs", "--runs"} <= {*flags}
    assert "[cifar10/train]" in short
    assert "[350]" in short
    assert run("train", "--method", "mixup", "--recipe", "cifar10-wrn28-10", "--help-all") == 0
    every_flag = capsys.readouterr().out
    assert [flag for flag in flags if f"{flag} " not in every_flag] == ["--help-all", "--plugin"]


def test_the_help_shows_the_defaults_with_which_a_folder_is_trained(capsys):
    assert run("train", "--train-set", "folder:photos", "--help") == 0
    short = " ".join(capsys.readouterr().out.split())
    assert "[imagenet-resnet50]" in short
    assert f"[{rm.recipes.get('imagenet-resnet50').epochs}]" in short
    assert "[digits" not in short


def test_the_engines_flags_reach_training_and_its_provenance(capsys, tmp_path):
    flags = ("--deterministic", "--compile", "off", "--checkpoint-minutes", 1.5)
    assert run("train", "--epochs", 1, "--device", "cpu", "--runs", tmp_path / "runs", *flags) == 0
    assert capsys.readouterr().out.startswith("cpu: float32, not compiled\n")
    study = write_mini(tmp_path, MINI.replace(', "regmixup"]', "]").replace("[0, 1]", "[0]").replace("= 5", "= 1"))
    assert run("study", study, "--runs", tmp_path / "study", "--device", "cpu", *flags) == 0
    assert capsys.readouterr().out.count("cpu: float32, not compiled\n") == 1
    found = [json.loads(path.read_text()) for path in tmp_path.glob("*/*/provenance.json")]
    asked = {"compile": "off", "graphs": "auto", "deterministic": True, "checkpoint_minutes": 1.5}
    assert [record["engine"] for record in found] == [{"kind": "Engine", **asked}] * 2
    assert [record["execution"] for record in found] == ["cpu: float32, not compiled"] * 2


def test_a_network_of_timm_trains_and_predicts(capsys, tmp_path):
    words = ("--epochs", 1, "--device", "cpu", "--runs", tmp_path)
    assert run("train", "--network", "timm/test_resnet.r160_in1k", *words) == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("regmixup-digits-train-timm-test_resnet.r160_in1k-s0-")
    assert run("predict", folder, "digits/val", "--device", "cpu") == 0
    assert run("train", "--network", "timm/test_vit", *words) == 2
    assert "image_size=(8, 8)" in capsys.readouterr().err


@pytest.mark.parametrize("dry_run", [False, True], ids=["run", "dry-run"])
@pytest.mark.parametrize("case", FAILING)
def test_what_cannot_be_trained_leaves_no_folder_and_a_dry_run_finds_it(capsys, tmp_path, images, case, dry_run):
    words, message = FAILING[case]
    words = ["--device", "cpu", *words, *(["--dry-run"] if dry_run else []), "--members", 2, "--epochs", 5]
    words = [images if word == "IMAGES" else word for word in words]
    assert run("train", *words, "--root", tmp_path, "--runs", tmp_path / "runs") == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_found_by_a_dry_run(capsys, tmp_path):
    words = ("train", "--method", "dnn", "--epochs", 1, "--runs", tmp_path, "--device", "cpu")
    assert run(*words) == 0
    (checkpoint,) = tmp_path.glob("*/checkpoint.safetensors")
    content = bytearray(checkpoint.read_bytes())
    content[-5] ^= 1
    checkpoint.write_bytes(content)
    assert run(*words, "--dry-run") == 2
    assert "cannot use checkpoint" in capsys.readouterr().err
    assert checkpoint.read_bytes() == content


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


@pytest.mark.parametrize(
    ("method", "flags", "expected"),
    [
        ("regmixup", [], None),
        ("regmixup", ["--loss", "focal", "--alpha", "10"], {"kind": "Focal", "gamma": 2.0}),
        ("mixup+cutmix", ["--loss=focal", "--loss.gamma", "3"], {"kind": "Focal", "gamma": 3.0}),
        ("rotation", ["--loss", "logitnorm"], {"kind": "LogitNorm", "tau": 0.04}),
        (
            "dnn",
            ["--loss", "cross_entropy", "--loss.smoothing", "0.1", "--loss.weight", *["1", "0.5"] * 5],
            {"kind": "CrossEntropy", "weight": [1.0, 0.5] * 5, "smoothing": 0.1},
        ),
    ],
)
def test_a_loss_is_chosen_by_name_and_its_fields_are_flags(capsys, method, flags, expected):
    assert run("train", "--method", method, *flags, "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["objective"]["loss"] == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--loss", "fokal"], "unknown loss 'fokal': did you mean 'focal'"),
        (["--loss", "focal", "--method", "duq"], "--loss must be none for DUQ, which has a loss of its own, got focal"),
        (
            ["--class-weights", "balanced", "--loss", "focal"],
            "--class-weights must be none unless the loss is cross-entropy without weights",
        ),
        (
            ["--class-weights", "balanced", "--method", "duq"],
            "--class-weights must be none for DUQ, which has a loss of",
        ),
    ],
)
def test_a_wrong_loss_is_refused(capsys, flags, message):
    assert run("train", *flags, "--dry-run") == 2
    assert message in capsys.readouterr().err


def test_balanced_class_weights_come_from_the_counts_of_the_train_set(tmp_path, capsys):
    for name, count in (("cats", 6), ("dogs", 2)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    words = ["--train-set", f"folder:{tmp_path / 'photos'}", "--network", "timm/test_resnet"]
    words += ["--class-weights", "balanced", "--image-size", 32, "--device", "cpu", "--workers", 0, "--dry-run"]
    assert run("train", *words, "--loss", "cross_entropy", "--loss.smoothing", "0.1") == 0
    found = json.loads(capsys.readouterr().out)["objective"]["loss"]
    expected = {"kind": "CrossEntropy", "weight": [8 / 12, 8 / 4], "smoothing": 0.1}
    assert found == expected


def test_the_sides_of_an_alternate_have_flags_with_help(capsys):
    assert run("train", "--method", "mixup+cutmix", "--first.alpha", "0.2", "--second.lam", "sample", "--dry-run") == 0
    found = json.loads(capsys.readouterr().out)["objective"]
    assert (found["first"]["kind"], found["first"]["alpha"]) == ("Mixup", 0.2)
    assert (found["second"]["kind"], found["second"]["lam"]) == ("CutMix", "sample")
    assert run("train", "--method", "mixup+cutmix", "--help-all") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--first.alpha FLOAT" in text
    assert "loss:" not in text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--method", "pixmix"], rm.Vicinal(rm.PixMix())),
        (["--method", "pixmix", "--transform.beta", 5, "--eta", 2], rm.Vicinal(rm.PixMix(beta=5.0), eta=2.0)),
        (["--method", "pixmix", "--transform=cutout", "--transform.side", 3], rm.Vicinal(rm.Cutout(3))),
        (["--method", "pixmix", "--transform", "pixmix"], rm.Vicinal(rm.PixMix())),
        (["--method", "logitnorm", "--loss.tau", 0.1], rm.ERM(loss=rm.losses.LogitNorm(0.1))),
        (["--method", "logitnorm", "--loss", "none"], rm.ERM()),
        (["--method", "mixup", "--loss", "logitnorm"], rm.Mixup(0.3, loss=rm.losses.LogitNorm())),
        (["--method", "rotation", "--weight", 0.5], rm.Rotation(rm.ERM(), weight=0.5)),
        (["--method", "regmixup", "--alpha", 9, "--rotation", 0.5], rm.Rotation(rm.RegMixup(9), weight=0.5)),
    ],
    ids=str,
)
def test_transforms_losses_and_rotations_are_chosen_and_have_flags(capsys, flags, expected):
    assert run("train", *flags, "--dry-run", "--cutout", 5) == 0
    shown = json.loads(capsys.readouterr().out)
    assert decode(rm.Objective, shown["objective"]) == expected
    assert shown["head"]["kind"] == ("RotationHead" if isinstance(expected, rm.Rotation) else "LinearHead")
    assert shown["cutout"] == 5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--transform", "pixmix"], "--transform must be none for RegMixup, which has no such term, got pixmix"),
        (["--method", "pixmix", "--transform", "pixmx"], "unknown transform 'pixmx': did you mean 'pixmix'"),
        (["--method", "duq", "--rotation", 1], "rotation must be 0 unless the head is linear, got 1 with RBFHead"),
    ],
)
def test_a_wrong_transform_or_rotation_is_refused(capsys, flags, message):
    assert run("train", *flags, "--dry-run") == 2
    assert message in capsys.readouterr().err
