"""What `results/build.py` writes: committed as it is, right by other code, and quoted as it stands."""

import csv
import gzip
import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import archives
import build
import claims
import comparisons
import numpy as np
import pytest
from archives import ALL_SCORES, Setting, load
from comparisons import Estimate, difference, welch, with_holm
from scipy import stats

from regmixup.study.archive import archived_rows

from .archived import ARCHIVED, write_evaluation

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_table_of_numbers_is_what_the_archives_say(tmp_path):
    build.write_csv(tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text() == (ROOT / "results" / "results.csv").read_text()


def test_pages_have_the_tables_that_the_archives_say():
    named = {name for page in PAGES for _, name in build.MARKED.findall(page.read_text())}
    assert named == set(build.TABLES)
    for page in PAGES:
        assert build.with_tables(page.read_text()) == page.read_text(), "run results/build.py"


def test_a_table_replaces_the_one_below_its_name_and_nothing_else():
    page = "<!-- table: confirmation -->\n| old |\n| --- |\n\ntext\n\n| of someone else |\n"
    assert build.with_tables(page) == page.replace("| old |\n| --- |\n", build.TABLES["confirmation"]())
    with pytest.raises(KeyError, match="no-such"):
        build.with_tables("<!-- table: no-such -->\n")


# ---- quoted numbers

KEYED = re.compile(r"([-−+]?\d+(?:\.\d+)?)<!-- (.+?) -->")


def stored_values():
    with (ROOT / "results" / "results.csv").open() as file:
        return {row["key"]: float(row["value"]) for row in csv.DictReader(file)}


def test_numbers_quoted_in_prose_stand_in_the_table_of_numbers():
    values, quoted = stored_values(), 0
    for page in PAGES:
        for number, key in KEYED.findall(page.read_text()):
            assert key in values, f"{page.name}: no key {key!r} in results.csv"
            digits = len(number.partition(".")[2])
            shown = float(number.replace("−", "-"))
            stored = values[key] if number[0] in "-−+" else abs(values[key])
            assert f"{shown:.{digits}f}" == f"{stored:.{digits}f}", f"{page.name}: {key}"
            quoted += 1
    assert quoted >= 15


NAMES = {
    "accuracy": ("{}/test", "accuracy", "", "", 100),
    "shift accuracy": ("{}-c (rebuilt)", "accuracy", "", "mean", 100),
    "ECE": ("{}/test", "ece", "", "", 100),
    "NLL": ("{}/test", "nll", "", "", 1),
    "Brier": ("{}/test", "brier", "", "", 1),
    "AUGRC": ("{}/test", "augrc", "max_probability", "", 1000),
    "failure AUROC": ("{}/test", "failure_auroc", "max_probability", "", 100),
    "other CIFAR AUROC by MSP": ("{other}/test", "auroc", "max_probability", "", 100),
    "other CIFAR AUROC by DS": ("{other}/test", "auroc", "dempster_shafer", "", 100),
    "Tiny-ImageNet AUROC by MSP": ("tiny-imagenet/val", "auroc", "max_probability", "", 100),
    "Tiny-ImageNet AUROC by DS": ("tiny-imagenet/val", "auroc", "dempster_shafer", "", 100),
    "other CIFAR list AUROC by MSP": ("{other_list}", "auroc", "max_probability", "", 100),
    "other CIFAR list AUROC by DS": ("{other_list}", "auroc", "dempster_shafer", "", 100),
    "Tiny-ImageNet list AUROC by MSP": ("tiny-imagenet/openood-{}", "auroc", "max_probability", "", 100),
    "Tiny-ImageNet list AUROC by DS": ("tiny-imagenet/openood-{}", "auroc", "dempster_shafer", "", 100),
    "SVHN AUROC by MSP": ("svhn/test", "auroc", "max_probability", "", 100),
    "SVHN AUROC by DS": ("svhn/test", "auroc", "dempster_shafer", "", 100),
}
NEAR = ("other CIFAR", "Tiny-ImageNet")
NETWORKS = {"ResNet-18": "resnet18", "ResNet-50": "resnet50"}


@cache
def archived_values(study="*"):
    """Return every value in the archives' files, by train set, length, precision, label, place and seed."""
    values = defaultdict(dict)
    for config_file in (ROOT / "results").glob(f"{study}/*/config.json"):
        config = json.loads(config_file.read_text())
        setting = tuple(config[key] for key in ("train_set", "network", "epochs", "precision"))
        for file in config_file.parent.glob("rows-*.csv.gz"):
            rows = list(csv.DictReader(gzip.decompress(file.read_bytes()).decode().splitlines()))
            if not rows[0]["dataset"].endswith("/test"):  # measured against other in-distribution images
                continue
            for row in rows:
                if row["posthoc"] == "none" and not row["severity"]:
                    place = tuple(row[key] for key in ("dataset", "metric", "score", "corruption"))
                    values[setting, row["method"], place][config["seed"]] = float(row["value"])
    return values


def place_of(family, column):
    """Return the place of a column in the rows: dataset, metric, score and corruption; and its scale."""
    dataset, *place, scale = NAMES[column]
    other, other_list = {
        "cifar10": ("cifar100", "cifar100/openood-cifar10"),
        "cifar100": ("cifar10", "cifar10/openood-test"),
    }[family]
    return (dataset.format(family, other=other, other_list=other_list), *place), scale


def seeds_of(family, method, epochs, column, network="resnet18", study="*"):
    """Return the values of a method over seeds, read from the archives' files alone."""
    if column.startswith("near-OOD"):
        near = [seeds_of(family, method, epochs, column.replace("near-OOD", name), network, study) for name in NEAR]
        return sum(near) / 2
    place, scale = place_of(family, column)
    setting, values = (f"{family}/train", network, epochs, "bfloat16"), {}
    for label in (method, f"{method}(epochs={epochs})"):
        values |= archived_values(study).get((setting, label, place), {})
    return scale * np.array([value for _, value in sorted(values.items())])


def setting_of(data):
    """Return the dataset and the network that a table's column `data` names."""
    family, _, network = data.partition(", ")
    return family.lower().replace("-", ""), NETWORKS[network or "ResNet-18"]


def welch_by_hand(ours, theirs):
    """Return the difference of means with Welch's 95 % interval, from its formula."""
    errors = [values.var(ddof=1) / len(values) for values in (ours, theirs)]
    freedom = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, (ours, theirs), strict=True))
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(sum(errors))
    middle = ours.mean() - theirs.mean()
    return middle, middle - reach, middle + reach


