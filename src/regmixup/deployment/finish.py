"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. The page is that of any model's predictions (`rm.report.write_page`), with three parts more;
what it says of a single image is what the predictor answers, with its temperature and its threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.data.decode import decode_all
from regmixup.deployment.calibration import NoPromiseError
from regmixup.deployment.job import Job
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.curves import thumbnail
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.names import percent, printable
from regmixup.report.evaluation_page import write_page
from regmixup.report.page import PageSection, definitions, word_table
from regmixup.run_folder import FINETUNED, FITTED, PAGE
from regmixup.storage import write_table
from regmixup.training.loading import reader
from regmixup.training.run import Run
from regmixup.types import Predictions

_METRICS = ("accuracy", "ece", "nll", "brier")
_PICTURES = 24
_BATCH = 64


def finish(job: Job, candidates: Mapping[str, Run]) -> Run:
    """Return the better of the runs, with all that is written about it. candidates: the probe first."""
    photos, request = job.photos, job.request
    job.say("finishing    predictions for validation and test, temperature, threshold, report page")
    rows = job.choosing_rows
    right = {}
    for name, run in candidates.items():
        right[name] = int(_correct(run.predict(photos.parts["validation"].name, device=job.device))[rows].sum())
        job.say(f"{name:<13}{percent(right[name] / len(rows))} of {len(rows)} validation images right")
    chosen = max(reversed(right), key=right.__getitem__)  # among equals the fine-tuned one
    run = candidates[chosen]
    if chosen == "linear probe" and len(right) > 1:
        job.say("kept         fine-tuning was worse than the linear probe on validation, so the probe is kept")
    predictor = _fit(job, run)
    test = replace(run.predict(photos.parts["test"].name, device=job.device), dataset="test")
    measured = measure_models(ModelPredictions(test=test, name=chosen, temperature=predictor.temperature))
    record = {
        "photos": photos.record(),
        "init": asdict(job.initial),
        "chosen": chosen,
        "validation": {name: {"right": count, "images": len(rows)} for name, count in right.items()},
        "score": predictor.score,
        "choice": asdict(predictor.choice) if predictor.choice is not None else None,
        "test": _measure(measured, predictor),
        "held_out": request.risk is not None,
    }
    predictor.save(run.folder / FITTED)
    write_table(run.folder / FINETUNED, record)
    _summarise(job, record, run, predictor)
    write_page(
        run.folder / PAGE,
        measured,
        classes=photos.classes,
        title=f"{photos.path.name}: {request.backbone}",
        score=predictor.score,
        errors_by=predictor.score,
        kicker="regmixup finetune",
        lead=f"{_accuracy(record)}. The threshold, from validation images, accepts {_accepted(record)}.",
        sections=page_sections(test, predictor, photos.parts["test"].paths, job.log),
    )
    if request.export is not None:
        job.say(f"export       {request.export}, this takes a while")
        predictor.export(request.export)
    return run


def _fit(job: Job, run: Run) -> Predictor:
    """Return the predictor of a run, with the promise that was asked for if the images show it."""

    def fit(risk: float | None = None) -> Predictor:
        return Predictor.from_run(
            run,
            validation=job.photos.parts["validation"].name,
            acceptance=job.request.acceptance,
            risk=risk,
            score=job.request.score,
            ood=_ood_batches(job, run) if job.ood_files else None,
            device=job.device,
        )

    try:
        return fit(job.request.risk)
    except NoPromiseError as error:
        share = f"{job.request.acceptance:.0%}"
        job.say(f"warning      {error}. The threshold accepts {share} of the validation images instead")
        return fit()


def _ood_batches(job: Job, run: Run) -> Iterator[Tensor]:
    read = reader(run.transform(), 2 * (run.config.image_size,))
    for start in range(0, len(job.ood_files), _BATCH):
        yield decode_all(job.ood_files[start : start + _BATCH], read)


def _correct(predictions: Predictions) -> Tensor:
    return predictions.logits.argmax(dim=1) == predictions.labels


