"""Predictions of trained runs: what a run's model says about datasets, made once and stored in the run folder.

A stored file belongs to one run and one dataset: its own record decides, whatever its name and place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from regmixup import data
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.files import data_root
from regmixup.data.folders import find_folder
from regmixup.data.images import LabelledImages, labels_among
from regmixup.data.roles import role_of
from regmixup.metrics.pieces import ahead
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import Precision, memory_format
from regmixup.posthoc import ensemble
from regmixup.predictions import store as files
from regmixup.predictions.forward import predict_images
from regmixup.training.batch_norm import REFRESH_BATCH
from regmixup.training.config import TrainConfig, choose_device
from regmixup.training.distributed import Ranks, joined
from regmixup.training.loading import clean_parts, match_channels, reader
from regmixup.types import Predictions

BATCH_SIZES = {"cpu": 250, "cuda": 1000}
"""Images per forward pass, divisors of what is decoded at a time; elsewhere as on a CPU."""
_AHEAD = 4
"""Datasets that are read while another is predicted."""


class TrainedRun(Protocol):
    """A run with a trained model, such as `regmixup.training.run.Run`, which describes these."""

    @property
    def config(self) -> TrainConfig: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def batch_norm(self) -> str: ...
    @property
    def predicts_in(self) -> Precision: ...
    def provenance(self) -> dict[str, Any]: ...
    def transform(self) -> EvalTransform | None: ...
    def model(self, *, device: str | torch.device | None, root: str | Path | None) -> Classifier: ...
    def members(self) -> Sequence[TrainedRun]: ...
    def owned(self, ranks: Ranks) -> AbstractContextManager[None]: ...
    def predictions_path(self, dataset: str) -> Path: ...
    def predict_all(
        self,
        datasets: list[str],
        *,
        root: str | Path | None,
        device: str | torch.device | None,
        features: bool | None,
    ) -> list[Predictions]: ...


def store(
    run: TrainedRun,
    datasets: list[str],
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    features: bool | None = None,
    again: bool = False,
) -> None:
    """Make and store the predictions that are not stored yet: see `Run.store`."""
    wanted = bool(features) and run.config.members == 1
    with joined(choose_device(device)) as ranks:
        asked = datasets if ranks.first else []
        missing = [name for name in asked if again or not _is_stored(run, name, root, features=wanted)]
        missing = ranks.from_first(missing)
        if missing:
            run.provenance()  # before anything is written, as there may be no model
            with run.owned(ranks):
                predicted = _predict_each(run, missing, root, device, features, ranks)
                for _ in ahead(lambda pair: _write(run, *pair), predicted, most=1):  # each while the next is predicted
                    pass
            ranks.wait()  # until the files can be read


def _write(run: TrainedRun, name: str, predictions: Predictions | None) -> None:
    if predictions is not None:
        files.save(predictions, run.predictions_path(name))


def _is_stored(run: TrainedRun, name: str, root: str | Path | None, *, features: bool) -> bool:
    """Return True if the file for a dataset records this run, dataset and precision.

    Where a dataset's name does not fix its content, as that of a folder, the record must also have the same content and
    transform. A folder that is no longer there cannot have other content.
    """
    path = run.predictions_path(name)
    if not path.exists():
        return False
    try:
        stored = files.read_header(path)
    except ValueError as error:
        warnings.warn(f"{error}; predicted again", stacklevel=2)
        return False
    if features and "features" not in stored.fields:
        return False
    if any(stored.info.get(key, "") != text for key, text in _record(run, name).items()):
        return False
    dataset = find(name)
    if not dataset.may_change:
        return True
    if not dataset.in_memory and stored.info.get("transform") != str(run.transform()):
        return False
    if dataset.is_folder and find_folder(dataset.whole, data_root(root)) is None:
        return True
    return stored.info.get("data") == data.load(name, root=root).fingerprint


def _record(run: TrainedRun, dataset: str) -> dict[str, str]:
    """Return what a file of a run's predictions for a dataset says about itself."""
    batch_norm = ""
    if run.batch_norm != "trained":
        how = f"without augmentation, in batches of at most {REFRESH_BATCH}"
        if run.batch_norm != "refreshed":
            mixing = " and mixing" if run.batch_norm == "refreshed-mixed" else ""
            how = f"with the augmentation{mixing} of training, in batches of {run.config.batch_size}"
        batch_norm = f"refreshed on {run.config.train_set} {how}"
    return {"dataset": dataset, "run": run.fingerprint, "precision": run.predicts_in, "batch_norm": batch_norm}


