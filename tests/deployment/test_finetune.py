"""The one call: from a folder of photographs to an ordinary, calibrated run, whatever happens on the way."""

import io
import os
import re
import shlex
import shutil
import signal
from dataclasses import fields, replace
from html import escape
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

import regmixup as rm
from regmixup.cli import finetune as cli_finetune
from regmixup.cli import main
from regmixup.data import images, load
from regmixup.data.roles import validation_of
from regmixup.deployment import job, probe
from regmixup.deployment.calibration import Promise, halves
from regmixup.deployment.detection import describe_detection
from regmixup.deployment.finish import predicted_answers
from regmixup.deployment.folder import load_files
from regmixup.deployment.publish import publish
from regmixup.deployment.request import Request
from regmixup.storage import read_table, write_table
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.loading import train_transform
from tests.report.test_page import data_of

from .photos import BACKBONE, COLOURS, write_photos, write_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("weights") / "weights.pth")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Class folders with nearly equal colours, so that not everything is right."""
    close = {name: tuple(110 + (value - 110) // 8 for value in colour) for name, colour in COLOURS.items()}
    return write_photos(tmp_path_factory.mktemp("photos") / "fruit", 14, colours=close)


def finetune(folder, runs, weights, **changes):
    lines = []
    asked = {"backbone": BACKBONE, "epochs": 3, "image_size": 32, "workers": 0, "device": "cpu", **changes}
    run = rm.finetune(folder, runs, init=str(weights), say=lines.append, **asked)
    return run, "\n".join(lines)


@pytest.fixture(scope="module")
def finished(folder, weights, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs") / "of my photos"
    run, lines = finetune(folder, runs, weights, export=runs / "model.pt2")
    return run, lines, runs


@pytest.fixture
def copied(finished, tmp_path):
    """The folder of the finished runs, for a test that changes them."""
    return shutil.copytree(finished[2], tmp_path / "runs")


def opened(runs):
    """Return the runs in a folder by their epochs: 0 for the probe."""
    folders = [path for path in runs.glob("*/") if (path / "config.json").is_file()]
    return {run.config.epochs: run for run in map(rm.Run.open, folders)}


def test_the_result_is_an_ordinary_run(finished):
    run, lines, runs = finished
    again = rm.Run.open(run.folder)
    assert again.finished
    assert rm.train(again.config, runs, device="cpu").folder == run.folder
    assert run.folder.name == again.config.name
    assert len(opened(runs)[3].history()) == 3
    assert all(one.config.orient and one.transform().orient for one in opened(runs).values())
    assert (run.folder / "provenance.json").is_file()
    assert str(run.folder) in lines


def test_all_that_was_chosen_is_said(finished):
    _, lines, _ = finished
    for said in (
        "42 images of 3 classes",
        "apple 14, lime 14, plum 14",
        "cut by content, 70/15/15 of every class",
        f"{BACKBONE} (--backbone) on images of 32 pixels",
        "all weights: dnn (--method), AdamW at 0.0003 (--lr), batches of 30, augmentation standard",
        "epochs       3 (given)",
        "\nkept         ",
        "by the threshold of entropy; ",
    ):
        assert said in lines
    *said, last = lines.splitlines()
    assert last.startswith("regmixup predict ")
    assert all(line[12] == " " != line[13] for line in said)  # the text of all lines begins in one column


def test_the_probe_initialises_the_head_and_leaves_the_backbone_alone(finished, weights):
    runs = opened(finished[2])
    (file,) = finished[2].glob("finetune-fruit-*/probe.safetensors")
    stored = rm.Run.open(runs[0].folder).model(device="cpu").state_dict()
    pretrained = torch.load(weights, weights_only=True)
    assert torch.equal(stored["backbone.0.conv1.0.weight"], pretrained["conv1.0.weight"])
    assert torch.equal(stored["backbone.0.bn1.running_mean"], pretrained["bn1.running_mean"])
    assert stored["head.weight"].abs().sum() > 0
    for run in runs.values():
        assert run.config.init.startswith(str(file))
        assert run.provenance()["init"]["initialised"] == []
    assert runs[0].history() == []
    changed = runs[3].model(device="cpu").state_dict()
    assert not torch.equal(changed["backbone.0.conv1.0.weight"], pretrained["conv1.0.weight"])


def test_the_probe_of_the_run_is_the_one_that_was_fitted_on_stored_features(finished):
    """Features, fit, file, run and prediction agree: the run's logits are W z + b, and its accuracy is the one told."""
    run = opened(finished[2])[0]
    validation, model = validation_of(run.config.train_set), run.model(device="cpu")
    found = probe.predict_files(model, load_files(validation), run.config, run.provenance()["classes"])
    predictions = run.predict(validation, device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(model.head(found.features), predictions.logits, atol=1e-4, rtol=1e-4)
    assert torch.equal(found.labels, predictions.labels)
    right = (predictions.logits.argmax(1) == predictions.labels).float().mean()
    assert f"probe        {100 * right:.1f} %" in finished[1]


def test_what_is_deployed_was_fitted_on_validation_and_is_told(finished):
    run, lines, runs = finished
    record = read_table(run.folder / "finetune.json")
    fitted = rm.Predictor.from_run(run, device="cpu")
    saved = rm.Predictor.load(run.folder / "predictor", device="cpu")
    program = torch.export.load(runs / "model.pt2").module()
    paths = list(load(validation_of(run.config.train_set)).paths)
    first, second = fitted(paths), saved(paths)
    exported = program(torch.stack([saved.read(path) for path in paths]) / 255)
    torch.testing.assert_close(first.probs, second.probs, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(first.probs, exported["probs"], atol=1e-5, rtol=1e-4)
    assert torch.equal(first.accepted, second.accepted)
    assert torch.equal(first.accepted, exported["accepted"])
    assert (saved.temperature, saved.threshold) == (fitted.temperature, fitted.threshold)
    assert first.accepted.float().mean() >= 0.95
    right = record["validation"][record["chosen"]]
    assert (saved.images, saved.errors) == (right["images"], right["images"] - right["right"])
    assert f"from {right['images']} validation images with {saved.errors} errors" in lines


def answered(run, predictor, **changes):
    """What the page of a run says a predictor answers. changes: of the test predictions."""
    photos = read_table(run.folder / "finetune.json")["photos"]
    test, validation = (run.predict(photos[part], device="cpu") for part in ("test", "validation"))
    return predicted_answers(predictor, replace(test, **changes), validation, load_files(photos["test"]).paths)


def test_the_page_shows_what_the_predictor_answers(finished):
    """Not the probabilities before the temperature, nor a threshold from test images."""
    run = finished[0]
    photos = load_files(read_table(run.folder / "finetune.json")["photos"]["test"])
    predictor = rm.Predictor.load(run.folder / "predictor", device="cpu")
    median = float(predictor(list(photos.paths)).score.median())
    predictor.module.temperature, predictor.module.threshold = 7.0, median
    decision = predictor(list(photos.paths))
    names = predictor.class_names
    for labels in (photos.labels, (decision.label + 1) % 3):
        answers = answered(run, predictor, labels=labels)
        chosen = next(iter(answers.counts().values()))
        right = decision.label == labels
        assert chosen.answers == int(decision.accepted.sum()) < len(photos)
        assert chosen.right == int((decision.accepted & right).sum())
        mistakes = next(section.body for section in answers.sections() if section.name == "mistakes")
        shown = re.findall(r">(\w+), ([\d.]+)\xa0%</span>\s*<span>is (\w+)</span><span[^>]*>([^<]+)", mistakes)
        expected = [
            (names[decision.label[i]], f"{100 * float(decision.probs[i].max()):.1f}", names[labels[i]], Path(path).name)
            for i, path in enumerate(photos.paths)
            if not (right[i] and decision.accepted[i])
        ]
        assert sorted(shown) == sorted(expected)
        assert mistakes.count("The threshold compares the entropy, not the percentage shown.") == 1


@pytest.mark.parametrize(
    ("accepts", "other"),
    [(1.0, "stricter: answers 80 %"), (0.8, "stricter: answers 50 %"), (0.2, "looser: answers 95 %")],
)
def test_the_page_compares_the_threshold_with_another_and_with_none(finished, accepts, other):
    """Of so few validation images, 95 % are all: that threshold is no stricter one."""
    run = finished[0]
    photos = read_table(run.folder / "finetune.json")["photos"]
    predictor = rm.Predictor.from_run(run, validation=photos["validation"], device="cpu", acceptance=accepts)
    answers = answered(run, predictor)
    titles = list(answers.thresholds)
    assert titles == [
        f"chosen: answers {100 * accepts:g} % of the validation images",
        f"{other} of the validation images",
        "none: answers everything",
    ]
    share = int(re.search(r"(\d+) %", other)[1]) / 100
    scores = predictor.module.score(run.predict(photos["validation"], device="cpu").logits.double())
    accepted = int((scores <= answers.thresholds[titles[1]]).sum())
    assert share * len(scores) <= accepted < share * len(scores) + 1
    assert list(answers.counts().values())[2].answers == photos["sizes"]["test"]


def test_results_are_those_of_the_test_part(finished):
    run = finished[0]
    record = read_table(run.folder / "finetune.json")
    test = run.predict(record["photos"]["test"], device="cpu")
    label = test.logits.argmax(1)
    assert record["test"]["right"] == int((label == test.labels).sum())
    assert record["test"]["accuracy"]["value"] == pytest.approx(record["test"]["right"] / len(test))
    assert record["test"]["images"] == len(test) == record["photos"]["sizes"]["test"]
    page = (run.folder / "report.html").read_text()
    assert f"{100 * record['test']['accuracy']['value']:.1f} % of {len(test)} test images right" in page
    for line in finished[1].splitlines():  # the page repeats what the terminal said, so they cannot differ
        said = line[13:].strip()
        assert escape(said) in page or line.startswith(("reading", "export", "time", "regmixup predict"))
    assert "http" not in page.partition("Content-Security")[2].partition(">")[2]


def test_the_same_call_trains_nothing_again_and_the_command_line_is_the_same_call(finished, folder, weights, capsys):
    run, lines, runs = finished
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/checkpoint.safetensors")}
    words = ["--backbone", BACKBONE, "--init", str(weights), "--epochs", "3", "--image-size", "32", "--workers", "0"]
    assert main(["finetune", str(folder), *words, "--runs", str(runs), "--device", "cpu"]) == 0
    assert str(run.folder) in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in runs.glob("*/checkpoint.safetensors")}
    photo = next(iter(load(run.config.train_set).paths))
    answers = []
    use = shlex.split(lines.splitlines()[-1])  # as a shell reads it: the folder has spaces
    assert use == ["regmixup", "predict", str(run.folder), "photo.jpg"]
    assert run.folder.name.startswith("dnn-fruit-test_resnet-s0-")
    for model in (str(run.folder / "predictor"), use[2]):
        assert main(["predict", model, photo]) == 0
        answers.append([line for line in capsys.readouterr().out.splitlines() if line.startswith(photo)])
    assert answers[0] == answers[1] != []


def test_after_an_interruption_the_same_call_goes_on_to_the_same_bits(finished, folder, weights, tmp_path):
    whole = opened(finished[2])[3]

    def interrupt(label, config):
        return {"on_step": lambda record: os.kill(os.getpid(), signal.SIGINT)}

    with pytest.raises(KeyboardInterrupt):
        finetune(folder, tmp_path, weights, watch=interrupt)
    assert not opened(tmp_path)[3].finished
    finetune(folder, tmp_path, weights)
    again = opened(tmp_path)[3]
    states = [read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors for run in (whole, again)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(("minutes", "epochs"), [(10.0, 6), (0.02, 0)])
def test_the_pace_decides_the_epochs_or_for_the_probe_and_is_stored(
    folder, weights, tmp_path, monkeypatch, minutes, epochs
):
    """With time for fewer than five epochs of 30 images the probe is the model, as so few make it worse."""
    measured = []
    monkeypatch.setattr(job, "measure_pace", lambda *_: measured.append(1) or 0.1)
    monkeypatch.setattr(probe, "PASSES", 180)
    run, lines = finetune(folder, tmp_path, weights, epochs=None, minutes=minutes)
    assert sorted(opened(tmp_path)) == sorted({0, epochs})
    assert ("the linear probe is the model" in lines) == (epochs == 0)
    assert f"epochs       {epochs} of 6 wanted fit" in lines
    assert f"{epochs} of 6 wanted fit" in (run.folder / "report.html").read_text()
    finetune(folder, tmp_path, weights, epochs=None, minutes=minutes)
    assert len(measured) == 1


def test_images_are_counted(folder, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_BATCH", 20)
    counted = []
    finetune(folder, tmp_path, weights, epochs=0, advance=lambda *progress: counted.append(progress))
    assert counted == [*[("reading", 1, 42)] * 42, *(("features", done, 36) for done in (0, 20, 10, 6))]


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"lr": 1e-7}, {"lr": 1e-7, "min_lr": 1e-7}),
        ({"batch_size": 8}, {"batch_size": 8}),
        ({"batch_size": 29}, {"batch_size": 28}),  # 29 would leave one of 30 images over
        ({"augmentation": "none"}, {"crop_area": 1.0, "flip": False, "color_jitter": 0.0}),
        ({"augmentation": "light"}, {"crop_area": 0.8, "flip": True, "color_jitter": 0.0}),
        ({"augmentation": "strong"}, {"rand_augment": 2, "color_jitter": 0.4}),
        ({"precision": "bfloat16"}, {"precision": "bfloat16"}),
    ],
)
def test_flags_reach_the_training_and_change_nothing_else(prepared, asked, fields):
    plain = prepared.configure(epochs=2)
    changed = replace(prepared, request=replace(prepared.request, **asked)).configure(epochs=2)
    assert {name: getattr(changed, name) for name in fields} == fields
    assert replace(changed, **{name: getattr(plain, name) for name in (*fields, "crop_area")}) == plain
    assert plain.crop_area == 0.35


