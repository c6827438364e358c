"""From folders to files."""

import csv
import io
import json
import os
import re
import shutil
from contextlib import nullcontext
from dataclasses import fields, replace

import pytest
from rich.console import Console

from regmixup import report
from regmixup.objectives import OBJECTIVES
from regmixup.report.output import terminal_tables, write_report
from regmixup.report.results import ONE_PRIOR_VARIANCE, Results
from regmixup.storage import read_rows, write_rows


@pytest.fixture(scope="module")
def written(finished_study, tmp_path_factory):
    results = Results.open(finished_study.folder, tmp_path_factory.mktemp("report"))
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


def test_the_public_functions_read_and_write_the_same(written, tmp_path):
    results, texts = written
    folders = [run.folder for run in results.runs]
    found = report.collect(folders, tmp_path)
    assert {run.recipe for run in found.runs} == {"digits"}
    assert [path.name for path in report.build(found)] == ["report.html", "report.md", "report.tex", "report.csv"]
    assert (tmp_path / "report.csv").read_text() == texts["report.csv"]
    assert report.load(results.runs[0].folder.parent / "study-mini", tmp_path).rows == results.rows
    assert report.collect(str(folders[0]), tmp_path).rows == report.collect(folders[:1], tmp_path).rows != []


def test_the_evaluation_with_the_most_rows_is_shown_whatever_the_times_of_the_files(written, tmp_path):
    """Also of a run folder of an earlier version, which has no note beside the rows."""
    folder = shutil.copytree(written[0].runs[0].folder, tmp_path / written[0].runs[0].folder.name)
    first = next(folder.glob("rows-*.csv"))
    label, digits = first.stem.removeprefix("rows-").rpartition("-")[::2]
    few = folder / f"rows-{label}-00000000.csv"
    few.write_text("".join(first.read_text().splitlines(keepends=True)[:3]))

    def stems():
        return [run.stem for run in Results.of_runs([folder], tmp_path).runs]

    for newer, older in ((first, few), (few, first)):
        os.utime(older, (1, 1))
        os.utime(newer, (2, 2))
        assert stems() == [f"{label}-{digits}"]
    shutil.copyfile(first, few)
    assert stems() == [max(f"{label}-00000000", f"{label}-{digits}")]


def test_a_run_that_no_study_has_evaluated_is_named(finished_study, tmp_path):
    folder = Results.open(finished_study.folder).runs[0].folder
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ValueError, match=r"has no rows-\*\.csv: `regmixup study` evaluates runs$"):
        Results.of_runs([tmp_path], tmp_path)
    (tmp_path / "report.html").touch()  # the last file that it writes
    with pytest.raises(ValueError, match=r"evaluates runs; `regmixup finetune` has written .*/report\.html$"):
        Results.of_runs([tmp_path], tmp_path)
    with pytest.raises(ValueError, match="neither of a study nor of a run"):
        Results.of_runs([tmp_path / "nowhere"], tmp_path)


def test_a_run_folder_of_another_name_is_refused_as_its_rows_would_be_left_out(written, tmp_path, monkeypatch):
    first, second = [run.folder for run in written[0].runs][:2]
    renamed = shutil.copytree(first, tmp_path / "mine")
    with pytest.raises(ValueError, match=rf"name of {renamed} must end in that of its run, {first.name[-12:]}$"):
        Results.of_runs([renamed, second], tmp_path)
    monkeypatch.chdir(first)
    assert Results.of_runs(["."], tmp_path).settings[0].rows == Results.of_runs([first], tmp_path).rows


def test_runs_that_differ_in_more_than_their_seeds_are_not_averaged(written, tmp_path):
    """Two studies in one folder of runs may train a method differently, under one label; weights may lie elsewhere."""
    one, two = [run.folder for run in written[0].runs if run.label == "regmixup"][:2]
    folders = [shutil.copytree(folder, tmp_path / folder.name) for folder in (one, two)]
    for folder, place, epochs, alpha in zip(folders, "ab", (2, 9), (20, 3), strict=True):
        config = json.loads((folder / "config.json").read_text())
        config |= {"init": f"{place}@sha256:0", "epochs": epochs, "objective": config["objective"] | {"alpha": alpha}}
        config["plugins"] = [{"what": "objective", "name": "own", "module": f"{place}.py", "sha256": f"{place}{place}"}]
        (folder / "config.json").write_text(json.dumps(config))
    message = "runs of regmixup must differ in their seeds alone, got other values of epochs, objective, plugins in"
    with pytest.raises(ValueError, match=f"{message} {folders[0]} and {folders[1]}$"):
        Results.of_runs(folders, tmp_path)


