"""The notebooks of the site: every cell runs, at small sizes here; what is stored is a real execution in full size."""

import contextlib
import io
import json
import math
import re
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}


def code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(notebook):
    """Return what the notebook has printed."""
    outputs = [output for cell in code(notebook) for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join("".join(output["text"]) for output in outputs)


def run(notebook, folder, monkeypatch, sizes):
    """Run all cells in order, as a kernel does, in a folder beside results/; return their names and what they print."""
    place = folder / "docs" / "notebooks"
    place.mkdir(parents=True)
    (folder / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(place)
    mpl.use("Agg")
    names, shown = {}, io.StringIO()
    with contextlib.redirect_stdout(shown), mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show()
        for cell in code(notebook):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
            if "parameters" in cell["metadata"].get("tags", ()):
                assert sizes.keys() <= names.keys(), "a size that the notebook does not have"
                names.update(sizes)
    import matplotlib.pyplot as plt

    names["axes"] = [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]
    plt.close("all")
    return names, shown.getvalue()


def share(text):
    return float(text.rstrip("%")) / 100


def check_own_loop(shown):
    """Check what its text says of the table, the picture and the predictor."""
    table = {
        line[:22].strip(): [float(value) for value in re.findall(r"(\d\.\d{3}) ±", line)]
        for line in shown.splitlines()
        if "±" in line
    }
    assert len(table) == 7
    for metric in ("accuracy", "accuracy, noisy", "ECE", "AUROC, photographs"):
        plain, mixed = table[metric]
        assert (mixed > plain) == (metric != "AUROC, photographs"), metric
    for metric in ("NLL", "NLL, noisy"):
        assert table[metric][1] < 0.9 * table[metric][0], metric
    plain, mixed = (table["ECE"][method] - table["ECE with temperature"][method] for method in (0, 1))
    assert mixed > 0.5 * table["ECE"][1]  # most of it is gone
    ends = [[float(value) for value in line] for line in re.findall(r"ends (\S+), in the middle (\S+)", shown)]
    assert ends[1][1] > ends[0][1] > ends[0][0]
    assert ends[1][1] > ends[1][0]
    accepted, right, others, patches = map(share, re.findall(r"[\d.]+%", shown))
    assert abs(accepted - 0.95) < 0.03
    assert right > others
    assert patches < 0.3


def check_own_images(shown):
    assert "fine-tuning was worse than the linear probe on validation, so the probe is kept" in " ".join(shown.split())
    known, unseen, patches = map(share, re.findall(r"([\d.]+%) accepted", shown))
    assert known > 0.88
    assert max(unseen, patches) < known - 0.15
    given, declined = (int(a) / int(b) for a, b in re.findall(r"(\d+) of (\d+) right$", shown, flags=re.MULTILINE))
    assert given > declined


def check_paper_tables(shown):
    assert "accuracy: Table 2" in shown
    ours = re.findall(r"^(dnn|regmixup)\(epochs=\d+\) +(\d\d\.\d\d)", shown, flags=re.MULTILINE)
    assert len(ours) >= 6
    assert all(90 < float(value) < 98 for _, value in ours)
    assert re.search(r"^accuracy +\+0\.\d\d \[\+0\.\d\d, \+0\.\d\d\]  n \d\+\d$", shown, flags=re.MULTILINE)


CHECKS = {"own-loop": check_own_loop, "own-images": check_own_images, "paper-tables": check_paper_tables}


def test_every_notebook_has_a_check_and_a_place_in_the_navigation():
    assert NOTEBOOKS.keys() == CHECKS.keys()
    page = (ROOT / "docs" / "notebooks.md").read_text()
    assert all(f"\nnotebooks/{name}\n" in page for name in NOTEBOOKS)
    assert "\nnotebooks\n" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_stored_is_a_whole_execution_without_errors_and_paths(name):
    notebook, text = NOTEBOOKS[name], (ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text()
    assert [cell["execution_count"] for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    outputs = [output for cell in code(notebook) for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data"}  # no errors, no stray values
    assert not re.search(r"/(?:home|root|tmp|work|Users|usr|private|var)/|Traceback", text)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_text_agrees_with_the_stored_numbers(name):
    CHECKS[name](stored(NOTEBOOKS[name]))


@pytest.mark.pages
def test_the_first_notebook_runs(tmp_path, monkeypatch):
    names, shown = run(NOTEBOOKS["own-loop"], tmp_path, monkeypatch, NOTEBOOKS["own-loop"]["metadata"]["small"])
    torch.testing.assert_close(names["as_transform"], names["as_objective"], rtol=1e-6, atol=0)
    assert all(math.isfinite(value) for own in names["measured"].values() for one in own for value in one.values())
    # The two lines do what the picture says from the first epochs on: more entropy between digits than plain training.
    plain, mixed = (names["curves"][method].mean(0) for method in ("plain", "RegMixup"))
    assert mixed[10] > plain[10]
    assert [len(line.get_xdata()) for axes in names["axes"] for line in axes.lines] == [21, 21]
    assert "128 images of 64" in shown


@pytest.mark.pages
def test_the_second_notebook_runs(tmp_path, monkeypatch):
    names, shown = run(NOTEBOOKS["own-images"], tmp_path, monkeypatch, NOTEBOOKS["own-images"]["metadata"]["small"])
    for answer in names["answers"].values():
        assert torch.equal(answer.accepted, answer.score <= names["predictor"].threshold)
    assert names["right"].float().mean() > 0.6
    counted = re.findall(r"(accepted|declined): \d+ of (\d+) right", shown)
    assert sum(int(number) for _, number in counted) == len(names["truth"]) == names["ASKED"]
    assert len(names["axes"]) == 30


@pytest.mark.pages
def test_the_third_notebook_runs_and_its_stored_tables_are_those_of_the_archives(tmp_path, monkeypatch):
    names, shown = run(NOTEBOOKS["paper-tables"], tmp_path, monkeypatch, NOTEBOOKS["paper-tables"]["metadata"]["small"])
    assert names["digits"].labels == ["dnn", "regmixup"]
    assert all(math.isfinite(row.value) for row in names["digits"].rows if row.metric in ("accuracy", "ece", "auroc"))
    check_paper_tables(shown)
    archives = [text[text.index("dnn(epochs=") :] for text in (shown, stored(NOTEBOOKS["paper-tables"]))]
    assert archives[0] == archives[1], "runs were added: make notebooks"


@pytest.mark.soak
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_text_agrees_with_a_whole_execution(name, tmp_path, monkeypatch):
    CHECKS[name](run(NOTEBOOKS[name], tmp_path, monkeypatch, {})[1])
