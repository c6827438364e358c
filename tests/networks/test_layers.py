"""Layers as compiled steps compute them are torch's: batch norm, ReLU, dropout. Elsewhere they are torch's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regmixup import networks
from regmixup.networks import layers
from regmixup.networks.backbones import _basic, _resnet
from regmixup.networks.layers import BatchNorm2d, Dropout, ReLU, keeps, normalise, stored_gradient
from regmixup.training.compilation import compile_options


def layer_with_weights(channels, layer=BatchNorm2d):
    generator = torch.Generator().manual_seed(1)
    module = layer(channels)
    with torch.no_grad():
        for tensor in (module.weight, module.bias, module.running_mean):
            tensor.copy_(torch.randn(channels, generator=generator))
    return module


def images(*shape, seed=0):
    return 3 + 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def as_if_compiled(monkeypatch):
    """The forms of a compiled step, whatever the device and the precision."""
    monkeypatch.setattr(layers, "_in_compiled_step", lambda x: True)


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (2, 6, 1, 1)])
def test_values_statistics_and_gradients_are_those_of_torch(as_if_compiled, shape):
    x, dy = images(*shape).double(), images(*shape, seed=2).double()
    results = []
    for kind in (BatchNorm2d, nn.BatchNorm2d):
        layer = layer_with_weights(shape[1], kind).double()
        inputs = x.clone().requires_grad_()
        y = layer(inputs)
        y.backward(dy)
        results.append([y, *layer.buffers(), inputs.grad, layer.weight.grad, layer.bias.grad])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=1e-10, atol=1e-12)


def test_the_average_over_all_batches_is_that_of_torch(as_if_compiled):
    states = []
    for kind in (BatchNorm2d, nn.BatchNorm2d):
        layer = layer_with_weights(3, kind)
        torch.optim.swa_utils.update_bn([images(4, 3, 5, 5, seed=seed) for seed in range(3)], layer)
        states.append(layer.state_dict())
    torch.testing.assert_close(*states)
    assert states[0]["num_batches_tracked"] == 3


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


def test_outside_a_compiled_step_they_are_torchs_own():
    x = images(4, 6, 5, 5)
    ours = nn.Sequential(layer_with_weights(6, BatchNorm2d), ReLU(), Dropout(0.3))
    theirs = nn.Sequential(layer_with_weights(6, nn.BatchNorm2d), nn.ReLU(), nn.Dropout(0.3))
    outputs = []
    for model in (ours, theirs):
        torch.manual_seed(3)
        outputs.append(torch.stack([model.train()(x), model.eval()(x)]))
    assert torch.equal(*outputs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert stored_gradient(x) is x


@pytest.mark.parametrize("network", ["wrn28-10", "resnet50", "densenet121", "pyramidnet200"])
def test_the_networks_of_the_paper_use_them(network):
    with torch.device("meta"):
        modules = list(networks.build(network, num_classes=2).modules())
    kinds = {type(module) for module in modules}
    assert {BatchNorm2d, ReLU} <= kinds
    assert not {nn.BatchNorm2d, nn.ReLU} & kinds
    assert sum(isinstance(module, Dropout) for module in modules) == (12 if network == "wrn28-10" else 0)


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
    results = []
    for forward in (compiled, model):
        model.zero_grad()
        for buffer, start in zip(model.buffers(), before, strict=True):
            buffer.copy_(start)
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())])
    for ours, plain in zip(*results, strict=True):
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
        return [p.grad for p in model.parameters()]

    exact = gradients(compiled=False, bfloat16=False)
    errors = {}
    for compiled in (False, True):
        rounded = gradients(compiled=compiled, bfloat16=True)
        errors[compiled] = [float((a - b).norm() / b.norm()) for a, b in zip(rounded, exact, strict=True)]
    assert max(errors[True]) < 1.2 * max(errors[False])
    assert sum(errors[True]) < 1.1 * sum(errors[False])


# ---------------------------------------------------------------------------------------------------------- dropout


def mask(seed, p=0.1):
    """The mask as numbers of mean 0 and variance 1, in memory order."""
    kept = keeps(torch.zeros(32, 160, 8, 8), torch.tensor([seed], dtype=torch.int32), p)
    return ((kept.double() - (1 - p)) / (p * (1 - p)) ** 0.5).permute(0, 2, 3, 1).flatten()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_each_element_stays_with_probability_1_minus_p(p):
    assert all(abs(float(z.mean())) * len(z) ** 0.5 < 4.5 for z in (mask(seed, p) for seed in (0, 5, 9**9)))


@pytest.mark.parametrize("lag", [1, 160, 2560])
def test_elements_are_uncorrelated(lag):
    for seed in (1, 77, 123456789):
        z = mask(seed)
        assert abs(float((z[lag:] * z[:-lag]).mean())) * len(z) ** 0.5 < 4.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a compiled step on CUDA is where it differs")
def test_compiled_on_cuda_the_mask_is_the_same_forward_and_backward():
    x = torch.ones(16, 64, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last).requires_grad_()
    y = torch.compile(Dropout(0.25), fullgraph=True)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # 0 where dropped, 4/3 where kept
    assert abs(float((y == 0).float().mean()) - 0.25) < 0.01
    assert torch.allclose(y[y != 0], torch.tensor(4 / 3, device="cuda"))
