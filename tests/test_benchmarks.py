"""Every script under benchmarks/ runs, at a tiny size; what it measures then means nothing."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "benchmarks"

# For each script command lines, and a word that its output must contain.
COMMANDS = {
    "corruptions": [("--images 2 --peer-images 1 --names gaussian_noise frost jpeg_compression", "jpeg_compression")],
    "equivalence": [("TMP", "too few runs")],
    "imagenet_tree": [("TMP --train 1 --val 1 --width 40", "")],
    "loaders": [
        ("resident --device cpu --network small --batch-size 2 --images 4 --steps 1", "share"),
        ("streaming TMP/imagenet/train --workers 0 --passes 1", "ratio"),
    ],
    "methods": [
        (
            "--device cpu --network small --batch-size 4 --steps 1 --rounds 1 --methods dnn regmixup sngp duq augmix",
            "| regmixup |",
        )
    ],
    "metrics": [
        ("--size 200 --classes 5 --turns 1 --subsets 2", "rows with intervals"),
        ("--evaluate 100 5 --ood-files 2", "2 OOD files"),
    ],
    "report": [("--methods 2 --seeds 1", "2 methods x 1 seeds")],
    "soak": [("--steps 225", "growth over")],
    "step": [("--tiny --networks small --rounds 1 --steps 1", "| small | dnn | released |")],
}


def test_every_script_is_run_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_runs_at_a_tiny_size(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # the scripts set it for this whole process
    if name == "loaders":
        runpy.run_path(str(FOLDER / "imagenet_tree.py"))["write_tree"](tmp_path, train=1, val=1, width=40)
    for words, expected in COMMANDS[name]:
        monkeypatch.setattr(sys, "argv", [name, *words.replace("TMP", str(tmp_path)).split()])
        status = 0
        try:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        except SystemExit as leaving:
            status = leaving.code  # 1: soak measured growth, which so few steps cannot judge
        assert status in (0, 1)
        assert expected in capsys.readouterr().out
