"""Run a model on batches: Predictions of any `nn.Module`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.metrics.fisher import ClassMoments
from regmixup.mixing import to_float
from regmixup.networks.contract import evaluation_mode
from regmixup.networks.gp_head import GaussianProcess
from regmixup.networks.outputs import logits_of
from regmixup.networks.precision import autocast, check_precision, float32_products
from regmixup.types import Precision, Predictions, Role, as_tensor, is_whole


@torch.no_grad()
def predict_batches(
    model: nn.Module,
    batches: Iterable[Sequence[Tensor] | Tensor],
    *,
    dataset: str = "",
    features: bool = True,
    moments: bool = False,
    labelled: bool = True,
    precision: Precision = "float32",
    role: Role = "",
) -> Predictions:
    """Predict batches (x, y) in evaluation mode, without augmentation.

    batches: any iterable of pairs, such as a DataLoader; x: (N, C, H, W) uint8 or floating point, y: (N,).
    labelled: if False, labels are ignored and become -1, unknown; x alone suffices.
    features: keep what reaches the head, where the model has `features` and `head`; the head's weight and bias are
    kept with it where it is linear. The variance of a Gaussian process's logits is kept in any case.
    moments: keep the class moments of the features, which the Fisher criterion needs and which are much smaller;
    samples of unknown class, label -1, are left out.
    role: what the dataset is for; "" reads it from the name.
    precision: of the forward passes; see `types.Precision`. float32 is float32 on CUDA, too, and not TF32.
    """
    device, head = weights_device(model), _head_of(model)
    check_precision(precision, device)
    logits: list[Tensor] = []
    labels: list[Tensor] = []
    head_inputs: list[Tensor] = []
    variances: list[Tensor] = []

    def collect(head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if features or moments:
            head_inputs.append(inputs[0].float() if moments else inputs[0].float().cpu())
        if isinstance(head, GaussianProcess):
            variances.append(head.variance(inputs[0]).float().cpu())

    # What reaches the head, whatever `forward` does before it; one pass gives all.
    hook = head.register_forward_pre_hook(collect) if head is not None else nullcontext()
    with hook, evaluation_mode(model):
        for batch in batches:
            x, y = pair_of(batch, dataset, labelled=labelled)
            with float32_products(precision), autocast(precision, device):
                logits.append(logits_of(model, to_float(x.to(device, non_blocking=True))).float())
            labels.append(y.cpu())
    if not logits:
        raise ValueError(f"batches of {dataset or 'a dataset'} must hold at least one (x, y), got none")
    all_logits, all_labels = torch.cat(logits).cpu(), torch.cat(labels)
    optional: dict[str, Any] = {}
    if head_inputs and features:
        optional |= {"features": torch.cat(head_inputs).cpu(), **_linear_weights(head)}
    if variances:
        optional["logit_variance"] = torch.cat(variances).expand_as(all_logits).contiguous()
    if head_inputs and moments:  # of all batches at once: the checks of each would wait for the device
        known = (all_labels >= 0).to(device)
        of_known = ClassMoments.of(torch.cat(head_inputs)[known], all_labels.to(device)[known], all_logits.shape[1])
        optional |= of_known.packed()
    return Predictions(all_logits, all_labels, **optional, dataset=dataset, role=role)


def _head_of(model: nn.Module) -> nn.Module | None:
    """Return the head of a model that has `features` and `head`; None for any other model."""
    # No isinstance of a protocol: from Python 3.12 on it does not see submodules, which nn.Module keeps in a dict.
    head = getattr(model, "head", None)
    return head if isinstance(head, nn.Module) and callable(getattr(model, "features", None)) else None


def _linear_weights(head: nn.Module | None) -> dict[str, Tensor]:
    """Return weight and bias of a linear head as fields of `Predictions`; nothing for any other head."""
    if not isinstance(head, nn.Linear):
        return {}
    weights = {"head_weight": head.weight, "head_bias": head.bias}
    return {name: tensor.detach().float().cpu().clone() for name, tensor in weights.items() if tensor is not None}


def pair_of(batch: object, dataset: str, *, labelled: bool = True) -> tuple[Tensor, Tensor]:
    """Return images and labels of a batch, whatever else it holds behind them."""
    match batch:
        case (Tensor() as x) | [Tensor() as x, *_] if not labelled:
            return x, torch.full((len(x),), -1)
        case [Tensor() as x, y, *_]:
            y = as_tensor(f"labels of {dataset or 'a batch'}", y)
            if y.shape == (*x.shape[:1], 1):
                y = y.squeeze(1)
            if y.shape == x.shape[:1] != () and is_whole(y):
                return x, y
            got = f"images and labels of shapes {tuple(x.shape)} and {tuple(y.shape)}, {y.dtype}"
        case _:
            got = f"{type(batch).__name__} {batch!r:.80}"
    raise ValueError(
        f"batches of {dataset or 'a dataset'} must be (images, labels) pairs of tensors (N, ...) and (N,), such as "
        f"those of torch.utils.data.DataLoader(dataset, batch_size=64), got {got}; labels are integers"
    )


def weights_device(model: nn.Module) -> torch.device:
    """Return where the weights of a model are; the CPU for a model without any."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))
