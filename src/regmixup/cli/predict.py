"""`regmixup predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from regmixup.cli.parsing import Switch, parse
from regmixup.training.run import Run


@dataclass(frozen=True)
class PredictVerb:
    """Store the predictions of a trained run for datasets.

    Example: regmixup predict runs/regmixup-... digits/test photographs/test
    """

    run: Positional[Path]
    """A run folder."""
    datasets: Positional[tuple[str, ...]]
    """Dataset names, see `regmixup data list`."""
    root: Path | None = None
    """Folder with the datasets' official files; embedded datasets need none."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    features: Switch = False
    """Also store the features of shifted sets, which `evaluate --method kfac-llla --shift` reads."""
    refresh_batch_norm: Switch = False
    """First re-estimate batch-norm statistics on the clean train images; stored in predictions-refreshed."""


def main(args: Sequence[str]) -> None:
    """Predict, and print where the files are."""
    verb = parse(PredictVerb, "predict", args)
    if not verb.datasets:
        raise ValueError("datasets must name at least one dataset, got none (see `regmixup data list`)")
    run = Run.open(verb.run).refreshed() if verb.refresh_batch_norm else Run.open(verb.run)
    features = True if verb.features else None
    found = run.predict_all(list(verb.datasets), root=verb.root, device=verb.device, features=features)
    for name, predictions in zip(verb.datasets, found, strict=True):
        print(f"{run.predictions_path(name)}  {len(predictions)} x {predictions.logits.shape[1]}")
