"""The documentation site's cards: one for every method, made of what the code and the results know."""

import re
from statistics import fmean, stdev

import make_pages
import pytest
from archives import load, trained

from regmixup.methods import METHODS


@pytest.fixture(scope="module")
def cards():
    return make_pages.cards()


def test_every_method_has_words_and_a_card(cards):
    assert set(make_pages.WORDS) == set(METHODS)
    assert len(cards) == len(METHODS) + 1
    for name in METHODS:
        file = name.replace("+", "-and-")
        assert f"[{name}]({file}.md)" in cards["index"]
        assert cards[file].startswith(f"# {name}\n")


def test_a_card_shows_the_values_the_cost_and_the_runs_of_its_method(cards):
    card = cards["regmixup"]
    assert "| `cifar100-resnet18` | `rm.RegMixup(alpha=10.0)` |" in card
    assert "| wrn28-10 | eager | 25.70 | 1.49 |" in card
    assert "| resnet18 | compiled | 3.49 | 1.49 |" in card
    accuracies = [*load("*")[trained("regmixup", 100)]["accuracy"].values()]
    assert f"| 2.3 | {len(accuracies)} | {fmean(accuracies):.2f} ± {stdev(accuracies):.2f} |" in card
    assert "| plain, 100 epochs |" not in card
    assert "No run of ours" in cards["duq"]


@pytest.mark.parametrize("name", METHODS)
def test_the_loop_of_a_card_runs(name, cards, monkeypatch):
    """With the smallest network instead of ResNet-18."""
    (block,) = re.findall(r"```python\n(.*?)```", cards[name.replace("+", "-and-")], flags=re.DOTALL)
    assert '"resnet18"' in block
    exec(compile(block.replace('"resnet18"', '"small"'), "card", "exec"), {})
