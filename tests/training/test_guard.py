"""A step whose loss, gradient or buffers are not finite stops training, and nothing of it is saved."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup.data.loader import epoch_batches
from regmixup.networks.constraints import SpectralNorm
from regmixup.networks.rbf_head import RBFHead
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.distributed import Ranks
from regmixup.training.guard import DivergedError, Guard
from tests.training.short import BATCH, EVERY_STEP, FINE_TUNING, IMAGES, STEPS, config, load_few

pytestmark = pytest.mark.usefixtures("few_digits")

ORDER = epoch_batches(IMAGES, BATCH, 0, epoch=0)
BAD = 2
IMAGE = int(ORDER[BAD][3])
"""The bad image: it comes in step 2 of the first epoch, counted from 0."""


@dataclass(frozen=True, kw_only=True)
class Poisoned(rm.Objective):
    """Cross-entropy, but one image spoils every batch that it is in."""

    spoils: Literal["nan loss", "infinite loss", "infinite gradient", "infinite pixels"] = "nan loss"

    def compute(self, model, x, y, draw):
        image = load_few("digits/train").images[IMAGE] / 255
        spoilt = bool((x == image).flatten(1).all(1).any())
        logits = model(x * torch.inf if spoilt and self.spoils == "infinite pixels" else x)
        loss = nn.functional.cross_entropy(logits, y)
        if spoilt and self.spoils in ("nan loss", "infinite loss"):
            loss = loss * (torch.nan if self.spoils == "nan loss" else torch.inf)
        if spoilt and self.spoils == "infinite gradient":
            weight = model.head.weight.sum()
            loss = loss + (weight - weight.detach()).sqrt()  # sqrt(0): no change of the loss, no bound on its slope
        return rm.LossOutput(loss, logits=logits)


@pytest.fixture(autouse=True)
def _registered(forget):
    rm.objectives.register(Poisoned)


def poisoned(spoils="nan loss", **changes):
    return config(objective=Poisoned(spoils=spoils), **{"crop_padding": 0, **changes})


@pytest.mark.parametrize(
    "settings",
    [
        poisoned("nan loss"),
        poisoned("infinite loss"),
        poisoned("infinite gradient", **FINE_TUNING),
        poisoned("infinite pixels", shards=2, constraint=SpectralNorm()),
        poisoned("infinite pixels", head=RBFHead(embedding_dim=8)),
    ],
    ids=lambda settings: f"{settings.objective.spoils}-{settings.head_name}-{settings.optimizer}",
)
def test_the_error_names_the_step_and_the_checkpoint_is_from_before_it(settings, tmp_path):
    """Steps came after the bad one, and resuming without a change diverges at the same step."""
    errors = []
    for engine in (EVERY_STEP, rm.Engine()):
        with pytest.raises(DivergedError) as error:
            rm.train(settings, tmp_path, device="cpu", engine=engine)
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    images = ", ".join(map(str, ORDER[BAD][:8].tolist()))
    assert f"in epoch 1, step {BAD + 1} (images {images} and 8 more of" in errors[0]
    assert IMAGE in ORDER[BAD].tolist()
    assert f"A smaller lr (now {settings.lr_at(BAD / STEPS):g})" in errors[0]
    run = rm.Run.open(next(tmp_path.iterdir()))
    kept = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)
    assert (kept.position.epoch, kept.position.step) == (0, BAD)
    assert all(torch.isfinite(tensor).all() for tensor in kept.tensors.values())


@pytest.mark.parametrize(
    "bad",
    [
        {"loss": float("inf")},
        {"gradient": (float("nan"), 0.0)},
        {"gradient": (3e38, 3e38)},  # finite, but its norm is not
        {"statistics": float("nan")},
    ],
    ids=str,
)
def test_the_first_bad_step_is_remembered(bad):
    """A buffer that is infinite from the start, as a mask, is no divergence; nor is one of whole numbers."""
    weight, statistics = nn.Parameter(torch.tensor([1.0, 2.0])), torch.zeros(2)
    mask = torch.tensor([0.0, -torch.inf])
    guard = Guard(torch.device("cpu"), Ranks(), buffers=[mask, statistics, torch.tensor(7)])

    def step(*, loss=1.0, gradient=(3.0, 4.0), statistics_now=1.0):
        statistics[0] = statistics_now
        weight.grad = torch.tensor(gradient)
        return guard.check_step([torch.tensor(1.0), torch.tensor(loss)], [weight])

    assert step() == 5
    assert guard.first_bad_step() is None
    for values in (bad, {}, bad):
        step(**{("statistics_now" if name == "statistics" else name): value for name, value in values.items()})
    assert guard.first_bad_step() == 1
    assert int(guard.step) == 4
