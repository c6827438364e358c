"""From folders to files."""

import csv
import io
import re
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from regmixup import report
from regmixup.report.leaderboard import mean_ranks
from regmixup.report.output import print_report, write_report
from regmixup.report.results import Results, load_results
from regmixup.storage import read_table, write_json


@pytest.fixture(scope="module")
def written(finished_study, tmp_path_factory):
    results = load_results(finished_study.folder, tmp_path_factory.mktemp("report"))
    return results, {path.name: path.read_text() for path in write_report(results)}


def test_four_files_with_the_same_numbers(written):
    _, texts = written
    with_csv = list(csv.DictReader(texts["report.csv"].splitlines()))
    accuracy = next(line for line in with_csv if (line["method"], line["quantity"]) == ("regmixup", "accuracy"))
    shown = f"{100 * float(accuracy['mean']):.2f}"
    for name in ("report.html", "report.md", "report.tex"):
        assert shown in texts[name], name
    assert texts["report.md"].startswith("# Mini\n")
    assert "\\toprule" in texts["report.tex"]


def test_the_csv_says_what_the_tables_mark(written):
    results, texts = written
    lines = list(csv.DictReader(texts["report.csv"].splitlines()))
    values = {row.seed: row.value for row in results.rows if (row.method, row.metric) == ("dnn", "temperature")}
    own = next(line for line in lines if (line["method"], line["quantity"]) == ("dnn", "T"))
    assert float(own["mean"]) == pytest.approx(sum(values.values()) / 2, rel=1e-12)
    assert {line["n"] for line in lines} == {"2"}
    assert all("epochs 5 instead of 40" in line["notes"] for line in lines)
    assert {line["test"] for line in lines if line["method"] == "regmixup"} == {"welch"}
    assert {line["setting"] for line in lines} == {"digits"}
    scores = {line["score"] for line in lines if line["quantity"].startswith("AUROC")}
    assert scores == {"dempster_shafer"}
    assert {line["score"] for line in lines if not line["quantity"].startswith("AUROC")} == {""}


def test_the_public_functions_read_and_write_the_same(written, finished_study, tmp_path):
    results, texts = written
    loaded = report.load(finished_study.folder, tmp_path)
    assert loaded.rows == results.rows
    assert [path.name for path in report.build(loaded)] == ["report.html", "report.md", "report.tex", "report.csv"]
    assert (tmp_path / "report.csv").read_text() == texts["report.csv"]


def test_rows_that_lost_a_line_are_refused_with_the_way_out(finished_study, tmp_path):
    folder = shutil.copytree(finished_study.folder, tmp_path / "study-mini")
    lines = (folder / "rows.csv").read_text().splitlines(keepends=True)
    (folder / "rows.csv").write_text("".join(lines[:-3]))
    with pytest.raises(
        ValueError, match=r"rows\.csv: its content has changed .* `regmixup study` makes the file again"
    ):
        load_results(folder)


@pytest.mark.parametrize("key", ["rows_digest", "runs", "calibration", "title", "rank"])
def test_a_study_of_another_version_is_named(finished_study, tmp_path, key):
    shutil.copytree(finished_study.folder, tmp_path / "study")
    record = read_table(tmp_path / "study" / "study.json")
    for table in (record, record["runs"][0]):
        table.pop(key, None)
    write_json(tmp_path / "study" / "study.json", record)
    with pytest.raises(ValueError, match=rf"study\.json is of another version .*'{key}'.*`regmixup study` makes"):
        load_results(tmp_path / "study")


def test_what_was_selected_is_on_the_page_and_in_markdown(written, tmp_path):
    results, _ = written
    choice = {
        "recipe": "digits", "method": "regmixup", "values": {"alpha": 10.0, "eta": 2}, "by": "accuracy",
        "score": 0.9512, "candidates": 9, "temperature": 1.25, "on": "digits/val", "calibration": "companion",
        "seeds": [0, 1],
    }  # fmt: skip
    write_report(replace(results, folder=tmp_path, selected=[choice]))
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text()
        for words in ("alpha = 10, eta = 2", "accuracy, of 9", "95.12", "1.250", "digits/val, companion"):
            assert words in text, (name, words)


def test_a_choice_of_t_alone_has_no_columns_for_grids(written, tmp_path):
    results, _ = written
    choice = {
        "recipe": "digits", "method": "dnn", "values": {}, "by": "", "score": None, "candidates": 1,
        "temperature": 1.25, "on": "digits/val", "calibration": "holdout", "seeds": [0, 1],
    }  # fmt: skip
    write_report(replace(results, folder=tmp_path, selected=[choice]))
    assert "| recipe | method | T (by ECE) | on | seeds |" in (tmp_path / "report.md").read_text()


