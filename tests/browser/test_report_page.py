"""The report's page in a real browser: it draws, sorts, mixes and switches, without an error and without a request."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regmixup import data
from regmixup.evaluation.compare import measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.predictions.store import load
from regmixup.report.evaluation_page import models_page, write_page
from regmixup.report.output import write_report
from regmixup.report.results import load_results
from tests.browser.chromium import Chromium, find_browser

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser here for the tests of the report page: `make browser` installs one"
)
CONTRAST = Path(__file__).parent / "contrast.js"
PANELS = (
    "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map("
    "one => [one.dataset.figure, one.querySelectorAll('.panel > svg').length]))"
)
PHONE = {"width": 390, "height": 844, "phone": True}


@pytest.fixture(scope="module")
def results(finished_study, tmp_path_factory):
    return load_results(finished_study.folder, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(results):
    return write_report(results)[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(BROWSER, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded on a desk's screen; at the end it must not have complained or asked for anything."""
    browser.events.clear()
    browser.look()
    browser.open(page.as_uri())
    yield browser
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]


def values_of(browser, table, column):
    """The numbers that a column of a table shows, from top to bottom."""
    script = f"[...document.querySelectorAll('{table} tbody tr')].map(row => row.cells[{column}].innerText)"
    return [float(re.match(r"[−-]?[\d.]+", text)[0].replace("−", "-")) for text in browser.run(script)]


def test_every_figure_is_drawn(opened):
    drawn = opened.run(PANELS)
    # Two methods; one corruption and one OOD set, which calibration without and with temperature is set against.
    assert drawn == {
        "explorer": 1, "profiles": 2, "shift": 1, "histograms": 2, "roc": 1, "tradeoff": 2, "reliability": 2, "risk": 1,
        "fisher": 1, "training": 1,
    }  # fmt: skip
    assert opened.run("document.querySelectorAll('.strip canvas').length") == 5
    assert "NaN" not in opened.run("document.querySelector('main').innerHTML")


def test_a_table_is_sorted_by_click_and_by_keyboard(opened):
    head = "document.querySelectorAll('#results > .scroll thead th')[1]"
    opened.run(f"{head}.querySelector('button').click()")
    assert opened.run(f"{head}.getAttribute('aria-sort')") == "descending"
    falling = values_of(opened, "#results > .scroll", 1)
    assert falling == sorted(falling, reverse=True)
    opened.run(f"{head}.querySelector('button').focus()")
    opened.press("Enter")
    assert opened.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert values_of(opened, "#results > .scroll", 1) == sorted(falling)
    assert opened.run("document.querySelectorAll('#results [aria-sort]').length") == 1


def test_the_slider_moves_by_keyboard_and_mixes_the_images(opened, results):
    opened.run("document.getElementById('lam').focus()")
    for _ in range(20):
        opened.press("ArrowRight")
    assert opened.run("document.getElementById('lam').value") == "70"
    drawn = results.runs[0].figures
    pair = drawn["images"][0]
    first, second = pair["classes"]
    label = opened.run("document.querySelectorAll('.ends canvas')[1].getAttribute('aria-label')")
    assert label == f"λ = 0.70: 70 % {first}, 30 % {second}"
    assert opened.run("document.getElementById('lam').getAttribute('aria-valuetext')") == label

    middle = "document.querySelectorAll('.ends canvas')[1]"
    opened.until(f"{middle}.width === 8")
    one, other = (np.array(Image.open(io.BytesIO(base64.b64decode(text)))).astype(float) for text in pair["png"])
    pixels = opened.run(f"[...{middle}.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0)")
    assert np.abs(np.array(pixels).reshape(8, 8) - (0.7 * one + 0.3 * other)).max() <= 0.5 + 1e-9

    curves = [run.figures["path"]["pairs"][0] for run in results.runs if run.label == "dnn"]
    expected = np.interp(0.7, np.linspace(0, 1, 20), np.mean(curves, axis=0))
    assert values_of(opened, "#explorer-table", 1)[0] == pytest.approx(expected, abs=0.006)
    opened.press("Home")
    assert opened.run("document.getElementById('lam').value") == "0"
    assert values_of(opened, "#explorer-table", 1)[0] == values_of(opened, "#explorer-table", 2)[0]


def test_the_score_switches_table_and_figures(opened, results):
    before = opened.run("document.querySelector('[data-figure=roc] .panel .curve').getAttribute('d')")
    opened.run("document.getElementById('score').focus()")
    for _ in range(2):  # over the paper's choice and Dempster-Shafer to entropy
        opened.press("ArrowDown")
    assert opened.run("document.getElementById('score').value") == "entropy"
    wanted = ("dnn", "photographs/test", "auroc", "entropy")
    own = [row.value for row in results.rows if (row.method, row.dataset, row.metric, row.score) == wanted]
    assert values_of(opened, "#detection-table", 1)[0] == pytest.approx(100 * np.mean(own), abs=0.006)
    assert opened.run("document.querySelector('[data-figure=roc] .panel .curve').getAttribute('d')") != before
    assert "entropy" in opened.run("document.querySelector('[data-figure=histograms]').textContent")


