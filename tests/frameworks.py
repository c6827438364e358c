"""What the tests of the integrations share: the examples' own code, and the loop that they must agree with.

In float64: in float32 one rounding, of which the order of kernels decides, can move an activation over a ReLU's edge.
"""

import runpy
from pathlib import Path

import torch

import regmixup as rm

EXAMPLES = Path(__file__).parent.parent / "examples"
OBJECTIVE = rm.RegMixup(alpha=20, eta=0.5, samples=2, lam="sample")
BATCH = 8


def example(name):
    """Return the functions and classes of an example, without running it."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")


def batches(count, *, soft=False):
    """Return the first digits as pixels in [0, 1], with labels or with probabilities."""
    data = rm.data.load("digits/train")
    x, y = data.images[: count * BATCH].double() / 255, data.labels[: count * BATCH]
    if soft:
        y = 0.9 * torch.nn.functional.one_hot(y, 10).double() + 0.01
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


def network():
    """A convolutional network with batch norm, always with the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return rm.networks.build("small", num_classes=10, in_channels=1, normalize=((0.3,), (0.38,))).double()


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def own_loop(model, data, *, accumulate, generator, lr=0.1, dtype=None):
    """Train by the objective itself; return the loss of every batch and the gradient of every update."""
    losses, gradients = [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for number, (x, y) in enumerate(data):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            loss = OBJECTIVE(model, x, y, generator=generator).loss
        (loss / accumulate).backward()
        losses.append(loss.item())
        if number % accumulate == accumulate - 1:
            gradients.append(gradient_of(model))
            optimizer.step()
            optimizer.zero_grad()
    return losses, gradients


def gradient_of(model):
    return torch.cat([p.grad.flatten().clone() for p in model.parameters()])


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def assert_same_training(found, expected, losses=None, own_losses=None):
    """Compare weights after some updates, which were large enough to tell draws apart, and the losses on the way."""
    assert (weights_of(expected) - weights_of(network())).abs().max() > 1e-3
    torch.testing.assert_close(weights_of(found), weights_of(expected), rtol=0, atol=1e-9)
    if losses is not None:
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(own_losses), rtol=1e-6, atol=0)
