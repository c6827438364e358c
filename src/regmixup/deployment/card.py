"""The model card of a published run: Markdown for readers, with metadata in front that a hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regmixup.deployment.detection import describe_detection
from regmixup.deployment.export import Architecture, public_name
from regmixup.deployment.predictor import Predictor, deployed_score
from regmixup.evaluation.compare import Measured
from regmixup.metrics.calibration import BINNED_INTERVALS
from regmixup.names import counted, printable, shortened
from regmixup.recipes import without_path
from regmixup.training.run import Run

_LIMITS = """\
* It knows its classes only, and gives every image one of them.{detection}
* Probabilities and thresholds hold for images like those they were fitted on, not under shift.
* Nothing was measured about groups of people, places or cameras within the data.
"""
_DETECTED = """ A score tells other images apart only as well as the
  numbers above say, and has been measured on those sets alone."""
_CITATION = """\
Pinto, Yang, Lim, Torr and Dokania: RegMixup: Mixup as a Regularizer Can Surprisingly Improve Accuracy and Out
Distribution Robustness, NeurIPS 2022, https://arxiv.org/abs/2206.14502
"""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a card: the run and its record, that of `finetune` and the predictor if any, and results."""

    run: Run
    record: dict[str, Any]
    tuned: dict[str, Any]
    architecture: Architecture
    predictor: Predictor | None
    results: list[Measured]
    name: str
    license: str

    @property
    def timm(self) -> bool:
        """Return whether timm can build the network: it is timm's, and so is its head."""
        return self.architecture.network.startswith("timm/") and self.run.config.head_name == "linear"

    @property
    def decided(self) -> dict[str, str]:
        """Return what `finetune` has measured at the threshold of this predictor, in words."""
        if self.predictor is None or self.tuned.get("threshold") != self.predictor.threshold:
            return {}
        test, detection = self.tuned["test"], self.tuned["detection"]
        shown = {
            "accepted of the images that finetune tested on": f"{test['accepted']} of {test['images']}",
            "right of the accepted": f"{test['accepted_right']} of {test['accepted']}",
        }
        if detection:
            shown["images of no class"] = describe_detection(detection)
        return shown

    @property
    def detects(self) -> bool:
        """Return whether images of no class were measured."""
        return "images of no class" in self.decided or any(measured.models[0].ood for measured in self.results)

    @property
    def init(self) -> str:
        """Return what identifies the initial weights: of a fine-tuned run the backbone's, not those of its probe."""
        if not self.tuned:
            return without_path(self.run.config.init)
        first = self.tuned["init"]
        return f"{'timm@' * (first['source'] == 'timm')}sha256:{first['sha256']}"


def card(contents: Contents) -> str:
    """Return the whole card."""
    record, config, classes = contents.record, contents.run.config, contents.record["classes"]
    channels, height, width = contents.architecture.input_shape
    front = "".join(f"{key}: {json.dumps(fact)}\n" for key, fact in _front_matter(contents).items())
    probe = contents.tuned.get("chosen") == "linear probe"
    transform = contents.run.transform()
    recipe = [
        ("trained weights", "the head alone, a linear probe" if probe else "all"),
        ("objective", repr(config.objective)),
        ("network", config.network),
        ("initial weights", contents.init or "random"),
        ("epochs, batch size, learning rate", f"{config.total_epochs}, {config.batch_size}, {config.lr:g}"),
        ("seed", config.seed),
        ("image files", "rotated by their EXIF orientation first" if transform and transform.orient else "as stored"),
        ("regmixup", record["versions"]["regmixup"]),
        ("fingerprint", contents.run.fingerprint),
    ]
    unknown = contents.license == "unknown"
    licence = "The publisher has not chosen a licence." if unknown else f"Weights: {_plain(contents.license)}."
    parts = [
        f"---\n{front}---\n\n# {_plain(contents.name)}\n",
        f"An image classifier of {len(classes)} classes ({_plain(shortened(classes, 20))}) for {width}x{height} pixels "
        f"and {counted(channels, 'channel')}, trained with the package regmixup.\n",
        f"## Use\n\n```python\n{_usage(contents)}```\n",
        f"## Data\n\nTrained on {_plain(public_name(config.train_set))}. Checksum of the images: "
        f"{', '.join(f'`{text}`' for text in record['data'].values())}.\n",
        f"## Recipe\n\n{_table(('', ''), recipe)}",
        f"## Results\n\n{_results(contents)}",
        f"## Calibration and unsure answers\n\n{_calibration(contents)}",
        f"## Limits\n\n{_LIMITS.format(detection=_DETECTED if contents.detects else '')}",
        f"## Licence\n\n{licence} The terms of the train data and of the initial weights hold beside it.\n",
        f"## Citation\n\n{_CITATION}",
    ]
    return "\n".join(parts)


def _front_matter(contents: Contents) -> dict[str, Any]:
    """Return the card's metadata: https://huggingface.co/docs/hub/model-cards."""
    detection = ["out-of-distribution-detection"] if contents.detects else []
    return {
        "license": contents.license,
        "library_name": "timm" if contents.timm else "regmixup",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "regmixup", "calibration", *detection],
    }


def _usage(contents: Contents) -> str:
    lines = ["import regmixup as rm", ""]
    if contents.predictor is not None:
        lines += ['predictor = rm.Predictor.load("FOLDER")']
        lines += ["decision = predictor(images)  # uint8 or in [0, 1]; or paths of image files"]
        lines += ["decision.label, decision.probs, decision.accepted", ""]
    lines += ["from regmixup.deployment.publish import load", "", 'logits = load("FOLDER")(images)']
    if contents.timm:
        lines += ["", "import timm  # without regmixup; images normalised by model.pretrained_cfg's mean and std", ""]
        lines += ['model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()']
    return "\n".join(lines) + "\n"


def _results(contents: Contents) -> str:
    """Return a table for each test set. Only here are reports imported, which takes a while."""
    from regmixup.report.evaluation_page import summarize, units

    if not contents.results:
        return "Not measured: the run held no predictions for a test set.\n"
    text, predictor = "", contents.predictor
    score = predictor.score if predictor is not None else deployed_score(contents.run.config.objective)
    for measured in contents.results:
        test = measured.models[0].test
        summary = summarize(measured, score, score)
        lines = [(line.title, cell.text, cell.bounds) for line in summary if (cell := line.cells[0]) is not None]
        text += f"On the test set {_plain(test.dataset)}, {len(test):,} images:\n\n"
        text += f"{_table(('', 'value', '95 % interval'), lines)}\n"
    about = f"Values are {units(summary)}. Intervals are over images, for this one model:"
    return f"{text}{about} other seeds give other values. {BINNED_INTERVALS}\n"


def _calibration(contents: Contents) -> str:
    if (predictor := contents.predictor) is None:
        return "None: the probabilities are a plain softmax, and there is no threshold.\n"
    lines = [
        ("temperature", f"{predictor.temperature:.4g}"),
        ("score, larger for stranger images", predictor.score),
        ("accepted", f"score <= {predictor.threshold:.6g}"),
        ("fitted on", public_name(predictor.validation)),
        ("promise", predictor.promise or "none"),
    ]
    if predictor.choice is not None:
        lines.insert(2, ("chosen score", str(predictor.choice)))
    return _table(("", ""), [*lines, *contents.decided.items()])


def _table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(_plain(str(cell)) for cell in row)} |\n" for row in rows)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", printable(text))