def test_calibration_under_shift_is_the_mean_over_the_shifted_sets_in_every_text(written):
    results, texts = written
    lines = {(line["method"], line["quantity"]): line for line in csv.DictReader(texts["report.csv"].splitlines())}
    for title, metric, posthoc in (("ECE", "ece", "none"), ("AdaECE + T", "adaptive_ece", "temperature")):
        wanted = ("dnn", "digits-c", metric, posthoc)
        own = [
            row.value for row in results.rows
            if (row.method, row.dataset, row.metric, row.posthoc) == wanted and row.severity is not None
        ]  # fmt: skip
        assert len(own) == 2 * 2  # severities x seeds
        mean = float(lines["dnn", f"{title} digits-c"]["mean"])
        assert mean == pytest.approx(sum(own) / len(own))
        for name in ("report.html", "report.md", "report.tex"):
            assert f"{100 * mean:.2f}" in texts[name], (name, title)


def test_what_a_study_says_about_its_results_stands_below_the_tables(written, tmp_path):
    results, _ = written
    write_report(replace(results, folder=tmp_path, about="The rule:\nHolm over *six*.\n\nSVHN is rebuilt.\n"))
    text = (tmp_path / "report.md").read_text()
    assert text.endswith("\n\n## What this can and cannot show\n\nThe rule: Holm over \\*six\\*.\n\nSVHN is rebuilt.\n")
    write_report(replace(results, folder=tmp_path, about=" \n"))
    assert "## What this can" not in (tmp_path / "report.md").read_text()


def test_a_quantity_that_nobody_has_is_no_column(written, tmp_path):
    results, _ = written
    rows = [row for row in results.rows if row.posthoc == "none"]
    write_report(replace(results, folder=tmp_path, rows=rows))
    quantities = {line["quantity"] for line in csv.DictReader((tmp_path / "report.csv").read_text().splitlines())}
    assert "ECE" in quantities
    for name in ("report.md", "report.html"):
        assert "ECE + T ↓" not in (tmp_path / name).read_text()


def test_a_folder_without_a_study_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results of a study: it has no study\.json"):
        load_results(tmp_path)


def test_a_study_without_a_finished_run_has_nothing_to_report(finished_study, tmp_path):
    empty = Results(tmp_path, "Empty", "", [], [])
    with pytest.raises(ValueError, match="nothing to report yet"):
        write_report(empty)


HOSTILE = "=cmd()|'/c calc'!A1\n# a \\input{/etc/passwd} [b](javascript:x) \x1b]0;c\x07 \u202ed"


@pytest.fixture(scope="module")
def hostile(written, tmp_path_factory):
    """A title, a label and a recipe as an archive of somebody else may have them."""
    results, _ = written
    runs = [
        replace(run, recipe=HOSTILE, **{"label": HOSTILE} if run.label == "regmixup" else {}) for run in results.runs
    ]
    rows = [replace(row, method=HOSTILE) if row.method == "regmixup" else row for row in results.rows]
    folder = tmp_path_factory.mktemp("hostile")
    return replace(results, folder=folder, title=HOSTILE, runs=runs, rows=rows)


def test_titles_and_labels_are_text_in_every_file(hostile):
    texts = {path.name: path.read_text() for path in write_report(hostile)}
    for name in ("report.md", "report.tex", "report.csv"):
        assert not any(sign in texts[name] for sign in "\x1b\x07\u202e"), name
        assert r"x1b]0;c" in re.sub(r"\\textbackslash\{\}|[\\{}]", "", texts[name]), name
    assert r"\input" not in texts["report.tex"]
    labels = re.findall(r"\\label\{(.*)\}\n", texts["report.tex"])
    assert labels
    assert all(re.fullmatch(r"[\w:.+-]+", label, re.ASCII) for label in labels)
    title, *lines = texts["report.md"].splitlines()
    assert title.startswith("# =cmd()")
    assert not any(line.startswith("#") for line in lines)
    assert "[b](" not in texts["report.md"].replace(r"\[", "").replace(r"\]", "")
    cells = [cell for line in csv.reader(texts["report.csv"].splitlines()) for cell in line]
    assert any("=cmd()" in cell for cell in cells)
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


def test_a_study_that_ranks_prints_its_candidates_the_best_first(written):
    console, results = Console(file=io.StringIO(), width=300, color_system=None), replace(written[0], ranked=True)
    print_report(results, [], console)
    _, _, ranking = console.file.getvalue().partition("Mean rank: over accuracy under shift, AUROC by MSP, AUGRC, NLL")
    ranks = [line.split() for line in ranking.splitlines()[1:3]]
    expected = mean_ranks(results.settings[0])
    assert ranks == [[f"{rank:.2f}", label] for label, rank in expected.items()]


def test_titles_and_labels_cannot_command_a_terminal(hostile):
    console = Console(file=io.StringIO(), width=300, color_system=None)
    print_report(hostile, [], console)
    text = console.file.getvalue()
    assert r"\x1b]0;c\x07" in text
    assert not any(sign in text for sign in "\x1b\x07\u202e")
