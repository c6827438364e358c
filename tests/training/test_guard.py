"""A step whose loss or gradient is not finite leaves no trace, and training stops with its traces at hand."""

import errno
import json
import os
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import regmixup as rm
from regmixup.data.loader import epoch_batches
from regmixup.networks.constraints import SpectralNorm
from regmixup.networks.gp_head import GPHead
from regmixup.networks.rbf_head import RBFHead
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.distributed import Ranks
from regmixup.training.guard import DivergedError, Guard
from regmixup.training.step import TrainingStep
from regmixup.training.stopping import Interrupted
from tests.training.short import (
    BATCH,
    EVERY_STEP,
    FINE_TUNING,
    IMAGES,
    STEPS,
    config,
    load_few,
    same_bits,
    signal_after,
)

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


def state_before(settings, runs, steps):
    """The checkpoint of a run that is stopped after so many steps."""
    with signal_after(steps), pytest.raises(Interrupted):
        rm.train(settings, runs, device="cpu")
    run = rm.Run.open(next(runs.iterdir()))
    return read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)


def snapshot(runs):
    run = rm.Run.open(next(runs.iterdir()))
    return read_checkpoint(run.folder / "diverged.safetensors", fingerprint=run.fingerprint)


@pytest.mark.parametrize(
    "settings",
    [
        poisoned("infinite loss"),
        poisoned("infinite gradient", **FINE_TUNING),
        poisoned("infinite pixels", shards=2, constraint=SpectralNorm()),
        poisoned("infinite pixels", head=RBFHead(embedding_dim=8)),
        poisoned("nan loss", shards=2, head=GPHead(num_features=32), **FINE_TUNING),
    ],
    ids=lambda settings: (
        f"{settings.objective.spoils}-{settings.shards}-{settings.head_name}-{settings.constraint}-{settings.optimizer}"
    ),
)
def test_the_snapshot_is_the_state_before_the_bad_step_bit_for_bit(settings, tmp_path):
    """Weights, momentum, batch-norm statistics and what heads keep, although steps came after it."""
    before = state_before(settings, tmp_path / "stopped", BAD)
    steps = []
    original = TrainingStep.__call__
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "__call__", lambda *args, **kwargs: (steps.append(1), original(*args, **kwargs)))
        with pytest.raises(DivergedError):
            rm.train(settings, tmp_path / "diverged", device="cpu")
    assert len(steps) == STEPS > BAD + 1
    found = snapshot(tmp_path / "diverged")
    assert (found.position.epoch, found.position.step) == (0, BAD)
    assert found.tensors.keys() == before.tensors.keys()
    for name, tensor in before.tensors.items():
        assert same_bits(found.tensors[name], tensor), name
        assert torch.isfinite(tensor).all()


def test_the_error_names_epoch_step_images_and_what_helps(tmp_path):
    settings = poisoned()
    with pytest.raises(DivergedError) as error:
        rm.train(settings, tmp_path, device="cpu")
    folder = next(tmp_path.iterdir())
    assert f"in epoch 1, step {BAD + 1} (images {', '.join(map(str, ORDER[BAD][:8].tolist()))}, ..." in str(error.value)
    assert f"{folder / 'diverged.safetensors'} has them as they were before that step" in str(error.value)
    assert f"A smaller lr (now {settings.lr_at(BAD / STEPS):g})" in str(error.value)
    record = json.loads((folder / "diverged.json").read_text())
    assert record == {
        "epoch": 1,
        "step": BAD + 1,
        "lr": settings.lr_at(BAD / STEPS),
        "images": ORDER[BAD].tolist(),
    }
    assert IMAGE in record["images"]


def test_going_on_without_a_change_diverges_again_at_the_same_step(tmp_path):
    with pytest.raises(DivergedError) as first:
        rm.train(poisoned(), tmp_path, device="cpu", engine=EVERY_STEP)
    run = rm.Run.open(next(tmp_path.iterdir()))
    kept = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)
    assert (kept.position.epoch, kept.position.step) == (0, BAD)
    assert all(torch.isfinite(tensor).all() for tensor in kept.tensors.values())
    with pytest.raises(DivergedError) as second:
        rm.train(poisoned(), tmp_path, device="cpu")
    assert str(second.value) == str(first.value)
    assert all(same_bits(snapshot(tmp_path).tensors[name], tensor) for name, tensor in kept.tensors.items())


