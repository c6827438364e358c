"""Batch norm as compiled steps compute it is batch norm; elsewhere it is torch's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regmixup import networks
from regmixup.networks import layers
from regmixup.networks.backbones import _basic, _resnet
from regmixup.networks.layers import BatchNorm2d, ReLU, normalise, stored_gradient
from regmixup.training.compilation import compile_options


def layer_with_weights(channels, layer=BatchNorm2d):
    generator = torch.Generator().manual_seed(1)
    module = layer(channels)
    with torch.no_grad():
        module.weight.copy_(torch.randn(channels, generator=generator))
        module.bias.copy_(torch.randn(channels, generator=generator))
        module.running_mean.copy_(torch.randn(channels, generator=generator))
    return module


def images(*shape, offset=3.0, seed=0):
    return offset + 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def as_if_compiled(monkeypatch):
    """The forms of a compiled step, whatever the device and the precision."""
    monkeypatch.setattr(layers, "_pays", lambda x: True)


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (2, 6, 1, 1)])
def test_values_statistics_and_gradients_are_those_of_torch(as_if_compiled, shape):
    x, dy = images(*shape).double(), torch.randn(shape, generator=torch.Generator().manual_seed(2)).double()
    found = {}
    for kind in (BatchNorm2d, nn.BatchNorm2d):
        layer = layer_with_weights(shape[1], kind).double()
        inputs = x.clone().requires_grad_()
        y = layer(inputs)
        y.backward(dy)
        found[kind] = [y, *layer.buffers(), inputs.grad, layer.weight.grad, layer.bias.grad]
    for ours, theirs in zip(*found.values(), strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=1e-10, atol=1e-12)


def test_the_average_over_all_batches_is_that_of_torch(as_if_compiled):
    found = []
    for kind in (BatchNorm2d, nn.BatchNorm2d):
        layer = layer_with_weights(3, kind)
        torch.optim.swa_utils.update_bn([images(4, 3, 5, 5, seed=seed) for seed in range(3)], layer)
        found.append(layer.state_dict())
    torch.testing.assert_close(*found)
    assert found[0]["num_batches_tracked"] == 3


def test_the_backward_pass_is_the_derivative():
    x = images(3, 2, 3, 2).double().requires_grad_()
    weight, bias = (torch.randn(2, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda *args: normalise(*args, 1e-5)[0], (x, weight, bias))


@pytest.mark.parametrize("ratio", [0.0, 10.0, 1000.0])
def test_the_variance_of_bfloat16_numbers_is_lost_to_their_own_rounding_first(ratio):
    exact = ratio + torch.randn(64, 4, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rounded = exact.bfloat16()
    ones = torch.ones(4)
    variance = normalise(rounded, ones, 0 * ones, 1e-5)[2].double()
    of_rounded, of_exact = (x.double().var((0, 2, 3), correction=0) for x in (rounded, exact))
    error = (variance - of_rounded).abs()
    assert (error < 1e-5 * of_rounded + (of_rounded - of_exact).abs()).all()


def test_bfloat16_activations_come_out_as_torchs_do(as_if_compiled):
    x = images(16, 8, 12, 12).bfloat16()
    ours, theirs = (layer_with_weights(8, kind)(x) for kind in (BatchNorm2d, nn.BatchNorm2d))
    assert ours.dtype == torch.bfloat16
    assert (ours.float() - theirs.float()).abs().max() <= 2**-7 * theirs.float().abs().max()
    assert (ours == theirs).float().mean() > 0.99


def test_relu_is_relu_and_keeps_what_is_not_a_number(as_if_compiled):
    x = torch.tensor([-1.0, -0.0, 0.0, 2.0, float("nan"), float("inf")], requires_grad=True)
    ReLU()(x).sum().backward()
    assert torch.equal(x.grad[:4], torch.tensor([0.0, 0.0, 0.0, 1.0]))
    assert torch.equal(ReLU()(x.detach()).nan_to_num(7.0), F.relu(x.detach()).nan_to_num(7.0))


def test_a_stored_gradient_changes_nothing(as_if_compiled):
    x = images(2, 3, 4, 5).requires_grad_()
    y = stored_gradient(x)
    assert torch.equal(y, x)
    dy = torch.randn(2, 3, 4, 5)
    y.backward(dy)
    assert torch.equal(x.grad, dy)


def test_outside_a_compiled_step_they_are_torchs_own():
    x = images(4, 6, 5, 5)
    ours, theirs = (nn.Sequential(layer_with_weights(6, kind), act()) for kind, act in
                    ((BatchNorm2d, ReLU), (nn.BatchNorm2d, nn.ReLU)))  # fmt: skip
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.eval()(x), theirs.eval()(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert stored_gradient(x) is x


@pytest.mark.parametrize("network", ["wrn28-10", "resnet50", "densenet121", "pyramidnet200"])
def test_the_networks_of_the_paper_use_them(network):
    with torch.device("meta"):
        kinds = {type(module) for module in networks.build(network, num_classes=2).modules()}
    assert {BatchNorm2d, ReLU} <= kinds
    assert not {nn.BatchNorm2d, nn.ReLU} & kinds


def test_compilation_keeps_values_and_gradients(as_if_compiled):
    """Through torch.compile's own tracing and its split into forward and backward, with residual sums.

    The network is a ResNet of a block without and a block with a shortcut that has weights; more would be the same.
    """
    torch.manual_seed(0)
    backbone, channels = _resnet(3, 0.0, block=_basic, expansion=1, depths=(1, 1))
    model = nn.Sequential(backbone, nn.Linear(channels, 5)).double().train()
    assert compile_options(model)
    x, y = torch.rand(4, 3, 8, 8).double(), torch.arange(4)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager_decomp_partition")
    before = [buffer.clone() for buffer in model.buffers()]
    found = []
    for forward in (compiled, model):
        model.zero_grad()
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())])
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a compiled step on CUDA is where they differ")
def test_compiled_on_cuda_they_are_as_near_to_float32_as_eager_ones():
    """Rounding to bfloat16 flips ReLUs near zero, so gradients are compared by their distance to those in float32."""

    def gradients(*, compiled, bfloat16):
        torch.manual_seed(0)
        model = networks.build("resnet18", num_classes=10).cuda().to(memory_format=torch.channels_last).train()
        x = torch.rand(64, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
        forward = torch.compile(model, fullgraph=True, options=compile_options(model)) if compiled else model
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(forward(x), torch.arange(64, device="cuda") % 10)
        loss.backward()
        return loss.detach(), [p.grad for p in model.parameters()], list(model.buffers())

    exact_loss, exact, exact_buffers = gradients(compiled=False, bfloat16=False)
    errors = {}
    for compiled in (False, True):
        loss, found, buffers = gradients(compiled=compiled, bfloat16=True)
        assert abs(loss - exact_loss) < 0.01
        for buffer, value in zip(buffers, exact_buffers, strict=True):
            assert torch.allclose(buffer.float(), value.float(), rtol=0.01, atol=0.01)
        errors[compiled] = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
    assert max(errors[True]) < 1.2 * max(errors[False])
    assert sum(errors[True]) < 1.1 * sum(errors[False])