@pytest.fixture(scope="module")
def prepared(folder, weights, tmp_path_factory):
    request = Request(backbone=BACKBONE, init=str(weights), image_size=32, device="cpu")
    return job.prepare(folder, tmp_path_factory.mktemp("none"), request, say=str, advance=lambda *_: None)


def test_flat_minima_keep_the_learning_rate_of_fine_tuning(prepared):
    """FMFP's own, while it averages, is one of SGD: more than a hundred times that of AdamW here."""
    config = replace(prepared, request=replace(prepared.request, method="fmfp")).configure(epochs=10)
    assert config.average == "swa"
    assert max(map(config.lr_at, range(10))) <= prepared.request.lr


def test_no_augmentation_shows_the_whole_image(prepared):
    """A crop of all of the area, resized: with a mark in each corner, none is ever cut off or moved."""
    config = replace(prepared, request=replace(prepared.request, augmentation="none")).configure(epochs=1)
    transform = train_transform(config, shape=None)
    marked = Image.new("RGB", (48, 40))
    marked.paste((255, 0, 0), (0, 0, 8, 8))
    marked.paste((0, 255, 0), (40, 32, 48, 40))
    for _ in range(10):
        shown = transform(marked)
        assert shown.size == (32, 32)
        assert shown.getpixel((1, 1)) == (255, 0, 0)
        assert shown.getpixel((30, 30)) == (0, 255, 0)


