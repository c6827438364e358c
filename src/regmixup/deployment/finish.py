"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. The page is that of any model's predictions (`rm.report.write_page`), with two parts more.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.data.folders import load_files
from regmixup.deployment.calibration import fewest_images, first_rows
from regmixup.deployment.folder import Advance, PhotoFolder
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name, counted, percent, printable
from regmixup.report.evaluation_page import write_page
from regmixup.report.page import PageSection, definitions, row_head, sortable, text_cells
from regmixup.run_folder import FINETUNED, FITTED, PAGE
from regmixup.storage import check_writable, write_table
from regmixup.training.run import Run
from regmixup.types import Predictions

Say = Callable[[str], object]
_METRICS = ("accuracy", "ece", "nll", "brier")


def check_export(path: Path) -> None:
    """Raise what would keep the model from being exported, before it is trained."""
    check_name("export format", path.suffix, (".pt2", ".onnx"))
    missing = [name for name in ("onnx", "onnxscript") if path.suffix == ".onnx" and find_spec(name) is None]
    if missing:
        raise ValueError(f"export to ONNX needs {' and '.join(missing)}: pip install 'regmixup[onnx]', or give a .pt2")
    check_writable(path)


def sets_aside(photos: PhotoFolder, risk: float | None, say: Say) -> bool:
    """Return whether part of the validation images is to test a promise and choose nothing; say so if they are few."""
    if risk is None:
        return False
    size = photos.sizes[photos.validation]
    tested, needed = size - len(first_rows(size)), fewest_images(risk, 0.95)
    if tested < needed:
        say(
            f"warning      risk: nothing can be promised. At most {risk:.3g} errors among the accepted with 0.95 "
            f"confidence needs at least {needed} accepted images without an error, and {tested} validation images, "
            "half of them, would test it. Give more images or a larger risk. The threshold is by --acceptance instead"
        )
        return False
    say(f"promise      {tested} of the validation images test the threshold and have no part in any choice (--risk)")
    return True


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
    part, total = partial(advance, "finishing"), len(candidates) * size + tested
    say(f"finishing    {counted(total, 'prediction')} for validation and test, temperature, threshold, report page")
    part(0, total)
    found = {}
    for name, run in candidates.items():
        found[name] = run.predict(photos.validation, device=device)
        part(size, total)
    # With a promise, the images that test the threshold have no part in the choice; see `Calibration`.
    rows = torch.arange(size) if risk is None else first_rows(size)
    right = {name: int(_correct(predictions)[rows].sum()) for name, predictions in found.items()}
    chosen = choose(right)
    run = candidates[chosen]
    for name, count in right.items():
        say(f"{name:<13}{100 * count / len(rows):.1f} % of {len(rows)} validation images right")
    reason = ""
    if len(right) > 1:
        if chosen != "fine-tuned":
            reason = "fine-tuning was worse than the linear probe on validation, so the probe is kept"
        say(f"kept         {reason or 'the fine-tuned model, no worse on validation than the linear probe'}")
    calibrate = right[chosen] < len(rows)
    if not calibrate:
        those = "every validation image" if risk is None else f"each of these {len(rows)} validation images"
        say(f"temperature  1, not fitted: {those} is right, which says nothing about how sure to be")
    # The temperature is that of the smallest NLL: the bins of an ECE hold too few images of a small set.
    fit = partial(
        Predictor.from_run, run, validation=photos.validation, acceptance=acceptance, score=score, calibrate=calibrate,
        aside=risk is not None, criterion="nll", device=device,
    )  # fmt: skip
    try:
        predictor = fit(risk=risk)
    except ValueError as error:
        if risk is None or not str(error).startswith("risk: nothing can be promised"):
            raise
        say(f"warning      {error}. The threshold accepts {acceptance:.0%} of those that chose the model instead")
        predictor = fit()
    test = replace(run.predict(photos.test, device=device), dataset="test")
    part(tested, total)
    measured = measure_models(ModelPredictions(test=test, name=chosen, temperature=predictor.temperature))
    record = {
        **facts,
        "photos": {**asdict(photos), "path": str(photos.path)},
        "chosen": chosen,
        "reason": reason,
        "validation": {name: {"right": count, "images": len(rows)} for name, count in right.items()},
        "temperature": predictor.temperature,
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
        images={test.dataset: load_files(photos.test).paths},
        classes=photos.classes,
        title=f"{photos.path.name}: {record['settings']['backbone']}",
        score=predictor.score,
        errors_by=predictor.score,
        kicker="regmixup finetune",
        lead=f"{_accuracy(record['test'])}{copied}. The threshold accepts {_accepted(record['test'])}.",
        sections=page_sections(record, test),
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


def _measure(measured: Measured, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    test, found = measured.models[0].test, {}
    for row in measured.rows[0]:
        if row.metric in _METRICS:
            key = row.metric if row.posthoc == "none" else f"{row.metric}_calibrated"
            found[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted, right = SCORES[predictor.score](test.logits) <= predictor.threshold, _correct(test)
    counts = {"accepted": accepted, "accepted_right": accepted & right, "right": right}
    return {"images": len(test), **found, **{name: int(chosen.sum()) for name, chosen in counts.items()}}


def _accuracy(test: Mapping[str, Any]) -> str:
    found = test["accuracy"]
    bounds = f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"
    return f"{percent(found['value'])} of {test['images']} test images right (95 % interval {bounds})"


def _copied(photos: Mapping[str, Any]) -> str:
    """Return a warning about copies of train images, "" if there are none."""
    count = len(photos["copies"])
    return f"{count} images to choose or test on are copies of train images, so expect less on new ones" * (count > 0)


def _fitted(record: Mapping[str, Any]) -> bool:
    """Return whether a temperature was fitted; it can be 1 then, too, so its value does not tell."""
    chosen = record["validation"][record["chosen"]]
    return bool(chosen["right"] < chosen["images"])


def _accepted(test: Mapping[str, Any]) -> str:
    return f"{test['accepted']} of {test['images']} test images, {test['accepted_right']} of them right"


def _summarise(record: Mapping[str, Any], run: Run, export: str | Path | None, say: Say) -> None:
    test = record["test"]
    before, after = test["ece"], test["ece_calibrated"]
    copied = _copied(record["photos"])
    say(f"test         {_accuracy(test)}; {copied or 'no test image had a part in any choice'}")
    scaled = f", {percent(after['value'])} with the temperature {record['temperature']:.2f}, fitted on validation"
    say(f"calibration  error {percent(before['value'])} on test{f'{scaled} by NLL' * _fitted(record)}")
    promised = f"; promised: {record['promise']}" if record["promise"] else ""
    say(f"rejection    the threshold accepts {_accepted(test)}{promised}")
    if export is not None:
        say(f"exported     {export}")
    say(f"report       {run.folder / PAGE}")
    say(f"run          {run.folder}")
    use = shlex.join(["regmixup", "predict", str(run.folder / FITTED), "photo.jpg"])
    say(f"{record['seconds']:.0f} s in all. Use it: {use}")


def page_sections(record: Mapping[str, Any], test: Predictions) -> list[PageSection]:
    """Return what the page has beside the parts of any model's: results by class, and what images were used for."""
    photos, plan = record["photos"], record["plan"]
    label, lines = test.logits.argmax(dim=1), []
    for number, name in enumerate(photos["classes"]):
        own = label[test.labels == number]
        wrong = own[own != number]
        other = photos["classes"][int(wrong.mode().values)] if len(wrong) else ""
        lines.append(f"<tr>{row_head(printable(name))}{text_cells([len(own), len(own) - len(wrong), other])}</tr>")
    heads = ("class", "test images", "right", "most often taken for")
    sizes = {role: f"{role}, {photos['sizes'][photos[role]]:,} images" for role in ("train", "validation", "test")}
    right = ", ".join(
        f"{name} {100 * one['right'] / one['images']:.1f} %" for name, one in record["validation"].items()
    )
    copies = len(photos["copies"])
    use = "the probe's decay, the choice of the model, temperature, threshold"
    if record["held_out"]:
        others = "test the promise" if record["promise"] else "were to test a promise, and none could be made"
        use = f"{next(iter(record['validation'].values()))['images']:,} for {use}; the others {others}"
    fitted = "fitted on validation by NLL" if _fitted(record) else "not fitted"
    facts = {
        sizes["train"]: "the linear probe and fine-tuning",
        sizes["validation"]: use,
        sizes["test"]: "the results on this page, nothing else",
        "split": photos["origin"],
        "copies": f"{copies} images to choose or test on are copies of train images" if copies else "",
        "model": f"{record['chosen']} (right on validation: {right}). {record['reason']}",
        "training": f"images of {plan['size']} pixels, the probe of {plan['probe_size']}; {record['epochs']} of "
        f"{plan['epochs']} planned epochs of {record['method']}; {record['seconds']:.0f} s in all",
        "temperature": f"{record['temperature']:.3f}, {fitted}",
        "threshold": f"of {record['score'].replace('_', ' ')}, to accept {100 * record['acceptance']:.0f} % of the "
        f"validation images, with a promise at most that; it accepts {_accepted(record['test'])}",
        "promise": record["promise"],
    }
    return [
        PageSection("classes", "Classes", sortable("Test images by class", heads, lines)),
        PageSection("use", "Which images were used for what", definitions((k, v) for k, v in facts.items() if v)),
    ]
