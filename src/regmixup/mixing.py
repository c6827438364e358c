"""Draw lambda, partners and boxes, and mix images with them: pure functions with an explicit generator.

Every random number of the objectives is drawn here, on the generator's device (the CPU by default), in float64 (noise
per pixel in float32), and collected in a `Draw`. Mixing with a given `Draw` is a pure tensor function: it compiles
without graph breaks, replays in a CUDA graph and gives the same result on every device.

Top to bottom: the draw, sampling, reading a draw back, mixing images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from regmixup.config import check_count, values_of

Record = TypeVar("Record")
LamMode = Literal["batch", "sample"]
Pairing = Literal["derangement", "permutation"]
ImageSize = int | tuple[int, ...]
"""A side, (height, width) or (channels, height, width) of images; x.shape[1:] of any other inputs."""


@dataclass(frozen=True)
class Draw:
    """The randomness of one step. Unused fields are None; an objective that needs other fields extends this class.

    lam: () or (N,) float64, the weight of the image itself. For boxes, the share of pixels it keeps.
    partner: (N,) int64, the index of the image it is mixed with.
    box: (4,) or (N, 4) int64, the pasted rectangle as top, bottom, left, right; half-open.
    branch: the objective that an `Alternate` chose, 0 or 1.
    With `samples=m` > 1 the three tensors carry a leading dimension m.
    """

    lam: Tensor | None = None
    partner: Tensor | None = None
    box: Tensor | None = None
    branch: int | None = None

    def to(self, device: torch.device) -> Self:
        """Return the same draw on another device (small copies, no synchronisation)."""

        def move(tensor: Tensor) -> Tensor:
            if device.type == "mps" and tensor.dtype == torch.float64:  # which it does not have
                tensor = tensor.float()
            return tensor.to(device, non_blocking=True)

        return map_tensors(self, move)


def map_tensors(record: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """Return a dataclass with its tensors changed, and its other fields as they are."""
    fields = values_of(record)
    changed = {name: change(entry) for name, entry in fields.items() if isinstance(entry, Tensor)}
    return type(record)(**fields | changed)


def check_generator(generator: torch.Generator | None) -> None:
    if not (generator is None or isinstance(generator, torch.Generator)):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")


def _device(generator: torch.Generator | None) -> torch.device:
    check_generator(generator)
    return generator.device if generator is not None else torch.device("cpu")


def sample_uniform(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Return uniform numbers in [0, 1), float64, on the generator's device."""
    return torch.rand(shape, dtype=torch.float64, generator=generator, device=_device(generator))


