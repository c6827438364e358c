"""Posthoc methods: fitted on stored predictions, they map predictions to predictions."""

from regmixup.names import check_name
from regmixup.posthoc.base import FittedPosthoc, Posthoc, as_given, probabilities
from regmixup.posthoc.conformal import Conformal, FittedConformal
from regmixup.posthoc.laplace import FittedLaplace, LastLayerLaplace
from regmixup.posthoc.predictive import MeanField, MonteCarlo, ensemble
from regmixup.posthoc.temperature import FittedTemperature, TemperatureScaling

POSTHOCS: dict[str, type[Posthoc]] = {"laplace": LastLayerLaplace, "mean_field": MeanField, "monte_carlo": MonteCarlo}

__all__ = [
    "POSTHOCS", "Conformal", "FittedConformal", "FittedLaplace", "FittedPosthoc", "FittedTemperature",
    "LastLayerLaplace", "MeanField", "MonteCarlo", "Posthoc", "TemperatureScaling", "as_given", "build", "ensemble",
    "probabilities",
]  # fmt: skip


def build(name: str, **fields: object) -> Posthoc:
    """Return a posthoc method by its name: build("mean_field", factor=20)."""
    return POSTHOCS[check_name("posthoc", name, POSTHOCS)](**fields)