SETTINGS = [("method", "regmixup"), ("lr", 0.1), ("batch_size", 8), ("augmentation", "light"), ("tensorboard", True)]


@pytest.mark.parametrize(
    ("probe", "name", "value"),
    [(probe, *setting) for probe in ({"freeze": True}, {"epochs": 0}) for setting in SETTINGS]
    + [({"freeze": True}, "epochs", 3)],
)
def test_settings_of_training_are_refused_where_the_probe_is_the_model(probe, name, value):
    word = "freeze" if "freeze" in probe else "epochs 0"
    with pytest.raises(ValueError, match=rf"^{name} must be left out with {word}, .* no backbone, got {value}$"):
        Request(**probe, **{name: value})
    Request(**{name: getattr(Request, name), **probe})


def test_a_frozen_backbone_is_the_probe_and_measures_nothing(folder, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "measure_pace", lambda *_: pytest.fail("the pace decides nothing here"))
    run, lines = finetune(folder, tmp_path, weights, epochs=None, freeze=True)
    assert "epochs       0 (--freeze)" in lines
    assert "\nearlier  " not in lines
    assert list(opened(tmp_path)) == [0]
    assert "a linear probe on stored features of the frozen backbone (--freeze)" in lines
    assert "all weights" not in lines
    taken = run.model(device="cpu").state_dict()["backbone.0.conv1.0.weight"]
    assert torch.equal(taken, torch.load(weights, weights_only=True)["conv1.0.weight"])


