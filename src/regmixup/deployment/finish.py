"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. The page is that of any model's predictions (`report.evaluation_page`), but what it says of
images is what the predictor answers, with its temperature and its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from regmixup.deployment.calibration import AUTO, NoPromiseError, accepting_thresholds, misclassified
from regmixup.deployment.detection import describe_detection, measure_detection, predict_outliers
from regmixup.deployment.job import Job
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.names import counted, percent
from regmixup.report.answers import EVERYTHING, Answers
from regmixup.report.evaluation_page import models_page, score_name
from regmixup.report.page import PageSection, definitions
from regmixup.run_folder import FINETUNED, FITTED, PAGE, read_finetuned
from regmixup.storage import write_table, write_text
from regmixup.training.run import Run
from regmixup.types import Predictions

_METRICS = ("accuracy", "ece", "nll", "brier")
_SHARES = (0.95, 0.8, 0.5)
"""Shares of the validation images that thresholds beside the chosen one accept."""
_COMPARED = {"max_probability": "probability before the temperature", "entropy": "entropy", "energy": "energy"}
"""Words for what a threshold on a score compares, where "the ... score" would not do."""


def finish(job: Job, candidates: Mapping[str, Run]) -> Run:
    """Return the better of the runs, with all that is written about it. candidates: the probe first."""
    job.say("finishing    predictions for validation and test, temperature, threshold, report page")
    name = job.photos.parts["validation"].name
    validation = {model: run.predict(name, device=job.device) for model, run in candidates.items()}
    counts = _count_right(job, validation)
    chosen = _choose(job, counts)
    run = candidates[chosen]
    outliers = predict_outliers(job, run)
    predictor = _calibrate(job, run, validation[chosen], outliers)
    test = replace(_predict_test(job, run), dataset="test")
    measured = measure_models(ModelPredictions(test=test, name=chosen, temperature=predictor.temperature))
    detection = measure_detection(job, run, predictor, test, outliers)
    record = _record(job, counts, predictor, measured, detection)
    _keep_earlier(job, run, record)
    predictor.save(run.folder / FITTED)
    write_table(run.folder / FINETUNED, record)
    _summarise(job, record, run, predictor)
    answers = predicted_answers(predictor, test, validation[chosen], job.photos.parts["test"].paths)
    if outliers is not None:
        answers = replace(answers, others=predictor.module.score(outliers.logits.double()))
    history = candidates["fine-tuned"].history() if "fine-tuned" in candidates else ()
    write_text(run.folder / PAGE, _draw_page(job, record, predictor, measured, answers, history))
    if job.request.export is not None:
        job.say(f"export       {job.request.export}, this takes a while")
        predictor.export(job.request.export)
    return run


def _count_right(job: Job, validation: Mapping[str, Predictions]) -> dict[str, dict[str, int]]:
    """Count the validation images that make choices, and those of them that each model has right."""
    counts = {}
    for name, predictions in validation.items():
        choosing = job.part_that_chooses(predictions)
        right, images = int((~misclassified(choosing)).sum()), len(choosing)
        job.say(f"{name:<13}{percent(right / images)} of {images} validation images right")
        counts[name] = {"right": right, "images": images}
    return counts


def _choose(job: Job, counts: dict[str, dict[str, int]]) -> str:
    """Return the model that has most images right, among equals the fine-tuned one."""
    if "fine-tuned" not in counts:
        return "linear probe"
    if counts["fine-tuned"]["right"] < counts["linear probe"]["right"]:
        job.say("kept         fine-tuning was worse than the linear probe on validation, so the probe is kept")
        return "linear probe"
    job.say("kept         the fine-tuned model, as it was not worse than the linear probe on validation")
    return "fine-tuned"


def _calibrate(job: Job, run: Run, validation: Predictions, outliers: Predictions | None) -> Predictor:
    """Return the predictor of a run, with the promise that was asked for if the images show it."""
    ood_logits = outliers.logits if outliers is not None and job.calibration.score == AUTO else None
    try:
        calibrated = job.calibration.fit(validation, ood_logits)
    except NoPromiseError as error:
        share = f"{job.calibration.acceptance:.0%}"
        job.say(f"warning      {error}. The threshold accepts {share} of the validation images instead")
        calibrated = replace(job.calibration, risk=None).fit(validation, ood_logits)
    name = job.photos.parts["validation"].name
    return Predictor.from_calibrated(run, run.model(device=job.device), calibrated, validation=name)


