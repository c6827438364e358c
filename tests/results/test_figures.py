"""The figures have a point for every number of the tables beside them."""

import re
import xml.etree.ElementTree as ET
from statistics import mean

from make_archives import everything, settings
from make_causes import DRAWN, setting

from regmixup.types import Quantity

from .archived import ROOT

AUROC = Quantity("cifar100/test", "auroc", score="dempster_shafer")


def test_the_figure_has_a_point_for_every_number(pages):
    """Circles are as many as cells of the table beside it that hold a number."""
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "length.svg"])
    circles = [one for one in drawn.iter() if one.tag.endswith("circle")]
    text = pages[ROOT / "docs" / "results.md"].partition("length.svg")[2].partition("## ")[0]
    lines = [line for line in text.splitlines() if re.match(r"\| [a-z]", line)]
    cells = [cell.strip() for line in lines for cell in line.split("|")[4:-2]]
    assert len(circles) == sum(cell != "–" for cell in cells)
    assert len(cells) == 7 * len(lines)
    height = float(drawn.get("height"))
    legend = [one for one in drawn if one.tag.endswith("}g")][-1]
    assert max(float(one.get("y")) for one in legend if one.tag.endswith("text")) < height / 2 - 4  # in a panel
    assert len(lines) >= 10


def test_the_figure_of_causes_draws_every_choice_by_both_scores(pages):
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "causes.svg"])
    names = [one.text for one in drawn if one.tag.endswith("text")][:-2]  # the last are the note
    panels = [one for one in drawn if one.tag.endswith("}g")]
    circles = [[one for one in panel if one.tag.endswith("circle")] for panel in panels]
    assert names == [name for label, name in DRAWN.items() if label != "dnn"]
    assert [len(own) for own in circles] == [len(names) * scores for scores in (1, 1, 2, 2, 2, 1, 1)]
    by_dempster_shafer = dict(zip(names, (float(one.get("cx")) for one in circles[2][::2]), strict=True))
    rows = setting(settings(everything()))[1]
    wanted = {DRAWN[label]: 100 * mean(rows.values(AUROC, label).values()) for label in DRAWN if label != "dnn"}
    assert sorted(names, key=by_dempster_shafer.get) == sorted(names, key=wanted.get)


def test_the_figure_of_methods_marks_what_has_one_seed(pages):
    drawn = ET.fromstring(pages[ROOT / "docs" / "images" / "standard.svg"])
    names = [one.text for one in drawn if one.tag.endswith("text")][:-2]
    circles = [one for panel in drawn if panel.tag.endswith("}g") for one in panel if one.tag.endswith("circle")]
    accuracy = dict(zip(names, circles[: len(names)], strict=True))
    table = pages[ROOT / "docs" / "results.md"].partition("### ResNet-18 on CIFAR-10")[2]
    seeds = dict(re.findall(r"^\| ([\w+-]+) \| 100 \| (\d) \|", table.partition("\n\n| ")[2], re.MULTILINE))
    assert set(names) == set(seeds) - {"dnn"}
    assert all((one.get("stroke") == "#999") == (seeds[name] == "1") for name, one in accuracy.items())
