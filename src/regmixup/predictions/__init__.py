"""Predictions: what a model says about a dataset, as a file. Left of it are models and data, right of it metrics.

store.py    write, read and join Predictions; formats.py reads the files of other programs
forward.py  run any module on batches
predict.py  run a trained run on datasets, and store what it says in the run's folder
"""

from regmixup.predictions.forward import predict_batches
from regmixup.predictions.store import file_name, from_probs, join, load, save

__all__ = ["file_name", "from_probs", "join", "load", "predict_batches", "save"]
