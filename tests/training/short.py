"""Trainings of a second, which tests interrupt, and the bits that they end with."""

import itertools
import signal
from contextlib import contextmanager
from unittest import mock

import pytest
import torch

import regmixup as rm
from regmixup import data
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.step import TrainingStep
from regmixup.training.stopping import Interrupted

IMAGES, BATCH = 50, 16
STEPS = 4
"""Per epoch; the last batch has two images."""

FINE_TUNING = {"optimizer": "adamw", "lr": 3e-3, "clip_norm": 0.8, "ema": 0.95, "weight_decay": 0.05}
"""All that fine-tuning adds to a step but a frozen backbone."""

UNSTEADY = {"lr": 0.1, "epochs": 3, "dropout": 0.0, "schedule": "step", "milestones": (2,), "lr_decay": 20.0}
"""So that the last epoch is not the best: its learning rate is far too large."""

EVERY_STEP = rm.Engine(checkpoint_minutes=0)

load_all = data.load


def load_few(name, *, root=None):
    """The first digits of the train set, in place of `regmixup.data.load`; other sets are whole."""
    found = load_all(name, root=root)
    return found.select(torch.arange(IMAGES)) if name == "digits/train" else found


def config(method="regmixup", **changes):
    return rm.configure("digits", method, **{"epochs": 3, "batch_size": BATCH, "dropout": 0.2, **changes})


def tensors_of(run, prefix):
    """The tensors of a run's checkpoint whose names begin like this, by the rest of their names."""
    found = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def ending(run):
    """Every tensor that a run ended with, and its history but for the time it took."""
    tensors = {}
    for index, member in enumerate(run.members()):
        found = read_checkpoint(member.checkpoint, fingerprint=member.fingerprint).tensors
        tensors |= {f"{index}.{name}": tensor for name, tensor in found.items()}
    return tensors, [{k: v for k, v in record.items() if k != "seconds"} for record in run.history()]


def assert_same_ending(found, expected):
    """Bit for bit."""
    (tensors, history), (expected_tensors, expected_history) = found, expected
    assert tensors.keys() == expected_tensors.keys()
    for name, tensor in tensors.items():
        assert same_bits(tensor, expected_tensors[name]), name
    assert history == expected_history


def same_bits(a, b):
    """Also of NaN, and of zeros with different signs."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return a.dtype == b.dtype and torch.equal(a.view(whole[a.element_size()]), b.view(whole[b.element_size()]))


@contextmanager
def signal_after(steps, number=signal.SIGTERM):
    """This process gets a signal during the step with that number, counted from 1."""
    with after_step(steps, lambda: signal.raise_signal(number)):
        yield


def interrupt(settings, runs, *, after, **options):
    """Train until a signal interrupts the step with that number, counted from 1."""
    with signal_after(after), pytest.raises(Interrupted):
        rm.train(settings, runs, device="cpu", **options)


@contextmanager
def after_step(steps, action):
    """Something happens at the end of the step with that number, counted from 1."""
    step, count = TrainingStep.__call__, itertools.count(1)

    def counted(self, shards):
        step(self, shards)
        if next(count) == steps:
            action()

    with mock.patch.object(TrainingStep, "__call__", counted):
        yield