def _measure(measured: Measured, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    test, metrics = measured.models[0].test, {}
    for row in measured.rows[0]:
        if row.metric in _METRICS:
            key = row.metric if row.posthoc == "none" else f"{row.metric}_calibrated"
            metrics[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted, right = predictor.module.decide(test.logits.double())["accepted"], _correct(test)
    counts = {"accepted": accepted, "accepted_right": accepted & right, "right": right}
    return {"images": len(test), **metrics, **{name: int(chosen.sum()) for name, chosen in counts.items()}}


def _accuracy(record: Mapping[str, Any]) -> str:
    """Return the accuracy on test images, with a warning where they are copies of train images."""
    images, accuracy, copies = record["test"]["images"], record["test"]["accuracy"], record["photos"]["copies"]
    bounds = f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}"
    text = f"{percent(accuracy['value'])} of {images} test images right (95 % interval {bounds})"
    if copies:
        text += f"; {copies} images to choose or test on are copies of train images, so expect less on new ones"
    return text


def _accepted(record: Mapping[str, Any]) -> str:
    test = record["test"]
    return f"{test['accepted']} of {test['images']} test images, {test['accepted_right']} of them right"


def _summarise(job: Job, record: Mapping[str, Any], run: Run, predictor: Predictor) -> None:
    error, calibrated = (percent(record["test"][name]["value"]) for name in ("ece", "ece_calibrated"))
    job.say(f"test         {_accuracy(record)}")
    job.say(
        f"calibration  error {error} on test, {calibrated} with the temperature {predictor.temperature:.2f}, from "
        f"{predictor.images} validation images with {predictor.errors} errors"
    )
    if predictor.choice is not None:
        job.say(f"score        {predictor.choice}")
    job.say(f"rejection    the threshold of {predictor.score.replace('_', ' ')} accepts {_accepted(record)}")
    if predictor.promise is not None:
        job.say(f"promise      {predictor.promise}")
    job.say(f"report       {run.folder / PAGE}")
    job.say(f"run          {run.folder}")


def page_sections(
    test: Predictions, predictor: Predictor, files: Sequence[str], log: Sequence[str]
) -> list[PageSection]:
    """Return what the page has beside the parts of any model's. files: of the test images. log: the lines said."""
    facts = [(line[:13].strip(), printable(line[13:])) for lines in log for line in lines.splitlines()]
    return [
        PageSection("answers", "Errors and unsure answers", _answers(test, predictor, files)),
        PageSection("classes", "Classes", _classes(predictor.class_names, test)),
        PageSection("making", "How it was made", definitions(facts)),
    ]


def _answers(test: Predictions, predictor: Predictor, files: Sequence[str]) -> str:
    """Show the test images that the predictor has wrong, the surest first, then those that it does not accept."""
    decided, names = predictor.module.decide(test.logits.double()), predictor.class_names
    sure, label = decided["probs"].max(dim=1)
    wrong, unsure = label != test.labels, ~decided["accepted"]
    order = torch.where(wrong, sure + 1, -sure).argsort(descending=True)
    pictures = []
    for place in order[(wrong | unsure)[order]][:_PICTURES].tolist():
        verdict = "unsure" if unsure[place] else "accepted"
        said = f"{names[label[place]]}, {percent(float(sure[place]))}, {verdict}"
        kind = ' class="bad"' if wrong[place] else ""
        truth, file = f"is {names[test.labels[place]]}", Path(files[place]).name
        pictures.append(
            f'<li><img src="{thumbnail(files[place])}" alt=""><span>{escape(printable(said))}</span>'
            f'<span{kind}>{escape(printable(truth))}</span><span class="fact">{escape(printable(file))}</span></li>'
        )
    counts = f"{int(wrong.sum())} wrong and {int(unsure.sum())} unsure of {len(test)} test images"
    text = "With the temperature; unsure: not accepted by the threshold, which comes from validation images."
    return f'<p>{counts}. {text}</p>\n<ul class="thumbnails">{"".join(pictures)}</ul>'


def _classes(names: Sequence[str], test: Predictions) -> str:
    label, lines = test.logits.argmax(dim=1), list[tuple[object, ...]]()
    for number, name in enumerate(names):
        answers = label[test.labels == number]
        wrong = answers[answers != number]
        confused = names[int(wrong.mode().values)] if len(wrong) else ""
        lines.append((name, len(answers), len(answers) - len(wrong), confused))
    return word_table("Test images by class", ("class", "test images", "right", "most often taken for"), lines)
