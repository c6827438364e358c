"""The constraints once more, slowly: from whole singular value decompositions, and convolutions written as matrices."""

import torch


def slow_spectral_norm(weight, c):
    """W min(1, c / sigma) with sigma from an SVD, which autograd can differentiate."""
    sigma = torch.linalg.matrix_norm(weight.flatten(1), 2)
    return weight * (c / sigma) if sigma > c else weight


def slow_stable_rank(weight, ratio):
    """The four steps of the algorithm, one after the other; u and v are constants."""
    matrix = weight.flatten(1)
    left, values, right = torch.linalg.svd(matrix.detach(), full_matrices=False)
    top = torch.outer(left[:, 0], right[0])
    unit = matrix / torch.linalg.matrix_norm(matrix, 2)
    target = max(1.0, ratio * len(values))
    rest = unit - top
    length, allowed = torch.linalg.matrix_norm(rest), (target - 1) ** 0.5
    # An SVD leaves a rounding error of `rest` for a matrix of rank one.
    if ratio < 1 and length > allowed + 1e-9:
        unit = top + rest * (allowed / length)
    return unit.reshape(weight.shape)


def stable_rank(weight):
    """||W||_F^2 / sigma^2 of the weight as a matrix."""
    values = torch.linalg.svdvals(weight.detach().flatten(1))
    return (values.square().sum() / values[0] ** 2).item()


def convolution_matrix(conv, size):
    """The matrix of a convolution without bias on images of a size, column by column from the unit images."""
    channels, (height, width) = conv.in_channels, size
    basis = torch.eye(channels * height * width, dtype=conv.weight.dtype).reshape(-1, channels, height, width)
    with torch.no_grad():
        return (
            torch.nn.functional.conv2d(basis, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)
            .flatten(1)
            .T
        )
