"""Predictions to rows: every metric of one model, with intervals; and the data that figures draw."""

from regmixup.rows.any_model import evaluate
from regmixup.rows.evaluation import ON_SHIFT, fit_temperature

__all__ = ["ON_SHIFT", "evaluate", "fit_temperature"]
