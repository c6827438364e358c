"""The model card of a published run: Markdown for readers, with metadata in front that a hub reads.

templates/card.md has its words; the metadata are those of https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from regmixup.deployment.detection import describe_detection
from regmixup.deployment.export import Architecture, public_name
from regmixup.deployment.predictor import Predictor, deployed_score
from regmixup.evaluation.compare import Measured
from regmixup.metrics.calibration import BINNED_INTERVALS
from regmixup.names import counted, printable, shortened
from regmixup.recipes import without_path
from regmixup.training.run import Run


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
    """Return the whole card. Only here are reports imported, which takes a while."""
    from regmixup.report.evaluation_page import summarize, units

    predictor = contents.predictor
    score = predictor.score if predictor is not None else deployed_score(contents.run.config.objective)
    return _TEMPLATES.get_template("card.md").render(
        card=contents,
        summaries=[(measured.models[0].test, summarize(measured, score, score)) for measured in contents.results],
        units=units,
        about_intervals=BINNED_INTERVALS,
    )


def _plain(text: object) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", printable(str(text)))


_TEMPLATES = Environment(
    loader=PackageLoader("regmixup.deployment"),
    autoescape=False,  # `plain` escapes what Markdown would take for its own
    keep_trailing_newline=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "counted": counted, "json": json.dumps, "plain": _plain, "public_name": public_name, "shortened": shortened,
}  # fmt: skip
