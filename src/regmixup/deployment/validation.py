"""Run a model over the batches of a validation loader: its logits, and the kind of inputs that it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regmixup.deployment.calibration import Labelled
from regmixup.deployment.export import Inputs
from regmixup.deployment.module import Deployable
from regmixup.networks import plain_normalize
from regmixup.networks.contract import Normalization
from regmixup.predictions.forward import pair_of
from regmixup.types import look_like_probabilities


@dataclass(frozen=True)
class Collected:
    """Logits and labels of a loader, the shape of an input, and the kind of all inputs by their values."""

    labelled: Labelled
    shape: tuple[int, ...]
    inputs: Inputs


@torch.no_grad()
def collect(module: Deployable, batches: Iterable[Any], name: str, normalize: Normalization | None) -> Collected:
    """Return the logits of batches (x, y). normalize: the module's, which must be for one channel or those of x."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    logits, labels, shapes, lowest, highest = [], [], set(), 0.0, 1.0
    for batch in batches:
        x, y = pair_of(batch, name)
        plain_normalize(normalize, *sorted({1, *x.shape[1:2]}))
        if x.is_floating_point():
            low, high = map(float, x.aminmax())
            lowest, highest = min(lowest, low), max(highest, high)
        shapes.add(tuple(x.shape[1:]))
        logits.append(module.logits(x.to(device)).cpu())
        if not bool(torch.isfinite(logits[-1]).all()):
            raise ValueError(f"the model must give finite logits for {name}, got NaN or infinite values")
        labels.append(y.cpu())
    if len(shapes) != 1:
        shown = f"shapes {', '.join(map(str, sorted(shapes)))}" if shapes else "nothing"
        raise ValueError(f"{name} must give batches (x, y) of inputs of one shape, got {shown}")
    labelled = Labelled(torch.cat(logits), torch.cat(labels))
    if labelled.logits.shape[1] > 1 and look_like_probabilities(labelled.logits):
        raise ValueError(
            f"the model must give logits for {name}, got numbers >= 0 that sum to 1: leave out its softmax"
        )
    inputs: Inputs = "normalised" if lowest < 0 and max(-lowest, highest) <= 20 else "as given"
    return Collected(labelled, shapes.pop(), "pixels" if lowest == 0 and highest == 1 else inputs)


def look_like_pixels(images: Tensor) -> bool:
    """Return whether floating-point inputs (N, C, H, W) are k or k / 255 beyond doubt, and so not normalised.

    Dark or bright normalised images can be such numbers by chance, too, but not up to 1 and both even and odd.
    """
    low, high = map(float, images.aminmax())
    if images.ndim != 4 or low < 0 or high > 50:
        return images.ndim == 4 and low >= 0
    levels = (255 * images).float()
    if not 0.6 < high <= 1 or float((levels - levels.round()).abs().max()) > 1e-3:
        return False
    used = levels.round().unique() % 2
    return bool(used.sum() > 4) and bool((1 - used).sum() > 4)