def test_event_files_are_those_of_fine_tuning(folder, weights, tmp_path):
    finetune(folder, tmp_path, weights, epochs=1, tensorboard=True)
    runs = opened(tmp_path)
    assert [len(list(runs[epochs].folder.rglob("events.out.tfevents.*"))) for epochs in (0, 1)] == [0, 1]


def test_the_command_to_copy_stays_on_one_line_of_a_narrow_terminal():
    written = io.StringIO()
    line = f"regmixup predict {'runs/' * 20}:smile: [bold] photo.jpg"
    cli_finetune._say(Console(file=written, force_terminal=True, width=40), line)
    assert line in re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue()).splitlines()


def test_the_help_has_every_flag_once_with_its_text(capsys):
    assert main(["finetune", "--help"]) == 0
    said = capsys.readouterr().out
    for field in fields(cli_finetune.FinetuneVerb):
        flag = f"--{field.name.replace('_', '-')}"
        assert len(re.findall(rf"^  {flag} +[A-Zab]", said, re.M)) == (field.name != "photos"), flag


def test_wrong_settings_are_refused_before_torch_is_loaded(capsys):
    try:
        status = main(["finetune", "photos", "--minutes", "0"])
    except SystemExit as leaving:  # of newer versions of tyro
        status = leaving.code
    assert status == 2
    said = capsys.readouterr()
    assert "minutes must be a finite number > 0, got 0.0" in said.err
    assert said.out == ""


def test_a_worse_fine_tuned_model_is_not_kept(folder, weights, tmp_path):
    run, lines = finetune(folder, tmp_path, weights, method="dnn", lr=3.0)
    right = read_table(run.folder / "finetune.json")["validation"]
    assert right["fine-tuned"]["right"] < right["linear probe"]["right"]
    assert "so the probe is kept" in lines
    assert run.config.epochs == 0
    assert read_table(run.folder / "finetune.json")["chosen"] == "linear probe"


def test_class_weights_reach_both_stages(weights, tmp_path, monkeypatch):
    given, fit = [], probe.fit_probe
    monkeypatch.setattr(job, "fit_probe", lambda *args: given.append(args[2]) or fit(*args))
    write_photos(tmp_path / "photos", 14)
    for index in range(6):
        (tmp_path / "photos" / "plum" / f"{index}.jpg").unlink()
    finetune(tmp_path / "photos", tmp_path / "runs", weights, class_weights="balanced", epochs=1)
    assert opened(tmp_path / "runs")[1].config.objective.loss.weight == given[0]
    assert given[0][2] > given[0][0]


def test_images_that_test_a_promise_choose_nothing(folder, weights, tmp_path, monkeypatch):
    """Else the promise would be void: the errors of those images would have been looked at before they count."""
    seen, fit = [], probe.fit_probe
    monkeypatch.setattr(job, "fit_probe", lambda *args: seen.append(args[1].labels) or fit(*args))
    run, _ = finetune(folder, tmp_path, weights, risk=0.7, epochs=0)
    record = read_table(run.folder / "finetune.json")
    validation = run.predict(record["photos"]["validation"], device="cpu")
    first, _ = halves(validation)
    assert 0 < len(first) < len(validation)
    assert torch.equal(seen[0], first.labels)
    right = first.logits.argmax(1) == first.labels
    assert record["risk"] == 0.7
    assert record["validation"]["linear probe"] == {"right": int(right.sum()), "images": len(first)}


