"""Figure data: made once from stored predictions, again when those change."""

import base64
import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from regmixup import data
from regmixup.data.interpolation import interpolate
from regmixup.evaluation.calibration import ece
from regmixup.posthoc import MonteCarlo
from regmixup.storage import read_rows, read_table
from regmixup.study import figure_data as module
from regmixup.study.figure_data import PAIRS, figure_data, figure_path
from regmixup.training.run import Run


@pytest.fixture(scope="module")
def run(finished_study):
    return Run.open(next(finished_study.runs.glob("*/rows-dnn-*.csv")).parent)


@pytest.fixture(scope="module")
def stem(run):
    """What the study called the files of this run."""
    return next(run.folder.glob("rows-dnn-*.csv")).stem.removeprefix("rows-")


@pytest.fixture(scope="module")
def rows(run, stem):
    return read_rows(run.folder / f"rows-{stem}.csv")


@pytest.fixture(scope="module")
def evaluation(finished_study):
    return next(finished_study.study.runs()).evaluate


@pytest.fixture
def made(run, stem, rows, evaluation):
    return figure_data(run, evaluation, stem, rows=rows)


def test_a_study_leaves_it_beside_the_rows(run, stem, evaluation, rows, monkeypatch):
    monkeypatch.setattr(module, "_measured", None)
    made = figure_data(run, evaluation, stem, rows=rows)
    stored = read_table(figure_path(run.folder, stem))
    assert stored == json.loads(json.dumps(made))
    assert figure_path(run.folder, stem).stat().st_size < 100_000


def test_it_is_not_made_twice_but_again_when_predictions_change(run, stem, evaluation, rows, made, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "_measured", lambda *args: calls.append(args) or {"test": "again"})
    figure_data(run, evaluation, stem, rows=rows)
    assert not calls
    path = run.predictions_path("photographs/test")
    before, text = path.stat(), figure_path(run.folder, stem).read_text()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert figure_data(run, evaluation, stem, rows=rows)["test"] == "again"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    figure_path(run.folder, stem).write_text(text)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"key": 1'], ids=["empty", "zeros", "cut off"])
def test_damaged_data_is_made_again_with_a_warning(run, stem, evaluation, rows, made, damage):
    path = figure_path(run.folder, stem)
    whole = path.read_bytes()
    path.write_bytes(damage)
    with pytest.warns(UserWarning, match=rf"{path.name}: .*; made again"):
        figure_data(run, evaluation, stem, rows=rows)
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b"0.", b"1.", 1))  # readable, but another number
    with pytest.warns(UserWarning, match="its content has changed since it was written; made again"):
        figure_data(run, evaluation, stem, rows=rows)
    assert path.read_bytes() == whole


def test_temperature_comes_from_the_rows(run, rows, made):
    scale = next(row.value for row in rows if row.metric == "temperature")
    test = run.predict("digits/test")
    expected = ece((test.logits.double() / scale).softmax(dim=1), test.labels)
    bins = made["reliability"]["temperature"]
    gaps = [n * abs(c - a) for n, c, a in zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True) if n]
    assert sum(gaps) / len(test) == pytest.approx(expected, abs=1e-4)


def test_the_images_are_the_ends_of_the_paths(made):
    source = data.load("digits/test")
    paths = interpolate(source).images.reshape(1000, 20, 1, 8, 8)
    assert len(made["images"]) == PAIRS == len(made["path"]["pairs"])
    for index, pair in enumerate(made["images"]):
        first, second = (np.array(Image.open(io.BytesIO(base64.b64decode(text)))) for text in pair["png"])
        assert torch.equal(torch.from_numpy(first) / 255, paths[index, -1, 0])
        assert torch.equal(torch.from_numpy(second) / 255, paths[index, 0, 0])
        assert pair["classes"][0] != pair["classes"][1]


def test_a_posthoc_map_is_applied_first(run, stem, evaluation, monkeypatch, tmp_path):
    """Variances so large that Monte-Carlo probabilities are near uniform, whatever the logits say."""
    plain = Run.predict
    monkeypatch.setattr(module, "figure_path", lambda *_: tmp_path / "figures.json")
    monkeypatch.setattr(
        Run, "predict", lambda run, name: (p := plain(run, name)) and replace(p, logit_variance=1e8 * p.logits.abs())
    )
    drawn = figure_data(run, evaluation, stem, posthoc=MonteCarlo(samples=50))
    assert min(drawn["path"]["mean"]) > 1.5
    assert "temperature" not in drawn["reliability"]


def test_a_run_without_a_test_set_has_no_figures(run):
    class Selecting:
        test = ""

    assert figure_data(run, Selecting(), "dnn") == {}