def _predict_each(
    run: TrainedRun,
    names: list[str],
    root: str | Path | None,
    device: str | torch.device | None,
    features: bool | None,
    ranks: Ranks,
) -> Iterator[tuple[str, Predictions | None]]:
    """Yield the predictions for each dataset, while the next ones are read.

    Those of an ensemble are the mean of its members' logits, with the members' own beside it.
    """
    if run.config.members > 1:
        members = [member.predict_all(names, root=root, device=device, features=features) for member in run.members()]
        for index, name in enumerate(names if ranks.first else ()):
            mean = ensemble([member[index] for member in members])
            yield name, replace(mean, info={**mean.info, "run": run.fingerprint})
        return
    model = run.model(device=device, root=root)
    where = next(model.parameters()).device
    model = model.to(memory_format=memory_format(run.predicts_in, where))
    if run.batch_norm != "trained":
        ranks.copy_from_first(model.buffers())  # each has estimated them, maybe with other last digits

    def load(name: str) -> LabelledImages:
        source = data.load(name, root=root)
        _ = source.fingerprint  # which takes longer than a GPU's forward passes
        return source

    for name, source in zip(names, ahead(load, names, most=_AHEAD), strict=True):
        yield name, _predict(run, model, name, source, ranks, features)


def _predict(
    run: TrainedRun, model: Classifier, name: str, source: LabelledImages, ranks: Ranks, features: bool | None
) -> Predictions | None:
    """Return the predictions for one dataset on the first rank, None on the others. features: see `Run.store`.

    Images in memory must have the size that the network sees; for files see `Run.transform`.
    Ranks share whole batches, so every batch is what it would be in one process.
    """
    provenance, transform = run.provenance(), run.transform()
    channels, *size = provenance["input"]
    known = labels_among(source.classes, provenance["classes"])
    batch_size = BATCH_SIZES.get(next(model.parameters()).device.type, BATCH_SIZES["cpu"])
    parts, shifted = [], bool(find(name).corruption)
    read, role = reader(transform, size), role_of(name, run.config.train_set) or ""
    for part in clean_parts(source, read, rows=ranks.share(len(source), unit=batch_size)):
        images = match_channels(part.images, channels)
        if list(images.shape[1:]) != [channels, *size]:
            shape, wanted = "x".join(map(str, part.images.shape[1:])), "x".join(map(str, [channels, *size]))
            raise ValueError(f"{name} has images of {shape}, the run was trained on images of {wanted}")
        parts.append(
            predict_images(
                model, images, known[part.labels], dataset=name, role=role, batch_size=batch_size, moments=shifted,
                features=not shifted if features is None else features, precision=run.predicts_in,
            )
        )  # fmt: skip
    parts_of_ranks = ranks.to_first(parts)
    if not ranks.first:
        return None
    info = {**source.info, **_record(run, name), "data": source.fingerprint}
    if source.shape is None:
        info["transform"] = str(transform)
    if subset := info.pop("class_subset", ""):  # numbered among the set's classes; here, among the model's
        labels = [label for label in known[[int(c) for c in subset.split(",")]].tolist() if label >= 0]
        info["class_subset"] = ",".join(map(str, labels))
    # `Predictions` has a field for the dataset; what is empty is not written.
    info = {key: text for key, text in info.items() if text and key != "dataset"}
    return replace(files.join([part for parts in parts_of_ranks for part in parts]), info=info)