@pytest.mark.parametrize(
    ("shift", "said"), [(1, "warning      risk: nothing can be promised"), (0, "promise      at most 0.97 errors")]
)
def test_a_promise_is_made_only_if_the_images_show_it(folder, weights, tmp_path, monkeypatch, shift, said):
    predict = rm.Run.predict

    def relabelled(run, name, **options):
        predictions = predict(run, name, **options)
        return replace(predictions, labels=(predictions.logits.argmax(1) + shift) % 3)

    monkeypatch.setattr(rm.Run, "predict", relabelled)
    run, lines = finetune(folder, tmp_path, weights, risk=0.97, acceptance=1.0, epochs=1)
    assert run.config.epochs == 1  # as good as the probe on validation is good enough
    assert said in lines
    assert (rm.Predictor.load(run.folder / "predictor").promise is None) == (shift == 1)
    note = "You asked for at most 97 % errors; this could not be promised, so the threshold accepts 100 % of validation"
    assert (note in (run.folder / "report.html").read_text().replace("\xa0", " ")) == (shift == 1)
    assert read_table(run.folder / "finetune.json")["risk"] == 0.97


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"acceptance": 95}, "acceptance must be"),
        ({"minutes": 0}, "minutes must be"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"batch_size": None}, "batch_size must be an integer >= 1, got None"),
        ({"init": ""}, "init must be"),
        ({"init": "nowhere.pth"}, "init must be"),
        ({"method": "deep-ensemble"}, "method must be"),
        ({"method": "kfac-llla"}, "has no posthoc map, such as .*, got kfac-llla"),
        ({"method": "logitnorm", "class_weights": "balanced"}, "class_weights must be none for logitnorm"),
        ({"backbone": "timm/resnet_18"}, "unknown network 'timm/resnet_18': did you mean"),
        ({"backbone": "resnet18", "init": "timm"}, "backbone must be one of timm's, such as timm/resnet18, or init a"),
        ({"backbone": "timm/test_convnext"}, "init must hold weights of timm/test_convnext"),
        ({"export": "model.tflite"}, "export format"),
        ({"class_weights": "some"}, "class_weights"),
        ({"ood": "nowhere", "score": "auto"}, "ood must be a folder of images, found none in .*nowhere"),
    ],
)
def test_values_are_checked_before_images_are_read(wrong, message, folder, weights, tmp_path):
    said = []
    with pytest.raises(ValueError, match=message):
        rm.finetune(folder, tmp_path / "runs", say=said.append, **{"backbone": BACKBONE, "init": str(weights), **wrong})
    assert not said
    assert not (tmp_path / "runs").exists()


def test_what_is_wrong_with_a_table_comes_before_missing_weights(tmp_path):
    (tmp_path / "labels.csv").write_text("path,label\nnowhere.jpg,cat\n")
    with pytest.raises(ValueError, match=r"1 row of labels\.csv must name files that exist: nowhere\.jpg in line 2"):
        rm.finetune(tmp_path / "labels.csv", tmp_path / "runs", init="missing.pth")
    write_photos(tmp_path / "photos", 3)
    (tmp_path / "labels.csv").write_text("path,label\nphotos/lime/0.jpg,lime\nphotos/lime/1.jpg,\n")
    with pytest.raises(ValueError, match=r"1 row of labels\.csv must have a path and a label: photos/lime/1\.jpg"):
        rm.finetune(tmp_path / "labels.csv", tmp_path / "runs", init="missing.pth")


def test_a_folder_that_cannot_be_written_is_refused_before_images_are_read(tmp_path):
    (tmp_path / "file").touch()
    for wrong in ({"runs": tmp_path / "file" / "runs"}, {"export": tmp_path / "file" / "model.pt2"}):
        with pytest.raises(OSError, match=f"cannot write {tmp_path / 'file'}/"):
            rm.finetune(tmp_path / "nowhere", **{"runs": tmp_path / "runs", **wrong})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_threshold_leaves_the_probabilities_as_they_are(finished, folder, capsys):
    """`predict --acceptance` fits the threshold anew; temperature and score stay those of `finetune`."""
    answers = {}
    for share in ("0.95", "0.2"):
        assert main(["predict", str(finished[0].folder), str(folder), "--acceptance", share, "--device", "cpu"]) == 0
        lines = [line.split("  ") for line in capsys.readouterr().out.splitlines() if ".jpg  " in line]
        answers[share] = {file: (label, probability, kept) for file, label, probability, kept in lines}
    assert {f: a[:2] for f, a in answers["0.95"].items()} == {f: a[:2] for f, a in answers["0.2"].items()}
    accepted = {share: sum(a[2] == "accepted" for a in found.values()) for share, found in answers.items()}
    assert accepted["0.2"] < accepted["0.95"]


