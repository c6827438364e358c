"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. The page is that of any model's predictions (`report.evaluation_page`), but what it says of
images is what the predictor answers, with its temperature and its threshold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from regmixup.deployment.calibration import AUTO, NoPromiseError, accepting_thresholds, wrong
from regmixup.deployment.detection import describe_detection, measure_detection, predict_outliers
from regmixup.deployment.job import Job
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.names import counted, percent
from regmixup.report.answers import EVERYTHING, Answers
from regmixup.report.evaluation_page import assemble_page, score_name
from regmixup.report.page import PageSection, definitions
from regmixup.run_folder import FINETUNED, FITTED, PAGE, read_finetuned
from regmixup.storage import write_table, write_text
from regmixup.training.loading import reader
from regmixup.training.run import Run
from regmixup.types import Predictions

_METRICS = ("accuracy", "ece", "nll", "brier")
_SHARES = (0.95, 0.8, 0.5)
"""Of validation images, that thresholds beside the chosen one accept."""
_COMPARED = {"max_probability": "probability before the temperature", "entropy": "entropy", "energy": "energy"}
"""Words for what a threshold on a score compares, where "the ... score" would not do."""
_BATCH = 64


def finish(job: Job, candidates: Mapping[str, Run]) -> Run:
    """Return the better of the runs, with all that is written about it. candidates: the probe first."""
    photos, request = job.photos, job.request
    job.say("finishing    predictions for validation and test, temperature, threshold, report page")
    rows, right, validation = job.choosing_rows, {}, {}
    for name, run in candidates.items():
        validation[name] = run.predict(photos.parts["validation"].name, device=job.device)
        right[name] = len(rows) - int(wrong(validation[name])[rows].sum())
        job.say(f"{name:<13}{percent(right[name] / len(rows))} of {len(rows)} validation images right")
    chosen = max(reversed(right), key=right.__getitem__)  # among equals the fine-tuned one
    run = candidates[chosen]
    if chosen == "linear probe" and len(right) > 1:
        job.say("kept         fine-tuning was worse than the linear probe on validation, so the probe is kept")
    elif len(right) > 1:
        job.say("kept         the fine-tuned model, as it was not worse than the linear probe on validation")
    predictor = _fit(job, run)
    test = replace(_predict_test(job, run), dataset="test")
    outliers = predict_outliers(job, run)
    measured = measure_models(ModelPredictions(test=test, name=chosen, temperature=predictor.temperature))
    record: dict[str, Any] = {
        "photos": photos.record(),
        "init": asdict(job.initial),
        "chosen": chosen,
        "validation": {name: {"right": count, "images": len(rows)} for name, count in right.items()},
        "score": predictor.score,
        "acceptance": request.acceptance,
        "risk": request.risk,
        "choice": asdict(predictor.choice) if predictor.choice is not None else None,
        "test": _measure(measured, predictor),
        "threshold": predictor.threshold,
        "detection": measure_detection(job, run, predictor, test, outliers),
    }
    if changed := _describe_earlier(run, record):
        job.say(f"earlier      the predictor and the report of {changed} are now in {_keep_earlier(run)}")
    predictor.save(run.folder / FITTED)
    write_table(run.folder / FINETUNED, record)
    _summarise(job, record, run, predictor)
    lead = f"{chosen.capitalize()}: {_accuracy(record)}."
    if outliers is not None:
        lead += f" It answers {record['detection']['accepted']} of {counted(len(outliers), 'image')} of no class."
    note = ""
    if request.risk is not None and predictor.promise is None:
        note = (
            f"You asked for at most {100 * request.risk:g} % errors; this could not be promised, so the threshold "
            f"accepts {100 * predictor.acceptance:g} % of validation images."
        )
    facts = [(line[:13].strip(), line[13:]) for lines in job.log for line in lines.splitlines()]
    page = assemble_page(
        measured,
        classes=photos.classes,
        title=f"{photos.path.name}: {request.backbone}",
        score=predictor.score,
        errors_by=predictor.score,
        kicker="regmixup finetune",
        lead=lead,
        answers=replace(
            predicted_answers(predictor, test, validation[chosen], photos.parts["test"].paths),
            others=predictor.module.score(outliers.logits.double()) if outliers is not None else torch.empty(0),
            note=note,
        ),
        history=candidates["fine-tuned"].history() if "fine-tuned" in candidates else (),
        sections=[PageSection("making", "How it was made", definitions(facts))],
    )
    write_text(run.folder / PAGE, page)
    if request.export is not None:
        job.say(f"export       {request.export}, this takes a while")
        predictor.export(request.export)
    return run


def _describe_earlier(run: Run, record: Mapping[str, Any]) -> str:
    """Return the other settings with which an earlier call has fitted a predictor; "" if there was none."""
    earlier = _read_earlier(run)
    changed = [name for name in ("score", "acceptance", "risk") if earlier.get(name, record[name]) != record[name]]
    return ", ".join(f"{name} {earlier[name] or 'none'}" for name in changed)


