"""The studies that come with the package: complete in their headers, and working from the first run to the report."""

import functools
import json
import runpy
import time
from pathlib import Path

import pytest
import torch

from regmixup.cli import main
from regmixup.methods import METHODS
from regmixup.paper import TABLES
from regmixup.recipes import RECIPES
from regmixup.storage import read_rows
from regmixup.study.plan import load_study, studies
from regmixup.study.runner import run_study
from regmixup.study.select import take_selected
from regmixup.study.smoke import STAND_INS
from regmixup.study.status import estimate
from regmixup.study.tasks import find_tasks
from tests.study.mini import MINI, write_mini
from tests.study.test_select import choice

DOCUMENTS = Path(__file__).parent.parent.parent / "docs"


@functools.cache
def planned_runs(name, scale="full"):
    """The runs of a study, planned once for all tests; up to 496, which takes a second."""
    return tuple(load_study(name, scale).runs())


@pytest.mark.parametrize("name", studies())
def test_a_study_says_its_computed_cost_and_what_to_expect(name, tmp_path):
    header = load_study(name)
    assert header.description
    tasks = find_tasks(planned_runs(name), tmp_path, torch.device("cuda"), [])
    assert header.cost == str(estimate(tasks)), "run docs/make_pages.py"
    assert len(header.expected) > 50


def test_the_pages_list_every_study_with_its_cost_and_every_step_time():
    made = runpy.run_path(str(DOCUMENTS / "make_pages.py"))
    page = (DOCUMENTS / "studies.md").read_text()
    assert made["studies_page"]() == page, "run docs/make_pages.py"
    assert all(page.count(f"\n| `{name}` |") == 1 for name in studies())
    page = (DOCUMENTS / "performance.md").read_text()
    assert made["performance_page"]() == page, "run docs/make_pages.py"
    unmeasured = ("kfac-llla", "deep-ensemble", "sure", "reliable")
    assert all(f"\n| `{name}` |" in page for name in METHODS if name not in unmeasured)
    assert "\n| `regmixup` | 25.7 (1.49) | 32.6 (1.13) | 20.31 (1.87) | 11.16 (1.68) | 3.49 (1.49) | 1.5 |\n" in page


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        ("205 networks to train, about 7,100 GPU minutes (4.9 days) on one H200", "205 networks, 4.9 days"),
        ("9 networks to train, about 19 GPU minutes on one H200", "9 networks, 19 minutes"),
        ("15 networks to train, about 3 minutes on 2 CPU cores", "15 networks, 3 minutes on 2 CPU cores"),
    ],
)
def test_the_page_shows_a_cost_by_its_longest_unit(cost, shown):
    assert runpy.run_path(str(DOCUMENTS / "make_pages.py"))["short"](cost) == shown


OTHER_LENGTHS = (
    "cost", "length", "length-mixup", "precision", "batch-norm", "clean-statistics", "last-batches", "causes",
    "fast-search", "fast-confirm", "reliable-search", "reliable-second",
    "reliable-confirm", "reliable-long", "scores",
)  # fmt: skip
"""Studies that need fewer epochs than their recipe has, or ask how many are needed, or compare at equal time."""


PAPER = ("accuracy", "calibration", "imagenet", "cv-regmixup", "vicinals", "fast-search", "length")


@pytest.mark.parametrize(
    "name", [name if name in PAPER else pytest.param(name, marks=pytest.mark.soak) for name in studies()]
)
def test_a_study_asks_for_every_run_once_with_the_papers_settings(name):
    study = load_study(name)
    plan = planned_runs(name)
    assert len({(planned.label, planned.config) for planned in plan}) == len(plan)
    for planned in plan:
        own = METHODS[planned.method].at(planned.recipe).train
        recipe = RECIPES[planned.recipe]
        if name not in OTHER_LENGTHS:
            assert planned.config.epochs == own.get("epochs", recipe.epochs)
        if name != "fast-search":
            assert planned.config.lr == own.get("lr", recipe.lr)
        part = "train-90" if (study.select or study.rank) and "cifar" in planned.recipe else "train"
        assert planned.config.train_set == f"{recipe.train_set.partition('/')[0]}/{part}"
    assert len(study.seeds) in (1, 3, 5)


