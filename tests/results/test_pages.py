"""Every page is what the archives say, grows with them, and names the runs behind its numbers."""

import re
import shutil

import numpy as np
import pytest
from claims import CLAIMS
from make_archives import cost
from make_results import pages as make
from make_results import readme
from make_runs import costs

from regmixup.storage import read_table, write_table

from .archived import ARCHIVED, ARCHIVES, ROOT, rows_of


def test_every_page_is_what_the_archives_say(pages):
    named = {"README.md", "results/README.md", "docs/results.md", "docs/claims.md"}
    drawn = {f"docs/images/{name}.svg" for name in ("length", "causes", "standard", "last-batches")}
    assert {path.relative_to(ROOT).as_posix() for path in pages} == named | drawn
    changed = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert not changed, "run docs/make_results.py"


def test_every_number_names_runs_that_are_archived(pages):
    """Every line of a table of ours has a fingerprint, and every archived run is listed with its minutes."""
    there = {folder.name[-12:] for _, folder in (param.values for param in ARCHIVES)}
    for path, text in pages.items():
        assert set(re.findall(r"`([0-9a-f]{12})`", text)) <= there, path
    listed = pages[ROOT / "docs" / "results.md"].partition("## The runs")[2]
    assert set(re.findall(r"^\| `([0-9a-f]{12})`", listed, flags=re.MULTILINE)) == there
    for name in ("results/README.md", "docs/results.md"):
        tables = [part for part in pages[ROOT / name].split("\n\n") if re.match(r"\|.*\| runs? \|\n", part)]
        lines = [line for table in tables for line in table.splitlines()[2:] if ", the paper's " not in line]
        assert len(lines) > 50
        for line in lines:
            assert re.search(r"(`[0-9a-f]{12}`|(\| 0 \| – |not run yet).* missing) \|$", line), line


def test_the_comparison_of_scores_is_the_mean_of_the_rows(pages):
    """RegMixup, 200 epochs, all nine numbers; and the words are about the columns of failure AUROC."""
    section = pages[ROOT / "docs" / "results.md"].partition("## Which score?")[2].partition("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith("| regmixup | 200 |"))
    rows = [rows_of(*one) for one in ARCHIVED["length"] if one[0].label == "regmixup(epochs=200)"]
    test, ood = "cifar10/test", ("cifar100/test", "svhn/test", "tiny-imagenet/val")
    wanted = [
        scale * np.mean([own[name, metric, score].value for own in rows for name in names])
        for metric, names, scale in (("failure_auroc", [test], 100), ("auroc", ood, 100), ("scod_augrc", ood, 1000))
        for score in ("dempster_shafer", "max_probability", "entropy")
    ]
    assert [float(cell) for cell in line.split("|")[4:-2]] == pytest.approx(wanted, abs=0.0051)
    lines = [line.split("|") for line in section.splitlines() if line.startswith(("| dnn", "| regmixup"))]
    gains = [float(cells[6]) - float(cells[4]) for cells in lines]
    told = re.search(
        r"changes failure AUROC by (\S+) to (\S+) \(up in (\d+) and down in (\d+) of (\d+) lines\)", section
    )
    assert [float(one.replace("−", "-")) for one in told.groups()[:2]] == pytest.approx(
        [min(gains), max(gains)], abs=0.011
    )
    up, down, count = map(int, told.groups()[2:])
    assert count == len(lines)
    assert up <= sum(gain > 0 for gain in gains)  # of these the whole interval
    assert down <= sum(gain < 0 for gain in gains)


def test_pages_grow_with_the_archives_and_say_what_is_missing(tmp_path):
    """Of two runs: every page is written, the other methods are missing, and nothing is decided."""
    (tmp_path / "precision").mkdir()
    kept = [folder for folder in sorted((ROOT / "results" / "length").iterdir()) if folder.name.startswith("regmixup")]
    for folder in kept:
        shutil.copytree(folder, tmp_path / "length" / folder.name)
    _, readme, page, claims, figure, *_ = make(tmp_path).values()
    assert "0 networks, no time; 10 of 10 lines are missing" in readme
    labels = {planned.label for planned, folder in ARCHIVED["length"] if folder.name.startswith("regmixup")}
    assert readme.count("| regmixup(") == len(labels)
    assert "dnn(" not in readme
    assert "Not asked yet: no length has both methods." in page
    assert "| dnn | 100 | 0 |" in page
    assert page.count("too few runs") == 5
    assert f"1 of {len(CLAIMS)} claims can be asked" in claims  # RegMixup's two scores, for which it is enough alone
    assert claims.count("No rows yet") == len(CLAIMS) - 1
    assert "plain training" not in figure


def test_companions_cost_something_before_their_lines_are_archived(tmp_path):
    own = sorted((ROOT / "results" / "standard").glob("*-cifar10-train-90-*"))
    for folder in own:
        shutil.copytree(folder, tmp_path / "standard" / folder.name)
    spent = cost("standard", tmp_path)
    # That of the ensemble is five networks, of which the first is there by itself, too.
    assert spent.startswith(f"{len(own) + 3} networks, ")
    assert f"{spent}; 46 of 46 lines are missing" in readme([], tmp_path)
    assert f"| standard | 0 of 46 | {spent} | " in costs([], tmp_path)


def test_numbers_that_were_computed_differently_are_not_mixed(tmp_path):
    for index, folder in enumerate(sorted((ROOT / "results" / "length").iterdir())[:2]):
        target = shutil.copytree(folder, tmp_path / "length" / folder.name) / "provenance.json"
        record = read_table(target)
        record["versions"]["numerics"] += index
        write_table(target, record)
    with pytest.raises(ValueError, match="one numerics version"):
        make(tmp_path)
