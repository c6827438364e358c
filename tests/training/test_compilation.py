"""Undocumented options of inductor: used where torch has them, left out with a remark where it does not."""

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup import networks
from regmixup.training import compilation
from regmixup.training.compilation import CompiledForward, compile_options, missing_options
from regmixup.training.engine import choose_execution
from tests.training.short import config

CPU = torch.device("cpu")
OURS = {"graph_partition", "unsafe_marked_cacheable_functions", "realize_reads_threshold"}


@pytest.fixture
def without(monkeypatch):
    """Pretend that this torch lacks some options."""

    def leave_out(*names):
        known = [name for name in torch._inductor.list_options() if name not in names]
        monkeypatch.setattr(torch._inductor, "list_options", lambda: known)

    return leave_out


def test_this_torch_has_them_all():
    assert missing_options() == []
    assert compile_options(networks.build("resnet18", num_classes=2)).keys() == OURS


def test_other_models_get_the_general_option_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    assert compile_options(model) == {"graph_partition": False}


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_missing_option_is_left_out_with_a_remark(without, name):
    without(name)
    assert compile_options(networks.build("resnet18", num_classes=2)).keys() == OURS - {name}
    execution = choose_execution(rm.Engine(compile="on"), config(), CPU, steps=1)
    assert execution.remarks == (f"compiled without {name}, which torch {torch.__version__} does not have",)
    assert str(execution).endswith("does not have)")


def test_nothing_is_said_where_nothing_is_compiled(without):
    without(*OURS)
    assert choose_execution(rm.Engine(compile="off"), config(), CPU, steps=1).remarks == ()


def test_torch_accepts_the_options_that_are_left(without):
    """torch.compile looks at them when it is called, before it compiles anything."""
    without("realize_reads_threshold")
    torch.compile(lambda x: x, options=compile_options(networks.build("resnet18", num_classes=2)))


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
