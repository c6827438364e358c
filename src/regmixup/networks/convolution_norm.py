"""Power iteration on a whole convolution, as a linear map from input images to output images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from regmixup.networks.power_iteration import PowerIteration, convolutions


class ConvolutionPowerIteration(PowerIteration):
    """Of the convolution on images of one size, with its stride, padding, dilation and groups.

    shape: (1, C, H, W), one input of the layer; v has this shape, u that of the layer's output. The adjoint is exact
    for every size, also where the stride leaves pixels of the border unused.
    """

    def __init__(self, conv: nn.Conv2d, shape: tuple[int, ...], *, iterations: int, warmup: int) -> None:
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise ValueError(
                "norm='convolution' needs convolutions padded with a number of zeros, "
                f"got padding={conv.padding!r} with padding_mode={conv.padding_mode!r}"
            )
        # Before the base's own set-up, which warms up with `times` and `adjoint`.
        self.shape = shape
        self.stride, self.padding, self.dilation, self.groups = conv.stride, conv.padding, conv.dilation, conv.groups
        super().__init__(conv.weight, shape, iterations=iterations, warmup=warmup)

    def times(self, weight: Tensor, v: Tensor) -> Tensor:
        return F.conv2d(v, weight, None, self.stride, self.padding, self.dilation, self.groups)

    def adjoint(self, weight: Tensor, u: Tensor) -> Tensor:
        return conv2d_input(self.shape, weight, u, self.stride, self.padding, self.dilation, self.groups)


@torch.no_grad()
def input_shapes(backbone: nn.Module, example: Tensor) -> dict[nn.Conv2d, tuple[int, ...]]:
    """The shape each convolution is given when the backbone sees the example, (1, C, H, W)."""
    shapes: dict[nn.Conv2d, tuple[int, ...]] = {}

    def record(conv: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(conv, nn.Conv2d)
        shapes[conv] = tuple(inputs[0].shape)

    layers = convolutions(backbone)
    hooks = [conv.register_forward_pre_hook(record) for conv in layers]
    training = backbone.training
    backbone.eval()
    try:
        backbone(example.to(layers[0].weight) if layers else example)
    finally:
        backbone.train(training)
        for hook in hooks:
            hook.remove()
    assert len(shapes) == len(layers), "the forward pass must reach every convolution"
    return shapes
