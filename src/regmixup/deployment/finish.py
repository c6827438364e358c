"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. The page is that of any model's predictions (`rm.report.write_page`), with three parts more;
what it says of a single image is what the predictor answers, with its temperature and its threshold.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.data.reading import load_files
from regmixup.deployment.calibration import CONFIDENCE, NoPromiseError, fewest_images, first_rows
from regmixup.deployment.folder import Advance, PhotoFolder
from regmixup.deployment.module import Deployable
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.curves import thumbnail
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.names import counted, percent, printable
from regmixup.report.evaluation_page import write_page
from regmixup.report.page import PageSection, definitions, row_head, sortable, text_cells
from regmixup.run_folder import FINETUNED, FITTED, PAGE
from regmixup.storage import write_table
from regmixup.training.run import Run
from regmixup.types import Predictions

Say = Callable[[str], object]
_METRICS = ("accuracy", "ece", "nll", "brier")
_PICTURES = 24


def check_risk(photos: PhotoFolder, risk: float) -> None:
    """Raise if the half of the validation images that tests a promise is too small for any."""
    size = photos.sizes[photos.validation]
    tested, needed = size - len(first_rows(size)), fewest_images(risk, CONFIDENCE)
    if tested < needed:
        raise ValueError(
            f"risk: at most {risk:.3g} errors among the accepted with {CONFIDENCE} confidence needs at least {needed} "
            f"accepted images without an error, and {tested} validation images, half of them, would test it: give "
            "more images or a larger risk, or leave it out"
        )


def finish(
    candidates: Mapping[str, Run],
    photos: PhotoFolder,
    facts: dict[str, Any],
    *,
    acceptance: float,
    risk: float | None,
    score: str | None,
    export: str | Path | None,
    device: torch.device,
    say: Say,
    advance: Advance,
    begun: float,
) -> Run:
    """Return the better of the runs, with all that is written about it. candidates: the probe first; begun: when."""
    size, tested = photos.sizes[photos.validation], photos.sizes[photos.test]
    total = len(candidates) * size + tested
    say(f"finishing    {counted(total, 'prediction')} for validation and test, temperature, threshold, report page")
    advance("finishing", 0, total)
    # With a promise, the images that test the threshold have no part in the choice; see `Calibration`.
    rows = torch.arange(size) if risk is None else first_rows(size)
    right = {}
    for name, run in candidates.items():
        right[name] = int(_correct(run.predict(photos.validation, device=device))[rows].sum())
        advance("finishing", size, total)
        say(f"{name:<13}{percent(right[name] / len(rows))} of {len(rows)} validation images right")
    chosen = choose(right)
    run, reason = candidates[chosen], ""
    if len(right) > 1:
        if chosen != "fine-tuned":
            reason = "fine-tuning was worse than the linear probe on validation, so the probe is kept"
        say(f"kept         {reason or 'the fine-tuned model, no worse on validation than the linear probe'}")
    fit = partial(
        Predictor.from_run, run, validation=photos.validation, acceptance=acceptance, score=score, device=device
    )
    try:
        predictor = fit(risk=risk)
    except NoPromiseError as error:
        say(f"warning      {error}. The threshold accepts {acceptance:.0%} of the validation images instead")
        predictor = fit()
    test = replace(run.predict(photos.test, device=device), dataset="test")
    advance("finishing", tested, total)
    measured = measure_models(ModelPredictions(test=test, name=chosen, temperature=predictor.temperature))
    record = {
        **facts,
        "photos": {**asdict(photos), "path": str(photos.path)},
        "chosen": chosen,
        "reason": reason,
        "validation": {name: {"right": count, "images": len(rows)} for name, count in right.items()},
        "temperature": predictor.temperature,
        "temperature_from": {"images": predictor.images, "errors": predictor.errors},
        "score": predictor.score,
        "threshold": predictor.threshold,
        "acceptance": acceptance,
        "promise": str(predictor.promise or ""),
        "test": _measure(measured, predictor),
        "run": str(run.folder),
        "held_out": risk is not None,
    }
    predictor.save(run.folder / FITTED)
    if export is not None:
        # Before it is complete: who stops the export has a predictor, of which `predict` reads here how it was fitted.
        write_table(run.folder / FINETUNED, record)
        say(f"export       {export}, this takes a while")
        predictor.export(export)
    record["seconds"] = round(time.monotonic() - begun, 1)
    write_table(run.folder / FINETUNED, record)
    copied = f"; {warning}" if (warning := _copied(record["photos"])) else ""
    write_page(
        run.folder / PAGE,
        measured,
        classes=photos.classes,
        title=f"{photos.path.name}: {record['settings']['backbone']}",
        score=predictor.score,
        errors_by=predictor.score,
        kicker="regmixup finetune",
        lead=f"{_accuracy(record['test'])}{copied}. The threshold, from validation images, accepts "
        f"{_accepted(record['test'])}.",
        sections=page_sections(record, test, predictor, load_files(photos.test).paths),
    )
    _summarise(record, run, export, say)
    return run


