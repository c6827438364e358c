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
class CardContents:
    """The contents of a card: the run, its record of `finetune` and its predictor if any, and results."""

    run: Run
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
    def decided(self) -> dict[str, Any]:
        """Return the record of `finetune` if it has the threshold of this predictor."""
        same = self.predictor is not None and self.tuned.get("threshold") == self.predictor.threshold
        return self.tuned if same else {}

    @property
    def detects(self) -> bool:
        """Return whether out-of-distribution images were measured."""
        return bool(self.decided.get("detection")) or any(measured.models[0].ood for measured in self.results)

    @property
    def init(self) -> str:
        """Return what identifies the initial weights: of a fine-tuned run the backbone's, not those of its probe."""
        if not self.tuned:
            return without_path(self.run.config.init)
        first = self.tuned["init"]
        library = "timm@" if first["source"] == "timm" else ""
        return f"{library}sha256:{first['sha256']}"


def render_card(contents: CardContents) -> str:
    """Return the whole card. Only here are reports imported, which takes a while."""
    from regmixup.report.evaluation_page import describe_units, summarize

    predictor = contents.predictor
    score = predictor.score if predictor is not None else deployed_score(contents.run.config.objective)
    return _TEMPLATES.get_template("card.md").render(
        card=contents,
        summaries=[(measured.models[0].test, summarize(measured, score, score)) for measured in contents.results],
        describe_units=describe_units,
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
    "counted": counted, "describe_detection": describe_detection, "json": json.dumps, "plain": _plain,
    "public_name": public_name, "shortened": shortened,
}  # fmt: skip
