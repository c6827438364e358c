"""Alternate: one coin a step, and then exactly the chosen objective."""

from dataclasses import dataclass

import pytest
import torch

from regmixup.losses import Focal
from regmixup.mixing import Draw
from regmixup.objectives import Objective
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.duq import DUQ
from regmixup.objectives.erm import ERM
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.regcutmix import RegCutMix
from regmixup.objectives.regmixup import RegMixup
from regmixup.objectives.rotation import Rotation
from tests.objectives.cases import batch, conv_net, gradients, seeded

SIZE = (6, 8)
PAPER = {
    "mixup+cutmix": (Mixup(), CutMix()),
    "regmixup+cutmix": (RegMixup(), CutMix()),
    "regmixup+regcutmix": (RegMixup(), RegCutMix()),
}


@dataclass(frozen=True, kw_only=True)
class Lossless(Objective):
    """An objective of a user, without the field `loss`."""

    def compute(self, model, x, y, draw):
        raise NotImplementedError


@pytest.mark.parametrize("probability", [0, 0.3, 0.8, 1])
def test_first_is_taken_with_the_given_probability(probability):
    """Three standard deviations of a share of 1000 coins are at most 0.048; 0 and 1 are exact."""
    objective, generator = Alternate(ERM(), ERM(), probability=probability), seeded(7)
    taken = [objective.draw(2, SIZE, generator).branch for _ in range(1000)]
    tolerance = 0.048 if 0 < probability < 1 else 0
    assert taken.count(0) / 1000 == pytest.approx(probability, abs=tolerance)


@pytest.mark.parametrize("lam", ["batch", "sample"])
def test_parts_of_a_batch_share_the_coin_and_nothing_that_is_an_images_own(lam):
    objective = Alternate(Mixup(lam=lam), CutMix(lam=lam))
    for seed in range(10):
        parts = [objective.draw_part(8, SIZE, shared=seeded(seed), own=seeded(100 + seed + part)) for part in range(2)]
        assert parts[0].branch == parts[1].branch == objective.draw(8, SIZE, seeded(seed)).branch
        assert torch.equal(parts[0].lam, parts[1].lam) == (lam == "batch")


@pytest.mark.parametrize("sides", PAPER.values(), ids=PAPER.keys())
@pytest.mark.parametrize("branch", [0, 1])
def test_the_loss_is_that_of_the_chosen_objective_for_the_same_draw(sides, branch):
    x, y = batch()
    chosen = Alternate(*sides, probability=1 - branch)
    draw = chosen.draw(len(x), SIZE, seeded())
    assert draw.branch == branch
    ours, theirs = conv_net(), conv_net()
    out, expected = chosen(ours, x, y, draw=draw), sides[branch](theirs, x, y, draw=draw)
    assert torch.equal(out.loss, expected.loss)
    assert (out.logits is None) == (expected.logits is None)
    assert out.parts.keys() == expected.parts.keys()
    assert all(map(torch.equal, gradients(ours, out.loss), gradients(theirs, expected.loss)))


@pytest.mark.parametrize("sides", [*PAPER.values(), (ERM(), ERM())], ids=[*PAPER, "nothing random"])
@pytest.mark.parametrize("seed", range(2))
def test_one_coin_is_drawn_and_then_what_the_chosen_objective_draws(sides, seed):
    generator, reference = seeded(seed), seeded(seed)
    draw = Alternate(*sides).draw(4, SIZE, generator)
    coin = torch.rand((), dtype=torch.float64, generator=reference).item()
    assert draw.branch == (0 if coin < 0.5 else 1)
    expected = sides[draw.branch].draw(4, SIZE, reference)
    assert str((draw.lam, draw.partner, draw.box)) == str((expected.lam, expected.partner, expected.box))
    assert torch.equal(generator.get_state(), reference.get_state())


def test_wrong_fields_and_a_draw_without_a_branch_are_refused():
    with pytest.raises(ValueError, match=r"^probability must be a finite number >= 0 and <= 1, got 1.1$"):
        Alternate(Mixup(), CutMix(), probability=1.1)
    with pytest.raises(
        ValueError, match=r"^first must be an objective other than Alternate, DUQ and Rotation, got 'mixup'$"
    ):
        Alternate("mixup", CutMix())
    for side in (Alternate(Mixup(), CutMix()), DUQ(), Rotation(ERM())):
        with pytest.raises(
            ValueError, match=r"^second must be an objective other than Alternate, DUQ and Rotation, got "
        ):
            Alternate(Mixup(), side)
    with pytest.raises(
        ValueError, match=r"^loss must be None unless second has a field `loss`, got Focal\(.*\) with Lossless\(\)$"
    ):
        Alternate(Mixup(), Lossless(), loss=Focal())
    assert Alternate(Mixup(), Lossless()).sides == (Mixup(), Lossless())
    draw = Draw(lam=torch.tensor(0.5), partner=torch.tensor([1, 0]), branch=2)
    with pytest.raises(ValueError, match=r"draw must name a branch, 0 or 1, got Draw\(.*branch=2\)"):
        Alternate(Mixup(), RegMixup())(conv_net(), *batch(2), draw=draw)
