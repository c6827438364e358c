"""The documentation site's cards: one for every method, made of what the code and the results know."""

import re
from pathlib import Path

import make_cards
import pytest

from regmixup.methods import METHODS

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def cards():
    return make_cards.cards()


def test_every_method_has_words_and_a_card(cards):
    assert set(make_cards.WORDS) == set(METHODS)
    assert len(cards) == len(METHODS) + 1
    for name in METHODS:
        file = name.replace("+", "-and-")
        assert f"[{name}]({file}.md)" in cards["index"]
        assert cards[file].startswith(f"# {name}\n")


def test_a_card_shows_the_values_the_cost_and_the_runs_of_its_method(cards):
    card = cards["regmixup"]
    assert "| `cifar100-resnet18` | `rm.RegMixup(alpha=10.0)` |" in card
    assert "| wrn28-10 | 25.7 | 1.49 |" in card
    results = (DOCS / "results.md").read_text()
    own, plain = (re.search(rf"^\| {name} \|( 25 \|.*\|) `", results, re.MULTILINE)[1] for name in ("regmixup", "dnn"))
    assert f"| bfloat16 |{own}\n" in card  # the line of the results, without the names of the runs
    assert plain not in card
    assert f"| bfloat16 |{plain}\n" in cards["dnn"]
    assert "No run of ours" in cards["duq"]


@pytest.mark.parametrize("name", METHODS)
def test_the_loop_of_a_card_runs(name, cards, monkeypatch):
    """With the smallest network instead of ResNet-18."""
    (block,) = re.findall(r"```python\n(.*?)```", cards[name.replace("+", "-and-")], flags=re.DOTALL)
    assert '"resnet18"' in block
    exec(compile(block.replace('"resnet18"', '"small"'), "card", "exec"), {})