@pytest.mark.parametrize(
    ("part", "name", "value", "found"),
    [
        ("", "betas", [0.9, 0.999], ""),
        ("", "plugins", [], ""),
        ("objective", "loss", None, ""),
        ("", "ema", 0.99, "ema"),
        ("objective", "loss", {"kind": "Focal", "gamma": 2.0}, "objective"),
    ],
)
def test_a_field_that_an_older_run_lacks_has_the_value_that_such_runs_had(written, tmp_path, part, name, value, found):
    one, two = [run.folder for run in written[0].runs if run.label == "regmixup"][:2]
    folders = [shutil.copytree(folder, tmp_path / folder.name) for folder in (one, two)]
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        own = config[part] if part else config
        own[name] = value
        if folder is folders[0]:
            del own[name]
        (folder / "config.json").write_text(json.dumps(config))
    refused = (
        pytest.raises(ValueError, match=re.escape(f"got other values of {found} in {folders[0]}"))
        if found
        else nullcontext()
    )
    with refused:
        Results.of_runs(folders, tmp_path)


@pytest.mark.parametrize("objective", OBJECTIVES.values())
def test_a_field_that_was_added_to_an_objective_is_none_unless_it_is_used(objective):
    """As a report takes it to be of older runs, which lack it."""
    assert {f.metadata.get("introduced") for f in fields(objective)} <= {None}


@pytest.mark.parametrize("label", ["kfac-llla", "mine"])
def test_bare_run_folders_with_one_prior_variance_are_not_compared(written, tmp_path, label):
    """Nor are those of a method that is not registered where the report is made."""
    for folder in (run.folder for run in written[0].runs if run.label == "dnn"):
        own = tmp_path / folder.name
        own.mkdir()
        shutil.copyfile(folder / "config.json", own / "config.json")
        path = next(folder.glob("rows-dnn-*.csv"))
        shutil.copyfile(path, own / path.name)
        rows = [
            replace(row, method=label, **{"value": 1.5} if row.metric == "temperature" else {})
            for row in read_rows(path)
        ]
        write_rows(own / f"rows-{label}-00000000.csv", [*rows, replace(rows[0], metric="prior_variance", value=0.6)])
    (found,) = Results.of_runs(sorted(tmp_path.iterdir()), tmp_path).settings
    assert found.design.untested == {label: ONE_PRIOR_VARIANCE}


def test_rows_that_lost_a_line_are_refused_with_the_way_out(finished_study, tmp_path):
    def drop(path):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))

    shutil.copytree(finished_study.runs, tmp_path, dirs_exist_ok=True)
    drop(tmp_path / finished_study.folder.name / "rows.csv")
    with pytest.raises(
        ValueError, match=r"rows\.csv: its content has changed .* `regmixup study` makes the file again"
    ):
        Results.open(tmp_path / finished_study.folder.name)
    rows = next(tmp_path.glob("*/rows-*.csv"))
    drop(rows)
    with pytest.raises(ValueError, match=rf"{rows.name}: its content has changed"):
        Results.of_runs([rows.parent], tmp_path)


def test_what_was_selected_is_in_every_text(written, tmp_path):
    results, _ = written
    choice = {
        "recipe": "digits", "method": "regmixup", "values": {"alpha": 10.0, "eta": 2}, "by": "accuracy",
        "score": 0.9512, "candidates": 9, "temperature": 1.25, "on": "digits/val", "calibration": "companion",
        "seeds": [0, 1],
    }  # fmt: skip
    write_report(replace(results, folder=tmp_path, selected=[choice]))
    for name in ("report.html", "report.md", "report.tex"):
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
        Results.open(tmp_path)


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


def test_titles_and_labels_cannot_command_a_terminal(hostile):
    console = Console(file=io.StringIO(), width=300, color_system=None)
    for table in terminal_tables(hostile):
        console.print(table)
    text = console.file.getvalue()
    assert r"\x1b]0;c\x07" in text
    assert not any(sign in text for sign in "\x1b\x07\u202e")