def test_a_study_shares_runs_with_every_study_that_it_reuses():
    """The archive of such a run may hold lines of both."""
    trained = {name: {planned.config for planned in planned_runs(name)} for name in studies()}
    pairs = [(name, other) for name in studies() for other in load_study(name).reuses]
    assert pairs
    assert not [(name, other) for name, other in pairs if trained[name].isdisjoint(trained[other])]


def test_the_fast_recipe_is_chosen_on_validation_images_and_confirmed_with_other_seeds(tmp_path):
    search, confirm = load_study("fast-search"), load_study("fast-confirm")
    plan = planned_runs("fast-search")
    assert {name for p in plan for name in p.evaluate.datasets()} == {"cifar10/val-10"}
    assert not set(search.seeds) & set(confirm.seeds)
    grids = [{p.label.partition("(")[2] for p in plan if p.method == method} for method in ("regmixup", "dnn")]
    assert grids[0] == grids[1]
    lengths = {p.method: p.config.epochs for p in planned_runs("fast-confirm")}
    assert lengths == {p.method: p.config.epochs for p in plan}
    with pytest.raises(ValueError, match=r"must run with what study fast-search selected .*study-fast-search/selected"):
        run_study(confirm, tmp_path, root=tmp_path, device="cpu")
    fields = {"batch_size": 512, "lr": 0.4, "schedule": "linear"}
    choices = [choice("cifar10-resnet18", name, fields, study="fast-search") for name in confirm.methods]
    (tmp_path / "selected.json").write_text(json.dumps(choices[:1]))  # the search was stopped
    with pytest.raises(ValueError, match="choice for every method and recipe of fast-confirm, got regmixup of"):
        take_selected(confirm, tmp_path / "selected.json")
    (tmp_path / "selected.json").write_text(json.dumps(choices))
    chosen = list(take_selected(confirm, tmp_path / "selected.json").runs())
    assert {(p.config.batch_size, p.config.lr, p.config.schedule, p.config.train_set) for p in chosen} == {
        (512, 0.4, "linear", "cifar10/train")
    }


def test_every_table_and_figure_of_the_paper_has_a_study():
    remade = {place for name in studies() for place in load_study(name).paper}
    assert {f"Table {number.partition(' ')[0]}" for number in TABLES} <= remade
    assert {f"Figure {number}" for number in range(1, 5)} <= remade


def test_the_grids_are_the_papers():
    counts = {name: len(planned_runs(name)) for name in studies() if name.startswith("cv-")}
    assert counts == {
        "cv-mixup": 4 * 9,
        "cv-mixup-networks": 4 * 8,
        "cv-mixup-imagenet": 5,
        "cv-regmixup": 4 * 11 * 3,
        "cv-spectral-norm": 4 * 3,
        "cv-stable-rank": 4 * 4,
        "cv-laplace": 4 * 13,
        "cv-vicinals": 4 * (6 + 6 + 4 * 4 + 4 * 4 * 3 + 4 * 4 * 3),
    }


DRY = ("digits", "imagenet", "fast-confirm", "last-batches")
"""One without missing data, one with many sets, one that needs choices, one with several lines of a run."""


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory):
    """One folder for all, so that what several studies train alike is trained once."""
    return tmp_path_factory.mktemp("smoke")


