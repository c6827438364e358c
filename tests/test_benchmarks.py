"""Every script under benchmarks/ runs, at a tiny size, where what it measures means nothing; and its arithmetic."""

import json
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
    "finetuning": [
        ("data TMP/data --tiny", ""),
        ("table TMP/data --tiny --out TMP/runs.jsonl", "6 runs done, 0 failed, 0 not begun"),
        ("table TMP/data --tiny --out TMP/runs.jsonl", "0 runs done"),
        ("markdown TMP/runs.jsonl", "| regmixup − dnn x2 | 1 |"),
        ("throughput TMP/data --tiny", "| timm/test_resnet | regmixup |"),
    ],
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
    "prediction": [("--recipe digits --networks small --precision float32 --sets 2", "small      float32      2")],
    "soak": [("--steps 225", "growth over")],
    "temperature": [("--subsamples 2", "| 0.2 | 1.3")],
    "step": [("--tiny --networks small --rounds 1 --steps 1", "| small | dnn | released |")],
}


def test_every_script_is_run_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(COMMANDS)


# What these run is trained, corrupted and measured by other tests, too.
SLOW = ("finetuning", "corruptions", "soak")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in SLOW else ()) for name in COMMANDS]
)
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


def fine_tuning():
    return runpy.run_path(str(FOLDER / "finetuning.py"), run_name="finetuning")


def test_differences_of_fine_tuned_runs_have_the_corrected_interval_over_folds():
    """Means of the folds are 2, 1, 3: variance 1; with t(2 degrees) = 4.30265 for 95 %.

    4.30265 sqrt(1 / 3) = 2.484 for disjoint train sets, 4.30265 sqrt(1 / 3 + 1 / 2) = 3.928 for those of 3 folds.
    """
    values = {(1, 0): 0.01, (1, 1): 0.03, (2, 0): 0.0, (2, 1): 0.02, (3, 0): 0.06, (3, 1): 0.0}
    difference_of = fine_tuning()["difference_of"]
    assert difference_of(values, 100, 0.0) == "+2.00 [-0.48, +4.48]"
    assert difference_of(values, 100, 0.5) == "+2.00 [-1.93, +5.93]"
    assert difference_of({(1, 0): 0.01, (1, 1): 0.03}, 100, 0.5) == "+2.00"  # one fold says nothing about spread
    assert difference_of({}, 100, 0.5) == "–"


def test_partial_results_of_fine_tuning_are_paired_run_by_run(tmp_path):
    """Seed 1 of fold 2 has no plain run: it counts in RegMixup's mean and in no difference."""
    script = fine_tuning()
    metrics = dict.fromkeys(script["COLUMNS"], 0.5)
    fixed = {**metrics, "task": "cifar100", "settings": "", "epochs": 1, "overlap": 0.0, "train_seconds": 1.0}
    accuracies = {("dnn", 1, 0): 0.4, ("dnn", 2, 0): 0.6, ("regmixup", 1, 0): 0.5, ("regmixup", 2, 0): 0.7}
    records = [
        {**fixed, "method": method, "fold": fold, "seed": seed, "accuracy": accuracy, "failure_auroc": None}
        for (method, fold, seed), accuracy in {**accuracies, ("regmixup", 2, 1): 0.9}.items()
    ]
    lines = script["markdown"](records).splitlines()
    assert "| dnn | 2 | 1 | 50.00 |" in lines[2]
    assert "| regmixup | 3 | 1 | 70.00 |" in lines[3]
    assert lines[4].startswith("| regmixup − dnn | 2 | | +10.00 [+10.00, +10.00] |")
    assert lines[4].count(" – ") == 1  # failure AUROC, of which there is none without errors


def test_the_tables_of_fine_tuning_are_made_of_the_stored_runs():
    root = FOLDER.parent
    lines = (root / "results" / "finetuning.jsonl").read_text().splitlines()
    tables = fine_tuning()["markdown"]([json.loads(line) for line in lines])
    assert tables.strip() in (root / "docs" / "fine-tuning-results.md").read_text()
