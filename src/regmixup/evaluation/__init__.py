"""Predictions -> scores and metrics -> rows. Needs no model, and never imports one."""