def _keep_earlier(run: Run) -> Path:
    """Move what an earlier call has written into a new subfolder of the run, and return it."""
    folders = (run.folder / f"earlier-{number}" for number in itertools.count(1))
    kept = next(folder for folder in folders if not folder.exists())
    kept.mkdir()
    for name in (FITTED, PAGE, FINETUNED):  # the record last: after an interruption, it still asks for the move
        if (run.folder / name).exists():
            (run.folder / name).rename(kept / name)
    return kept


def _read_earlier(run: Run) -> Mapping[str, Any]:
    """Return the record of an earlier call; a damaged one is replaced like any other."""
    with suppress(ValueError):
        return read_finetuned(run.folder)
    return {}


def _fit(job: Job, run: Run) -> Predictor:
    """Return the predictor of a run, with the promise that was asked for if the images show it."""
    outliers = job.outliers if job.request.score == AUTO else None
    read = reader(run.transform(), 2 * (run.config.image_size,))

    def fit(risk: float | None = None) -> Predictor:
        return Predictor.from_run(
            run,
            validation=job.photos.parts["validation"].name,
            acceptance=job.request.acceptance,
            risk=risk,
            score=job.request.score,
            ood=(part.images for part in outliers.parts(read, size=_BATCH)) if outliers is not None else None,
            device=job.device,
        )

    try:
        return fit(job.request.risk)
    except NoPromiseError as error:
        share = f"{job.request.acceptance:.0%}"
        job.say(f"warning      {error}. The threshold accepts {share} of the validation images instead")
        return fit()


def _predict_test(job: Job, run: Run) -> Predictions:
    """Return the predictions for the test images, anew if the images of an earlier call had another content.

    `Run.predict` knows files of a folder by their sizes.
    """
    name = job.photos.parts["test"].name
    if _read_earlier(run).get("photos", {}).get("fingerprint") != job.photos.fingerprint:
        run.predictions_path(name).unlink(missing_ok=True)
    return run.predict(name, device=job.device)


def _measure(measured: Measured, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    test, metrics = measured.models[0].test, {}
    for row in measured.rows[0]:
        if row.metric in _METRICS:
            key = row.metric if row.posthoc == "none" else f"{row.metric}_calibrated"
            metrics[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted, right = predictor.module.decide(test.logits.double())["accepted"], ~wrong(test)
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


def _summarise(job: Job, record: Mapping[str, Any], run: Run, predictor: Predictor) -> None:
    test = record["test"]
    error, calibrated = (percent(test[name]["value"]) for name in ("ece", "ece_calibrated"))
    job.say(f"test         {_accuracy(record)}")
    job.say(
        f"calibration  error {error} on test, {calibrated} with the temperature {predictor.temperature:.2f}, from "
        f"{counted(predictor.images, 'validation image')} with {counted(predictor.errors, 'error')}"
    )
    if predictor.choice is not None:
        job.say(f"score        {predictor.choice}")
    unsure = f"{test['images'] - test['accepted']} of {test['images']} test images"
    kept = f"{test['accepted_right']} of the {test['accepted']} accepted ones are right"
    job.say(f"unsure       about {unsure}, by the threshold of {predictor.score.replace('_', ' ')}; {kept}")
    if record["detection"]:
        job.say(f"detection    {describe_detection(record['detection'])}")
    if predictor.promise is not None:
        job.say(f"promise      {predictor.promise}")
    job.say(f"report       {run.folder / PAGE}")
    job.say(f"run          {run.folder}")


def predicted_answers(
    predictor: Predictor, test: Predictions, validation: Predictions, files: Sequence[str]
) -> Answers:
    """Return what the predictor answers on test images, at its threshold and at two others. files: of the images."""
    decided = predictor.module.decide(test.logits.double())
    top = decided["probs"].max(dim=1)
    scores = predictor.module.score(validation.logits.double())
    threshold_of = dict(zip(_SHARES, accepting_thresholds(scores, _SHARES).tolist(), strict=True))
    answered = int((scores <= predictor.module.threshold).sum())
    stricter = [share for share in _SHARES if int((scores <= threshold_of[share]).sum()) < answered]
    share, word = (stricter[0], "stricter") if stricter else (_SHARES[0], "looser")
    aim = predictor.promise or _answers_share(predictor.acceptance)
    return Answers(
        truth=test.labels,
        label=top.indices,
        sure=top.values,
        score=decided["score"],
        thresholds={
            f"chosen: {aim}": predictor.module.threshold,
            f"{word}: {_answers_share(share)}": threshold_of[share],
            EVERYTHING: math.inf,
        },
        classes=predictor.class_names,
        look=lambda places: [files[place] for place in places],
        compared=_COMPARED.get(predictor.score, f"{score_name(predictor.score)} score"),
    )


def _answers_share(share: float) -> str:
    return f"answers {100 * share:g} % of the validation images"
