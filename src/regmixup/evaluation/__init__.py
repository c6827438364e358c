"""Predictions to rows: every metric of one model, with intervals; and the data that figures draw (`curves`)."""