SHORT = ("length-mixup",)
"""A quick one; all others run at smoke scale before a release. Selection is run by test_select.py."""


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak) for name in studies()]
)
@pytest.mark.filterwarnings("ignore:the best")
def test_a_study_runs_at_smoke_scale_and_is_reported(name, smoke_runs, tmp_path, capsys):
    words = ["study", name, "--scale", "smoke", "--runs", str(smoke_runs), "--root", str(smoke_runs)]
    started = time.process_time()
    assert main(words) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert time.process_time() - started < 60
    assert main([*words, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "0 networks to train, no time" in text
    assert "missing" not in text
    plan = planned_runs(name, "smoke")
    folder = smoke_runs / "smoke" / f"study-{name}-smoke"
    record = json.loads((folder / "study.json").read_text())
    assert (record["scale"], len(record["runs"])) == ("smoke", len(plan))
    rows = read_rows(folder / "rows.csv")
    assert {row.study for row in rows} == {f"{name}-smoke"}
    places = {(row.method, row.network, row.train_set, row.seed) for row in rows}
    assert places == {(p.label, p.config.network, p.config.train_set, p.config.seed) for p in plan}
    assert {p.method for p in plan} == set(load_study(name).methods)
    for file in ("report.html", "report.md", "report.tex", "report.csv"):
        assert (folder / file).stat().st_size > 0
    assert "smoke scale" in (folder / "report.html").read_text()
    assert ("Selected on validation sets" in shown) == any(p.evaluate.validation for p in plan)
    if any(p.evaluate.validation for p in plan):
        chosen = json.loads((folder / "selected.json").read_text())
        assert {entry["method"] for entry in chosen} == {p.method for p in plan}
    again = ["report", name, "--runs", str(smoke_runs), "--out", str(tmp_path)]
    assert main(again) == 2
    refusal = "which confirms what" if load_study(name).confirms else "no run of it is done there"
    assert refusal in capsys.readouterr().err
    assert main(["report", str(folder), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.csv").read_text() == (folder / "report.csv").read_text()
    assert [path.name for path in smoke_runs.iterdir()] == ["smoke"]


@pytest.mark.parametrize(
    "name", [name if name in DRY else pytest.param(name, marks=pytest.mark.soak) for name in studies()]
)
def test_a_dry_run_needs_no_data_and_names_what_is_missing(name, tmp_path, capsys):
    assert main(["study", name, "--dry-run", "--runs", str(tmp_path), "--root", str(tmp_path), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("to do"))
    runs = len(planned_runs(name))
    assert all(line.startswith("to do") for line in lines[first : first + runs])
    assert lines[first + runs : first + runs + 2] == [f"runs    {runs} to do", f"left   {load_study(name).cost}"]
    assert any("missing" in line for line in lines) == (name != "digits")
    needed = [line.partition(" (--selected ")[0] for line in lines if line.startswith("needs ")]
    assert needed == ([f"needs  what study {source} selected"] if (source := load_study(name).confirms) else [])
    assert not list(tmp_path.iterdir())


def test_cifar_10_and_cifar_100_stay_apart_at_smoke_scale():
    plan = planned_runs("ood", "smoke")
    assert {(p.recipe, p.config.train_set) for p in plan} == {
        ("cifar10-wrn28-10", "digits/train"),
        ("cifar100-wrn28-10", "digits/val"),
    }
    for planned in plan:
        assert planned.evaluate.test == "digits/test"
        assert len(planned.evaluate.ood) == 3
    assert STAND_INS["cifar10"].train == STAND_INS["cifar100"].validation


def test_a_method_keeps_what_makes_it_at_smoke_scale():
    """All but the recipe is that of the full study: objective, constraint, head, posthoc map, and where it is tried."""
    for name in ("ood", "cv-regmixup", "mean-field"):
        full = {(p.recipe, p.label, p.config.seed): p for p in planned_runs(name)}
        for small in planned_runs(name, "smoke"):
            whole = full[small.recipe, small.label, small.config.seed]
            for part in ("objective", "constraint", "head"):
                assert getattr(small.config, part) == getattr(whole.config, part)
            assert type(small.posthoc) is type(whole.posthoc)
            assert small.config.epochs == 2
            assert small.config.members <= 2


@pytest.mark.parametrize("grid", ['head = ["linear", "cosine"]', 'constraint = ["stable_rank"]', "rotation = [0, 0.5]"])
def test_a_grid_over_a_part_by_its_name_has_the_same_parts_at_smoke_scale(grid, tmp_path):
    path = str(write_mini(tmp_path, f"{MINI}\n[grid.dnn]\n{grid}\n"))
    plans = [load_study(path, scale).runs() for scale in ("full", "smoke")]
    full, small = ([(p.label, p.config.objective, p.config.head, p.config.constraint) for p in plan] for plan in plans)
    assert full == small
