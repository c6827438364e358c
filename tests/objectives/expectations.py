"""Exact expectations over the randomness of an objective, by going through all of its outcomes."""

from itertools import permutations

import torch
from torch.nn import functional as F

from tests.objectives.cases import CLASSES, batch, conv_net, gradients

SIZE = (3, 6, 8)
LAMBDAS = [torch.tensor(lam, dtype=torch.float64) for lam in (0.1, 0.5, 0.85)]


def plain_net():
    """Without batch norm an image's logits do not depend on its neighbours."""
    return conv_net(batch_norm=False, dtype=torch.float64)


def exact_batch(batch_size=5):
    return batch(batch_size, dtype=torch.float64)


def cycles(batch_size):
    """Every derangement that the objectives draw, once: the successors on each cycle through the batch."""
    for rest in permutations(range(1, batch_size)):
        order = torch.tensor([0, *rest])
        partner = torch.empty_like(order)
        partner[order] = order.roll(-1)
        yield partner


def with_gradient(model, loss):
    """The loss and all its derivatives as one vector."""
    return torch.cat([loss.detach().reshape(1), *(gradient.flatten() for gradient in gradients(model, loss))])


def value(objective, model, x, y, draw):
    """What an objective says about one outcome of its randomness."""
    return with_gradient(model, objective(model, x, y, draw=draw).loss)


def image_by_image(model, x, y, lam, partner):
    """The clean and the mixed loss of every image, each alone and with its derivatives: two (N, 1 + weights)."""
    targets = F.one_hot(y, CLASSES).double()

    def each(images, labels):
        losses = [F.cross_entropy(model(images[i : i + 1]), labels[i : i + 1]) for i in range(len(images))]
        return torch.stack([with_gradient(model, loss) for loss in losses])

    lam = lam.expand(len(x))
    mixed_x = torch.stack([lam[i] * x[i] + (1 - lam[i]) * x[j] for i, j in enumerate(partner)])
    mixed_y = torch.stack([lam[i] * targets[i] + (1 - lam[i]) * targets[j] for i, j in enumerate(partner)])
    return each(x, targets), each(mixed_x, mixed_y)


def mean_and_variance(values, probabilities):
    """Of every coordinate, over outcomes with the given probabilities."""
    weights = torch.tensor(probabilities, dtype=torch.float64).reshape(-1, 1)
    torch.testing.assert_close(weights.sum().item(), 1.0)
    values = torch.stack(values)
    mean = (weights * values).sum(dim=0)
    return mean, (weights * (values - mean) ** 2).sum(dim=0)


def assert_equal(vector, expected):
    torch.testing.assert_close(vector, expected, rtol=1e-12, atol=1e-13)
