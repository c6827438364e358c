"""Drawing lambda, partners and boxes, and mixing with them: pure functions with an explicit generator.

Every random number of the vicinal objectives is drawn here, on the generator's device (the CPU unless the caller
hands over another), in float64 (noise per pixel in float32), and collected in a `Draw`. Mixing with a given `Draw` is a
pure tensor function: it compiles without graph breaks, replays in a CUDA graph and gives the same result on every
device.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.config import check_number
from regmixup.names import check_name

LamMode = Literal["batch", "sample"]
Pairing = Literal["derangement", "permutation"]

_HALF = (torch.float16, torch.bfloat16)
_NO_LABEL = -(2**40)  # torch would silently skip labels of -100, its default for "ignore"


@dataclass(frozen=True)
class Draw:
    """The randomness of one step. Fields an objective does not need are None; one that needs others extends this.

    lam: () or (N,) float64, the weight of the image itself. For boxes, the share of pixels it keeps.
    partner: (N,) int64, the index of the image it is mixed with.
    box: (4,) or (N, 4) int64, the pasted rectangle as top, bottom, left, right; half-open.
    branch: which side an `Alternate` took, 0 or 1.
    With `samples=m` > 1 the three tensors carry a leading dimension m.
    """

    lam: Tensor | None = None
    partner: Tensor | None = None
    box: Tensor | None = None
    branch: int | None = None

    def to(self, device: torch.device) -> Self:
        """The same draw on another device (small copies, no synchronisation)."""

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            exact = device.type != "mps" or value.dtype != torch.float64  # MPS has no float64
            return (value if exact else value.float()).to(device, non_blocking=True)

        return type(self)(**{f.name: move(getattr(self, f.name)) for f in dataclasses.fields(self)})


def _device(generator: torch.Generator | None) -> torch.device:
    return generator.device if generator is not None else torch.device("cpu")


def sample_uniform(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Numbers in [0, 1), float64, on the generator's device."""
    return torch.rand(shape, dtype=torch.float64, generator=generator, device=_device(generator))


