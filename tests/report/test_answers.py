"""The first sections of a model's page: counts at thresholds, mistakes, confusions; counted here by plain loops."""

import re
from collections import Counter
from html import unescape

import numpy as np
import pytest
import torch
from PIL import Image

from regmixup.report.answers import MOST_CLASSES, Answers
from tests.report.test_page import Tags

NAMES = ("cat", "dog", "owl")


def answers(*, count=200, classes=NAMES, seed=0, **changes):
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(classes), size=count)
    label = np.where(rng.random(count) < 0.7, truth, rng.integers(len(classes), size=count))
    sure = rng.uniform(1 / len(classes), 1, size=count)
    given = {
        "truth": torch.tensor(truth),
        "label": torch.tensor(label),
        "sure": torch.tensor(sure),
        "score": torch.tensor(rng.permutation(count) / count),
        "thresholds": {"chosen": 0.8, "stricter": 0.5, "none": float("inf")},
        "classes": classes,
    }
    return Answers(**given | changes)


def bodies(subject):
    return {section.name: section.body for section in subject.sections()}


def rows_of(table):
    """The cells of a table's rows as words."""
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in row] for row in cells]


def test_the_counts_at_every_threshold_are_those_of_the_answers():
    subject = answers()
    body = bodies(subject)["answers"]
    expected = []
    for title, threshold in subject.thresholds.items():
        given = [(t, a) for t, a, s in zip(subject.truth, subject.label, subject.score, strict=True) if s <= threshold]
        right = sum(bool(t == a) for t, a in given)
        shares = f"{100 * len(given) / 200:.1f} %", f"{100 * right / len(given):.1f} %"
        wrong, asked = len(given) - right, 200 - len(given)
        expected.append([title, f"{len(given)} {shares[0]}", f"{right} {shares[1]}", str(wrong), str(asked)])
    assert rows_of(body) == expected
    chosen = expected[0]
    words = f"Answers {chosen[1].split()[0]} of 200 test images, {chosen[2].split()[0]} of those right"
    assert f"{words}; asks a person for {chosen[4]}." in body


def test_a_threshold_that_answers_nothing_has_no_share_of_right_answers():
    body = bodies(answers(thresholds={"chosen": -1.0, "none": float("inf")}))["answers"]
    assert rows_of(body)[0] == ["chosen", "0 0.0 %", "0", "0", "200"]


def test_the_table_counts_images_of_no_class_and_a_note_comes_before_it():
    subject = answers(others=torch.tensor([0.1, 0.6, 0.7, 2.0]), note="You asked for at most 10 % errors.")
    body = bodies(subject)["answers"]
    assert [row[-1] for row in rows_of(body)] == ["3 of 4", "1 of 4", "4 of 4"]
    assert "out-of-distribution images answered" in body
    assert body.index("asks a person for") < body.index("at most 10\xa0% errors.") < body.index("<table")
    assert "no class" not in bodies(answers())["answers"]


def test_classes_that_tie_are_all_named():
    subject = answers(
        count=4, classes=("a", "b", "c", "d", "e"), truth=torch.zeros(4).long(), label=torch.tensor([1, 3, 0, 2])
    )
    assert ["a", "4", "1", "b, c, d"] in rows_of(bodies(subject)["classes"].partition("</table>")[2])


def test_the_matrix_and_the_table_count_every_image_once():
    subject = answers()
    body = bodies(subject)["classes"]
    counted = Counter(zip(subject.truth.tolist(), subject.label.tolist(), strict=True))
    matrix, _, table = body.partition("</table>")
    assert rows_of(matrix) == [[name, *(str(counted[i, j] or "") for j in range(3))] for i, name in enumerate(NAMES)]
    lines = []
    for i, name in enumerate(NAMES):
        images = sum(counted[i, j] for j in range(3))
        worst = max((j for j in range(3) if j != i), key=lambda j: counted[i, j])
        lines.append([name, str(images), str(counted[i, i]), NAMES[worst]])
    assert rows_of(table) == sorted(lines, key=lambda line: int(line[2]) / int(line[1]))


