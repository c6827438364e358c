"""Constraints on the weights of every convolution: spectral normalisation and stable rank normalisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regmixup.config import Checked, Count, Positive, PositiveShare
from regmixup.mixing import full_precision
from regmixup.networks.contract import evaluated
from regmixup.networks.power_iteration import PowerIteration, Top

Model = TypeVar("Model", bound=nn.Module)
Shapes = dict[nn.Conv2d, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Constraint(Checked, ABC):
    """A bound on every convolution's weight by its top singular value. Biases, batch norm and the head are free.

    A subclass declares its fields and implements `normalise`.
    """

    iterations: Count = 1
    """Power iterations per forward pass in training mode."""
    warmup: Count = 15
    """Power iterations at construction, so that a network can be evaluated before it is trained."""

    @abstractmethod
    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        """Return the effective weight. weight: (out, in, kh, kw)."""

    def image_shapes(self, backbone: nn.Module, example: Tensor) -> Shapes:
        """Return the inputs' shapes of those convolutions that count as maps of whole images, not as matrices."""
        return {}

    def apply(self, backbone: nn.Module, example: Tensor) -> None:
        """Parametrize the backbone's convolutions in place. example: (1, C, H, W), one image as it will see them."""
        layers = convolutions(backbone)
        if not layers:
            raise ValueError("constraint must be None for a network without convolutions: it constrains nothing else")
        shapes = self.image_shapes(backbone, example)
        for conv in layers:
            power = PowerIteration(conv, shapes.get(conv), iterations=self.iterations, warmup=self.warmup)
            # The checks that `unsafe` leaves out would cost a power iteration.
            parametrize.register_parametrization(conv, "weight", _Constrained(self, power), unsafe=True)


class _Constrained(nn.Module):
    """A parametrization weight -> weight, computed in at least float32 also under autocast.

    In training mode every access to the layer's weight updates the vectors; a forward pass accesses it once. To look at
    it without updating them, switch to evaluation mode.
    """

    def __init__(self, constraint: Constraint, power: PowerIteration) -> None:
        super().__init__()
        self.constraint = constraint
        self.power = power

    def forward(self, weight: Tensor) -> Tensor:
        device, exact = weight.device.type, full_precision(weight)
        # The meta device has no autocast to disable.
        with torch.autocast(device, enabled=False) if device != "meta" else nullcontext():
            return self.constraint.normalise(exact, self.power(exact)).to(weight.dtype)


def power_vectors(model: nn.Module) -> dict[str, Tensor]:
    """Return the vectors of all power iterations of a model by their names in its state."""
    powers = {name: module for name, module in model.named_modules() if isinstance(module, PowerIteration)}
    return {f"{name}.{vector}": getattr(power, vector) for name, power in powers.items() for vector in ("u", "v")}


@torch.no_grad()
def settle_vectors(model: nn.Module) -> None:
    """Iterate the vectors of all constraints for the weights that a model has, as often as at construction."""
    for module in model.modules():
        if isinstance(module, parametrize.ParametrizationList):
            for constrained in module:
                if isinstance(constrained, _Constrained):
                    constrained.power.settle(full_precision(module.original), constrained.constraint.warmup)


def convolutions(backbone: nn.Module) -> list[nn.Conv2d]:
    """Return all convolutions in order: the stem, those of the blocks, and projections."""
    return [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]


