"""Predictions to rows: every metric of one model, with intervals; and the data that figures draw (`curves`)."""

from regmixup.rows.evaluation import evaluate, fit_temperature, relative_rows
from regmixup.rows.measure import ON_SHIFT

__all__ = ["ON_SHIFT", "evaluate", "fit_temperature", "relative_rows"]