def _predict_test(job: Job, run: Run) -> Predictions:
    """Return the predictions for the test images, anew if the images of an earlier call had another content.

    `Run.predict` knows files of a folder by their sizes.
    """
    name = job.photos.parts["test"].name
    if _read_earlier(run).get("photos", {}).get("fingerprint") != job.photos.fingerprint:
        run.predictions_path(name).unlink(missing_ok=True)
    return run.predict(name, device=job.device)


def _record(
    job: Job, counts: Mapping[str, Any], predictor: Predictor, measured: Measured, detection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what finetune.json has."""
    return {
        "photos": job.photos.record(),
        "init": asdict(job.initial),
        "chosen": measured.models[0].name,
        "validation": counts,
        "score": predictor.score,
        "acceptance": job.request.acceptance,
        "risk": job.request.risk,
        "choice": asdict(predictor.choice) if predictor.choice is not None else None,
        "test": _measure(measured, predictor),
        "threshold": predictor.threshold,
        "detection": detection,
    }


def _measure(measured: Measured, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    test, metrics = measured.models[0].test, {}
    for row in measured.rows[0]:
        if row.metric in _METRICS:
            key = row.metric if row.posthoc == "none" else f"{row.metric}_calibrated"
            metrics[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted, right = predictor.module.decide(test.logits.double())["accepted"], ~misclassified(test)
    counts = {"accepted": accepted, "accepted_right": accepted & right, "right": right}
    return {"images": len(test), **metrics, **{name: int(chosen.sum()) for name, chosen in counts.items()}}


def _keep_earlier(job: Job, run: Run, record: Mapping[str, Any]) -> None:
    """Move what an earlier call with other settings has written into a new subfolder of the run."""
    earlier = _read_earlier(run)
    changed = [name for name in ("score", "acceptance", "risk") if earlier.get(name, record[name]) != record[name]]
    if not changed:
        return
    number = 1
    while (kept := run.folder / f"earlier-{number}").exists():
        number += 1
    kept.mkdir()
    for name in (FITTED, PAGE, FINETUNED):  # the record last: after an interruption, it still asks for the move
        if (run.folder / name).exists():
            (run.folder / name).rename(kept / name)
    settings = ", ".join(f"{name} {earlier[name] or 'none'}" for name in changed)
    job.say(f"earlier      the predictor and the report of {settings} are now in {kept}")


def _read_earlier(run: Run) -> Mapping[str, Any]:
    """Return the record of an earlier call; a damaged one is replaced like any other."""
    with suppress(ValueError):
        return read_finetuned(run.folder)
    return {}


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


def _draw_page(
    job: Job,
    record: Mapping[str, Any],
    predictor: Predictor,
    measured: Measured,
    answers: Answers,
    history: Sequence[Mapping[str, Any]],
) -> str:
    """Return the report page: the answers first, the lines that were said last."""
    detection = record["detection"]
    lead = f"{record['chosen'].capitalize()}: {_accuracy(record)}."
    if job.outliers is not None:
        lead += f" It answers {detection['accepted']} of {counted(detection['images'], 'out-of-distribution image')}."
    note = ""
    if job.request.risk is not None and predictor.promise is None:
        note = (
            f"You asked for at most {100 * job.request.risk:g} % errors; this could not be promised, so the threshold "
            f"accepts {100 * predictor.acceptance:g} % of validation images."
        )
    facts = [(line[:13].strip(), line[13:]) for lines in job.log for line in lines.splitlines()]
    return models_page(
        measured,
        classes=job.photos.classes,
        title=f"{job.photos.path.name}: {job.request.backbone}",
        score=predictor.score,
        errors_by=predictor.score,
        kicker="regmixup finetune",
        lead=lead,
        answers=replace(answers, note=note),
        history=history,
        sections=[PageSection("making", "How it was made", definitions(facts))],
    )


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
