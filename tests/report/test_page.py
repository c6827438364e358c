"""The page: complete, self-contained, and made of what was measured."""

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from regmixup.config import encode
from regmixup.methods import METHODS
from regmixup.report.build import main_table, report
from regmixup.report.page import render
from regmixup.report.results import Results
from regmixup.training.config import configure


@pytest.fixture(scope="module")
def results(finished_study):
    return Results.open(finished_study.folder)


class Tags(HTMLParser):
    """Collects tags with their attributes, and checks that they nest."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self):
        super().__init__()
        self.found, self.stack = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_the_page_is_well_formed_and_fetches_nothing(results):
    page = render(results)
    tags = Tags()
    tags.feed(page)
    assert tags.stack == []
    assert not [tag for tag, _ in tags.found if tag == "script"]
    for _, attributes in tags.found:
        for name in ("src", "href"):
            if name in attributes:
                assert attributes[name].startswith("data:")
    assert "http" not in re.sub(r"base64,[^\"]+", "", page)


def test_every_figure_is_there_with_a_description(results):
    tags = Tags()
    tags.feed(render(results))
    images = [attributes for tag, attributes in tags.found if tag == "img"]
    assert len(images) == 5
    assert all(image["alt"] for image in images)
    headings = re.findall(r"<h3>(.*?)</h3>", render(results))
    for wanted in ("Entropy between classes", "Reliability", "Out-of-distribution scores", "Accuracy under corruption"):
        assert wanted in headings


def test_the_numbers_in_the_page_are_the_means_of_the_rows(results):
    values = [
        row.value
        for row in results.rows
        if (row.method, row.dataset, row.metric, row.posthoc) == ("regmixup", "digits/test", "accuracy", "none")
    ]
    assert len(values) == 2
    assert f"{100 * sum(values) / 2:.2f}" in render(results)


def test_the_page_says_what_the_methods_share_and_what_each_has_of_its_own(results):
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", render(results)))
    assert "epochs 5, batch_size 64" in facts["recipe"]
    assert "head LinearHead, members 1" in facts["recipe"]
    assert "objective" not in facts["recipe"]
    assert facts["dnn"] == "objective ERM, posthoc none"
    assert facts["regmixup"].startswith("objective RegMixup (alpha 20.0, ")


def test_the_page_names_a_methods_own_recipe_head_and_posthoc_map(finished_study, monkeypatch):
    """The second method's runs stand in for those of SNGP, with SNGP's configuration."""
    results = Results.open(finished_study.folder)
    read = Results.run_json

    def run_json(self, method, name):
        found = read(self, method, name)
        return [encode(configure("digits", "sngp"))] if (method, name) == ("regmixup", "config.json") else found

    monkeypatch.setattr(Results, "run_json", run_json)
    monkeypatch.setitem(METHODS, "regmixup", METHODS["sngp"])
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", render(results)))
    assert not re.search(r"\blr |head |constraint ", facts["recipe"])
    assert "lr 0.1, " in facts["dnn"]
    assert "constraint none, head LinearHead" in facts["dnn"]
    assert "lr 0.01, " in facts["regmixup"]
    assert "head GPHead (num_features 1024, kernel_std 0.15, " in facts["regmixup"]
    assert facts["regmixup"].endswith("posthoc monte_carlo (samples 10)")


def test_only_methods_that_mix_images_have_a_density_of_lambda(results, monkeypatch):
    assert results.alphas() == {"regmixup": 20.0}
    monkeypatch.setattr(Results, "run_json", lambda *_: [encode(configure("digits", "augmix"))])
    assert results.alphas() == {}


def test_rendering_twice_gives_the_same_page(results):
    assert render(results) == render(results)


def test_text_from_a_study_cannot_inject_markup(results):
    hostile = {**results.study, "title": "<script>alert(1)</script>", "about": "<b>x</b>"}
    page = render(Results(results.folder, hostile, results.rows))
    assert "<script>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_report_writes_the_page_beside_the_rows(results):
    _, path = report(results.folder)
    assert path == results.folder / "report.html"
    assert path.read_text() == render(results)


def test_pooled_reliability_counts_every_seed(results):
    diagram = results.reliability()["dnn"]["none"]
    assert diagram.total == 2 * 899
    assert int(diagram.count.sum()) == diagram.total


def test_a_damaged_rows_file_is_named(results, tmp_path):
    (tmp_path / "study.json").write_text((results.folder / "study.json").read_text())
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"rows\.csv"):
        Results.open(tmp_path)


@pytest.mark.parametrize("content", ["[]", '{"title": "x"}', "{"])
def test_a_damaged_study_file_is_named(results, tmp_path, content):
    (tmp_path / "rows.csv").write_bytes((results.folder / "rows.csv").read_bytes())
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(ValueError, match=r"study\.json"):
        Results.open(tmp_path)


def test_square_brackets_in_a_title_are_not_markup(results):
    console = Console(file=io.StringIO(), width=100)
    console.print(main_table(Results(results.folder, {**results.study, "title": "a [/nope] b"}, results.rows)))
    assert "a [/nope] b" in console.file.getvalue()