def choose(right: Mapping[str, int]) -> str:
    """Return the name of the model with the most validation images right; among equals the last, which is fine-tuned.

    >>> choose({"linear probe": 8, "fine-tuned": 8}), choose({"linear probe": 8, "fine-tuned": 7})
    ('fine-tuned', 'linear probe')
    """
    return max(reversed(list(right)), key=right.__getitem__)


def _correct(predictions: Predictions) -> Tensor:
    return predictions.logits.argmax(dim=1) == predictions.labels


def _decide(predictor: Predictor, test: Predictions) -> dict[str, Tensor]:
    """Return what the predictor answers for images whose logits are known."""
    assert isinstance(predictor.module, Deployable)
    return predictor.module.decide(test.logits.double())


def _measure(measured: Measured, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    test, metrics = measured.models[0].test, {}
    for row in measured.rows[0]:
        if row.metric in _METRICS:
            key = row.metric if row.posthoc == "none" else f"{row.metric}_calibrated"
            metrics[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted, right = _decide(predictor, test)["accepted"], _correct(test)
    counts = {"accepted": accepted, "accepted_right": accepted & right, "right": right}
    return {"images": len(test), **metrics, **{name: int(chosen.sum()) for name, chosen in counts.items()}}


def _accuracy(test: Mapping[str, Any]) -> str:
    accuracy = test["accuracy"]
    bounds = f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}"
    return f"{percent(accuracy['value'])} of {test['images']} test images right (95 % interval {bounds})"


def _copied(photos: Mapping[str, Any]) -> str:
    """Return a warning about copies of train images, "" if there are none."""
    count = photos["copies"]
    return f"{count} images to choose or test on are copies of train images, so expect less on new ones" * (count > 0)


def _accepted(test: Mapping[str, Any]) -> str:
    return f"{test['accepted']} of {test['images']} test images, {test['accepted_right']} of them right"


def _temperature(record: Mapping[str, Any]) -> str:
    basis = record["temperature_from"]
    return f"{record['temperature']:.2f}, from {basis['images']} validation images with {basis['errors']} errors"


def _summarise(record: Mapping[str, Any], run: Run, export: str | Path | None, say: Say) -> None:
    test = record["test"]
    copied = _copied(record["photos"])
    say(f"test         {_accuracy(test)}; {copied or 'no test image had a part in any choice'}")
    say(
        f"calibration  error {percent(test['ece']['value'])} on test, {percent(test['ece_calibrated']['value'])} with "
        f"the temperature {_temperature(record)}"
    )
    promised = f"; promised: {record['promise']}" if record["promise"] else ""
    say(f"rejection    the threshold accepts {_accepted(test)}{promised}")
    if export is not None:
        say(f"exported     {export}")
    say(f"report       {run.folder / PAGE}")
    say(f"run          {run.folder}")
    use = shlex.join(["regmixup", "predict", str(run.folder / FITTED), "photo.jpg"])
    say(f"{record['seconds']:.0f} s in all. Use it: {use}")


def page_sections(
    record: Mapping[str, Any], test: Predictions, predictor: Predictor, files: tuple[str, ...]
) -> list[PageSection]:
    """Return what the page has beside the parts of any model's: answers, results by class, the use of the images."""
    return [
        PageSection("answers", "Errors and unsure answers", _answers(test, predictor, files)),
        PageSection("classes", "Classes", _classes(record["photos"]["classes"], test)),
        PageSection("use", "Which images were used for what", definitions(_uses(record).items())),
    ]


def _answers(test: Predictions, predictor: Predictor, files: tuple[str, ...]) -> str:
    """Show the test images that the predictor has wrong, the surest first, then those that it does not accept."""
    decided, names = _decide(predictor, test), predictor.class_names
    sure, label = decided["probs"].max(dim=1)
    wrong = label != test.labels
    order = torch.where(wrong, sure + 1, -sure).argsort(descending=True)
    shown = order[(wrong | ~decided["accepted"])[order]][:_PICTURES]
    pictures = []
    for place in shown.tolist():
        said = printable(f"{names[label[place]]}, {percent(float(sure[place]))}")
        verdict = "accepted" if decided["accepted"][place] else "unsure"
        truth = printable(names[test.labels[place]])
        kind = ' class="bad"' if wrong[place] else ""
        pictures.append(
            f'<li><img src="{thumbnail(files[place])}" alt=""><span>{escape(said)}, {verdict}</span>'
            f'<span{kind}>is {escape(truth)}</span><span class="fact">{escape(printable(Path(files[place]).name))}'
            "</span></li>"
        )
    counts = f"{int(wrong.sum())} wrong and {int((~decided['accepted']).sum())} unsure of {len(test)} test images"
    text = "With the temperature; unsure: not accepted by the threshold, which comes from validation images."
    return f'<p>{counts}. {text}</p>\n<ul class="thumbnails">{"".join(pictures)}</ul>'


def _classes(names: list[str], test: Predictions) -> str:
    label, lines = test.logits.argmax(dim=1), []
    for number, name in enumerate(names):
        answers = label[test.labels == number]
        wrong = answers[answers != number]
        confused = names[int(wrong.mode().values)] if len(wrong) else ""
        cells = text_cells([len(answers), len(answers) - len(wrong), confused])
        lines.append(f"<tr>{row_head(printable(name))}{cells}</tr>")
    return sortable("Test images by class", ("class", "test images", "right", "most often taken for"), lines)


def _uses(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what images were used for, and what was chosen by them."""
    photos, validation = record["photos"], record["validation"]
    sizes = {role: f"{role}, {photos['sizes'][photos[role]]:,} images" for role in ("train", "validation", "test")}
    right = ", ".join(f"{name} {percent(part['right'] / part['images'])}" for name, part in validation.items())
    use = "the probe's decay, the choice of the model, temperature, threshold"
    if record["held_out"]:
        tested = "test the promise" if record["promise"] else "were to test a promise, and none could be made"
        use = f"{validation[record['chosen']]['images']:,} for the probe's decay and the choice; the others {tested}"
    epochs = f"{record['epochs']} epochs of {record['method']}" if record["epochs"] else "the linear probe alone"
    share = f"{'at most ' if record['promise'] else ''}{100 * record['acceptance']:.0f} %"
    uses = {
        sizes["train"]: "the linear probe and fine-tuning" if record["epochs"] else "the linear probe",
        sizes["validation"]: use,
        sizes["test"]: "the results on this page, nothing else",
        "split": photos["origin"],
        "copies": _copied(photos),
        "model": f"{record['chosen']} (right on validation: {right}). {record['reason']}",
        "training": f"images of {record['settings']['image_size']} pixels; {epochs}; {record['seconds']:.0f} s in all",
        "temperature": _temperature(record),
        "threshold": f"of {record['score'].replace('_', ' ')}, to accept {share} of the validation images; it accepts "
        f"{_accepted(record['test'])}",
        "promise": record["promise"],
    }
    return {name: text for name, text in uses.items() if text}