def test_a_snapshot_that_cannot_be_written_does_not_hide_the_reason(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("regmixup.training.checkpoint.save_tensors", full)
    with pytest.raises(DivergedError, match=r"epoch 1, step 3 .* could not be saved \(.*No space left on device\)"):
        rm.train(poisoned(), tmp_path, device="cpu")


class TestGuard:
    def guarded(self, *buffers):
        weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.5), momentum=0.5, fused=True)
        optimizer.state[weight]["momentum_buffer"] = torch.zeros(2)
        return weight, optimizer, Guard(optimizer, torch.device("cpu"), Ranks(), buffers=buffers)

    def step(self, weight, optimizer, guard, *, loss=1.0, gradient=(1.0, 1.0)):
        guard.save_buffers()
        weight.grad = torch.tensor(gradient)
        guard.check_step([torch.tensor(loss)], [weight])
        optimizer.step()

    @pytest.mark.parametrize(
        "bad",
        [
            {"loss": float("inf")},
            {"gradient": (float("nan"), 0.0)},
            {"gradient": (3e38, 3e38)},  # finite, but its norm is not
        ],
        ids=str,
    )
    def test_the_gate_closes_at_the_first_bad_step_and_stays_closed(self, bad):
        weight, optimizer, guard = self.guarded()
        self.step(weight, optimizer, guard)
        kept, momentum = weight.detach().clone(), optimizer.state[weight]["momentum_buffer"].clone()
        assert kept.tolist() == [0.5, 1.5]
        assert guard.first_bad_step() is None
        for values in (bad, {}, bad, {}):
            self.step(weight, optimizer, guard, **values)
        assert same_bits(weight.detach(), kept)
        assert same_bits(optimizer.state[weight]["momentum_buffer"], momentum)
        assert guard.first_bad_step() == 1

    def test_buffers_of_any_type_come_back_from_before_the_bad_step(self):
        """Also minus zero, NaN, the smallest and the largest numbers, which arithmetic on floats would not keep."""
        values = torch.tensor([-0.0, float("nan"), float("-inf"), 1e-45, 3.4e38, -1.0])
        types = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
        buffers = [values.to(dtype) for dtype in types] + [torch.tensor(2**62), torch.tensor([True, False])]
        weight, optimizer, guard = self.guarded(*buffers)
        for buffer in buffers:
            buffer.copy_(buffer.flip(0)) if buffer.ndim else buffer.neg_()
        before = [buffer.clone() for buffer in buffers]
        self.step(weight, optimizer, guard, loss=float("nan"))
        for _ in range(2):
            for buffer in buffers:
                buffer.fill_(1)
            self.step(weight, optimizer, guard)
        guard.restore_buffers()
        assert all(same_bits(a, b) for a, b in zip(buffers, before, strict=True))


def test_statistics_that_overflow_stop_the_run_though_the_loss_is_finite(tmp_path, monkeypatch):
    monkeypatch.undo()  # all the digits
    with pytest.raises(DivergedError):
        rm.train(rm.configure("digits", "dnn", epochs=4, lr=100.0), tmp_path, device="cpu")
    for path in tmp_path.glob("*/*.safetensors"):
        assert all(bool(torch.isfinite(t).all()) for t in load_file(path).values() if t.is_floating_point()), path


def test_a_buffer_that_is_infinite_from_the_start_is_no_divergence():
    mask, mean = torch.tensor([0.0, -torch.inf]), torch.zeros(2)
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    guard = Guard(torch.optim.SGD([weight]), torch.device("cpu"), Ranks(), buffers=[mask, mean])
    for value, found in ((1.0, None), (torch.inf, 1)):
        guard.save_buffers()
        mean[0] = value
        guard.check_step([torch.tensor(1.0)], [weight])
        assert guard.first_bad_step() == found
    guard.restore_buffers()
    assert mean.tolist() == [1.0, 0.0]
