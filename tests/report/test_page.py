"""The page: complete, self-contained, and made of what was measured."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from regmixup.report.page import LATER_FIELDS, definitions, fill, sources, study_page
from regmixup.report.results import RunRecord, load_results
from regmixup.report.tables import study_tables
from regmixup.run_folder import read_provenance


@pytest.fixture(scope="module")
def results(finished_study):
    return load_results(finished_study.folder)


def page(results):
    return study_page(results, study_tables(results))


class Tags(HTMLParser):
    """Collects tags with their attributes, and checks that they nest."""

    VOID = ("meta", "link", "img", "br", "wbr", "input", "select")

    def __init__(self, text):
        super().__init__()
        self.found, self.stack = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.stack.pop() == tag

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.found if name in attributes]


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def main_table(text):
    results = text[text.index('<section id="results"') :]
    return results[results.index("<tbody>") : results.index("</tbody>")]


def test_the_page_is_well_formed_and_can_fetch_nothing(results):
    text = page(results)
    tags = Tags(text)
    assert tags.stack == []
    assert all(link.startswith(("data:", "#")) for name in ("src", "href") for link in tags.attributes(name))
    assert "http:" not in text
    assert "https:" not in text
    policy = next(a["content"] for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "url(" not in text


def test_every_section_is_in_the_contents_and_every_link_leads_somewhere(results):
    tags = Tags(page(results))
    identifiers = tags.attributes("id")
    assert len(set(identifiers)) == len(identifiers)
    assert {link.removeprefix("#") for link in tags.attributes("href") if link.startswith("#")} <= set(identifiers)
    listed = [link for link in tags.attributes("href") if link.startswith("#") and not link.startswith("#main")]
    contents = [
        "#leaderboard", "#results", "#selected", "#explorer", "#profiles", "#mixing", "#shift", "#detection",
        "#calibration", "#selective", "#examples", "#fisher", "#training", "#sources",
    ]  # fmt: skip
    assert listed[: len(contents)] == contents


def test_every_figure_has_a_place_and_a_caption(results):
    text = page(results)
    figures = set(re.findall(r'data-figure="(\w+)"><figcaption>\w', text))
    drawn = set(re.findall(r'^figure\("(\w+)"', text, re.MULTILINE))
    assert figures == drawn - {"epochs"}  # that of a single training
    assert len(figures) == 10


def test_a_changed_recipe_is_marked_in_every_cell_and_explained_below(results):
    text = page(results)
    table = main_table(text)
    assert table.count('<a href="#main-0-a">a</a>') == table.count("<td data-value")
    assert re.search(r'<li id="main-0-a">[^<]*epochs 5 instead of 40', text)


def test_the_first_line_speaks_of_a_temperature_where_one_was_fitted(results):
    assert "T is fitted on validation data." in page(results)
    rows = [row for row in results.rows if row.posthoc != "temperature"]
    assert "T is fitted" not in page(replace(results, rows=rows))


def test_one_seed_is_marked(results):
    runs = [run for run in results.runs if run.seed == 0]
    one = replace(results, runs=runs, rows=[row for row in results.rows if row.seed == 0])
    text = page(one)
    table = main_table(text)
    assert table.count('<span class="single">n 1</span>') == table.count("<td data-value")
    assert "One seed: no spread is known." in text
    assert '<span class="fact">one seed</span>' in text


def test_the_page_says_what_the_methods_share_and_what_each_has_of_its_own(results):
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page(results)))
    assert "epochs 5, batch_size 64" in facts["recipe"]
    assert "head LinearHead, members 1" in facts["recipe"]
    assert not re.search(r"\b(objective|betas|plugins|ema) ", facts["recipe"])
    assert facts["dnn"] == "objective ERM, posthoc none"
    assert facts["regmixup"].startswith("objective RegMixup (alpha 20.0, ")


def test_the_page_lists_fields_that_were_added_later_where_a_method_uses_them(finished_study, monkeypatch):
    """The runs of dnn are older than these fields, and regmixup averages its weights."""
    own = RunRecord.config.func

    def config(run):
        found = own(run)
        older = {name: value for name, value in found.items() if name not in LATER_FIELDS}
        return older if run.label == "dnn" else found | {"ema": 0.99}

    monkeypatch.setattr(RunRecord, "config", property(config))
    (setting,) = load_results(finished_study.folder).settings
    facts = sources(setting)
    assert not re.search(r"\b(betas|plugins|ema|select) ", facts["recipe"])
    assert facts["dnn"] == "objective ERM, ema 0.0, posthoc none"
    assert re.fullmatch(r"objective RegMixup \(.*\), ema 0.99, posthoc none", facts["regmixup"])
    monkeypatch.setattr(RunRecord, "config", property(lambda run: own(run) | {"ema": 0.99}))
    assert re.search("network .* epochs 5, .* ema 0.99, ", sources(setting)["recipe"]), "in the order of a recipe"


def test_what_a_run_has_instead_of_its_methods_own_parts_is_a_note(results):
    runs = [replace(run, changed=["objective B instead of A"] * (run.label == "regmixup")) for run in results.runs]
    ((table, *_),) = study_tables(replace(results, runs=runs))
    notes = {label: " ".join(cells[0].notes) for label, cells in table.lines.items()}
    assert "Changed recipe: objective B instead of A." in notes["regmixup"]
    assert "objective" not in notes["dnn"]


def test_the_title_of_a_setting_names_every_network_that_a_grid_varies(finished_study, monkeypatch):
    own = RunRecord.config.func
    monkeypatch.setattr(RunRecord, "config", property(lambda run: own(run) | {"network": f"{run.label}-net"}))
    (setting,) = load_results(finished_study.folder).settings
    assert setting.title == "dnn-net on digits, regmixup-net on digits"


def test_the_sources_name_what_any_run_was_made_with(results, monkeypatch):
    """Archives of two machines may be merged: the versions and the data of the first run are not those of all."""
    (setting,) = results.settings
    last = setting.runs[-1].folder.name

    def merged(run):
        record = read_provenance(run.folder)
        if run.folder.name != last:
            return record
        return record | {"data": {"digits/train": "f" * 64}, "versions": {**record["versions"], "torch": "9.9"}}

    digest = read_provenance(setting.runs[0].folder)["data"]["digits/train"][:16]
    monkeypatch.setattr(RunRecord, "provenance", property(merged))
    facts = sources(setting)
    assert facts["train set"] == f"digits/train (sha256 {digest}…) and (sha256 {16 * 'f'}…)"
    assert re.search(r"torch \S+ and 9\.9, ", facts["versions"])


def test_text_from_a_study_cannot_inject_markup(results):
    hostile = "</script><script>alert(1)</script>"
    runs = [replace(run, label=hostile) if run.label == "regmixup" else run for run in results.runs]
    rows = [replace(row, method=hostile) if row.method == "regmixup" else row for row in results.rows]
    text = page(replace(results, title=hostile, about="<b>x</b>", runs=runs, rows=rows))
    assert "<script>alert" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert Tags(text).stack == []
    assert hostile in data_of(text)["settings"][0]["methods"]


def test_a_section_of_ones_own_is_made_of_escaped_cells():
    """As `regmixup finetune` makes them."""
    table = fill("tables.html", "word_table", "Classes & more", ("class", "<n>", "x"), [("a+b(<i>)", 3, "<b>")])
    assert Tags(table).stack == []
    assert '<th scope="row" data-value="a+b(&lt;i&gt;)">a+<wbr>b<wbr>(&lt;i&gt;)</th>' in table
    assert '<td data-value="3">3</td>' in table
    assert '<td data-value="&lt;b&gt;">&lt;b&gt;</td>' in table
    assert 'aria-label="Classes &amp; more"' in table
    assert '<button type="button" class="sort">&lt;n&gt;</button>' in table
    assert "<dt>split\\x1b</dt><dd>&lt;own&gt;</dd>" in definitions([("split\x1b", "<own>")])


def test_without_figure_data_the_tables_remain(results, monkeypatch):
    monkeypatch.setattr(RunRecord, "figures", property(lambda run: {}))
    text = page(load_results(results.folder))
    for absent in ('id="explorer"', 'id="profiles"', 'id="calibration"', 'id="selective"'):
        assert absent not in text
    for present in ('id="results"', 'id="shift"', 'id="detection"'):
        assert present in text


def test_two_recipes_are_two_tables_and_can_be_chosen(results):
    """The second seed stands in for another recipe."""
    runs = [replace(run, recipe="cifar10-resnet50") if run.seed else run for run in results.runs]
    text = page(replace(results, runs=runs))
    assert len(data_of(text)["settings"]) == 2
    assert re.search(r"<h3>.*, cifar10-resnet50</h3>", text)
    assert 'id="setting"' in text
    assert text.count('<span class="single">n 1</span>') > 20