def test_other_validation_images_keep_the_acceptance_and_the_promise(folder, weights, tmp_path, capsys):
    """`predict --validation` fits anew, as `finetune` was asked to."""
    run, _ = finetune(folder, tmp_path, weights, epochs=0, acceptance=0.3)
    words = ["predict", str(run.folder), str(folder), "--device", "cpu"]
    validation = read_table(run.folder / "finetune.json")["photos"]["validation"]
    kept = []
    for more in ([], ["--validation", validation], ["--validation", validation, "--acceptance", "1.0"]):
        assert main([*words, *more]) == 0
        kept.append(int(capsys.readouterr().out.splitlines()[-1].split()[0]))
    assert kept[0] == kept[1] < kept[2]
    finetune(folder, tmp_path, weights, epochs=0, risk=0.97, acceptance=1.0)
    assert main([*words, "--validation", validation]) == 0
    assert "promise" in capsys.readouterr().out


def test_the_usual_acceptance_replaces_another_of_fine_tuning(folder, weights, tmp_path, capsys):
    run, _ = finetune(folder, tmp_path, weights, epochs=0, acceptance=0.3)
    said = []
    for words in ((), ("--acceptance", "0.95")):
        assert main(["predict", str(run.folder), str(folder), "--device", "cpu", *words]) == 0
        said.append(capsys.readouterr().out)
    assert ["as fitted there" in text for text in said] == [True, False]
    kept = [int(text.splitlines()[-1].split()[0]) for text in said]
    assert kept[0] < kept[1]


def test_a_result_on_copies_of_train_images_says_so(weights, tmp_path):
    write_photos(tmp_path / "photos" / "train", 10)
    write_photos(tmp_path / "photos" / "test", 10, first=5)
    run, lines = finetune(tmp_path / "photos", tmp_path / "runs", weights, epochs=0)
    assert "a linear probe on stored features of the frozen backbone (--epochs 0)" in lines
    copies = read_table(run.folder / "finetune.json")["photos"]["copies"]
    (line,) = (line for line in lines.splitlines() if line.startswith("test  "))
    assert copies > 0
    assert f"; {copies} images to choose or test on are copies of train images, so expect less on new ones" in line
    assert "expect less on new ones" in (run.folder / "report.html").read_text()


def test_a_table_of_labels_and_tiff_files_lead_to_a_model(weights, tmp_path):
    photos, rows = write_photos(tmp_path / "photos", 10), ["path,label"]
    for path in sorted(photos.rglob("*.jpg")):
        name = f"{path.parent.name}-{path.stem}.tif"
        Image.open(path).save(photos / name)
        rows.append(f"{name},{path.parent.name}")
    (photos / "labels.csv").write_text("\n".join(rows))
    run, lines = finetune(photos / "labels.csv", tmp_path / "runs", weights, epochs=0)
    assert "30 images of 3 classes" in lines
    predictor = rm.Predictor.load(run.folder / "predictor", device="cpu")
    assert predictor.class_names == tuple(COLOURS)
    assert predictor.class_names[predictor(photos / "lime-3.tif").label] == "lime"


def test_the_score_is_that_of_the_predictor_and_the_page_and_trains_nothing_again(copied, folder, weights):
    before = {path: path.stat().st_mtime_ns for path in copied.glob("*/checkpoint.safetensors")}
    run, lines = finetune(folder, copied, weights, score="max_probability", acceptance=0.9)
    assert "max probability" in lines
    assert "\nearlier  " not in finetune(folder, copied, weights, score="max_probability", acceptance=0.9)[1]
    assert rm.Predictor.load(run.folder / "predictor").score == "max_probability"
    assert "by the threshold of max probability; " in lines
    assert "AURC by MSP" in (run.folder / "report.html").read_text()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_another_score_or_threshold_keeps_the_earlier_predictor_and_report(folder, weights, tmp_path):
    run, _ = finetune(folder, tmp_path, weights, epochs=0)
    names = ("report.html", "finetune.json", "predictor/predictor.json", "predictor/weights.safetensors")

    def contents(at):
        return {name: (at / name).read_bytes() for name in names}

    first = contents(run.folder)
    again, lines = finetune(folder, tmp_path, weights, epochs=0, score="max_probability", acceptance=0.9)
    second = contents(again.folder)
    kept = run.folder / "earlier-1"
    said = f"earlier      the predictor and the report of score entropy, acceptance 0.95 are now in {kept}"
    assert (again.folder, said in lines) == (run.folder, True)
    assert "earlier-2" in finetune(folder, tmp_path, weights, epochs=0, acceptance=0.9)[1]
    assert [contents(kept), contents(run.folder / "earlier-2")] == [first, second]
    assert rm.Predictor.load(kept / "predictor").score == "entropy"
    (run.folder / "predictor" / "predictor.json").unlink()  # as if interrupted: the record is the last to move
    finetune(folder, tmp_path, weights, epochs=0)
    assert (run.folder / "earlier-3" / "finetune.json").is_file()