def sample_coins(probability: float, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """True with the given probability, bool, one uniform number each."""
    return sample_uniform(shape, generator) < probability


def sample_normal(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Standard normal noise, float32."""
    return torch.randn(shape, dtype=torch.float32, generator=generator, device=_device(generator))


def sample_order(batch_size: int, generator: torch.Generator | None = None) -> Tensor:
    """The indices 0 ... N - 1 in random order: (N,) int64."""
    return torch.randperm(batch_size, generator=generator, device=_device(generator))


def sample_beta(alpha: float, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """lambda ~ Beta(alpha, alpha), float64, one uniform number each (Section 2 and Figure 1 of the paper).

    The uniform is mapped through the inverse of the Beta distribution function, so a lambda costs exactly one number
    of the stream whatever alpha is, and the same seed gives the same quantiles for every alpha.

    >>> g = torch.Generator().manual_seed(0)
    >>> sample_beta(20, (3,), g).round(decimals=3)
    tensor([0.6460, 0.5430, 0.4920], dtype=torch.float64)
    """
    from scipy.special import betaincinv

    check_number("alpha", alpha, above=0)
    uniform = sample_uniform(shape, generator)
    values = betaincinv(float(alpha), float(alpha), uniform.cpu().numpy())
    return torch.as_tensor(values, dtype=torch.float64).to(uniform.device)


def sample_dirichlet(
    alpha: float, count: int, shape: tuple[int, ...], generator: torch.Generator | None = None
) -> Tensor:
    """Weights ~ Dirichlet(alpha, ..., alpha), float64 of shape (*shape, count), one uniform number each.

    `count` Gamma(alpha) variables divided by their sum; as in `sample_beta`, each is a quantile of its uniform number.

    >>> g = torch.Generator().manual_seed(0)
    >>> sample_dirichlet(1, 3, (2,), g).round(decimals=3)
    tensor([[0.6550, 0.2300, 0.1150],
            [0.4940, 0.2020, 0.3050]], dtype=torch.float64)
    """
    from scipy.special import gammaincinv, gammaln

    check_number("alpha", alpha, above=0)
    uniform = sample_uniform((*shape, count), generator).cpu()
    gamma = torch.as_tensor(gammaincinv(float(alpha), uniform.numpy()), dtype=torch.float64)
    # A small alpha makes variables below the smallest float, whose logarithms still tell which is the largest.
    tiny = (uniform.log() + gammaln(alpha + 1)) / alpha
    weights = torch.where(gamma > 1e-300, gamma.log(), tiny).softmax(dim=-1)
    return weights if generator is None else weights.to(generator.device)


def sample_partners(batch_size: int, pairing: Pairing, generator: torch.Generator | None = None) -> Tensor:
    """Who is mixed with whom: (N,) int64.

    "derangement" sends every image to the next one on a random cycle through the batch, so that nobody is its own
    partner (Algorithm 1 draws the partner from the batch without i); a batch of 1 pairs with itself.
    "permutation" is a uniform permutation, as in the released code: on average one image a batch pairs with itself.

    >>> partner = sample_partners(6, "derangement", torch.Generator().manual_seed(0))
    >>> bool((partner != torch.arange(6)).all()), sorted(partner.tolist())
    (True, [0, 1, 2, 3, 4, 5])
    """
    check_name("pairing", pairing, get_args(Pairing))
    order = sample_order(batch_size, generator)
    if pairing == "permutation":
        return order
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner


def sample_box(lam: Tensor, image_size: tuple[int, int], generator: torch.Generator | None = None) -> Tensor:
    """CutMix's rectangle for each lambda: (..., 4) int64 as top, bottom, left, right.

    The sides are int(side * sqrt(1 - lam)), the centre is uniform over the pixels, and the rectangle is clipped to
    the image, so its area can be smaller than 1 - lam: recompute lambda with `box_lam`.

    >>> sample_box(torch.tensor(0.75, dtype=torch.float64), (8, 8), torch.Generator().manual_seed(3))
    tensor([0, 2, 0, 4])
    """
    height, width = image_size
    side = (1 - lam).sqrt()
    centre = sample_uniform((*lam.shape, 2), generator)
    edges = []
    for axis, length in enumerate((height, width)):
        cut = (length * side).long()
        middle = (length * centre[..., axis]).long()
        low = middle - cut // 2
        edges += [low.clamp(0, length), (low + 2 * (cut // 2)).clamp(0, length)]
    return torch.stack(edges, dim=-1)


def box_lam(box: Tensor, image_size: tuple[int, int]) -> Tensor:
    """The share of pixels outside the box, float64: the lambda CutMix's labels use after clipping."""
    top, bottom, left, right = box.unbind(-1)
    return 1 - ((bottom - top) * (right - left)).double() / (image_size[0] * image_size[1])


def height_and_width(image_size: int | tuple[int, ...]) -> tuple[int, int]:
    """The sides of an image given by one side, by (height, width) or by (channels, height, width).

    >>> height_and_width(32), height_and_width((3, 24, 32))
    ((32, 32), (24, 32))
    """
    if isinstance(image_size, int):
        return image_size, image_size
    if len(image_size) not in (2, 3):
        raise ValueError(f"image_size must be a side, (height, width) or (channels, height, width), got {image_size!r}")
    return image_size[-2], image_size[-1]


def to_float(x: Tensor) -> Tensor:
    """uint8 pixels become float32 in [0, 1]; floating-point images pass unchanged."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits for some images; whatever else it returns is refused."""
    logits = model(x)
    if not isinstance(logits, Tensor):
        raise ValueError(f"the model must return logits, one (N, K) tensor, got {type(logits).__name__}")
    if logits.ndim != 2 or len(logits) != len(x):
        raise ValueError(f"the model must return logits (N, K), N = {len(x)} here, got shape {tuple(logits.shape)}")
    return logits


def full_precision(x: Tensor) -> Tensor:
    """Half precision becomes float32; everything else passes unchanged."""
    return x.float() if x.dtype in _HALF else x


def mixup(x: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    """lam * x_i + (1 - lam) * x_partner(i), Section 2 of the paper. x: floating point (N, C, H, W).

    Images in half precision are mixed in float32, so that pixels and labels use the same lambda.
    """
    exact = full_precision(x)
    weight = lam.to(exact.dtype).reshape(-1, 1, 1, 1)
    return (weight * exact + (1 - weight) * exact[partner]).to(x.dtype)


def cutmix(x: Tensor, box: Tensor, partner: Tensor) -> Tensor:
    """x with the partner's pixels inside the box. x: (N, C, H, W); box: (4,) or (N, 4)."""
    top, bottom, left, right = (edge.reshape(-1, 1, 1, 1) for edge in box.unbind(-1))
    row = torch.arange(x.shape[-2], device=x.device).reshape(1, 1, -1, 1)
    column = torch.arange(x.shape[-1], device=x.device).reshape(1, 1, 1, -1)
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    return torch.where(inside, x[partner], x)


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each sample, (N,), in at least float32. y: (N,) class indices or (N, K) probabilities."""
    logits = full_precision(logits)
    target = y.to(logits.dtype) if y.ndim == 2 else y
    return F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing, ignore_index=_NO_LABEL)


def mixed_cross_entropy(logits: Tensor, y: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    """lam * CE(y_i) + (1 - lam) * CE(y_partner(i)) of each sample, (N,)."""
    return pair_cross_entropy(logits, y, y[partner], lam)


def pair_cross_entropy(logits: Tensor, y: Tensor, other: Tensor, lam: Tensor) -> Tensor:
    """Cross-entropy against the label lam * y + (1 - lam) * other of each sample, (N,): it is linear in the label."""
    first, second = cross_entropy(logits, y), cross_entropy(logits, other)
    weight = lam.to(first.dtype)
    return weight * first + (1 - weight) * second
