"""A forward pass keeps to the device: on tensors without values, which claim to lie on a GPU. Needs none.

A value that is read, or a tensor of another device, is an error there: what a CUDA graph of the step could not capture.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import regmixup as rm
from regmixup.methods import METHODS
from regmixup.mixing import map_tensors
from regmixup.training.config import resolve
from regmixup.training.distributed import Ranks
from regmixup.training.loop import Training
from regmixup.training.run import Run
from regmixup.training.step import ForwardPass
from tests.training import short

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TRAINED = [name for name, method in METHODS.items() if method.posthoc is None and name != "deep-ensemble"]
COMPONENTS = {
    "cutout": {"cutout": 2},
    "rotation": {"rotation": 0.5},
    "vicinal": {"objective": rm.Vicinal(rm.augmentations.PixMix())},
    "separate": {"objective": rm.RegMixup(passes="separate-clean")},
    "focal": {"objective": rm.RegMixup(loss=rm.losses.Focal())},
    "samples": {"objective": rm.RegMixup(samples=2, lam="sample")},
}


def forward_without_values(config):
    """Return the losses of the first batch under eight draws: both branches of an Alternate are among them."""
    config = resolve(replace(config, precision="float32"), CPU)
    training = Training(Run(Path(), config), short.load_few("digits/train"), CPU, Ranks(), rm.Engine(), workers=0)
    model, loader = training.model, training.loaders[0]
    picked = next(iter(loader.picks(0)))
    shards = [shard for step in range(8) for shard in training.draw_shards(step, [picked], len(picked.index))]
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                tensors |= {name: tensor.to(GPU) for name, tensor in tensors.items() if tensor is not None}
        loader.device, loader.fill = GPU, loader.fill.to(GPU)
        loader.images, loader.labels = loader.images.to(GPU), loader.labels.to(GPU)
        forward = ForwardPass(model.train(), config, loader)
        return [forward(map_tensors(picked, lambda tensor: tensor.to(GPU)), shard.draw.to(GPU)) for shard in shards]


@pytest.mark.parametrize("method", TRAINED)
def test_no_method_reads_a_value_or_leaves_the_device(method):
    config = short.config(method)
    if config.objective.differentiates_twice:  # there is no backward pass without a GPU
        config = replace(config, objective=replace(config.objective, penalty=0))
    outputs = forward_without_values(config)
    assert {output.loss.device.type for output in outputs} == {"cuda"}


@pytest.mark.parametrize("changes", COMPONENTS.values(), ids=COMPONENTS)
def test_no_component_reads_a_value_or_leaves_the_device(changes):
    outputs = forward_without_values(short.config("regmixup", **changes))
    assert {output.loss.device.type for output in outputs} == {"cuda"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [(lambda x: x * float(x.mean()), DataDependentOutputException), (lambda x: x + torch.ones(8), RuntimeError)],
    ids=["reads a value", "leaves the device"],
)
def test_a_fault_is_noticed(fault, error, monkeypatch):
    compute = rm.ERM.compute
    monkeypatch.setattr(rm.ERM, "compute", lambda self, model, x, *rest: compute(self, model, fault(x), *rest))
    with pytest.raises(error):
        forward_without_values(short.config("dnn"))
