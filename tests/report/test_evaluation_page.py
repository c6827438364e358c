"""The page of any predictions: the report's parts, made of what was measured, for one model or two."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

from regmixup.evaluation.compare import Difference, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import accuracy
from regmixup.metrics.scores import REGISTRY
from regmixup.predictions.store import load
from regmixup.report.evaluation_page import MEANINGS, models_page, summarize, write_page
from regmixup.report.page import PageSection
from regmixup.types import Predictions, Quantity
from tests.report.test_page import Tags, data_of

QUICK = Bootstrap(resamples=40)
IMAGES = torch.arange(120, dtype=torch.uint8)[:, None, None, None].expand(120, 1, 4, 4)


def predicted(name, strength, seed, *, count=120, labels=True):
    truth = np.random.default_rng(0).integers(3, size=count)
    logits = strength * np.eye(3)[truth] + np.random.default_rng(seed).normal(size=(count, 3))
    return Predictions(logits, truth if labels else np.full(count, -1), dataset=name)


def model(name, seed, strength=2.0):
    return ModelPredictions(
        name=name,
        test=predicted("toy/test", strength, seed),
        validation=predicted("toy/val", strength, seed + 10),
        shift=[predicted(f"toy-c/fog/{level}", strength / level, seed + level) for level in (1, 2)],
        ood=[predicted("far", 0.0, seed + 20, count=90, labels=False)],
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    images = {"toy/test": IMAGES, "far": lambda places: [np.full((4, 4, 3), place, np.uint8) for place in places]}
    measured = write_page(
        path, model("ours", 1, 5.0), against=model("theirs", 2), images=images, classes=("a", "b", "c"), bootstrap=QUICK
    )
    return measured, path.read_text()


def test_the_page_is_well_formed_fetches_nothing_and_has_the_reports_parts(two):
    _, text = two
    tags = Tags(text)
    assert tags.stack == []
    assert "http:" not in text
    assert "https:" not in text
    assert "{{" not in text
    assert "seeds" not in text.partition("<script")[0]
    links = [link for link in tags.attributes("href") if link.startswith("#")]
    assert {link.removeprefix("#") for link in links} <= set(tags.attributes("id"))
    for name in ("results", "shift", "detection", "calibration", "selective", "examples", "sources"):
        assert f"#{name}" in links


def test_the_summary_comes_first_and_has_the_measured_numbers(two):
    measured, text = two
    assert text.index('id="results"') < text.index('id="detection"')
    exact = [accuracy(one.test.logits.softmax(1), one.test.labels) for one in measured.models]
    found = measured.differences[Quantity("toy/test", "accuracy")]
    assert found.better is True
    summary = text[text.index('id="results"') : text.index('id="detection"')]
    for one in exact:
        assert f">{100 * one:.2f}</span>" in summary
    assert f'<span class="hidden">better</span> {100 * found.value:+.2f}</span>' in summary
    assert f">{100 * found.low:+.2f} to {100 * found.high:+.2f}</span>" in summary


def test_the_script_gets_intervals_differences_and_both_models(two):
    measured, text = two
    (setting,) = data_of(text)["settings"]
    assert setting["methods"] == ["ours", "theirs"]
    assert setting["detection"]["paper"] is None
    assert setting["detection"]["scores"][0] == "entropy"
    cell, other = setting["detection"]["cells"]["auroc"]["entropy"][0]
    row = next(r for r in measured.rows[0] if (r.metric, r.score) == ("auroc", "entropy"))
    assert cell[0] == round(100 * row.value, 2)
    assert cell[7][0] == f"{100 * row.low:.2f} to {100 * row.high:.2f}"
    assert len(cell[7]) == 2
    assert len(other[7]) == 1
    assert [len(bins["none"]) > 3 for bins in setting["reliability"]] == [True, True]
    assert {"none", "temperature"} == set(setting["reliability"][0])


def test_without_a_bootstrap_a_difference_has_no_brackets(two):
    measured, _ = two
    plain = replace(measured, bootstrap=None, differences={at: Difference(0.01) for at in measured.differences})
    (setting,) = data_of(models_page(plain))["settings"]
    assert setting["detection"]["cells"]["auroc"]["entropy"][0][0][7][1:] == ["+1.00"]


def test_examples_are_the_surest_errors_and_what_the_threshold_lets_through(two):
    measured, text = two
    (setting,) = data_of(text)["settings"]
    test = measured.models[1].test
    top = test.logits.softmax(1).max(dim=1)
    wrong = top.indices != test.labels
    errors = setting["examples"][1]["sets"][0]
    assert (errors["kind"], errors["count"], errors["total"]) == ("errors", int(wrong.sum()), 120)
    sure = [one["sure"] for one in errors["images"]]
    assert sure == sorted(sure, reverse=True)
    assert sure[0] == pytest.approx(float(top.values[wrong].max()), abs=1e-4)
    assert all(one["said"] != one["truth"] and one["said"] in "abc" for one in errors["images"])
    rejected = setting["examples"][1]["sets"][1]
    assert rejected["count"] == 6  # 5 % of 120
    fpr = next(
        r.value for r in measured.rows[1] if (r.metric, r.score) == ("fpr_at_tpr", "entropy")
    )  # the share of OOD images accepted where 95 % of the test images are
    assert setting["examples"][1]["sets"][2]["count"] == round(90 * fpr)


def test_one_model_from_a_file_or_from_memory_gives_the_same_page(tmp_path):
    given = predicted("mine", 2.0, 1)
    np.savez(tmp_path / "mine.npz", logits=given.logits.numpy(), labels=given.labels.numpy())
    write_page(tmp_path / "a.html", tmp_path / "mine.npz", bootstrap=QUICK)
    write_page(tmp_path / "b.html", ModelPredictions(test=given, name="mine"), bootstrap=QUICK)
    text = (tmp_path / "a.html").read_text()
    assert text == (tmp_path / "b.html").read_text()
    assert 'id="detection"' not in text
    assert 'id="examples"' not in text
    assert "difference" not in text.partition("<script")[0].partition('id="results"')[2]
    (setting,) = data_of(text)["settings"]
    assert setting["detection"]["first"] in setting["scores"][0]  # what the figure of risk draws
    more = PageSection("more", "More", "<p>of mine</p>")
    measured = measure_models(ModelPredictions(test=given), bootstrap=None)
    other = models_page(measured, lead="First.", sections=[more])
    assert "95 % interval" not in other
    assert '<p class="lead">First.</p>' in other
    assert '<p class="lead">120 test images of 3 classes.</p>' in text
    assert other.index('id="selective"') < other.index("of mine") < other.index('id="sources"')


def test_one_model_begins_with_what_it_answers_and_every_metric_is_explained_as_in_the_docs():
    subject = model("mine", 1)
    history = [{"epoch": epoch, "loss": 1 / epoch, "val_nll": 2 / epoch} for epoch in (1, 2, 3)]
    images = {"toy/test": IMAGES, "far": IMAGES}
    measured = measure_models(subject, bootstrap=QUICK)
    text = models_page(measured, images=images, history=history)
    order = ["answers", "mistakes", "classes", "training", "results", "detection", "calibration", "sources"]
    places = [text.index(f'<section id="{name}"') for name in order]
    assert places == sorted(places)
    temperature = next(row.value for row in measured.rows[0] if row.metric == "temperature")
    probs = (subject.test.logits / temperature).softmax(1)
    wrong = probs.argmax(1) != subject.test.labels
    assert temperature != 1
    assert f", {100 * float(probs.max(1).values[wrong].max()):.1f}\xa0%</span>" in text
    score = (-subject.test.logits.softmax(1).max(1).values).sort()
    for count in (114, 96, 120):  # 95 % and 80 % of the test images, and all
        right = int((~wrong)[score.indices[:count]].sum())
        assert re.search(rf"<td>{count} <span.*?</td>\s*<td>{right} <", text)
    (setting,) = data_of(text)["settings"]
    assert setting["curves"] == [{"loss": [[1, 2, 3], [1.0, 0.5, 0.3333]], "val_nll": [[1, 2, 3], [2.0, 1.0, 0.6667]]}]
    assert {one["kind"] for one in setting["examples"][0]["sets"]} == {"accepted"}
    concepts = " ".join((Path(__file__).parents[2] / "docs" / "concepts.md").read_text().split())
    assert {line.quantity.metric for line in summarize(measured)} == set(MEANINGS)
    for meaning in MEANINGS.values():
        assert unescape(text).count(meaning) == 1
        assert meaning in concepts


def test_what_says_nothing_of_one_model_or_of_few_images_is_left_out(two):
    one = models_page(measure_models(model("mine", 1), bootstrap=None))
    few = models_page(measure_models(ModelPredictions(test=predicted("test", 2.0, 1, count=49)), bootstrap=None))
    figures = [set(re.findall(r'<figure data-figure="(\w+)"', text)) for text in (two[1], one, few)]
    assert figures[0] - figures[1] == {"tradeoff"}
    assert figures[2] == {"risk"}
    assert "49 test images are too few to draw" in few
    assert "too few" not in one.partition("<script")[0]


def test_the_sources_are_words(two):
    def sources(text):
        return unescape(re.findall(r"<dd>(.*?)</dd>", text.partition('<section id="sources"')[2])[0])

    given = ModelPredictions(test=predicted("test", 2.0, 1), temperature=0.965)
    assert sources(models_page(measure_models(given, bootstrap=None))) == "120 test images; temperature 0.965, given"
    said = sources(two[1]).split("; ")
    assert said[:2] == ["test images: toy/test (120)", "validation images: toy/val (120)"]
    assert said[3] == "OOD images: far (90)"
    assert said[4].endswith(", fitted on the validation images by ECE")


def test_a_reliability_diagram_has_bins_that_suit_the_number_of_images(tmp_path):
    for count, sizes in ((30, [30]), (50, [25, 25]), (120, [20] * 6), (3000, [200] * 15)):
        test = predicted("toy/test", 2.0, 1, count=count)
        write_page(tmp_path / "page.html", test, bootstrap=None)
        (setting,) = data_of((tmp_path / "page.html").read_text())["settings"]
        bins = setting["reliability"][0]["none"]
        assert [size for *_, size in bins] == sizes
        top = test.logits.double().softmax(1).max(1)
        order = top.values.argsort()
        right = (top.indices == test.labels)[order].double()
        expected = [
            (100 * float(top.values[part].mean()), 100 * float(outcomes.mean()), 100 * len(part) / count, len(part))
            for part, outcomes in zip(order.split(sizes[0]), right.split(sizes[0]), strict=True)
        ]
        for values, drawn in zip(expected, bins, strict=True):
            assert drawn == pytest.approx(values, abs=0.006)


def test_probabilities_alone_are_summarised_by_entropy_and_msp(tmp_path):
    probs = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    np.savez(tmp_path / "p.npz", probs=probs.numpy(), labels=np.arange(50) % 3)
    np.savez(tmp_path / "far.npz", probs=probs.numpy()[:20, ::-1])
    measured = measure_models(
        ModelPredictions(test=load(tmp_path / "p.npz"), ood=[load(tmp_path / "far.npz")]), bootstrap=None
    )
    scores = {line.title: line.quantity.score for line in summarize(measured) if line.quantity.score}
    by = {"AUROC by entropy, far": "entropy", "AUROC by MSP, far": "max_probability"}
    assert scores == {"AURC by MSP": "max_probability", **by}
    assert all(title in models_page(measured) for title in scores)
    assert [line.title for line in summarize(measured, "gen") if "AUROC" in line.title] == ["AUROC by gen, far"]


def test_every_score_is_computed_once_for_rows_and_page(monkeypatch, tmp_path):
    computed = []
    entropy = REGISTRY["entropy"]

    def counted(softmax):
        computed.append(len(softmax.logits))
        return entropy.function(softmax)

    monkeypatch.setitem(REGISTRY, "entropy", replace(entropy, function=counted))
    sets = replace(model("mine", 1), validation=None)
    write_page(tmp_path / "page.html", sets, images={"toy/test": IMAGES, "far": IMAGES}, bootstrap=None)
    assert computed == [120, 90]  # the test set and the OOD set


def test_sets_without_names_are_drawn_apart(tmp_path):
    sets = ModelPredictions(test=predicted("", 2.0, 1), ood=[predicted("", 0.0, 2, labels=False)])
    measured = write_page(tmp_path / "page.html", sets, bootstrap=None)
    (setting,) = data_of((tmp_path / "page.html").read_text())["settings"]
    drawn = setting["scores"][0]["energy"]["histogram"]["counts"]
    assert list(drawn) == ["test", "OOD"]
    assert drawn["test"] != drawn["OOD"]
    assert {row.dataset for row in measured.rows[0]} == {"test", "OOD"}


def test_names_cannot_inject_markup(tmp_path):
    hostile = "</script><script>alert(1)</script>\x1b[2J"
    write_page(tmp_path / "page.html", ModelPredictions(test=predicted(hostile, 2.0, 1), name=hostile), bootstrap=QUICK)
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "\x1b" not in text.partition('id="data"')[0]
    assert Tags(text).stack == []
    assert json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_without_a_temperature_a_posthoc_map_need_not_take_one(tmp_path):
    reduced = replace(model("a", 1), validation=None, posthoc=lambda whole: replace(whole, logits=whole.logits / 2))
    write_page(tmp_path / "page.html", reduced, bootstrap=QUICK)
    assert data_of((tmp_path / "page.html").read_text())["settings"]


class OfUnknownLength(torch.utils.data.Dataset):
    """Images by their places, as PyTorch allows: its own class of datasets has no length."""

    def __getitem__(self, place):
        return IMAGES[place]


def test_images_need_not_tell_how_many_they_are(tmp_path):
    pages = []
    for images in (IMAGES, OfUnknownLength()):
        write_page(path := tmp_path / "page.html", predicted("", 2.0, 1), bootstrap=None, images={"test": images})
        pages.append(path.read_text())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "enrgy"}, "unknown score 'enrgy': did you mean 'energy'"),
        ({"images": {"tset": IMAGES}}, "unknown set in images 'tset': did you mean 'test'"),
        ({"images": {"test": IMAGES[:-1]}}, rf"^images of test must be those of its {len(IMAGES)} predictions, got "),
    ],
)
def test_what_does_not_fit_the_predictions_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_page(tmp_path / "page.html", predicted("", 2.0, 1, count=len(IMAGES)), bootstrap=None, **options)
    assert not list(tmp_path.iterdir())