def input_shapes(backbone: nn.Module, example: Tensor) -> Shapes:
    """Return the input shape of each convolution when the backbone is given the example, (1, C, H, W)."""
    shapes: Shapes = {}

    def record(conv: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(conv, nn.Conv2d)
        shapes[conv] = tuple(inputs[0].shape)

    layers = convolutions(backbone)
    hooks = [conv.register_forward_pre_hook(record) for conv in layers]
    evaluated(backbone, example.to(layers[0].weight))
    for hook in hooks:
        hook.remove()
    return shapes


@dataclass(frozen=True, kw_only=True)
class SpectralNorm(Constraint):
    """W min(1, c / sigma(W)) for every convolution: DNN-SN of the paper (Miyato et al., 2018, with a clamp).

    sigma(W) = u^T W v is the largest singular value of W, differentiable in W. A weight with sigma <= c is unchanged
    and trains as usual.

    >>> _ = torch.manual_seed(0)
    >>> conv = nn.Conv2d(2, 2, 1)
    >>> conv.weight.data = torch.tensor([4.0, 1.0]).diag().reshape(2, 2, 1, 1)
    >>> SpectralNorm(c=0.5).apply(conv, example=torch.zeros(1, 2, 8, 8))
    >>> conv.weight.detach().flatten(1)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.1250]])
    """

    c: Positive = 0.5
    """Bound > 0: 0.5 in the paper, chosen among 0.5, 0.75 and 1; 6 with the norm convolution for SNGP on CIFAR."""
    norm: Literal["matrix", "convolution"] = "matrix"
    """matrix: W as a matrix (out, in * kh * kw), as in the paper. convolution: the operator norm of the convolution on
    images of the size it really gets (for 1x1 kernels, the matrix's); on CUDA it follows
    `torch.backends.cudnn.allow_tf32`."""

    def image_shapes(self, backbone: nn.Module, example: Tensor) -> Shapes:
        if self.norm == "matrix":
            return {}
        shapes = input_shapes(backbone, example)
        for conv in shapes:
            if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
                raise ValueError(f"norm='convolution' needs convolutions padded with a number of zeros, got {conv}")
        return {conv: shape for conv, shape in shapes.items() if conv.kernel_size != (1, 1) or conv.groups > 1}

    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        # As a division, so that a weight within the bound is divided by exactly 1, and has a gradient.
        return weight / (top.sigma / self.c).clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class StableRank(Constraint):
    """Spectral norm 1 and stable rank at most R for every convolution: DNN-SRN of the paper (Sanyal et al., 2020).

    The stable rank ||W||_F^2 / sigma^2 of a matrix W (out, in * kh * kw) lies between 1 and its rank. With sigma and
    the vectors u, v of the largest singular value, and R = ratio * min(out, in * kh * kw) but at least 1:

        D = W / sigma - u v^T,    effective weight = u v^T + min(1, sqrt(R - 1) / ||D||_F) D

    so that the largest singular value stays 1 and the others shrink together, if they have to. Unlike `SpectralNorm`, a
    weight with sigma < 1 is scaled up.

    Singular values 2, 1, 1, 1 become 1 and three of sqrt(0.2 / 3), with stable rank 0.3 * 4 = 1.2:

    >>> _ = torch.manual_seed(0)
    >>> conv = nn.Conv2d(4, 4, 1)
    >>> conv.weight.data = torch.tensor([2.0, 1.0, 1.0, 1.0]).diag().reshape(4, 4, 1, 1)
    >>> StableRank(ratio=0.3).apply(conv, example=torch.zeros(1, 4, 8, 8))
    >>> conv.weight.detach().flatten(1).diagonal()
    tensor([1.0000, 0.2582, 0.2582, 0.2582])
    """

    ratio: PositiveShare = 0.3
    """Share of the full stable rank, above 0 and at most 1: 0.3 in the paper, chosen among 0.3, 0.5, 0.7 and 0.9; 1
    leaves W / sigma. Where R is 1 although the matrix has 2 or more rows (fewer than 4 at 0.3), the effective weight is
    u v^T and its gradient 0."""

    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        unit = weight / top.sigma.clamp(min=1e-12)
        full = min(len(top.u), len(top.v))
        target = max(1.0, self.ratio * full)  # R
        if target >= full:
            return unit  # no matrix has a larger stable rank
        kept: Tensor | float = 0.0  # min(1, sqrt(R - 1) / ||D||_F), with ||D||_F^2 = ||W / sigma||_F^2 - 1
        if target > 1:
            kept = 1 / ((unit.square().sum() - 1) / (target - 1)).clamp(min=1).sqrt()
        return torch.lerp(unit, torch.outer(top.u, top.v).view(weight.shape), 1 - kept)  # u v^T + kept D


def bake(model: Model) -> Model:
    """Replace every constrained weight by its effective value, in place, which leaves a plain network.

    It gives the logits of the model in evaluation mode, without the cost of the constraint, and its state dict has the
    names of the unconstrained network. Training it further is unconstrained.

    >>> from regmixup.networks import build
    >>> model = build("small", num_classes=10, constraint="spectral_norm")
    >>> bake(model).state_dict().keys() == build("small", num_classes=10).state_dict().keys()
    True
    """
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            constrained = module.parametrizations
            assert isinstance(constrained, nn.ModuleDict)
            constrained.eval()  # so that accessing the weight runs no further power iteration
            # A deep copy shares the class that torch made for its original, whose weight would go with the copy's.
            kind = type(module)
            module.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
            for name in list(constrained):
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    return model
