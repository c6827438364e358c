"""Predictions of trained runs: what a run's model says about datasets, made once and stored in the run folder.

A stored file belongs to one run and one dataset: its own record decides, whatever its name and place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from regmixup import data
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages, labels_among
from regmixup.data.roles import role_of
from regmixup.metrics.pieces import map_ahead
from regmixup.names import warn_user
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import memory_format
from regmixup.posthoc import ensemble
from regmixup.predictions.forward import predict_batches
from regmixup.predictions.store import join, load, read_header, save
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks, joined
from regmixup.training.engine import choose_device
from regmixup.training.loading import make_decoder, match_channels, some_parts
from regmixup.types import Precision, Predictions

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


class PredictOptions(TypedDict, total=False):
    """The options of predictions, by default None.

    root: where datasets read from disk lie. device: default, the accelerator if there is one.
    features: whether they must be stored, too. None: with every set but the shifted ones, whose many subsets would take
    gigabytes: of these only the class moments are kept. An ensemble has none.
    """

    root: str | Path | None
    device: str | torch.device | None
    features: bool | None


def predict_all(run: TrainedRun, datasets: Sequence[str], **options: Unpack[PredictOptions]) -> list[Predictions]:
    """Return a run's predictions for datasets. What is stored but damaged is made again, with a warning."""
    store_predictions(run, datasets, **options)
    stored = []
    for name in datasets:
        path = run.predictions_path(name)
        try:
            stored.append(load(path))
        except ValueError as error:
            warn_user(f"{error}; predicted again")
            path.unlink(missing_ok=True)
            store_predictions(run, [name], **options)
            stored.append(load(path))
    return stored


def store_predictions(run: TrainedRun, datasets: Sequence[str], **options: Unpack[PredictOptions]) -> None:
    """Make and store the predictions that are not stored yet, without reading those that are.

    Those of an ensemble are the mean of its members' logits, with the members' own beside it. Under torchrun all
    processes must call this, and share the images.
    """
    with joined(choose_device(options.get("device"))) as ranks:
        lacking = ranks.from_first([name for name in datasets if ranks.is_first and not _is_stored(run, name, options)])
        if not lacking:
            return
        run.provenance()  # before anything is written, as there may be no model
        with run.owned(ranks):
            if run.config.members == 1:
                predicted = _predict_each(run, lacking, ranks, options)
            else:
                for member in run.members():
                    store_predictions(member, lacking, **options)
                predicted = ((name, _mean(run, name)) for name in (lacking if ranks.is_first else ()))
            for name, predictions in predicted:
                if predictions is not None:
                    save(predictions, run.predictions_path(name))
        ranks.wait()  # until the files can be read


def _mean(run: TrainedRun, name: str) -> Predictions:
    mean = ensemble([load(member.predictions_path(name)) for member in run.members()])
    return replace(mean, info={**mean.info, "run": run.fingerprint})


def _is_stored(run: TrainedRun, name: str, options: PredictOptions) -> bool:
    """Return True if the file for a dataset records this run, dataset and precision; a damaged one records nothing.

    Where a dataset's name does not fix its content, as that of a folder, the record must also have the same content.
    """
    path = run.predictions_path(name)
    if not path.exists():
        return False
    try:
        fields, info = read_header(path)
    except ValueError as error:
        warn_user(f"{error}; predicted again")
        return False
    if options.get("features") and run.config.members == 1 and "features" not in fields:
        return False
    if any(info.get(key, "") != text for key, text in _record(run, name).items()):
        return False
    return not find(name).may_change or info.get("data") == data.load(name, root=options.get("root")).fingerprint


def _record(run: TrainedRun, dataset: str) -> dict[str, str]:
    """Return what a file of a run's predictions for a dataset says about itself."""
    statistics = "" if run.batch_norm == "trained" else f"{run.batch_norm} on {run.config.train_set}"
    return {"dataset": dataset, "run": run.fingerprint, "precision": run.predicts_in, "batch_norm": statistics}


def _predict_each(
    run: TrainedRun, names: list[str], ranks: Ranks, options: PredictOptions
) -> Iterator[tuple[str, Predictions | None]]:
    """Yield the predictions for each dataset, while the next ones are read."""
    root, features = options.get("root"), options.get("features")
    model = run.model(device=options.get("device"), root=root)
    where = next(model.parameters()).device
    model = model.to(memory_format=memory_format(run.predicts_in, where))
    if run.batch_norm != "trained":
        ranks.copy_from_first(model.buffers())  # each has estimated them, maybe with other last digits

    def read_images(name: str) -> LabelledImages:
        source = data.load(name, root=root)
        _ = source.fingerprint  # which takes longer than a GPU's forward passes
        return source

    for name, source in zip(names, map_ahead(read_images, names, most=_AHEAD), strict=True):
        yield name, _predict(run, model, name, source, ranks, features)


def _predict(
    run: TrainedRun, model: Classifier, name: str, source: LabelledImages, ranks: Ranks, features: bool | None
) -> Predictions | None:
    """Return the predictions for one dataset on the first rank, None on the others. features: see `PredictOptions`.

    Images in memory must have the size that the network sees; for files see `Run.transform`.
    Ranks share whole batches, so every batch is what it would be in one process.
    """
    provenance = run.provenance()
    shape, known = provenance["input"], labels_among(source.classes, provenance["classes"])
    device = next(model.parameters()).device
    batch_size = BATCH_SIZES.get(device.type, BATCH_SIZES["cpu"])
    parts, shifted = [], bool(find(name).corruption)
    role = role_of(name, run.config.train_set)
    rows = ranks.share(len(source), unit=batch_size)
    for part in some_parts(source, rows, make_decoder(run.transform(), shape[1:])):
        images = match_channels(part.images, shape[0])
        if list(images.shape[1:]) != shape:
            size, wanted = "x".join(map(str, part.images.shape[1:])), "x".join(map(str, shape))
            raise ValueError(f"{name} has images of {size}, the run was trained on images of {wanted}")
        images = images.to(device)  # at once: a copy per batch would wait for the device each time
        batches = zip(images.split(batch_size), known[part.labels].split(batch_size), strict=True)
        predicted = predict_batches(
            model,
            batches,
            dataset=name,
            role=role,
            moments=shifted,
            features=not shifted if features is None else features,
            precision=run.predicts_in,
        )
        parts.append(predicted)
    parts_of_ranks = ranks.to_first(parts)
    if not ranks.is_first:
        return None
    whole = join([part for parts in parts_of_ranks for part in parts])
    return replace(whole, info=_info(run, name, source, known))


def _info(run: TrainedRun, name: str, source: LabelledImages, known: Tensor) -> dict[str, str]:
    """Return the `info` of predictions for a dataset. known: the model's number of each class of the dataset."""
    info = {**source.info, **_record(run, name), "data": source.fingerprint}
    if subset := info.pop("class_subset", ""):  # numbered among the set's classes; here, among the model's
        labels = [label for label in known[[int(c) for c in subset.split(",")]].tolist() if label >= 0]
        info["class_subset"] = ",".join(map(str, labels))
    # `Predictions` has a field for the dataset; what is empty is not written.
    return {key: text for key, text in info.items() if text and key != "dataset"}
