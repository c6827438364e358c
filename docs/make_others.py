"""Others' numbers beside ours in docs/results.md, from others.toml. make_results.py calls `section`."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from claims import Training, prose
from make_tables import Column, fingerprints

from regmixup.recipes import RECIPES
from regmixup.report.aggregation import Aggregation, Quantity
from regmixup.report.writers import markdown_table

KNOWN = Path(__file__).parent / "others.toml"
TEXT = (
    "Theirs / ours, with the same network and length; what else differs is listed below the table. ± is the "
    "standard deviation over runs, where they give one. Detection is by MSP, as they do; near-OOD is the mean of "
    "the other CIFAR and Tiny-ImageNet.\n"
)


def section(found: Mapping[Training, Aggregation]) -> str:
    """Return others' numbers, each beside ours at the same recipe and length."""
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    lines = []
    for entry in known["entry"]:
        training = next(
            (t for t in found if t.is_usual and (t.recipe, t.epochs) == (entry["recipe"], entry["epochs"])), None
        )
        aggregation = found[training] if training is not None else Aggregation([])
        test = RECIPES[entry["recipe"]].recipe.train_set.partition("/")[0] + "/test"
        near = ["cifar10/test" if test.startswith("cifar100/") else "cifar100/test", "tiny-imagenet/val"]
        cells = [_beside(entry, "accuracy", [Column("", Quantity(test, "accuracy"))], aggregation)]
        by_msp = {"scale": 100, "score": "max_probability"}
        cells.append(_beside(entry, "near", [Column("", Quantity(n, "auroc"), **by_msp) for n in near], aggregation))
        for name, scale in (("aurc", 1000), ("failure_auroc", 100)):
            cells.append(_beside(entry, name, [Column("", Quantity(test, name), scale)], aggregation))
        rows = Column("", Quantity(test, "accuracy")).rows(aggregation, entry["method"])
        counts = f"{entry['runs']} / {len(rows)}"
        first = [entry["who"], entry["method"], f"{prose(test)}, {entry['epochs']} epochs", counts]
        lines.append([*first, *cells, fingerprints([rows]) or "missing"])
    heads = ["", "method", "ResNet-18", "n", "accuracy", "near-OOD AUROC", "AURC", "failure AUROC", "runs"]
    sources = [f"- {who}: {' '.join(text.split())}" for who, text in known["sources"].items()]
    return "\n".join([TEXT, markdown_table(heads, lines), *sources, ""])


def _beside(entry: Mapping[str, str], name: str, own: Sequence[Column], aggregation: Aggregation) -> str:
    """Return their number / ours; ours is the mean over the columns, with its deviation where theirs has one."""
    if name not in entry:
        return ""
    found = aggregation.average([column.quantity._replace(score=column.score) for column in own], entry["method"])
    values = [own[0].scale * value for value in found.values()]
    spread = f" ± {stdev(values):.2f}" if "±" in entry[name] and len(values) > 1 else ""
    return f"{entry[name]} / {mean(values):.2f}{spread}" if values else f"{entry[name]} / –"
