"""A run is a folder: what was asked, what happened, the weights, and what the model said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regmixup import data, networks, predictions
from regmixup.config import decode, encode, fingerprint
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages
from regmixup.networks.contract import Classifier
from regmixup.posthoc import ensemble
from regmixup.precision import Precision, autocast, memory_format, products
from regmixup.storage import owning, read_history, read_json, read_table, sync_folder, write_json, write_text
from regmixup.threads import ahead
from regmixup.training.batch_norm import REFRESH_BATCH, augmented_batches, refresh, refresh_batches
from regmixup.training.checkpoint import NAME, read_checkpoint, read_position
from regmixup.training.config import TrainConfig, check_present, choose_device
from regmixup.training.distributed import Ranks, joined
from regmixup.training.loading import clean_parts, evaluation_transform, match_channels, reader
from regmixup.types import Predictions

_BATCH = {"cpu": 250, "cuda": 1000}
"""Images per forward pass of a prediction, divisors of what is decoded at a time; elsewhere as on a CPU."""
_AHEAD = 4
"""Datasets that are read while another is predicted."""

BatchNorm = Literal["trained", "refreshed", "refreshed-augmented"]


@dataclass(frozen=True)
class Run:
    """A training run and its folder:

    config.json         the configuration          provenance.json  versions, device, seconds, data; written when done
    history.jsonl       one line per epoch         checkpoint.safetensors  weights, optimizer and position
    predictions/*.safetensors                      rows-METHOD.csv  what a study measured
    predictions-refreshed*/*.safetensors           the same with refreshed batch-norm statistics
    checkpoint-previous.safetensors until it is finished, diverged.* if it diverged: see docs/training.md

    batch_norm: the statistics that its model and predictions use, those of training or "refreshed" ones; see
    `refreshed`. The folder and the weights are the same. predicts_in: the precision of its predictions.
    """

    folder: Path
    config: TrainConfig
    batch_norm: BatchNorm = "trained"
    predicts_in: Precision = "float32"

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run folder."""
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a run folder: it has no config.json")
        return cls(folder, _read_config(folder))

    @property
    def fingerprint(self) -> str:
        """Names what the configuration computes."""
        return fingerprint(self.config)

    @property
    def checkpoint(self) -> Path:
        return self.folder / NAME

    @property
    def finished(self) -> bool:
        """Training has ended, and what later steps need can be read; such a run is never repeated."""
        return not self.lacks()

    def lacks(self, *, whole: bool = False) -> str:
        """Say what keeps the run from being finished: a file that is missing, damaged or not the last; "" for nothing.

        whole: also compare the weights with their checksum, which reads all of them.
        """
        weights, mine = self.checkpoint, self.fingerprint
        try:
            if fingerprint(_read_config(self.folder)) != mine:
                raise ValueError("config.json is that of another run")
            self._read_provenance()
            if self.config.members > 1:
                return next((lack for member in self.members() if (lack := member.lacks(whole=whole))), "")
            at = read_position(weights, fingerprint=mine)
            if whole:
                read_checkpoint(weights, fingerprint=mine)
            if at.epoch != self.config.total_epochs:
                raise ValueError(f"{NAME} is not that of the last epoch")
        except ValueError as error:
            return str(error)
        return ""

    def members(self) -> list[Run]:
        """The runs of an ensemble's models, which lie beside its own folder."""
        configs = [self.config.member(index) for index in range(self.config.members)]
        return [replace(self, folder=self.folder.parent / config.name, config=config) for config in configs]

    def refreshed(self, *, augmented: bool = False) -> Run:
        """Return this run with batch-norm statistics estimated again from the images of its train set, not mixed.

        augmented: cropped and flipped as in training, in its batches; else as in evaluation.

        The weights are the same, nothing is trained. Predictions are stored beside the others.
        """
        return replace(self, batch_norm="refreshed-augmented" if augmented else "refreshed")

    @contextmanager
    def owned(self, ranks: Ranks | None = None) -> Iterator[None]:
        """Hold the folder against other processes and make sure that it says what it is; of ranks, the first does."""
        if ranks is not None and not ranks.first:
            yield
            return
        with owning(self.folder):
            write_json(self.folder / "config.json", encode(self.config))  # as it may be damaged
            yield

    def history(self) -> list[dict[str, Any]]:
        """One record per finished epoch."""
        return read_history(self.folder / "history.jsonl")

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """Replace the history."""
        write_text(self.folder / "history.jsonl", "".join(json.dumps(record) + "\n" for record in records))

    def build(self, *, num_classes: int, input_shape: Sequence[int]) -> Classifier:
        """The run's network, freshly initialised. input_shape: channels, height and width of the images."""
        channels, height, width = input_shape
        return networks.build(
            self.config.network,
            num_classes=num_classes,
            in_channels=channels,
            normalize=(self.config.mean, self.config.std),
            dropout=self.config.dropout,
            constraint=self.config.constraint,
            head=self.config.head,
            image_size=(height, width),
        )

    def provenance(self) -> dict[str, Any]:
        """What a finished run recorded about itself: versions, device, data, the shape of its input, its classes."""
        if lack := self.lacks():
            raise ValueError(f"{self.folder} is not finished ({lack}): train it to the end before using its model")
        return self._read_provenance()

    def _read_provenance(self) -> dict[str, Any]:
        path = self.folder / "provenance.json"
        record = read_table(path)
        if not {"classes", "input", "data"} <= record.keys():
            raise ValueError(f"{path} is damaged: it must name classes, input and data, found {', '.join(record)}")
        return record

    def transform(self) -> EvalTransform | None:
        """How image files come to the network's size wherever its model is used; None: they must have it already."""
        record = self.provenance()
        if "transform" in record:
            stored = record["transform"]
            return None if stored is None else decode(EvalTransform, stored, f"transform of {self.folder}")
        # Runs of earlier versions did not record it.
        return evaluation_transform(self.config, files=not find(self.config.train_set).in_memory)

    def model(self, *, device: str | torch.device | None = None, root: str | Path | None = None) -> Classifier:
        """The trained network, in evaluation mode. Needs no dataset; refreshed, its train set, which lies in `root`."""
        if self.config.members > 1:
            raise ValueError(f"{self.folder} is an ensemble of {self.config.members} models: take one of run.members()")
        record, device = self.provenance(), choose_device(device)
        check_present(device)
        model = self.build(num_classes=len(record["classes"]), input_shape=record["input"])
        read_checkpoint(self.checkpoint, fingerprint=self.fingerprint).restore(model)
        model = model.to(device).eval()
        if self.batch_norm != "trained":
            images = data.load(self.config.train_set, root=root)
            if self.batch_norm == "refreshed":
                batches = refresh_batches(images, reader(self.transform(), record["input"][1:]))
            else:
                batches = augmented_batches(images, self.config, device)
            with products(self.predicts_in), autocast(self.predicts_in, device):
                refresh(model, batches)
        return model

    def forget_predictions(self) -> None:
        """Remove what was predicted with other weights."""
        for folder in self.folder.glob("predictions*/"):
            for path in folder.glob("*.safetensors"):
                path.unlink()
            sync_folder(folder)

    def predictions_path(self, dataset: str) -> Path:
        """Where the predictions for a dataset are stored."""
        suffix = "" if self.batch_norm == "trained" else f"-{self.batch_norm}"
        return self.folder / f"predictions{suffix}" / predictions.file_name(dataset)

    def predict(
        self,
        dataset: str,
        *,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
        features: bool | None = None,
    ) -> Predictions:
        """What the model says about a dataset; made once and stored, then read back. The rest as in `store`."""
        return self.predict_all([dataset], root=root, device=device, features=features)[0]

    def predict_all(
        self,
        datasets: list[str],
        *,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
        features: bool | None = None,
    ) -> list[Predictions]:
        """`predict` for several datasets with one load of the model, and none if all are stored.

        What is stored but damaged is made again, with a warning.
        """
        self.store(datasets, root=root, device=device, features=features)
        found: dict[str, Predictions] = {}
        damaged = []
        for name in datasets:
            try:
                found[name] = predictions.load(self.predictions_path(name))
            except ValueError as error:
                warnings.warn(f"{error}; predicted again", stacklevel=2)
                damaged.append(name)
        if damaged:
            self.store(damaged, root=root, device=device, features=features, again=True)
            found |= {name: predictions.load(self.predictions_path(name)) for name in damaged}
        return [found[name] for name in datasets]

    def store(
        self,
        datasets: list[str],
        *,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
        features: bool | None = None,
        again: bool = False,
    ) -> None:
        """Make and store the predictions that are not stored yet, without reading those that are.

        again: make all of them, stored or not.
        features: whether they must be stored, too. None: with every set but the shifted ones, whose many subsets would
        take gigabytes: of these only the class moments are kept. An ensemble has none. Under torchrun all processes
        must call this, and share the images.
        """
        single = self.config.members == 1
        with joined(choose_device(device)) as ranks:
            wanted = bool(features) and single
            missing = [
                name for name in datasets if ranks.first and (again or not self._is_stored(name, root, features=wanted))
            ]
            missing = ranks.from_first(missing)
            if missing:
                self.provenance()  # before anything is written, as there may be no model
                with self.owned(ranks):
                    found = self._predict_each if single else self._predict_members
                    for name, prediction in found(missing, root, device, features, ranks):
                        if prediction is not None:
                            predictions.save(prediction, self.predictions_path(name))
                ranks.wait()  # until the files can be read

    def _is_stored(self, name: str, root: str | Path | None, *, features: bool) -> bool:
        """Whether predictions are stored in this precision; of a folder only while files and transform are the same."""
        path = self.predictions_path(name)
        if not path.exists():
            return False
        try:
            stored = predictions.read_header(path)
        except ValueError as error:
            warnings.warn(f"{error}; predicted again", stacklevel=2)
            return False
        if features and "features" not in stored.fields:
            return False
        if stored.info.get("precision", self.predicts_in) != self.predicts_in:
            return False
        if not find(name).is_folder:
            return True
        now = {"data": data.load(name, root=root).fingerprint, "transform": str(self.transform())}
        return now.items() <= stored.info.items()

    def _predict_each(
        self,
        names: list[str],
        root: str | Path | None,
        device: str | torch.device | None,
        features: bool | None,
        ranks: Ranks,
    ) -> Iterator[tuple[str, Predictions | None]]:
        model = self.model(device=device, root=root)
        where = next(model.parameters()).device
        model = model.to(memory_format=memory_format(self.predicts_in, where))
        if self.batch_norm != "trained":
            ranks.copy_from_first(model.buffers())  # each has estimated them, maybe with other last digits

        def load(name: str) -> LabelledImages:
            source = data.load(name, root=root)
            _ = source.fingerprint  # which takes longer than a GPU's forward passes
            return source

        for name, source in zip(names, ahead(load, names, most=_AHEAD), strict=True):
            shifted = bool(find(name).corruption)
            kept = not shifted if features is None else features
            yield name, self._predict(model, name, source, ranks, features=kept, moments=shifted)

    def _predict_members(
        self,
        names: list[str],
        root: str | Path | None,
        device: str | torch.device | None,
        features: bool | None,
        ranks: Ranks,
    ) -> Iterator[tuple[str, Predictions | None]]:
        """The mean of the members' logits, with the members' own beside it."""
        said = [member.predict_all(names, root=root, device=device, features=features) for member in self.members()]
        for index, name in enumerate(names if ranks.first else ()):
            mean = ensemble([member[index] for member in said])
            yield name, replace(mean, info={**mean.info, "run": self.fingerprint})

    def _predict(
        self,
        model: Classifier,
        name: str,
        source: LabelledImages,
        ranks: Ranks,
        *,
        features: bool,
        moments: bool,
    ) -> Predictions | None:
        """On the first rank. Images in memory must have the size that the network sees; of files see `transform`.

        Ranks share whole batches, so every batch is what it would be in one process.
        """
        record, transform = self.provenance(), self.transform()
        channels, *size = record["input"]
        known = _labels_among(source.classes, record["classes"])
        batch_size = _BATCH.get(next(model.parameters()).device.type, _BATCH["cpu"])
        found = []
        read = reader(transform, size)
        for part in clean_parts(source, read, rows=ranks.share(len(source), unit=batch_size)):
            images = match_channels(part.images, channels)
            if list(images.shape[1:]) != [channels, *size]:
                shape, wanted = "x".join(map(str, part.images.shape[1:])), "x".join(map(str, [channels, *size]))
                raise ValueError(f"{name} has images of {shape}, the run was trained on images of {wanted}")
            labels = known[part.labels]
            found.append(
                predictions.predict(
                    model, images, labels, dataset=name, batch_size=batch_size, features=features, moments=moments,
                    precision=self.predicts_in,
                )
            )  # fmt: skip
        every = [part for parts in ranks.to_first(found) for part in parts]
        if not ranks.first:
            return None
        info = {"run": self.fingerprint, "data": source.fingerprint, "precision": self.predicts_in, **source.info}
        info |= {} if source.shape else {"transform": str(transform)}
        if self.batch_norm != "trained":
            how = f"without augmentation, in batches of at most {REFRESH_BATCH}"
            if self.batch_norm == "refreshed-augmented":
                how = f"with the augmentation of training, in batches of {self.config.batch_size}"
            info["batch_norm"] = f"refreshed on {self.config.train_set} {how}"
        if subset := info.pop("class_subset", ""):  # numbered among the set's classes; here, among the model's
            own = [label for label in known[[int(c) for c in subset.split(",")]].tolist() if label >= 0]
            info |= {"class_subset": ",".join(map(str, own))} if own else {}
        return replace(predictions.join(every), info=info)


def _read_config(folder: Path) -> TrainConfig:
    path = folder / "config.json"
    try:
        return decode(TrainConfig, read_json(path), str(path))
    except ValueError as error:
        raise ValueError(f"{error}. The command that trained this run writes the file again") from error


def _labels_among(classes: tuple[str, ...], known: list[str]) -> Tensor:
    """For each class of a dataset its label among the model's classes, by name; -1 for one that the model never saw."""
    position = {name: label for label, name in enumerate(known)}
    return torch.tensor([position.get(name, -1) for name in classes])
