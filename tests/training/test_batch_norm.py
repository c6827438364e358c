"""Batch norm of trained networks: its counters, and its statistics estimated again."""

import pytest
import torch
from torch.optim.swa_utils import update_bn

import regmixup as rm
from regmixup import data
from regmixup.training.checkpoint import read_checkpoint
from tests.training.short import config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return rm.train(config(epochs=1, batch_size=64), tmp_path_factory.mktemp("runs"), device="cpu")


def test_a_trained_network_takes_part_in_update_bn(run):
    model = run.model(device="cpu")
    before = model.state_dict()
    counters = [name for name in before if name.endswith("num_batches_tracked")]
    assert counters
    batches = data.load("digits/train").images.split(150)
    update_bn(batches, model)
    assert {int(model.get_buffer(name)) for name in counters} == {len(batches)}


def test_the_statistics_of_a_trained_network_can_be_reset(run):
    model = run.model(device="cpu")
    layers = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
    assert layers
    assert all(bool((layer.running_mean == 0).all()) for layer in layers)


def test_training_counts_no_batches(run):
    names = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors
    assert any(name.endswith("running_mean") for name in names)
    assert not any(name.endswith("num_batches_tracked") for name in names)
