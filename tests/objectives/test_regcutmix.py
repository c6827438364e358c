"""RegCutMix by hand: RegMixup with CutMix's vicinal distribution."""

import pytest
import torch

from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.regcutmix import RegCutMix
from tests.objectives.cases import CLASSES, seeded
from tests.objectives.expectations import exact_batch, plain_net
from tests.references import mixing as slow

SIZE = (6, 8)


@pytest.mark.parametrize(
    ("lam", "passes", "eta", "scale"), [("batch", "joint", 1, "mean"), ("sample", "separate", 3, "sum")]
)
def test_loss_is_clean_plus_eta_times_cutmix(lam, passes, eta, scale):
    model, (x, y) = plain_net(), exact_batch()
    objective = RegCutMix(lam=lam, passes=passes, eta=eta, scale=scale)
    draw = objective.draw(5, SIZE, seeded(1))
    boxes, partner = draw.box.expand(5, 4).tolist(), draw.partner.tolist()
    kept = [slow.kept_share(box, *SIZE) for box in boxes]
    assert min(kept) < 1

    targets = slow.one_hot(y, CLASSES)
    pasted = torch.from_numpy(slow.cutmix(x.numpy(), boxes, partner))
    clean = slow.soft_cross_entropy(model(x).tolist(), targets).mean()
    mixed = slow.soft_cross_entropy(model(pasted).tolist(), slow.mixed_targets(targets, kept, partner)).mean()
    expected = (clean + eta * mixed) / (1 if scale == "sum" else 1 + eta)
    out = objective(model, x, y, draw=draw)
    torch.testing.assert_close(out.loss.item(), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(out.parts["clean"].item(), clean, rtol=1e-12, atol=0)
    torch.testing.assert_close(out.parts["mixed"].item(), mixed, rtol=1e-12, atol=0)
    torch.testing.assert_close(out.logits, model(x))


def test_the_draw_is_that_of_cutmix():
    ours, theirs = (cls(alpha=0.3, samples=2).draw(5, SIZE, seeded(2)) for cls in (RegCutMix, CutMix))
    assert str(ours) == str(theirs)
