"""Giving two networks the same weights, none of which is a neutral value."""

import torch
from torch import nn


def copy_in_order(source, target):
    """Weights and batch-norm statistics, matched by position: both networks list them in the order of the layers."""
    values, names = list(source.state_dict().values()), list(target.state_dict())
    target.load_state_dict(dict(zip(names, values, strict=True)))


def randomise_batch_norm(model):
    """Give every batch norm its own scale, shift, mean and variance, so that a swapped pair would be seen."""
    generator = torch.Generator().manual_seed(2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight, module.running_var):
                nn.init.uniform_(values, 0.5, 1.5, generator=generator)
            for values in (module.bias, module.running_mean):
                nn.init.normal_(values, 0, 0.1, generator=generator)
