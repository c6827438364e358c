"""Rows -> tables, figures and one self-contained page. Reads stored results only; never a model."""
