"""The model card of a published run: Markdown for readers, with metadata in front that a hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regmixup.deployment.export import Architecture, public_name
from regmixup.deployment.predictor import Predictor
from regmixup.evaluation.compare import PLAIN
from regmixup.metrics.calibration import BINNED_INTERVALS
from regmixup.names import counted, printable, shortened
from regmixup.recipes import without_path
from regmixup.training.run import Run
from regmixup.types import Row

METRICS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "auroc": "AUROC",
    "fpr_at_tpr": "FPR at 95 % TPR",
}
"""The metrics that a card shows, by their names in rows."""
NOT_MEASURED = "Not measured"
_MOST_NAMES = 20
_CITATION = """@inproceedings{pinto2022regmixup,
  title = {{RegMixup}: Mixup as a Regularizer Can Surprisingly Improve Accuracy and Out Distribution Robustness},
  author = {Pinto, Francesco and Yang, Harry and Lim, Ser-Nam and Torr, Philip H. S. and Dokania, Puneet K.},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {35},
  year = {2022}
}
"""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a card: the run and its record, those of `finetune` and the predictor if any, and rows."""

    run: Run
    record: dict[str, Any]
    tuned: dict[str, Any] | None
    architecture: Architecture
    predictor: Predictor | None
    rows: list[Row]
    name: str
    license: str

    @property
    def timm(self) -> bool:
        """Return whether timm can build the network: it is timm's, and so is its head."""
        return self.architecture.network.startswith("timm/") and self.run.config.head_name == "linear"

    @property
    def init(self) -> str:
        """Return what identifies the initial weights: of a fine-tuned run the backbone's, not those of its probe."""
        if self.tuned is None:
            return without_path(self.run.config.init)
        first = self.tuned["init"]
        return f"{'timm@' * (first['source'] == 'timm')}sha256:{first['sha256']}"


def card(contents: Contents) -> str:
    """Return the whole card."""
    record, config, classes = contents.record, contents.run.config, contents.record["classes"]
    channels, height, width = contents.architecture.input_shape
    recipe = [
        ("objective", repr(config.objective)), ("network", config.network), ("head", config.head_name),
        ("constraint", repr(config.constraint)), ("initial weights", contents.init or "random"),
        ("epochs", config.total_epochs), ("batch size", config.batch_size), ("optimizer", config.optimizer),
        ("learning rate", f"{config.lr:g}, {config.schedule}"), ("weight decay", f"{config.weight_decay:g}"),
        ("precision", config.precision), ("seed", config.seed), ("regmixup", record["versions"]["regmixup"]),
        ("fingerprint", contents.run.fingerprint),
    ]  # fmt: skip
    plugins = [f"{origin.what} {origin.name} {origin.version}".strip() for origin in config.plugins]
    parts = [
        f"---\n{yaml_text(_front_matter(contents))}---\n\n# {_plain(contents.name)}\n",
        f"An image classifier of {len(classes)} classes ({_plain(shortened(classes, _MOST_NAMES))}) for images of "
        f"{width}x{height} pixels and {counted(channels, 'channel')}, trained with regmixup."
        f"{_tuning(contents)}\n",
        f"## Use\n\n```python\n{_usage(contents)}```\n\n`sha256sum --check SHA256SUMS` checks the files, but for this "
        f"one.\n{_orientation(contents)}",
        f"## Data\n\nTrained on {_plain(public_name(config.train_set, contents.tuned))}. Checksum of the images: "
        f"{', '.join(f'`{text}`' for text in record['data'].values())}.\n",
        f"## Recipe\n\n{_table(('', ''), recipe)}\n`training.json` has every field."
        + (f" It was trained with code of others: {_plain(', '.join(plugins))}." if plugins else "") + "\n",
        f"## Results\n\n{_results(contents)}",
        f"## Calibration and rejection\n\n{_calibration(contents)}",
        f"## Limits\n\n{_limits(contents)}",
        f"## Licence\n\n{_licence(contents)}",
        f"## Citation\n\n```bibtex\n{_CITATION}```\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _tuning(contents: Contents) -> str:
    """Return what the recipe of a run of no epochs does not tell: how `regmixup finetune` came to its weights."""
    tuned = contents.tuned
    if tuned is None or tuned["chosen"] != "linear probe":
        return ""
    reason = "; fine-tuning was worse on validation images" if tuned["reason"] else ""
    return f" It is a linear probe: all weights but those of the head are the initial ones{reason}."


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


def _orientation(contents: Contents) -> str:
    """Return what to do with photographs before they are resized; nothing for a model of pixels as they are stored."""
    transform = contents.run.transform()
    if transform is None or not transform.orient:
        return ""
    return (
        "\nImage files were rotated by their EXIF orientation before they were resized. `Predictor` does so with "
        "files; elsewhere, call `PIL.ImageOps.exif_transpose` first.\n"
    )


def _results(contents: Contents) -> str:
    if not contents.rows:
        return f"{NOT_MEASURED}: the run held no predictions for a test set.\n"
    lines = [
        (row.dataset,
         METRICS[row.metric] + (f" ({row.score})" if row.score else ""),
         {"none": "", "temperature": "with the temperature"}.get(row.posthoc, row.posthoc),
         _number(row, row.value),
         "" if row.low is None or row.high is None else f"{_number(row, row.low)} to {_number(row, row.high)}",
         row.n)
        for row in contents.rows
    ]  # fmt: skip
    head = ("dataset", "metric", "", "value", "95 % interval", "images")
    about = "Intervals are over images, for this one model: other seeds give other values."
    return f"{_table(head, lines)}\n{about} {BINNED_INTERVALS}\n"


def _number(row: Row, value: float) -> str:
    return f"{value:.4f}" if row.metric in PLAIN else f"{100 * value:.2f} %"


def _calibration(contents: Contents) -> str:
    if (predictor := contents.predictor) is None:
        return "None: the probabilities are a plain softmax, and there is no threshold.\n"
    lines = [
        ("temperature", f"{predictor.temperature:.4g}"),
        ("score, larger for stranger images", predictor.score),
        ("accepted", f"score <= {predictor.threshold:.6g}"),
        ("fitted on", public_name(predictor.validation, contents.tuned)),
        ("share of these images accepted", f"{'at most ' * (predictor.promise is not None)}{predictor.acceptance:.3g}"),
    ]
    if (promise := predictor.promise) is not None:
        lines.append(("promise", f"{promise} ({promise.errors} of {promise.accepted} when tested)"))
    if predictor.sets is not None:
        lines.append(("label sets", "see predictor.json"))
    return _table(("", ""), lines)


def _limits(contents: Contents) -> str:
    points = [
        "It knows its classes only, and gives every image one of them. A score tells other images apart only as well "
        "as the results above say, and has been measured on those sets alone.",
        "Probabilities and thresholds hold for images like those they were fitted on, not under shift.",
        "Nothing was measured about groups of people, places or cameras within the data.",
    ]
    if contents.run.config.precision == "bfloat16":
        points.append("It was trained in bfloat16 and measured in float32.")
    return "".join(f"* {point}\n" for point in points)


def _licence(contents: Contents) -> str:
    unknown = contents.license == "unknown"
    text = "The publisher has not chosen a licence." if unknown else f"Weights: {_plain(contents.license)}."
    more = ", and those of the initial weights" if contents.run.config.init else ""
    return f"{text} The terms of the train data hold beside it{more}.\n"


def _front_matter(contents: Contents) -> dict[str, Any]:
    """Return the card's metadata: https://huggingface.co/docs/hub/model-cards."""
    init, network = contents.init, contents.architecture.network
    front: dict[str, Any] = {
        "license": contents.license,
        "library_name": "timm" if contents.timm else "regmixup",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "regmixup", "calibration", "out-of-distribution-detection"],
    }
    if init.startswith("timm@") and network.startswith("timm/"):
        from regmixup.networks.timm_models import hub_name

        front |= {"base_model": base} if (base := hub_name(network)) else {}
    if contents.rows:
        sets: dict[str, list[Row]] = {}
        for row in contents.rows:
            sets.setdefault(row.dataset, []).append(row)
        front["model-index"] = [{"name": contents.name, "results": [_result(*part) for part in sets.items()]}]
    return front