def cells_of(text):
    """Return the header and the lines of a table, as cells."""
    header, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()]
    return header, lines


def table_on_page(name):
    """Return the header and the lines of a table on the pages, as cells."""
    comment = f"<!-- table: {name} -->\n"
    page = next(text for text in map(Path.read_text, PAGES) if comment in text)
    return cells_of(page.partition(comment)[2].partition("\n\n")[0])


def numbers_in(cell):
    return re.findall(r"[-+]\d+\.\d+", cell.replace("−", "-"))


METHODS = {"plain": "dnn", "RegMixup": "regmixup", "the coin": "regmixup+regcutmix"}
"""Methods whose names in tables are not those of archives."""


@pytest.mark.parametrize(
    ("table", "measured"),
    [
        ("equal-cost", 11 * 6), ("equal-cost-detection", 11 * 7 - 4), ("relatives", 9 * 6),
        ("relatives-detection", 9 * 7 - 2 * 6), ("at-equal-cost", 4 * 6),
    ],
)  # fmt: skip
def test_the_tables_of_equal_cost_are_what_numpy_and_scipy_find_in_the_archives(table, measured):
    header, lines = table_on_page(table)
    checked = 0
    for line in lines:
        cells = dict(zip(header, line, strict=True))
        family, network = setting_of(cells.pop("data", "CIFAR-10"))
        assert cells.pop("equal")
        sides_of = [re.match(r"(.+) (\d+)", side).groups() for side in cells.pop("method and epochs").split(" − ")]
        for column, cell in cells.items():
            sides, lists = (
                [seeds_of(family, METHODS.get(name, name), int(epochs), quantity, network) for name, epochs in sides_of]
                for quantity in (column, column.replace("near-OOD", "near-OOD list"))
            )
            if cell == "–" or cell.endswith("(list)"):
                assert min(map(len, sides)) < 2, (line, column)
            if cell == "–":
                assert min(map(len, lists)) < 2, (line, column)
                continue
            digits = 3 if column == "NLL" else 2
            shown = [float(number) for number in numbers_in(cell)]
            expected = welch_by_hand(*(lists if cell.endswith("(list)") else sides))
            assert shown == pytest.approx(expected, abs=0.501 * 10**-digits), (line, column)
            checked += 1
    assert checked >= measured


