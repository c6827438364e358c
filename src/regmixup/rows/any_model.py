"""`rm.evaluate`: predictions as they are, or any `nn.Module` with the loaders of its datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from regmixup import predictions
from regmixup.names import check_name
from regmixup.rows import evaluation
from regmixup.types import Predictions, Row

Batches = Iterable[Sequence[Tensor]]
_ROLES = ("test", "validation", "shift", "ood")


def evaluate(
    subject: Predictions | nn.Module,
    loaders: Mapping[str, Batches | Mapping[str, Batches]] | None = None,
    **options: Any,
) -> list[Row]:
    """Rows for one model: from its test predictions, or from the model itself and its loaders.

    subject: test `Predictions`, with `validation=`, `shift=` and `ood=` predictions among the options; or an
        `nn.Module` from images to logits.
    loaders: for a module, {"test": loader, "validation": loader, "shift": {name: loader}, "ood": {name: loader}}; all
        but "test" may be left out. A loader is any iterable of (x, y); OOD labels are not looked at, so there x alone
        will do.
    options: those of `regmixup.rows.evaluation.evaluate`: posthoc, bootstrap, class_subset, fit_on, row.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    >>> batch = [(torch.rand(8, 1, 2, 2), torch.arange(8) % 3)]
    >>> noise = [torch.rand(8, 1, 2, 2)]
    >>> rows = evaluate(model, {"test": batch, "ood": {"noise": noise}}, bootstrap=None)
    >>> sorted({row.dataset for row in rows})
    ['noise', 'test']
    """
    if isinstance(subject, Predictions):
        if loaders is not None:
            raise ValueError("loaders must be left out where predictions are given: pass validation=, shift=, ood=")
        return evaluation.evaluate(subject, **options)
    if not isinstance(subject, nn.Module):
        raise ValueError(f"subject must be Predictions or an nn.Module, got {type(subject).__name__}")
    if not isinstance(loaders, Mapping) or "test" not in loaders:
        got = f"the keys {list(loaders)}" if isinstance(loaders, Mapping) else type(loaders).__name__
        raise ValueError(f'loaders must be a table with at least "test", such as {{"test": loader}}, got {got}')
    for role in loaders:
        check_name("role in loaders", role, _ROLES)

    def predict(name: str, batches: Any, *, labelled: bool = True) -> Predictions:
        if isinstance(batches, Mapping):
            raise ValueError(f'the loader of "{name}" must be an iterable of (x, y), got a table')
        return predictions.predict_batches(subject, batches, dataset=name, labelled=labelled)

    def group(role: str) -> list[Predictions]:
        named = loaders.get(role, {})
        if not isinstance(named, Mapping):
            raise ValueError(f'loaders["{role}"] must be a table of names and loaders, got {type(named).__name__}')
        return [predict(name, batches, labelled=role == "shift") for name, batches in named.items()]

    validation = predict("validation", loaders["validation"]) if "validation" in loaders else None
    return evaluation.evaluate(
        predict("test", loaders["test"]), validation=validation, shift=group("shift"), ood=group("ood"), **options
    )
