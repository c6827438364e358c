"""Predictions of trained runs: what a run's model says about datasets, made once and stored in the run folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from regmixup import data
from regmixup.data.catalogue import find
from regmixup.data.files import data_root
from regmixup.data.folders import find_folder
from regmixup.data.images import LabelledImages, labels_among
from regmixup.data.roles import role_of
from regmixup.metrics.threads import ahead
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import memory_format
from regmixup.posthoc import ensemble
from regmixup.predictions import store as files
from regmixup.predictions.forward import predict_images
from regmixup.training.batch_norm import REFRESH_BATCH
from regmixup.training.config import choose_device
from regmixup.training.distributed import Ranks, joined
from regmixup.training.loading import clean_parts, match_channels, reader
from regmixup.training.run import Run
from regmixup.types import Predictions

BATCH_SIZES = {"cpu": 250, "cuda": 1000}
"""Images per forward pass, divisors of what is decoded at a time; elsewhere as on a CPU."""
_AHEAD = 4
"""Datasets that are read while another is predicted."""


def store(
    run: Run,
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
                found = _predict_each(run, missing, root, device, features, ranks)
                for _ in ahead(lambda pair: _write(run, *pair), found, most=1):  # each while the next is predicted
                    pass
            ranks.wait()  # until the files can be read


def _write(run: Run, name: str, prediction: Predictions | None) -> None:
    if prediction is not None:
        files.save(prediction, run.predictions_path(name))


def _is_stored(run: Run, name: str, root: str | Path | None, *, features: bool) -> bool:
    """Return whether predictions are stored in this precision; for a folder also: with the same files and transform.

    A folder that is no longer there cannot have other files.
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
    if stored.info.get("precision", run.predicts_in) != run.predicts_in:
        return False
    if not (dataset := find(name)).may_change:
        return True
    now = {"transform": str(run.transform())}
    if not dataset.is_folder or find_folder(dataset.whole, data_root(root)) is not None:
        now["data"] = data.load(name, root=root).fingerprint
    return now.items() <= stored.info.items()


def _predict_each(
    run: Run,
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
    run: Run, model: Classifier, name: str, source: LabelledImages, ranks: Ranks, features: bool | None
) -> Predictions | None:
    """Return the predictions for one dataset on the first rank, None on the others. features: see `Run.store`.

    Images in memory must have the size that the network sees; for files see `Run.transform`.
    Ranks share whole batches, so every batch is what it would be in one process.
    """
    record, transform = run.provenance(), run.transform()
    channels, *size = record["input"]
    known = labels_among(source.classes, record["classes"])
    batch_size = BATCH_SIZES.get(next(model.parameters()).device.type, BATCH_SIZES["cpu"])
    found, shifted = [], bool(find(name).corruption)
    read, role = reader(transform, size), role_of(name, run.config.train_set) or ""
    for part in clean_parts(source, read, rows=ranks.share(len(source), unit=batch_size)):
        images = match_channels(part.images, channels)
        if list(images.shape[1:]) != [channels, *size]:
            shape, wanted = "x".join(map(str, part.images.shape[1:])), "x".join(map(str, [channels, *size]))
            raise ValueError(f"{name} has images of {shape}, the run was trained on images of {wanted}")
        labels = known[part.labels]
        found.append(
            predict_images(
                model, images, labels, dataset=name, role=role, batch_size=batch_size, moments=shifted,
                features=not shifted if features is None else features, precision=run.predicts_in,
            )
        )  # fmt: skip
    every = [part for parts in ranks.to_first(found) for part in parts]
    if not ranks.first:
        return None
    info = {"run": run.fingerprint, "data": source.fingerprint, "precision": run.predicts_in, **source.info}
    info |= {} if source.shape else {"transform": str(transform)}
    if run.batch_norm != "trained":
        how = f"without augmentation, in batches of at most {REFRESH_BATCH}"
        if run.batch_norm != "refreshed":
            mixing = " and mixing" if run.batch_norm == "refreshed-mixed" else ""
            how = f"with the augmentation{mixing} of training, in batches of {run.config.batch_size}"
        info["batch_norm"] = f"refreshed on {run.config.train_set} {how}"
    if subset := info.pop("class_subset", ""):  # numbered among the set's classes; here, among the model's
        own = [label for label in known[[int(c) for c in subset.split(",")]].tolist() if label >= 0]
        info |= {"class_subset": ",".join(map(str, own))} if own else {}
    return replace(files.join(every), info=info)