def test_an_excerpt_has_the_marks_of_the_long_table():
    """Holm's correction runs over all comparisons at equal cost, also where a table shows four of them."""
    long = defaultdict(dict)
    for name in ("equal-cost", "equal-cost-detection"):
        header, lines = table_on_page(name)
        for data, *line in lines:
            long[data, *line[:2]] |= dict(zip(header[1:], line, strict=True))
    header, lines = table_on_page("at-equal-cost")
    assert len(lines) == 4
    for line in lines:
        assert line == [long["CIFAR-10", *line[:2]][column] for column in header]


@pytest.mark.parametrize(
    ("table", "family", "lines_of"), [("leaderboard", "cifar10", 17), ("leaderboard-cifar100", "cifar100", 4)]
)
def test_the_leaderboards_have_students_intervals_over_the_seeds_in_the_archives(table, family, lines_of):
    header, lines = table_on_page(table)
    checked = 0
    for training, _, _, n, *cells in lines:
        method, epochs = re.match(r"(.+), (\d+) epochs", training).groups()
        for column, cell in zip(header[4:], cells, strict=True):
            values = seeds_of(family, METHODS.get(method, method), int(epochs), column)
            if len(values) < 2:
                assert "[" not in cell, (training, column)
                continue
            digits = 3 if column in ("NLL", "Brier") else 2
            reach = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
            expected = values.mean(), values.mean() - reach, values.mean() + reach
            shown, _, fewer = cell.partition(" (n ")
            numbers = [float(number.replace("−", "-")) for number in re.findall(r"−?\d+\.\d+", shown)]
            assert numbers == pytest.approx(expected, abs=0.501 * 10**-digits), (training, column)
            assert int(fewer.removesuffix(")") or n) == len(values)
            checked += 1
    assert checked >= (lines_of - 1) * 8 - 1


def test_the_page_of_claims_counts_its_claims():
    """A claim on detection stands once for each score; the last claim is on training time."""
    texts = [claim.text for of_kind in claims.CLAIMS.values() for claim in of_kind]
    page = (ROOT / "docs" / "claims.md").read_text()
    assert f"\n{len(set(texts)) + 1} claims of the paper" in page


def test_the_answer_at_the_papers_setting_follows_its_rule():
    """Welch's interval for each of six AUROCs; bold where Holm's correction over the six leaves p below 0.05."""
    _, lines = table_on_page("paper-resnet50-differences")
    p_values, bold = [], []
    for name, _, *cells in lines:
        for score, cell in zip(("DS", "MSP"), cells, strict=True):
            column = f"{name} AUROC by {score}"
            ours, theirs = (seeds_of("cifar10", method, 350, column, "resnet50") for method in ("regmixup", "dnn"))
            assert numbers_in(cell) == [f"{value:+.2f}" for value in welch_by_hand(ours, theirs)], column
            p_values.append(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)
            bold.append(cell.startswith("**"))
    ordered = np.sort(p_values)
    corrected = np.maximum.accumulate(ordered * np.arange(6, 0, -1))
    assert sum(bold) == np.sum(corrected < 0.05)
    assert sorted(p for p, stands in zip(p_values, bold, strict=True) if stands) == list(ordered[: sum(bold)])


# ---- the confirmation of a recipe

COIN, RELIABLE = "regmixup+regcutmix", "regmixup+regcutmix(average=swa, average_lr=0.05)"
CONFIRMED = {
    "plain": ("dnn", 149), "RegMixup": ("regmixup", 100), "the coin": (COIN, 100), "reliable": (RELIABLE, 100),
    "deep-ensemble": ("deep-ensemble", 149),
}  # fmt: skip
"""The trainings of `reliable-confirm` by their titles: method and epochs."""
TESTED = ("reliable − plain", "the coin − plain")
PRIMARY = ("NLL", "shift accuracy", "near-OOD list AUROC by MSP")


def standing(p_values):
    """Return the names whose p is below 0.05 after Holm's correction over all of them, from its definition."""
    ordered = sorted(p_values, key=p_values.get)
    corrected = np.maximum.accumulate([(len(ordered) - rank) * p_values[name] for rank, name in enumerate(ordered)])
    return {name for name, p in zip(ordered, corrected, strict=True) if p < 0.05}


