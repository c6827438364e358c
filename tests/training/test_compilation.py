"""Undocumented options of inductor: used where torch has them, left out where it does not."""

import torch
from torch import nn

import regmixup as rm
from regmixup import networks
from regmixup.training import compilation
from regmixup.training.compilation import CompiledForward, compile_options

OURS = {"graph_partition", "unsafe_marked_cacheable_functions", "realize_reads_threshold"}


def test_an_option_that_torch_does_not_have_is_left_out(monkeypatch):
    model = networks.build("resnet18", num_classes=2)
    torch.compile(lambda x: x, options=compile_options(model))  # which checks the options, and compiles nothing
    assert compile_options(model).keys() == OURS
    monkeypatch.setattr(torch._inductor, "list_options", lambda: ["graph_partition"])
    assert compile_options(model) == {"graph_partition": False}


def test_other_models_get_the_general_option_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    assert compile_options(model) == {"graph_partition": False}


def test_only_full_batches_are_compiled(monkeypatch):
    called = []
    monkeypatch.setattr(compilation.torch, "compile", lambda function, **_: lambda *args: called.append("compiled"))

    class Forward(nn.Module):
        model = nn.Identity()

        def forward(self, picked, draw):
            called.append("plain")

    forward = CompiledForward(Forward(), sizes={3})
    for picked in (rm.Batch(torch.zeros(3), torch.zeros(3)), rm.Batch(torch.zeros(2), torch.zeros(2)), None):
        forward(picked, rm.Draw())
    assert called == ["compiled", "plain", "plain"]
