"""A slow, obvious twin of PyramidNet in training mode: functional calls, one pixel of the shortcut at a time."""

import torch
from torch.nn import functional as F


def batch_norm(x, parameters):
    """Every channel is standardised by its own mean and (biased) variance over the batch, then scaled and shifted."""
    scale, shift = next(parameters), next(parameters)
    normed = torch.empty_like(x)
    for channel in range(x.shape[1]):
        values = x[:, channel]
        variance = ((values - values.mean()) ** 2).mean()
        normed[:, channel] = scale[channel] * (values - values.mean()) / torch.sqrt(variance + 1e-5) + shift[channel]
    return normed


def shortcut(x, outputs, stride):
    """The mean over every stride x stride pixels, or what is left of them at the border; zeros for new channels."""
    count, channels, height, width = x.shape
    rows, columns = range(0, height, stride), range(0, width, stride)
    result = torch.zeros(count, outputs, len(rows), len(columns), dtype=x.dtype)
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            result[:, :channels, i, j] = x[:, :, top : top + stride, left : left + stride].mean(dim=(2, 3))
    return result


def block(x, parameters, width, stride):
    """BN-1x1-BN-ReLU-3x3-BN-ReLU-1x1-BN plus the shortcut; no ReLU first, none last."""
    hidden = F.conv2d(batch_norm(x, parameters), next(parameters))
    hidden = F.conv2d(batch_norm(hidden, parameters).clamp(min=0), next(parameters), stride=stride, padding=1)
    hidden = F.conv2d(batch_norm(hidden, parameters).clamp(min=0), next(parameters))
    return batch_norm(hidden, parameters) + shortcut(x, 4 * width, stride)


def features(x, parameters, *, stage, widening):
    """3 stages of `stage` blocks; every block is widening / (3 stage) channels wider than the one before, rounded."""
    maps = batch_norm(F.conv2d(x, next(parameters), padding=1), parameters)
    exact = 16.0
    for number in range(3):
        for index in range(stage):
            exact += widening / (3 * stage)
            maps = block(maps, parameters, round(exact), stride=2 if number > 0 and index == 0 else 1)
    return batch_norm(maps, parameters).clamp(min=0).mean(dim=(2, 3))