def _result(dataset: str, rows: Iterable[Row]) -> dict[str, Any]:
    metrics = []
    for row in rows:
        detail = ", ".join(part for part in (row.score, row.posthoc.removeprefix("none")) if part)
        name = METRICS[row.metric] + (f" ({detail})" if detail else "")
        interval = {} if row.low is None else {"low": row.low, "high": row.high, "level": 0.95}
        args = {**interval, "n": row.n}
        metrics.append({"type": row.metric, "value": row.value, "name": name, "args": args})
    family, _, split = dataset.partition(", ")[0].partition("/")
    return {
        "task": {"type": "image-classification", "name": "Image classification"},
        "dataset": {"type": family, "name": dataset, **({"split": split} if split else {})},
        "metrics": metrics,
    }


def yaml_text(value: Any, indent: str = "") -> str:
    """Return plain values as YAML in blocks; texts and numbers are written as in JSON, which YAML contains.

    >>> print(yaml_text({"tags": ["a"], "n": 1, "none": [], "inner": [{"x": "b: c", "y": 2}]}), end="")
    tags:
      - "a"
    n: 1
    none: []
    inner:
      - x: "b: c"
        y: 2
    """
    if not (isinstance(value, Mapping | list) and value):
        return f"{indent}{json.dumps(value, ensure_ascii=False)}\n"
    inner = f"{indent}  "
    if isinstance(value, list):
        return "".join(f"{indent}- {yaml_text(entry, inner).removeprefix(inner)}" for entry in value)
    lines = []
    for key, entry in value.items():
        nested = isinstance(entry, Mapping | list) and entry
        lines.append(f"{indent}{key}:" + (f"\n{yaml_text(entry, inner)}" if nested else f" {yaml_text(entry)}"))
    return "".join(lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join('' if cell is None else _plain(str(cell)) for cell in row)} |\n" for row in rows)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", printable(text))