def test_a_damaged_record_is_written_anew(folder, weights, tmp_path):
    """It must not end a call after the training, which may have taken hours."""
    run, _ = finetune(folder, tmp_path, weights, epochs=0)
    record = (run.folder / "finetune.json").read_text()
    (run.folder / "finetune.json").write_text(record[:100])
    finetune(folder, tmp_path, weights, epochs=0, acceptance=0.9)
    assert read_table(run.folder / "finetune.json")["acceptance"] == 0.9


def test_the_page_leads_with_answers_and_has_the_epochs_of_fine_tuning(finished):
    run, _, runs = finished
    page = (run.folder / "report.html").read_text()
    record = read_table(run.folder / "finetune.json")["test"]
    words = f"Answers {record['accepted']} of {record['images']} test images, {record['accepted_right']} of those right"
    assert page.index(words) < page.index('id="classes"') < page.index('id="results"') < page.index('id="making"')
    (curves,) = data_of(page)["settings"][0]["curves"]
    history = opened(runs)[3].history()
    for name in ("loss", "train_accuracy", "val_nll", "val_accuracy"):
        assert curves[name] == [[1, 2, 3], pytest.approx([epoch[name] for epoch in history], rel=1e-3)]
    assert "folder:" not in page.partition('id="making"')[0]


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """Image files beside each other, of none of the classes."""
    folder = write_photos(tmp_path_factory.mktemp("strange") / "things", 3, colours={"black": (0, 0, 0)})
    return folder / "black"


def test_ood_images_choose_the_score_and_this_is_told_and_stored(copied, folder, weights, strange):
    run, lines = finetune(folder, copied, weights, score="auto", ood=strange)
    predictor = rm.Predictor.load(run.folder / "predictor")
    assert predictor.choice.ood_images == 3
    assert predictor.score == predictor.choice.name
    record = read_table(run.folder / "finetune.json")
    assert record["score"] == predictor.score
    assert record["choice"] == {"aurocs": predictor.choice.aurocs, "images": predictor.images, "ood_images": 3}
    assert f"score        {predictor.choice}" in lines
    black = predictor(sorted(map(str, strange.iterdir()))).score
    photos = load_files(record["photos"]["validation"])
    share = rm.metrics.auroc(predictor([*map(str, photos.paths)]).score, black)
    assert share == pytest.approx(predictor.choice.aurocs[predictor.score])


def test_ood_images_that_choose_the_score_are_forwarded_once(copied, folder, weights, strange, monkeypatch):
    decoded, decode = [], images.decode_all
    monkeypatch.setattr(images, "decode_all", lambda files, read: decoded.extend(files) or decode(files, read))
    finetune(folder, copied, weights, score="auto", ood=strange)
    assert sorted(file for file in decoded if Path(file).parent == strange) == sorted(map(str, strange.iterdir()))


def test_without_ood_images_the_automatic_score_is_msp_and_this_is_told(copied, folder, weights):
    with pytest.warns(UserWarning, match=r'score="auto" is max_probability \(MSP\)'):
        run, lines = finetune(folder, copied, weights, score="auto")
    assert rm.Predictor.load(run.folder / "predictor").score == "max_probability"
    assert "score        max_probability (MSP): no out-of-distribution validation images were given" in lines


def test_the_run_is_published_with_its_predictor_and_its_test_results(finished, folder, tmp_path):
    run, _, _ = finished
    assert main(["publish", str(run.folder), str(tmp_path / "fruit-net"), "--license", "mit"]) == 0
    record = read_table(run.folder / "finetune.json")
    text = (tmp_path / "fruit-net" / "README.md").read_text()
    accuracy = record["test"]["accuracy"]
    assert f"| accuracy | {100 * accuracy['value']:.2f} | {100 * accuracy['low']:.2f} to " in text
    assert f"| temperature | {rm.Predictor.load(run.folder / 'predictor').temperature:.4g} |" in text
    assert str(folder.parent) not in text
    assert f"Trained on folder:{folder.name}/train-85/train-82. " in text
    assert f"| fitted on | folder:{folder.name}/train-85/val-18 |" in text
    assert f"On the test set folder:{folder.name}/val-15, {record['test']['images']} images:" in text
    test = record["test"]
    assert f"| accepted of the images that finetune tested on | {test['accepted']} of {test['images']} |" in text
    assert f"| right of the accepted | {test['accepted_right']} of {test['accepted']} |" in text
    for missing in ("no class", "out-of-distribution-detection", "AUROC", "other images apart"):
        assert missing not in text
    photo = folder / "lime" / "0.jpg"
    mine, theirs = (
        rm.Predictor.load(path).predict_file(photo) for path in (run.folder / "predictor", tmp_path / "fruit-net")
    )
    assert torch.equal(mine.probs, theirs.probs)