def test_very_many_classes_have_no_matrix_and_those_with_the_fewest_right_answers():
    classes = tuple(f"c{number:03}" for number in range(MOST_CLASSES + 20))
    subject = answers(count=900, classes=classes)
    body = bodies(subject)["classes"]
    assert "Confusion matrix" not in body
    right = {name: float((subject.label[subject.truth == i] == i).double().mean()) for i, name in enumerate(classes)}
    shown = [line[0] for line in rows_of(body)]
    assert len(shown) == MOST_CLASSES
    assert [right[name] for name in shown] == sorted(right.values())[:MOST_CLASSES]


def test_pairs_are_counted_both_ways_and_the_most_often_confused_come_first():
    truth, label = torch.tensor([0, 1, 0, 2, 2, 1, 1, 1]), torch.tensor([1, 0, 1, 0, 2, 1, 2, 1])
    subject = answers(count=8, truth=truth, label=label)
    found = [(first, second, places.tolist()) for first, second, places in subject.pairs()]
    assert found == [(0, 1, [0, 1, 2]), (0, 2, [3]), (1, 2, [6])]
    body = bodies(subject)["pairs"]
    assert re.findall(r"<h3>(\w+) and (\w+) <span class=\"std\">(\d) mistakes", body) == [("cat", "dog", "3")]


def test_without_a_mistake_there_is_nothing_to_show():
    truth = torch.arange(6) % 3
    found = bodies(answers(count=6, truth=truth, label=truth, score=torch.zeros(6)))
    assert list(found) == ["answers", "classes"]


def test_mistakes_are_shown_by_what_happens_to_them_the_surest_first(tmp_path):
    files = []
    for number in range(200):
        files.append(tmp_path / f"{number}.png")
        Image.new("RGB", (8, 8), (number, 0, 0)).save(files[-1])
    subject = answers(look=lambda places: [files[place] for place in places])
    body = bodies(subject)["mistakes"]
    groups = re.split(r"<h3>", body)[1:]
    wrong, asked = subject.label != subject.truth, subject.score > 0.8
    for group, mask in zip(groups, (wrong & ~asked, wrong & asked, ~wrong & asked), strict=True):
        assert group.split("<")[0].rpartition(": ")[2].strip() == str(int(mask.sum()))
        places = sorted(mask.nonzero()[:, 0].tolist(), key=lambda place: -float(subject.sure[place]))
        shown = re.findall(r">([\w ]+), ([\d.]+)\xa0%</span>\s*<span>is (\w+)</span><span[^>]*>(\d+)\.png", group)
        assert shown == [
            (NAMES[subject.label[p]], f"{100 * float(subject.sure[p]):.1f}", NAMES[subject.truth[p]], str(p))
            for p in places[:24]
        ]


def test_names_of_classes_and_files_are_text(tmp_path):
    name = "\"><script>x</script>\x1b'"
    file = tmp_path / "<b onclick='x'>.png"
    Image.new("RGB", (300, 200)).save(file)
    subject = answers(classes=(name, "b", f"{name}2"), look=lambda places: [file for _ in places])
    text = "".join(bodies(subject).values())
    assert "<script" not in text
    assert "<b " not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert "data:image/jpeg;base64," in text
    assert Tags(text).stack == []
    allowed = {"class", "style", "scope", "src", "alt", "title", "tabindex", "role", "type", "colspan"}
    attributes = set(re.findall(r"""\s([\w-]+)=["']""", re.sub(r'"[^"]*"', '""', text)))
    assert attributes <= allowed | {"aria-label", "aria-hidden", "data-value"}


@pytest.mark.parametrize(("count", "size"), [(1, 1), (10, 10)])
def test_one_class_and_one_image_will_do(count, size):
    found = bodies(answers(count=count, classes=tuple(map(str, range(size)))))
    assert "NaN" not in "".join(found.values())
