"""Choose between the probe and the fine-tuned model, calibrate, test, export, and write the report page.

Validation images choose the model, the temperature and the threshold. Test images are predicted once, at the end, by
the model that was chosen. `render` makes the page from the record in finetune.json and the figures' data alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.deployment.predictor import Predictor
from regmixup.finetuning.folder import PhotoFolder, load_files
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name, printable
from regmixup.report.page import web_file
from regmixup.rows import evaluate
from regmixup.rows.curves import reliability_bins
from regmixup.storage import check_writable, write_table, write_text
from regmixup.training.run import Run
from regmixup.types import Predictions

Say = Callable[[str], object]
RECORD, PAGE, PREDICTOR = "finetune.json", "report.html", "predictor"
_METRICS = {"accuracy": "accuracy", "ece": "calibration error (ECE)", "nll": "NLL", "brier": "Brier score"}
_MISTAKES = 20


def check_export(path: Path) -> None:
    """Raise what would keep the model from being exported, before it is trained."""
    check_name("export format", path.suffix, (".pt2", ".onnx"))
    missing = [name for name in ("onnx", "onnxscript") if path.suffix == ".onnx" and find_spec(name) is None]
    if missing:
        raise ValueError(f"export to ONNX needs {' and '.join(missing)}: pip install 'regmixup[onnx]', or give a .pt2")
    check_writable(path)


def finish(
    candidates: Mapping[str, Run],
    photos: PhotoFolder,
    facts: dict[str, Any],
    *,
    acceptance: float,
    risk: float | None,
    export: str | Path | None,
    device: torch.device,
    say: Say,
    begun: float,
) -> Run:
    """Return the better of the runs, with all that is written about it. candidates: the probe first; begun: when."""
    found = {name: run.predict(photos.validation, device=device) for name, run in candidates.items()}
    right = {name: int(_correct(predictions).sum()) for name, predictions in found.items()}
    chosen = choose(right)
    run, validation = candidates[chosen], found[chosen]
    for name, count in right.items():
        say(f"{name:<13}{100 * count / len(validation):.1f} % of {len(validation)} validation images right")
    reason = ""
    if len(right) > 1 and chosen != "fine-tuned":
        reason = "fine-tuning was worse than the linear probe on validation, so the probe is kept"
        say(f"kept         {reason}")
    calibrate = right[chosen] < len(validation)
    if not calibrate:
        say("temperature  1, not fitted: every validation image is right, which says nothing about how sure to be")
    predictor, promised = _calibrate(run, photos, acceptance, risk, device, say, calibrate=calibrate)
    test = run.predict(photos.test, device=device)
    record = {
        **facts,
        "photos": {**asdict(photos), "path": str(photos.path)},
        "chosen": chosen,
        "reason": reason,
        "validation": {name: {"right": count, "images": len(validation)} for name, count in right.items()},
        "temperature": predictor.temperature,
        "threshold": predictor.threshold,
        "acceptance": acceptance,
        "promise": promised,
        "test": _measure(test, validation, predictor),
        "run": str(run.folder),
        "seconds": round(time.monotonic() - begun, 1),
    }
    predictor.save(run.folder / PREDICTOR)
    if export is not None:
        predictor.export(export)
    write_table(run.folder / RECORD, record)
    scaled = {"as trained": test, f"T = {predictor.temperature:.2f}": _scaled(test, predictor.temperature)}
    figures = {"reliability": reliability_bins(scaled), "classes": _per_class(test, photos.classes)}
    figures["mistakes"] = _mistakes(scaled[list(scaled)[1]], photos)
    write_text(run.folder / PAGE, render(record, figures))
    _summarise(record, run, export, say)
    return run


def choose(right: Mapping[str, int]) -> str:
    """Return the name of the model with the most validation images right; among equals the last, which is fine-tuned.

    >>> choose({"linear probe": 8, "fine-tuned": 8}), choose({"linear probe": 8, "fine-tuned": 7})
    ('fine-tuned', 'linear probe')
    """
    best = max(right.values())
    return [name for name, count in right.items() if count == best][-1]


def _calibrate(
    run: Run,
    photos: PhotoFolder,
    acceptance: float,
    risk: float | None,
    device: torch.device,
    say: Say,
    *,
    calibrate: bool,
) -> tuple[Predictor, str]:
    """Fit temperature and threshold on validation images; return also what is promised about the accepted, in words.

    The temperature is that of the smallest NLL: the bins of an ECE hold too few images of a small set.
    """

    def fit(risk: float | None) -> Predictor:
        return Predictor.from_run(
            run,
            validation=photos.validation,
            acceptance=acceptance,
            risk=risk,
            calibrate=calibrate,
            criterion="nll",
            device=device,
        )

    try:
        predictor = fit(risk)
    except ValueError as error:
        if risk is None or not str(error).startswith("risk: nothing can be promised"):
            raise
        say(f"warning      {error}. The threshold accepts {acceptance:.0%} of the validation images instead")
        return fit(None), ""
    if (promise := predictor.promise) is None:
        return predictor, ""
    words = f"at most {promise.risk:.3g} errors among the accepted, with {promise.confidence:.3g} confidence"
    return predictor, words


def _correct(predictions: Predictions) -> Tensor:
    return predictions.logits.argmax(dim=1) == predictions.labels


def _scaled(predictions: Predictions, temperature: float) -> Predictions:
    return replace(predictions, logits=predictions.logits / temperature)


def _measure(test: Predictions, validation: Predictions, predictor: Predictor) -> dict[str, Any]:
    """Return the results on test images: each metric with its interval, and what the threshold does."""
    rows = evaluate(test, temperature=predictor.temperature, bootstrap=Bootstrap())
    named = {(row.metric, row.posthoc): row for row in rows if row.metric in _METRICS and not row.corruption}
    found: dict[str, Any] = {"images": len(test)}
    for (metric, posthoc), row in named.items():
        key = metric if posthoc == "none" else f"{metric}_calibrated"
        found[key] = {"value": row.value, "low": row.low, "high": row.high}
    accepted = SCORES[predictor.score](test.logits) <= predictor.threshold
    right = _correct(test)
    found["accepted"] = int(accepted.sum())
    found["accepted_right"] = int((accepted & right).sum())
    found["right"] = int(right.sum())
    return found


def _per_class(test: Predictions, classes: Sequence[str]) -> list[list[Any]]:
    """Return name, test images, how many right, and the class that the wrong ones were most often taken for."""
    label = test.logits.argmax(dim=1)
    lines: list[list[Any]] = []
    for number, name in enumerate(classes):
        own = label[test.labels == number]
        wrong = own[own != number]
        other = classes[int(wrong.mode().values)] if len(wrong) else ""
        lines.append([name, len(own), len(own) - len(wrong), other])
    return lines


def _mistakes(test: Predictions, photos: PhotoFolder) -> list[list[Any]]:
    """Return the surest wrong answers on test images: file, its class, the answer, its calibrated probability."""
    probs, label = test.logits.double().softmax(dim=1).max(dim=1)
    wrong = (label != test.labels).nonzero().flatten()
    order = wrong[probs[wrong].argsort(descending=True)][:_MISTAKES].tolist()
    paths, names = load_files(photos.test).paths, photos.classes
    return [
        [
            str(Path(paths[i]).relative_to(photos.path)),
            names[int(test.labels[i])],
            names[int(label[i])],
            float(probs[i]),
        ]
        for i in order
    ]


def _summarise(record: Mapping[str, Any], run: Run, export: str | Path | None, say: Say) -> None:
    test = record["test"]
    accuracy, before, after = (test[name] for name in ("accuracy", "ece", "ece_calibrated"))
    say(
        f"test         {100 * accuracy['value']:.1f} % of {test['images']} images right (95 % interval "
        f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}); no test image had a part in any choice"
    )
    scaled = (
        f", {100 * after['value']:.1f} % with the temperature {record['temperature']:.2f}, fitted on validation by NLL"
    )
    say(f"calibration  error {100 * before['value']:.1f} % on test{scaled if record['temperature'] != 1 else ''}")
    say(
        f"rejection    the threshold accepts {test['accepted']} of {test['images']} test images, "
        f"{test['accepted_right']} of them right" + (f"; promised: {record['promise']}" if record["promise"] else "")
    )
    if export is not None:
        say(f"exported     {export}")
    say(f"report       {run.folder / PAGE}")
    say(f"run          {run.folder}")
    say(f"{record['seconds']:.0f} s in all. Use it: regmixup predict {run.folder / PREDICTOR} photo.jpg")


def render(record: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """Return the page as one self-contained file. figures: reliability bins, lines per class, surest mistakes."""
    test, photos = record["test"], record["photos"]
    accuracy = test["accuracy"]
    lead = (
        f"{100 * accuracy['value']:.1f} % of {test['images']} test images right (95 % interval "
        f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}). "
        f"The threshold accepts {test['accepted']} of them, {test['accepted_right']} of these right."
    )
    parts = [
        ("Results on test images", _results_table(test) + _rejection(record)),
        ("Calibration", _reliability(figures["reliability"])),
        ("Classes", _table(("class", "test images", "right", "mistaken for"), figures["classes"])),
        ("Surest mistakes", _mistakes_table(figures["mistakes"])),
        ("Which images were used for what", _usage(record)),
    ]
    body = "\n".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in parts)
    title = escape(f"{Path(photos['path']).name}: {record['settings']['backbone']}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{web_file('page.css')}header, .layout {{ max-width: 60rem; }}</style>"
        "</head><body>"
        f'<header><p class="kicker">regmixup finetune</p><h1>{title}</h1><p class="lead">{escape(lead)}</p></header>'
        f'<div class="layout" style="display:block"><main>{body}</main></div></body></html>\n'
    )


def _results_table(test: Mapping[str, Any]) -> str:
    lines = []
    for metric, title in _METRICS.items():
        cells = [test.get(metric), test.get(f"{metric}_calibrated")]
        lines.append([title, *(_interval(cell) if cell is not None else "" for cell in cells)])
    return _table(("", "as trained", "with the temperature"), lines)


def _interval(cell: Mapping[str, Any]) -> str:
    if cell["low"] is None:
        return f"{cell['value']:.3f}"
    return f"{cell['value']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"


def _rejection(record: Mapping[str, Any]) -> str:
    test = record["test"]
    all_right = test["right"] / test["images"]
    of_accepted = test["accepted_right"] / test["accepted"] if test["accepted"] else float("nan")
    promise = f" Promised: {record['promise']}." if record["promise"] else ""
    return (
        f"<p>{100 * all_right:.1f} % of all test images are right, and {100 * of_accepted:.1f} % of the "
        f"{test['accepted']} accepted ones. The threshold on the score was set on validation images, of which it "
        f"had to accept {100 * record['acceptance']:.0f} %, or with a promise at most that.{promise}</p>"
    )


def _reliability(bins: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    """Return accuracy against confidence of both versions as a drawing."""
    dots = []
    for colour, version in enumerate(bins.values()):
        total = sum(version["count"])
        for count, x, y in zip(version["count"], version["confidence"], version["accuracy"], strict=True):
            if count:
                radius = 2 + 10 * (count / total) ** 0.5
                place = f'cx="{10 + 300 * x:.1f}" cy="{310 - 300 * y:.1f}" r="{radius:.1f}"'
                dots.append(f'<circle {place} fill="var(--c{colour})" fill-opacity=".6"/>')
    legend = ", ".join(f'<span style="color:var(--c{i})">● {escape(name)}</span>' for i, name in enumerate(bins))
    return (
        f"<p>Accuracy (up) against confidence (right), both from 0 to 1; larger dots stand for more images. On the "
        f"line a probability of p is right in a share p of cases. {legend}</p>"
        '<svg viewBox="0 0 320 320" width="320" role="img" aria-label="accuracy against confidence">'
        '<rect x="10" y="10" width="300" height="300" fill="none" stroke="var(--rule)"/>'
        f'<path d="M10 310L310 10" stroke="var(--rule)"/>{"".join(dots)}</svg>'
    )


def _mistakes_table(mistakes: Sequence[Sequence[Any]]) -> str:
    if not mistakes:
        return "<p>Every test image is right.</p>"
    lines = [[file, own, answer, f"{100 * prob:.1f} %"] for file, own, answer, prob in mistakes]
    return _table(("file", "its class", "answer", "probability"), lines)


def _usage(record: Mapping[str, Any]) -> str:
    photos, plan = record["photos"], record["plan"]
    sizes = photos["sizes"]
    accuracies = ", ".join(
        f"{name} {100 * one['right'] / one['images']:.1f} %" for name, one in record["validation"].items()
    )
    copies = len(photos["copies"])
    lines = [
        ["train", sizes[photos["train"]], "the linear probe and fine-tuning"],
        [
            "validation",
            sizes[photos["validation"]],
            "the probe's decay, the choice of the model, temperature, threshold",
        ],
        ["test", sizes[photos["test"]], "the results on this page, nothing else"],
    ]
    notes = [
        f"Split: {photos['origin']}.",
        f"Chosen: {record['chosen']} (validation: {accuracies}). {record['reason']}",
        f"Images of {plan['size']} pixels, the probe of {plan['probe_size']}; {plan['epochs']} epochs of "
        f"{record['method']}, {record['seconds']:.0f} s in all.",
        *([f"{copies} images to choose or test on are copies of train images."] if copies else []),
    ]
    return _table(("part", "images", "used for"), lines) + "".join(f"<p>{escape(note)}</p>" for note in notes)


def _table(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>'