def check_differences(header, lines, values_of):
    """Check the intervals of a table of the confirmation, and what is bold. values_of: data, title, column -> seeds."""
    for data, name, *cells in lines:
        table = dict(zip(header[2:], cells, strict=True))
        p_values = {}
        for column, cell in table.items():
            sides = [values_of(data, title, column) for title in name.split(" − ")]
            if min(map(len, sides)) > 1:
                digits = 3 if column == "NLL" else 2
                assert numbers_in(cell) == [f"{value:+.{digits}f}" for value in welch_by_hand(*sides)], (name, column)
            if name in TESTED and column in PRIMARY and [*map(len, sides)] == [5, 5]:
                p_values[column] = stats.ttest_ind(*sides, equal_var=False).pvalue
        assert len(p_values) in (0, 3)
        assert {column for column, cell in table.items() if cell.startswith("**")} == standing(p_values), name


def confirmed(data, title, column):
    """Return the values of a training over its seeds, from the files of `reliable-confirm` alone."""
    family = data.partition(", ")[0].lower().replace("-", "")
    return seeds_of(family, *CONFIRMED[title], column, study="reliable-confirm")


def test_the_tables_of_the_confirmation_are_what_numpy_and_scipy_find_in_its_archives_alone():
    header, lines = table_on_page("confirmation")
    for data, training, _, _, n, *cells in lines:
        title, epochs = training.removesuffix(" epochs").split(", ")
        assert CONFIRMED[title][1] == int(epochs)
        for column, cell in zip(header[5:], cells, strict=True):
            values, digits = confirmed(data, title, column), 3 if column == "NLL" else 2
            spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
            assert (n, cell) == (str(len(values)), f"{values.mean():.{digits}f}{spread}"), (training, column)
    assert {line[1].partition(",")[0] for line in lines} >= {"plain", "RegMixup", "deep-ensemble"}
    header, lines = table_on_page("confirmation-differences")
    assert "RegMixup − plain" in [line[1] for line in lines]
    check_differences(header, lines, confirmed)


STANDARD_ERRORS = {
    "plain": (0, 0, 0, 0),
    "RegMixup": (-9, 9, 9, 9),
    "the coin": (-2.6, 2.45, 1.1, 8),
    "reliable": (-6, 2.9, 1.1, 8),
}
"""By how many standard errors a made-up training differs from plain training: in the primaries, and in all else."""


def made_up(title, column, seed):
    """Return a value of a made-up training. Those of five seeds from 10 differ from others' with an error of 0.001."""
    *primaries, of_others = STANDARD_ERRORS[title]
    quantity = column.replace("other CIFAR", "near-OOD").replace("Tiny-ImageNet", "near-OOD")
    return 0.5 + 0.001 * (seed - 12 + dict(zip(PRIMARY, primaries, strict=True)).get(quantity, of_others))


@pytest.fixture
def archive_confirmation(tmp_path, monkeypatch):
    """Return a function that archives all made-up trainings with some seeds in a study, where no others are."""
    monkeypatch.setattr(archives, "RESULTS", tmp_path)
    for module in (archives, build, comparisons):
        monkeypatch.setattr(module, "load", cache(archives.load.__wrapped__))

    def archive(study, seeds, titles=STANDARD_ERRORS):
        columns = [column for column in build.CONFIRMED if column in NAMES]
        for title in titles:
            label, epochs = CONFIRMED[title]
            for seed in seeds:
                others = []
                for column in columns:
                    (dataset, metric, score, corruption), _ = place_of("cifar10", column)
                    value = made_up(title, column, seed)
                    place = {"dataset": dataset, "metric": metric, "score": score, "corruption": corruption}
                    others.append({**place, "value": value})
                folder = tmp_path / study / f"{label}-{seed}"
                write_evaluation(folder, label, "cifar10/test", {}, seed=seed, epochs=epochs, others=others)
        for module in (archives, build, comparisons):
            module.load.cache_clear()

    return archive


def made_up_values(_, title, column):
    if column.startswith("near-OOD"):
        return sum(made_up_values(_, title, column.replace("near-OOD", name)) for name in NEAR) / 2
    return place_of("cifar10", column)[1] * np.array([made_up(title, column, seed) for seed in range(10, 15)])