def sample_normal(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Return standard normal noise, float32."""
    return torch.randn(shape, dtype=torch.float32, generator=generator, device=_device(generator))


def sample_order(batch_size: int, generator: torch.Generator | None = None) -> Tensor:
    """Return the indices 0 ... N - 1 in random order: (N,) int64."""
    return torch.randperm(batch_size, generator=generator, device=_device(generator))


def sample_beta(alpha: float, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Return lambda ~ Beta(alpha, alpha), float64, one uniform number each (Section 2 and Figure 1 of the paper).

    The uniform is mapped through the inverse of the Beta distribution function, so a lambda costs exactly one number
    of the stream whatever alpha is, and the same seed gives the same quantiles for every alpha.

    >>> g = torch.Generator().manual_seed(0)
    >>> sample_beta(20, (3,), g).round(decimals=3)
    tensor([0.6460, 0.5430, 0.4920], dtype=torch.float64)
    """
    from scipy.special import betaincinv

    uniform = sample_uniform(shape, generator)
    lam = betaincinv(float(alpha), float(alpha), uniform.cpu().numpy())
    return torch.as_tensor(lam, dtype=torch.float64).to(uniform.device)


def sample_dirichlet(
    alpha: float, count: int, shape: tuple[int, ...], generator: torch.Generator | None = None
) -> Tensor:
    """Return weights ~ Dirichlet(alpha, ..., alpha), float64 of shape (*shape, count), one uniform number each.

    `count` Gamma(alpha) variables divided by their sum; as in `sample_beta`, each is a quantile of its uniform number.

    >>> g = torch.Generator().manual_seed(0)
    >>> sample_dirichlet(1, 3, (2,), g).round(decimals=3)
    tensor([[0.6550, 0.2300, 0.1150],
            [0.4940, 0.2020, 0.3050]], dtype=torch.float64)
    """
    from scipy.special import gammaincinv

    uniform = sample_uniform((*shape, count), generator)
    gamma = torch.as_tensor(gammaincinv(float(alpha), uniform.cpu().numpy()), dtype=torch.float64)
    # The softmax of the logarithms divides by the sum; an alpha below 0.01 makes variables that underflow.
    return gamma.clamp(min=1e-300).log().softmax(dim=-1).to(uniform.device)


def sample_partners(batch_size: int, pairing: Pairing, generator: torch.Generator | None = None) -> Tensor:
    """Return the index of each image's partner: (N,) int64.

    "derangement" sends every image to the next one on a random cycle through the batch, so that no image is its own
    partner (Algorithm 1 draws the partner from the batch without i); a batch of 1 pairs with itself.
    "permutation" is a uniform permutation, as in the released code: on average one image per batch pairs with itself.

    >>> partner = sample_partners(6, "derangement", torch.Generator().manual_seed(0))
    >>> bool((partner != torch.arange(6)).all()), sorted(partner.tolist())
    (True, [0, 1, 2, 3, 4, 5])
    """
    order = sample_order(batch_size, generator)
    if pairing == "permutation":
        return order
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner


def sample_box(lam: Tensor, image_size: tuple[int, int], generator: torch.Generator | None = None) -> Tensor:
    """Return CutMix's rectangle for each lambda: (..., 4) int64 as top, bottom, left, right.

    The sides are int(side * sqrt(1 - lam)), an odd one 1 less, the centre is uniform over the pixels, and the rectangle
    is clipped to the image, so its area can be smaller than 1 - lam: recompute lambda with `box_lam`.

    >>> sample_box(torch.tensor(0.75, dtype=torch.float64), (8, 8), torch.Generator().manual_seed(3))
    tensor([0, 2, 0, 4])
    """
    side = (1 - lam).sqrt()
    return _around_a_pixel(lam.shape, [(length * side).long() for length in image_size], image_size, generator)


def sample_squares(side: int, count: int, image_size: tuple[int, int], generator: torch.Generator | None) -> Tensor:
    """Return Cutout's squares, (N, 4) as in `sample_box`: of a side that is even, or 1 less; clipped to the image."""
    return _around_a_pixel((count,), [side, side], image_size, generator)


def _around_a_pixel(
    shape: tuple[int, ...], sides: list[Any], image_size: tuple[int, int], generator: torch.Generator | None
) -> Tensor:
    """Return rectangles (*shape, 4) of these heights and widths around uniform pixels, clipped to the image."""
    centre = sample_uniform((*shape, 2), generator)
    edges = []
    for axis, (cut, length) in enumerate(zip(sides, image_size, strict=True)):
        middle = (length * centre[..., axis]).long()
        low = middle - cut // 2
        edges += [low.clamp(0, length), (low + 2 * (cut // 2)).clamp(0, length)]
    return torch.stack(edges, dim=-1)


def box_lam(box: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Return the share of pixels outside the box, float64: the lambda that CutMix's labels use after clipping."""
    top, bottom, left, right = box.unbind(-1)
    return 1 - ((bottom - top) * (right - left)).double() / (image_size[0] * image_size[1])


def height_and_width(image_size: ImageSize) -> tuple[int, int]:
    """Return the sides of an image given by one side, by (height, width) or by (channels, height, width).

    >>> height_and_width(32), height_and_width((3, 24, 32))
    ((32, 32), (24, 32))
    """
    sides = (image_size, image_size) if isinstance(image_size, int) else image_size
    if not isinstance(sides, tuple | list) or len(sides) not in (2, 3):
        raise ValueError(f"image_size must be a side, (height, width) or (channels, height, width), got {image_size!r}")
    for side in sides:
        check_count("each side of image_size", side)
    return sides[-2], sides[-1]


def draw_pairs(
    batch_size: int,
    alpha: float,
    lam: LamMode,
    pairing: Pairing,
    samples: int = 1,
    generator: torch.Generator | None = None,
    *,
    boxes_in: tuple[int, int] | None = None,
) -> Draw:
    """Draw lambda ~ Beta(alpha, alpha), one for the batch or one per sample, and a partner for every image.

    boxes_in: height and width of images, for a rectangle to each lambda, which becomes the share of pixels outside it.
    """
    check_count("batch_size", batch_size, least=0)
    draws = []
    for _ in range(samples):
        weight = sample_beta(alpha, () if lam == "batch" else (batch_size,), generator)
        partner = sample_partners(batch_size, pairing, generator)
        box = None
        if boxes_in is not None:
            box = sample_box(weight, boxes_in, generator)
            weight = box_lam(box, boxes_in)
        draws.append(Draw(lam=weight, partner=partner, box=box))
    return stack_draws(draws)


def stack_draws(draws: list[Draw]) -> Draw:
    """Join m draws into one whose tensors carry a leading dimension m; a single draw is returned as it is."""
    if len(draws) == 1:
        return draws[0]
    columns = {name: [getattr(draw, name) for draw in draws] for name in values_of(draws[0])}
    tensors = {name: torch.stack(column) for name, column in columns.items() if column[0] is not None}
    return type(draws[0])(**tensors)  # type: ignore[arg-type]  # no draw of several samples has a branch


def take(draw: Draw, name: str, shape: tuple[int, ...], objective: object) -> Tensor:
    """Return a tensor of the draw; raise if it was drawn for another batch or for other fields of the objective."""
    tensor: Tensor | None = getattr(draw, name, None)
    if tensor is None or tensor.shape != shape:
        got = None if tensor is None else f"shape {tuple(tensor.shape)}"
        raise ValueError(f"draw.{name} must have shape {shape} for {objective} and this batch, got {got}")
    return tensor


def take_pairs(draw: Draw, batch_size: int, objective: Any, *, boxed: bool = False) -> tuple[Tensor, Tensor]:
    """Return lambda and partner of every mixed image, each (m N,): the m samples of the batch one after the other.

    objective: one with the fields `lam` and `samples`, which decide the shapes of its draw.
    boxed: whether it pastes boxes.
    """
    if draw.box is not None and not boxed:  # whose lambda is a share of pixels
        raise ValueError(f"draw.box must be None for {objective}, got boxes: was it drawn by another objective?")
    samples = objective.samples
    leading = () if samples == 1 else (samples,)
    lam = take(draw, "lam", leading if objective.lam == "batch" else (*leading, batch_size), objective)
    partner = take(draw, "partner", (*leading, batch_size), objective)
    return lam.reshape(samples, -1).expand(-1, batch_size).flatten(), partner.flatten()


def take_boxes(draw: Draw, x: Tensor, objective: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return lambda (m N,), partner (m N,) and box (m N, 4) of every mixed image. x: the batch, (N, C, H, W)."""
    check_images(x)
    lam, partner = take_pairs(draw, len(x), objective, boxed=True)
    assert draw.lam is not None
    box = take(draw, "box", (*draw.lam.shape, 4), objective)
    return lam, partner, box.reshape(objective.samples, -1, 4).expand(-1, len(x), -1).reshape(-1, 4)


def check_boxes(draw: Draw, x: Tensor) -> None:
    """Raise if boxes reach out of the images x (N, C, H, W), where looking at them costs nothing.

    So does nearly every draw for larger images, whose lambda would be wrong for what is pasted.
    """
    box = draw.box
    if box is None or not can_look(box) or box.shape[-1:] != (4,):  # which `take_boxes` names
        return
    height, width = x.shape[-2:]
    if bool((box < 0).any() or (box[..., :2] > height).any() or (box[..., 2:] > width).any()):
        raise ValueError(
            f"draw.box must lie in images of {height} x {width} pixels, got {box.tolist()!s:.60}: was it drawn for "
            "another image_size?"
        )


def made_once(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that makes its tensor once for the same arguments, and which torch.compile takes as constant.

    Copying the tensor from the host in a step would break the capture of a CUDA graph.
    """
    # A tensor made in inference mode could not be used in training afterwards.
    cached = cache(torch.inference_mode(False)(make))

    @wraps(make)
    def constant(*arguments: Any) -> Tensor:
        return cached(*arguments)

    # What torch.compiler.assume_constant_result does; calling that would import the compiler, 1.6 s of every program.
    constant._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return constant


def can_look(values: Tensor) -> bool:
    """Return True if reading values costs nothing: not while compiling, and not where it would wait for a device."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check_images(x: Tensor) -> None:
    if x.ndim != 4:
        raise ValueError(f"x must be images (N, C, H, W) for an objective on pixels, got shape {tuple(x.shape)}")


def to_float(x: Tensor) -> Tensor:
    """Turn uint8 pixels into float32 in [0, 1]; floating-point images pass unchanged."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def full_precision(x: Tensor) -> Tensor:
    """Turn half precision into float32; everything else passes unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def repeat(values: Tensor, times: int) -> Tensor:
    """Return a batch `times` times, one after the other; a single batch is not copied."""
    return values if times == 1 else torch.cat([values] * times)


def mixup(x: Tensor, lam: Tensor, partner: Tensor) -> Tensor:
    """Return lam x_i + (1 - lam) x_partner(i), Section 2 of the paper.

    x: floating point (N, ...). lam: () or (m N,). partner: (m N,), for m >= 1 mixed inputs around each of the N.
    Inputs in half precision are mixed in float32, so that pixels and labels use the same lambda.
    """
    exact = full_precision(x)
    weight = lam.to(exact.dtype).reshape(-1, *[1] * (x.ndim - 1))
    return (weight * repeat(exact, len(partner) // len(x)) + (1 - weight) * exact[partner]).to(x.dtype)


def cutmix(x: Tensor, box: Tensor, partner: Tensor) -> Tensor:
    """Return x with the partner's pixels inside the box. x: (N, C, H, W). box: (4,) or (m N, 4). partner: (m N,)."""
    return torch.where(in_box(box, x), x[partner], repeat(x, len(partner) // len(x)))


def in_box(box: Tensor, x: Tensor) -> Tensor:
    """Return which pixels of images x (..., H, W) lie in the box, (N, 1, H, W) bool. box: (N, 4), or (4,) for N = 1."""
    top, bottom, left, right = (edge.reshape(-1, 1, 1, 1) for edge in box.unbind(-1))
    row = torch.arange(x.shape[-2], device=x.device).reshape(1, 1, -1, 1)
    column = torch.arange(x.shape[-1], device=x.device).reshape(1, 1, 1, -1)
    return (row >= top) & (row < bottom) & (column >= left) & (column < right)
