"""The ImageNet recipe from files to metrics, on 400 images laid out like ImageNet's."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regmixup as rm
from benchmarks.imagenet_tree import CLASSES, write_tree
from regmixup.storage import read_rows
from regmixup.training.loading import evaluation_transform, train_transform
from regmixup.training.optim import make_optimizer
from tests.cli.running import run


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    write_tree(root, width=60)
    return root


def test_the_recipe_says_what_the_paper_and_timm_say():
    recipe = rm.recipes.get("imagenet-resnet50")
    assert (recipe.network, recipe.epochs, recipe.batch_size, recipe.image_size) == ("timm/resnet50", 100, 128, 224)
    assert (recipe.lr, recipe.momentum, recipe.nesterov, recipe.weight_decay) == (0.1, 0.9, True, 1e-4)
    assert (recipe.warmup_epochs, recipe.warmup_lr, recipe.min_lr, recipe.cooldown_epochs) == (3, 1e-4, 1e-5, 10)
    assert (recipe.flip, recipe.color_jitter, recipe.interpolation) == (True, 0.4, "random")
    assert recipe.eval_interpolation == "bicubic"
    assert rm.configure("imagenet-resnet50", "dnn").objective == rm.ERM()  # no label smoothing
    assert rm.configure("imagenet-resnet50", "regmixup").objective.alpha == 10


def test_neither_norms_nor_biases_decay():
    config = rm.configure("imagenet-resnet50", "dnn", network="timm/test_resnet")
    model = rm.networks.build(config.network, num_classes=3, image_size=(32, 32))
    decaying, others = make_optimizer(model, config).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (1e-4, 0.0)
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    weights = {id(m.weight) for m in model.modules() if isinstance(m, kinds)}
    assert {id(p) for p in decaying["params"]} == weights
    assert len(weights) + len(others["params"]) == len(list(model.parameters()))


def test_random_interpolation_is_bilinear_or_bicubic():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    settings = {"interpolation": "random", "flip": False, "color_jitter": 0.0}
    config = rm.configure("imagenet-resnet50", "dnn", image_size=16, crop_area=1.0, **settings)
    whole = train_transform(config, shape=None)
    modes = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
    expected = [Image.fromarray(pixels).resize((16, 16), mode).tobytes() for mode in modes]
    torch.manual_seed(0)
    found = [expected.index(whole(Image.fromarray(pixels)).tobytes()) for _ in range(40)]
    assert 10 <= sum(found) <= 30


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(300, 260), (200, 500), (31, 47)])
def test_evaluation_resizes_and_crops_as_timm_does(interpolation, size):
    """timm's configuration of ResNet-50 in the paper's time: bicubic, crop 0.875."""
    from timm.data import create_transform

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))
    config = rm.configure("imagenet-resnet50", "dnn", eval_interpolation=interpolation)
    ours = evaluation_transform(config, files=True).build()(image)
    theirs = create_transform(224, interpolation=interpolation, crop_pct=0.875, use_prefetcher=True)(image)
    assert np.array_equal(np.asarray(ours).transpose(2, 0, 1), theirs)


def test_it_trains_predicts_and_evaluates_from_the_command_line(tree, tmp_path, capsys):
    lengths = ("--epochs", 2, "--warmup-epochs", 1, "--cooldown-epochs", 1)
    words = ("--recipe", "imagenet-resnet50", "--network", "timm/test_resnet", "--image-size", 16, *lengths)
    places = ("--root", tree, "--device", "cpu")
    flags = ("--checkpoint-minutes", 2, "--compile", "off", "--workers", 0, "--tensorboard")
    assert run("train", *words, *places, *flags, "--runs", tmp_path) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "cpu: float32, not compiled"
    assert out[1].startswith("epoch 3: loss ")
    (folder,) = tmp_path.iterdir()
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert history[-1]["loss"] < history[0]["loss"]
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    record = json.loads((folder / "provenance.json").read_text())
    assert (len(record["classes"]), record["input"]) == (CLASSES, [3, 16, 16])
    assert record["transform"] == {
        "kind": "EvalTransform",
        "size": 16,
        "resize": 18,
        "interpolation": "bicubic",
        "orient": False,
    }
    assert record["execution"] == "cpu: float32, not compiled"
    assert (record["engine"]["compile"], record["engine"]["checkpoint_minutes"]) == ("off", 2)
    assert run("predict", folder, "imagenet/val", *places) == 0
    assert f"80 x {CLASSES}" in capsys.readouterr().out
    stored = folder / "predictions" / "imagenet__val.safetensors"
    assert run("evaluate", "--predictions", stored, "--resamples", 0, "--out", tmp_path / "rows.csv") == 0
    (accuracy,) = (row.value for row in read_rows(tmp_path / "rows.csv") if row.metric == "accuracy")
    assert accuracy > 1 / CLASSES
