"""DUQ: binary cross-entropy on kernels and the gradient penalty."""

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.rbf_head import RBFHead
from regmixup.objectives.duq import DUQ, binary_cross_entropy


def network(dtype=torch.float64, normalize=((0.4,), (0.2,))):
    torch.manual_seed(0)
    head = RBFHead(embedding_dim=6, length_scale=0.5)
    return build("small", num_classes=3, in_channels=1, normalize=normalize, head=head).to(dtype)


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(4, 1, 8, 8, dtype=dtype, generator=generator)
    return x, torch.tensor([0, 1, 2, 1])


def test_binary_cross_entropy_is_torchs_on_the_kernels():
    log_kernel = -torch.rand(7, 3, dtype=torch.float64) * 5
    target = torch.nn.functional.one_hot(torch.arange(7) % 3, 3).double()
    expected = nn.functional.binary_cross_entropy(log_kernel.exp(), target)
    torch.testing.assert_close(binary_cross_entropy(log_kernel, target), expected)


@pytest.mark.parametrize("value", [0.0, -1e-30, -1e5])
def test_binary_cross_entropy_and_its_gradient_are_finite_at_the_ends(value):
    log_kernel = torch.full((1, 2), value, requires_grad=True)
    loss = binary_cross_entropy(log_kernel, torch.tensor([[1.0, 0.0]]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(log_kernel.grad).all()


def test_a_far_image_of_its_class_still_feels_its_centroid():
    """Where exp underflows, a loss from the kernels themselves would have no gradient left."""
    log_kernel = torch.tensor([[-500.0]], requires_grad=True)
    binary_cross_entropy(log_kernel, torch.tensor([[1.0]])).backward()
    assert log_kernel.grad.item() == -1.0


def test_the_penalty_is_the_slope_with_respect_to_normalised_images_by_finite_differences():
    model, (x, y) = network().eval(), batch()
    out = DUQ(penalty=0.3)(model, x, y)

    def total(z):
        return model.head(model.backbone(z)).exp().sum(dim=1)

    z = model.normalize(x)
    slopes = []
    for n in range(len(z)):
        squares, step = 0.0, 1e-5
        for pixel in range(64):
            moved = z[n : n + 1].repeat(2, 1, 1, 1)
            moved.view(2, -1)[0, pixel] += step
            moved.view(2, -1)[1, pixel] -= step
            up, down = total(moved).tolist()
            squares += ((up - down) / (2 * step)) ** 2
        slopes.append(squares**0.5)
    expected = sum((slope - 1) ** 2 for slope in slopes) / len(slopes)
    assert out.parts["penalty"].item() == pytest.approx(expected, rel=1e-6)
    assert out.loss.item() == pytest.approx(out.parts["clean"].item() + 0.3 * expected, rel=1e-6)


def test_the_gradient_of_the_whole_loss_by_finite_differences():
    """Through the double backward: along a random direction of all parameters, in evaluation mode."""
    model, (x, y) = network().eval(), batch()
    generator = torch.Generator().manual_seed(3)
    parameters = list(model.parameters())
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]
    gradient = torch.autograd.grad(DUQ()(model, x, y).loss, parameters)
    slope = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True)).item()

    def loss_at(step):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=step)
        value = DUQ()(model, x, y).loss.item()
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.sub_(d, alpha=step)
        return value

    assert slope == pytest.approx((loss_at(1e-6) - loss_at(-1e-6)) / 2e-6, rel=1e-4)


def test_the_callers_images_are_left_alone():
    x, y = batch()
    DUQ()(network(), x, y).loss.backward()
    assert not x.requires_grad
    assert x.grad is None


def test_a_network_without_kernels_is_refused():
    x, y = batch()
    model = build("small", num_classes=3, in_channels=1).double()
    nn.init.ones_(model.head.bias)
    with pytest.raises(ValueError, match="model must return log kernels <= 0"):
        DUQ()(model, x, y)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_no_penalty(mode):
    x, y = batch()
    with mode():
        assert DUQ(penalty=0)(network(), x, y).parts.keys() == {"clean"}
        with pytest.raises(ValueError, match=r"^penalty must be 0 under no_grad and inference_mode, got 0.75$"):
            DUQ()(network(), x, y)