def test_the_severity_switches_the_table_and_keeps_its_order(opened, results):
    opened.run("document.querySelector('#shift-table thead button').click()")
    opened.run("document.querySelector('#severity input').focus()")
    for _ in range(2):
        opened.press("ArrowRight")
    assert opened.run("document.querySelector('#severity input:checked').value") == "5"
    assert "severity 5" in opened.run("document.querySelector('#shift-table caption').textContent")
    names = opened.run("[...document.querySelectorAll('#shift-table tbody th')].map(one => one.textContent)")
    assert names == ["regmixup", "dnn"]
    own = [r.value for r in results.rows if (r.method, r.severity, r.metric) == ("dnn", 5, "accuracy")]
    assert values_of(opened, "#shift-table", 2)[1] == pytest.approx(100 * np.mean(own), abs=0.006)


def test_a_method_is_hidden_in_all_figures_and_shown_again(opened):
    count = "document.querySelectorAll('[data-figure=roc] .panel .curve').length"
    assert opened.run(count) == 2
    opened.run("document.querySelector('[data-figure=shift] button.key').focus()")
    opened.press(" ")
    assert opened.run(count) == 1
    pressed = "document.querySelector('[data-figure=risk] button.key').getAttribute('aria-pressed')"
    assert opened.run(pressed) == "false"
    opened.press(" ")
    assert opened.run(count) == 2


def test_values_appear_under_the_pointer_and_as_a_table(opened):
    chart = "document.querySelector('[data-figure=training] .panel > svg')"
    opened.run(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = opened.run(f"(({{x, y, width, height}}) => [x, y, width, height])({chart}.getBoundingClientRect())")
    x, y, width, height = box
    opened.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + 0.95 * width, y=y + height / 2)
    tip = opened.run("document.getElementById('tip').innerText")
    assert tip.startswith("epoch 5")
    assert "regmixup" in tip
    opened.run("document.querySelector('[data-figure=training] summary').click()")
    opened.until("document.querySelector('[data-figure=training] details td') !== null")
    last = opened.run("[...document.querySelectorAll('[data-figure=training] details tr')].pop().innerText").split()
    assert last[0] == "5"
    assert last[2] in tip


def test_everything_that_can_be_used_or_seen_has_a_name(opened):
    nodes = opened.send("Accessibility.getFullAXTree")["nodes"]
    named = ("button", "combobox", "slider", "checkbox", "radio", "image", "region", "navigation", "link", "img")
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and node["role"]["value"] in named
    ]
    assert {role for role, _ in found} >= {"button", "combobox", "slider", "checkbox", "radio", "image"}
    assert [role for role, name in found if not name.strip()] == []
    assert opened.run("[...document.querySelectorAll('.panel > svg desc')].every(one => one.textContent.length > 30)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_readable_in_light_and_in_dark(opened, dark):
    opened.look(dark=dark)
    ratio, where = opened.run(CONTRAST.read_text())
    assert ratio >= 4.5, where
    background = opened.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 128) == dark


def test_on_a_phone_nothing_is_wider_than_the_screen(opened):
    opened.look(**PHONE)
    opened.run("for (const one of document.querySelectorAll('details')) one.open = true; 1")
    opened.until("document.querySelector('[data-figure=training] details td') !== null")
    assert opened.run("document.documentElement.scrollWidth") <= PHONE["width"]
    boxes = "[...document.querySelectorAll('.scroll')].filter(one => one.offsetWidth)"
    assert opened.run(f"{boxes}.every(one => one.getBoundingClientRect().right <= innerWidth)")
    # No table scrolls sideways: one that is too wide is a card per method, whose cells carry their headings.
    assert opened.run(f"{boxes}.every(one => one.scrollWidth <= one.clientWidth)")
    box = "document.querySelector('#results .scroll')"
    assert opened.run(f"{box}.classList.contains('cards')")
    head = f"getComputedStyle({box}.querySelector('tbody td'), '::before').content"
    assert opened.run(head) == '"accuracy ↑"'
    assert opened.run(f"{box}.querySelector('tbody td').getAttribute('role')") == "cell"
    widths = "[...document.querySelectorAll('.panel > svg')].map(one => one.getBoundingClientRect().width)"
    assert min(opened.run(widths)) * 11 / 340 >= 10  # pixels, of the text on axes


def test_examples_can_be_chosen_and_are_described(opened, results):
    images = "document.querySelectorAll('#examples-list img')"
    counts = [run.figures["examples"]["sets"][0] for run in results.runs if run.seed == 0]
    assert opened.run(f"{images}.length") == sum(len(one["images"]) for one in counts)
    assert opened.run(f"[...{images}].every(one => one.alt.startsWith('The model says ') && one.naturalWidth === 8)")
    opened.run("document.getElementById('exhibit').focus()")
    for _ in range(2):
        opened.press("ArrowDown")
    accepted = [run.figures["examples"]["sets"][2] for run in results.runs if run.seed == 0]
    assert {one["kind"] for one in accepted} == {"accepted"}
    assert opened.run(f"{images}.length") == sum(len(one["images"]) for one in accepted)
    words = opened.run("document.querySelector('#examples-list h3').textContent")
    assert f"{accepted[0]['count']:,} accepted of {accepted[0]['total']:,}" in words