def test_the_card_has_what_was_measured_on_images_of_no_class(folder, weights, strange, tmp_path):
    run, _ = finetune(folder, tmp_path, weights, epochs=0, ood=strange)
    found = read_table(run.folder / "finetune.json")["detection"]
    assert main(["publish", str(run.folder), str(tmp_path / "net")]) == 0
    text = (tmp_path / "net" / "README.md").read_text()
    assert f"| out-of-distribution images | {describe_detection(found)} |" in text
    assert '"out-of-distribution-detection"' in text
    assert "A score tells other images apart only as well as" in text
    other = replace(rm.Predictor.load(run.folder / "predictor"), threshold=-1.0)
    publish(run, tmp_path / "other", predictor=other)
    assert "no class" not in (tmp_path / "other" / "README.md").read_text()  # measured at another threshold


def test_publishing_keeps_the_score_and_the_promise(finished, tmp_path):
    """`--calibrate` fits nothing anew: by its defaults, it would lose both."""
    folder = shutil.copytree(finished[0].folder, tmp_path / "run")
    promise = Promise(risk=0.1, confidence=0.95, accepted=40, errors=0, images=50)
    saved = replace(rm.Predictor.load(folder / "predictor"), score="energy", threshold=-1.5, promise=promise)
    saved.save(folder / "predictor")
    assert main(["publish", str(folder), str(tmp_path / "net"), "--calibrate"]) == 0
    found = rm.Predictor.load(tmp_path / "net")
    for name in ("score", "threshold", "temperature", "promise"):
        assert getattr(found, name) == getattr(saved, name)


@pytest.mark.parametrize(("chosen", "trained"), [("linear probe", "the head alone"), ("fine-tuned", "all")])
def test_the_card_tells_what_the_weights_are(finished, tmp_path, chosen, trained):
    run, _, runs = finished
    folder = shutil.copytree(opened(runs)[0].folder, tmp_path / "run")
    first = {"source": "timm", "sha256": "5eed"}
    write_table(folder / "finetune.json", {**read_table(run.folder / "finetune.json"), "chosen": chosen, "init": first})
    assert main(["publish", str(folder), str(tmp_path / "net")]) == 0
    card = (tmp_path / "net" / "README.md").read_text()
    assert f"| trained weights | {trained}" in card
    # The probe's file, from which the run starts, is not what the user started from.
    assert "| initial weights | timm@sha256:5eed |" in card


def test_the_options_are_documented_and_others_are_refused(tmp_path):
    listed = " ".join(rm.finetune.__doc__.split()).partition("flags of `regmixup finetune`: ")[2].partition(".")[0]
    assert sorted(listed.split(", ")) == sorted(field.name for field in fields(Request))
    with pytest.raises(ValueError, match=r"unknown option 'epoch': did you mean 'epochs'"):
        rm.finetune(tmp_path, epoch=3)


def swap(first, second):
    """Exchange two folders."""
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def write_bitmaps(folder):
    """Write parts of photographs as bitmaps, which all have the same size in bytes."""
    for first, part in enumerate(("train", "val", "test")):
        for photo in write_photos(folder / part, 5, first=100 * first).rglob("*.jpg"):
            Image.open(photo).save(photo.with_suffix(".bmp"))
            photo.unlink()
    return folder


def test_other_test_images_change_the_test_results_alone_and_other_train_images_start_a_new_run(weights, tmp_path):
    """Also where names and sizes of the files are the same."""
    photos = write_bitmaps(tmp_path / "photos")

    def facts():
        run, _ = finetune(photos, tmp_path / "runs", weights, epochs=1)
        predictor = (run.folder / "predictor" / "predictor.json").read_text()
        record = read_table(run.folder / "finetune.json")
        return {**record, "predictor": predictor, "folder": run.folder, "state": run.checkpoint.read_bytes()}

    first = facts()
    swap(photos / "test" / "apple", photos / "test" / "plum")
    again = facts()
    for same in ("folder", "state", "predictor", "chosen", "validation"):
        assert again[same] == first[same]
    assert [one["test"]["right"] for one in (first, again)] == [15, 5]
    assert len([*(tmp_path / "runs").glob("finetune-*")]) == 1  # the plan, whose pace would be measured again
    for part in ("train", "val"):
        swap(photos / part / "apple", photos / part / "plum")
    corrected = facts()
    assert corrected["folder"] != first["folder"]
    assert corrected["test"]["right"] == 15


@pytest.mark.parametrize("change", ["a class is renamed", "a file is renamed"])
def test_renamed_images_start_a_new_run(weights, tmp_path, change):
    photos = write_photos(tmp_path / "photos", 14)
    first, _ = finetune(photos, tmp_path / "runs", weights, epochs=0)
    if change == "a class is renamed":
        (photos / "lime").rename(photos / "limes")
    else:
        file = Path(load(first.config.train_set).paths[0])
        file.rename(file.with_name("renamed.jpg"))
    second, _ = finetune(photos, tmp_path / "runs", weights, epochs=0)
    assert first.folder != second.folder
    names = rm.Predictor.load(second.folder / "predictor").class_names
    assert ("limes" in names) == (change == "a class is renamed")