def test_the_confirmation_tests_its_primaries_line_by_line_without_the_seeds_that_chose_the_recipe(
    archive_confirmation, tmp_path
):
    archive_confirmation("standard", [0, 1, 2])
    archive_confirmation("reliable-confirm", range(10, 15))
    header, lines = cells_of(build.confirmation_differences())
    assert [line[1] for line in lines] == [
        *TESTED, "RegMixup − plain", "reliable − RegMixup", "reliable − the coin",
    ]  # fmt: skip
    check_differences(header, lines, made_up_values)
    bold = {(line[1], column) for line in lines for column, cell in zip(header, line, strict=True) if cell[:2] == "**"}
    assert bold == {(TESTED[0], "NLL"), (TESTED[0], "shift accuracy")}
    p_values = {
        (name, column): stats.ttest_ind(*(made_up_values("", title, column) for title in name.split(" − "))).pvalue
        for name in TESTED
        for column in build.CONFIRMED
    }
    assert p_values[TESTED[1], "NLL"] < 0.05, "it would stand without a correction, and over the lines of its column"
    assert (TESTED[0], "shift accuracy") not in standing(p_values)
    of_line = {column: p_values[TESTED[0], column] for column in build.CONFIRMED}
    assert "shift accuracy" not in standing(of_line)
    header, lines = cells_of(build.TABLES["confirmation"]())
    assert [line[4] for line in lines] == ["5"] * 4
    assert lines[2][header.index("NLL")] == f"{made_up_values('', 'the coin', 'NLL').mean():.3f} ± 0.002"
    build.write_csv(tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    row = rows["reliable-confirm cifar10 reliable-100 minus dnn-149: NLL"]
    expected = welch_by_hand(*(made_up_values("", title, "NLL") for title in ("reliable", "plain")))
    assert [float(row[name]) for name in ("value", "low", "high")] == pytest.approx(expected, abs=1e-6)
    assert (row["n"], rows[f"reliable-confirm cifar10 {COIN}-100: NLL"]["n"]) == ("5+5", "5")


def test_the_confirmation_grows_and_tests_nothing_before_all_seeds_are_there(archive_confirmation):
    assert len(build.TABLES["confirmation"]().splitlines()) == len(build.confirmation_differences().splitlines()) == 2
    archive_confirmation("reliable-confirm", [10], ["reliable"])
    assert [line[1] for line in cells_of(build.TABLES["confirmation"]())[1]] == ["reliable, 100 epochs"]
    assert cells_of(build.confirmation_differences())[1] == []
    archive_confirmation("reliable-confirm", range(10, 14), ["reliable"])
    archive_confirmation("reliable-confirm", range(10, 15), ["plain"])
    ((_, name, *cells),) = cells_of(build.confirmation_differences())[1]
    assert name == TESTED[0]
    assert not any("**" in cell or "–" in cell for cell in cells)


def test_the_table_of_the_search_is_what_its_archives_say():
    """The page has the means over seeds 0 to 2; ranks are the means over four columns, 1 for the best."""
    page = (ROOT / "docs" / "reliable.md").read_text()
    header, lines = cells_of(page[page.index("| training | mean rank |") :].partition("\n\n")[0])
    places = {
        "NLL": ("cifar10/val-10", "nll", "", "", 1, 3),
        "AUGRC": ("cifar10/val-10", "augrc", "max_probability", "", 1000, 2),
        "accuracy under shift": ("cifar10-val-c", "accuracy", "", "mean", 100, 2),
        "near-OOD AUROC by MSP": ("tiny-imagenet/openood-cifar10-val", "auroc", "max_probability", "", 100, 2),
        "accuracy": ("cifar10/val-10", "accuracy", "", "", 100, 2),
        "ECE": ("cifar10/val-10", "ece", "", "", 100, 2),
    }
    labels = {"`reliable`": RELIABLE, "`regmixup+regcutmix`, SWA on the cosine": f"{COIN}(average=swa)"}
    values = {}
    for planned, folder in ARCHIVED["reliable-second"]:
        rows = {
            (r.dataset, r.metric, r.score, r.corruption): r.value
            for r in archived_rows(folder, planned.stem)
            if r.posthoc == "none"
        }
        for column, (*place, factor, _) in places.items():
            values.setdefault((planned.label, column), []).append(factor * rows[tuple(place)])
    means = {key: np.mean(of_seeds) for key, of_seeds in values.items()}
    assert {len(of_seeds) for of_seeds in values.values()} == {3}
    ranked = {}
    for line in lines:
        label = labels.get(line[0], line[0].strip("`"))
        for column, (*_, digits) in places.items():
            assert line[header.index(column)] == f"{means[label, column]:.{digits}f}", (label, column)
        ranked[label] = float(line[1])
    columns = [*places][:4]
    signs = np.array([1, 1, -1, -1])
    table = np.array([[means[label, column] for column in columns] for label in ranked])
    assert [*ranked.values()] == [*stats.rankdata(signs * table, axis=0).mean(axis=1)] == sorted(ranked.values())


# ---- trainings x scores

GAPS = {"MSP": 0.03, "entropy": 0.002, "kNN": -0.02}
"""By how much a training detects better than plain training in made-up archives, by score; elsewhere by nothing."""
MADE_UP = {
    "dnn": ("dnn", 149, {10: 0.0, 11: 0.001, 12: -0.001}, {}),
    "augmix": ("augmix(epochs=75)", 75, {10: 0.0005}, GAPS),
    "coin": ("regmixup+regcutmix", 100, {10: 0.001, 11: 0.0, 12: -0.0005}, GAPS),
    "chosen": ("dnn(average=swa, epochs=149)", 149, {10: 0.0, 11: 0.002}, {"GEN": 0.001}),
}
"""Trainings by a name: label, epochs, what is added by seed, gaps."""


def made_up_aurocs(noise, gaps):
    """Return the AUROCs of a run; the two lists lie 0.04 apart. ASH was measured after plain training alone."""
    scores = {short: score for short, score in ALL_SCORES.items() if not gaps or short != "ASH"}
    values = {short: 0.88 + index / 1000 + noise + gaps.get(short, 0) for index, short in enumerate(scores)}
    lists = {"cifar100/openood-cifar10": -0.02, "tiny-imagenet/openood-cifar10": 0.02}
    return {(name, score): values[short] + add for name, add in lists.items() for short, score in scores.items()}


@pytest.fixture
def made_up_scores(tmp_path, monkeypatch):
    """Archives of `scores`, and no others, by name of training; each with as many seeds as it has."""
    monkeypatch.setattr(archives, "RESULTS", tmp_path)
    for module in (archives, build, comparisons):
        monkeypatch.setattr(module, "load", cache(archives.load.__wrapped__))

    def write(*names):
        for label, epochs, noises, gaps in (MADE_UP[name] for name in names):
            for seed, noise in noises.items():
                place = tmp_path / "scores" / f"{label}-{seed}"
                aurocs = made_up_aurocs(noise, gaps)
                write_evaluation(place, label, "cifar10/openood-test", aurocs, seed=seed, epochs=epochs)

    return write


def near_by_hand(name, score):
    """Return near-OOD in percent by seed: the mean of the two lists."""
    _, _, noises, gaps = MADE_UP[name]
    by_seed = [made_up_aurocs(noise, gaps) for noise in noises.values()]
    lists = "cifar100/openood-cifar10", "tiny-imagenet/openood-cifar10"
    return np.array([[100 * aurocs[place, ALL_SCORES[score]] for place in lists] for aurocs in by_seed]).mean(1)


def test_the_matrix_of_trainings_and_scores_marks_what_stands_over_the_scores_of_a_training(made_up_scores):
    made_up_scores("coin", "chosen", "dnn", "augmix")
    heads, _, *lines = [line.strip("| \n").split(" | ") for line in build.matrix().splitlines()]
    assert heads == [
        "near-OOD list AUROC by", "plain, 149 epochs, n 3", "the coin, 100 epochs, n 3",
        "augmix, 75 epochs, n 1", "dnn(average=swa), 149 epochs, n 2",
    ]  # fmt: skip
    assert [line[0] for line in lines] == list(ALL_SCORES)
    table = {line[0]: dict(zip(("dnn", "coin", "augmix", "chosen"), line[1:], strict=True)) for line in lines}
    assert table["ASH"] == {**dict.fromkeys(("coin", "augmix", "chosen"), "–"), "dnn": table["ASH"]["dnn"]}
    for score in (score for score in ALL_SCORES if score != "ASH"):
        for name in ("dnn", "coin", "chosen"):
            values = near_by_hand(name, score)
            assert table[score][name].strip("*") == f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"
        assert table[score]["augmix"] == f"{near_by_hand('augmix', score)[0]:.2f}", "one seed has neither spread nor p"
    p_values = {
        score: stats.ttest_ind(near_by_hand("coin", score), near_by_hand("dnn", score), equal_var=False).pvalue
        for score in ALL_SCORES
        if score != "ASH"
    }
    assert p_values["kNN"] * len(p_values) < 0.05
    assert 0.05 > p_values["entropy"] > 0.05 / (len(p_values) - 2)
    marked = {(name, score) for score, cells in table.items() for name, cell in cells.items() if cell[0] == "*"}
    assert marked == {("coin", "MSP"), ("coin", "kNN")}


def test_the_table_of_numbers_has_those_of_scores_under_keys_of_their_own(made_up_scores, tmp_path):
    made_up_scores("dnn", "coin")
    build.write_csv(tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    assert all(key.startswith("scores cifar10 ") for key in rows)
    mean = rows["scores cifar10 dnn-149: near-OOD list AUROC by kNN"]
    assert float(mean["value"]) == pytest.approx(near_by_hand("dnn", "kNN").mean(), abs=1e-3)
    assert (mean["n"], mean["runs"]) == ("3", "dnn-10 dnn-11 dnn-12")
    difference = rows["scores cifar10 regmixup+regcutmix-100 minus dnn-149: near-OOD list AUROC by kNN"]
    expected = welch_by_hand(near_by_hand("coin", "kNN"), near_by_hand("dnn", "kNN"))
    assert [float(difference[name]) for name in ("value", "low", "high")] == pytest.approx(expected, abs=1e-3)
    assert not any("minus dnn-149" in key and "cifar10 dnn-149" in key for key in rows)


def test_a_mean_over_fewer_seeds_than_its_line_says_how_many(made_up_scores, tmp_path):
    for seed, name in ((0, "cifar100/test"), (1, "cifar100/test"), (10, "cifar100/openood-cifar10")):
        aurocs = {(name, "max_probability"): 0.9}
        write_evaluation(tmp_path / "length" / str(seed), "regmixup", "cifar10/test", aurocs, seed=seed)
    columns = "accuracy", "other CIFAR AUROC by MSP", "other CIFAR list AUROC by MSP"
    line = build.means([Setting("cifar10/train", "resnet18", 100, "regmixup")], columns).splitlines()[-1]
    assert line.endswith("| 3 | 95.00 ± 0.00 | 90.00 ± 0.00 (n 2) | 90.00 (n 1) |")


# ---- the rule


def test_a_coin_costs_what_lies_between_its_sides():
    costs = [Setting("cifar10/train", "resnet18", 100, name).minutes for name in ("dnn", "regmixup+cutmix", "regmixup")]
    assert costs[0] < costs[1] == pytest.approx((costs[0] + costs[2]) / 2)
    assert Setting("cifar10/train", "resnet18", 100, "augmix").minutes is None


def test_minutes_are_marked_where_the_step_of_the_method_was_not_measured():
    costs = {name: build.cost(Setting("cifar10/train", "resnet18", 100, name))[1] for name in build.METHODS}
    measured = {name for name, minutes in costs.items() if minutes[0] not in "~n"}
    assert measured == {"dnn", "regmixup", "regmixup+regcutmix", "kfac-llla", "deep-ensemble"}
    assert (costs["mixup"], costs["augmix"]) == (f"~{costs['dnn']}", "not measured")


def test_reliable_takes_the_minutes_of_as_many_images_until_its_own_step_is_measured(monkeypatch):
    (reliable, _) = archives.method_of("regmixup+regcutmix(average=swa, average_lr=0.05, epochs=100)")
    setting = Setting("cifar100/train", "resnet18", 100, reliable)
    assert build.cost(setting) == ["10 M", "~2.3"]
    monkeypatch.setitem(archives.STEPS["resnet18"], "reliable", 7.0)
    assert build.cost(setting) == ["10 M", "4.6"]


def test_two_passes_of_sharpness_count_and_have_no_minutes_unless_they_were_measured():
    at = [Setting("cifar10/train", "resnet18", 100, name) for name in ("regmixup", "regmixup(sharpness=sam)", "fmfp")]
    assert [setting.images for setting in at] == [10, 20, 10]
    assert at[0].minutes == pytest.approx(3.49 * 391 * 100 / 60_000)
    assert at[1].minutes is None
    assert at[2].minutes == pytest.approx(4.71 * 391 * 100 / 60_000)


def test_a_confirmation_takes_the_seeds_of_its_own_study_and_corrects_over_its_primaries(monkeypatch):
    ours, theirs = (Setting("cifar10/train", "resnet18", 100, method) for method in ("regmixup", "dnn"))
    fresh = {
        ours: {"NLL": {10: 0.20, 11: 0.21, 12: 0.19}, "accuracy": {10: 96.0, 11: 96.2, 12: 95.7}},
        theirs: {"NLL": {10: 0.30, 11: 0.31, 12: 0.29}, "accuracy": {10: 95.7, 11: 95.6, 12: 95.9}},
    }
    older = {side: {name: {**seeds, 0: 50.0} for name, seeds in values.items()} for side, values in fresh.items()}
    monkeypatch.setattr(comparisons, "load", lambda study="*": fresh if study == "reliable-confirm" else older)
    answers = with_holm(
        {name: welch(ours, theirs, name, study="reliable-confirm") for name in ("NLL", "accuracy", "ECE")}
    )
    by_hand = {
        name: stats.ttest_ind(*(list(fresh[side][name].values()) for side in (ours, theirs)), equal_var=False).pvalue
        for name in ("NLL", "accuracy")
    }
    assert by_hand["NLL"] < by_hand["accuracy"]
    assert list(answers) == ["NLL", "accuracy"]
    assert answers["NLL"].p == pytest.approx(2 * by_hand["NLL"])
    assert answers["accuracy"].p == pytest.approx(max(2 * by_hand["NLL"], by_hand["accuracy"]))
    assert answers["NLL"].n == (3, 3)
    assert welch(ours, theirs, "NLL").n == (4, 4)


def test_numbers_of_the_same_networks_are_paired_and_trainings_are_not():
    chosen = Setting("cifar10/train", "resnet18", 100, "regmixup")
    refreshed = replace(chosen, statistics="refreshed")
    ours, theirs = (load("*")[side]["SVHN AUROC by MSP"] for side in (refreshed, chosen))
    assert len(theirs) > len(ours) >= 3
    gaps = [value - theirs[seed] for seed, value in ours.items()]
    by_statistics = difference(refreshed, chosen, "SVHN AUROC by MSP")
    assert by_statistics.p == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)
    assert by_statistics.n == (len(ours),)
    of_trainings = difference(chosen, Setting("cifar10/train", "resnet18", 100, "deep-ensemble"), "accuracy")
    assert (of_trainings.low, of_trainings.p, of_trainings.n) == (None, None, (len(load("*")[chosen]["accuracy"]), 1))


@pytest.mark.parametrize(
    ("claim", "bounds", "p", "verdict"),
    [
        (claims.Claim("a", "b", ("accuracy",), ""), (0.1, 0.3), 0.01, "holds"),
        (claims.Claim("a", "b", ("accuracy",), ""), (-0.3, -0.1), 0.01, "fails"),
        (claims.Claim("a", "b", ("accuracy",), ""), (0.1, 0.3), 0.06, "undecided"),
        (claims.Claim("a", "b", ("AdaECE",), ""), (-0.3, -0.1), 0.01, "holds"),
        (claims.Claim("a", "b", ("accuracy",), "", worse=True), (-0.3, -0.1), 0.01, "holds"),
        (claims.Claim("a", "b", ("accuracy",), "", margin=0.5), (-0.3, 0.4), 0.9, "holds"),
        (claims.Claim("a", "b", ("accuracy",), "", margin=0.5), (0.6, 0.9), 0.01, "fails"),
        (claims.Claim("a", "b", ("accuracy",), "", margin=0.5), (0.4, 0.9), 0.01, "undecided"),
    ],
)
def test_a_verdict_follows_the_direction_and_the_margin_of_its_claim(claim, bounds, p, verdict):
    difference = Estimate(sum(bounds) / 2, *bounds, p, (3, 3))
    assert claim.verdict(claim.quantities[0], difference) == verdict