@pytest.fixture(scope="module")
def evaluation(results, tmp_path_factory):
    """The page of two runs' stored predictions."""
    folders = {run.label: run.folder / "predictions" for run in results.runs if run.seed == 0}
    models = [
        ModelPredictions(
            name=name,
            test=load(folder / "digits__test.safetensors"),
            validation=load(folder / "digits__val.safetensors"),
            shift=[load(folder / f"digits-c__contrast__{severity}.safetensors") for severity in (1, 5)],
            ood=[load(folder / "photographs__test.safetensors")],
        )
        for name, folder in folders.items()
    ]
    path = tmp_path_factory.mktemp("evaluation") / "page.html"
    images = {"digits/test": data.load("digits/test").images}
    write_page(path, models[1], against=models[0], images=images, bootstrap=Bootstrap(resamples=20))
    return path


def test_the_page_of_an_evaluation_draws_and_fits_too(browser, evaluation):
    browser.events.clear()
    for shape, dark in (({}, False), (PHONE, True)):
        browser.look(**shape, dark=dark)
        browser.open(evaluation.as_uri())
        drawn = browser.run(PANELS)
        expected = {"shift": 1, "histograms": 2, "roc": 1, "tradeoff": 2, "reliability": 2, "risk": 1, "fisher": 1}
        assert drawn == expected
        assert "NaN" not in browser.run("document.querySelector('main').innerHTML")
        boxes = "[...document.querySelectorAll('.scroll')]"
        browser.until(f"{boxes}.every(one => one.scrollWidth <= one.clientWidth)")
        ratio, where = browser.run(CONTRAST.read_text())
        assert ratio >= 4.5, where
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [evaluation.as_uri()] * 2


@pytest.fixture(scope="module")
def photographs(results, tmp_path_factory):
    """The page of one run, with images, an awkward name of a class, and the epochs of a training."""
    folder = next(run.folder for run in results.runs if run.label == "dnn") / "predictions"
    path = tmp_path_factory.mktemp("photographs") / "page.html"
    history = [
        {"epoch": e, "loss": 1 / e, "train_accuracy": e / 9, "val_nll": 2 / e, "val_accuracy": e / 10} for e in (1, 2)
    ]
    classes = ["a class with a long name", *(f"class_{number}" for number in range(1, 10))]
    images = {"digits/test": [np.full((300, 200), place % 256, np.uint8) for place in range(899)]}
    test = ModelPredictions(test=load(folder / "digits__test.safetensors"))
    measured = measure_models(test, bootstrap=Bootstrap(resamples=20))
    path.write_text(models_page(measured, images=images, classes=classes, history=history))
    return path


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (400, True)], ids=["wide", "narrow"])
def test_the_page_of_photographs_uses_the_width_that_there_is(browser, photographs, width, dark):
    browser.events.clear()
    browser.look(width=width, dark=dark, phone=width < 500)
    browser.open(photographs.as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= width
    boxes = "[...document.querySelectorAll('.scroll, .matrix')].filter(one => one.offsetWidth)"
    browser.until(f"{boxes}.every(one => one.scrollWidth <= one.clientWidth)")
    assert browser.run(PANELS) == {"epochs": 2, "reliability": 1, "risk": 1}
    assert browser.run("document.querySelectorAll('.matrix td').length") == 101  # and the corner
    assert browser.run("[...document.querySelectorAll('#mistakes img')].every(one => one.naturalHeight === 160)")
    box = "(name => document.querySelector(name).getBoundingClientRect())"
    for first, second in (("#calibration", "#selective"), (".matrix", ".matrix + div"), (".panel", ".panel + .panel")):
        beside = browser.run(f"{box}('{first}').right <= {box}('{second}').left")
        assert beside == (width == 1400), first
    assert browser.run(f"{box}('.matrix + div').right") > 0.85 * width
    ratio, where = browser.run(CONTRAST.read_text())
    assert ratio >= 4.5, where
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [photographs.as_uri()]


def test_two_settings_can_be_switched(browser, results, tmp_path):
    """The second seed stands in for another recipe, without a corruption and an OOD set."""
    runs = [replace(run, recipe="other") if run.seed else run for run in results.runs]
    rows = [row for row in results.rows if row.seed == 0 or (not row.corruption and row.metric != "auroc")]
    path = write_report(replace(results, folder=tmp_path, runs=runs, rows=rows))[0]
    browser.events.clear()
    browser.look()
    browser.open(path.as_uri())
    panels = "document.querySelectorAll('[data-figure=shift] .panel').length"
    assert browser.run(panels) == 1
    browser.run("document.getElementById('setting').focus()")
    browser.press("ArrowDown")
    assert browser.run("document.getElementById('setting').value") == "1"
    assert browser.run(panels) == 0
    assert browser.run("document.querySelectorAll('[data-figure=reliability] .panel').length") == 2
    browser.press("ArrowUp")
    assert browser.run(panels) == 1
    assert browser.complaints() == []
