"""A run is a folder: what was asked, what happened, the weights, and what the model said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup import data, networks, predictions
from regmixup.config import decode, encode, fingerprint
from regmixup.data.folders import FolderSet, chunks
from regmixup.networks.contract import Classifier
from regmixup.storage import owning, read_json, read_table, write_json, write_text
from regmixup.training.checkpoint import load_checkpoint
from regmixup.training.config import TrainConfig, choose_device
from regmixup.types import Predictions


@dataclass(frozen=True)
class Run:
    """A training run and its folder:

    config.json         the configuration          provenance.json  versions, device, seconds, data; written when done
    history.jsonl       one line per epoch         checkpoint.safetensors  weights and optimizer after the last epoch
    predictions/*.safetensors                      rows.csv  what evaluation measured
    """

    folder: Path
    config: TrainConfig

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run folder."""
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a run folder: it has no config.json")
        return cls(folder, decode(TrainConfig, read_json(folder / "config.json"), str(folder / "config.json")))

    @property
    def fingerprint(self) -> str:
        """Names what the configuration computes."""
        return fingerprint(self.config)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def finished(self) -> bool:
        """Whether training has ended; a finished run is never repeated. Without its checkpoint it is not finished."""
        return (self.folder / "provenance.json").is_file() and self.checkpoint.is_file()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder against other processes and make sure that it says what it is."""
        with owning(self.folder):
            if not (self.folder / "config.json").exists():
                write_json(self.folder / "config.json", encode(self.config))
            yield

    def history(self) -> list[dict[str, Any]]:
        """One record per finished epoch."""
        path = self.folder / "history.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        try:
            records = [json.loads(line) for line in lines]
            if not all(isinstance(v, int | float) for record in records for v in (record["epoch"], record["loss"])):
                raise ValueError("epoch and loss must be numbers")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it, the weights do not need it") from error
        return records

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """Replace the history."""
        write_text(self.folder / "history.jsonl", "".join(json.dumps(record) + "\n" for record in records))

    def build(self, *, num_classes: int, in_channels: int) -> Classifier:
        """The run's network, freshly initialised."""
        return networks.build(
            self.config.network,
            num_classes=num_classes,
            in_channels=in_channels,
            normalize=(self.config.mean, self.config.std),
            dropout=self.config.dropout,
        )

    def provenance(self) -> dict[str, Any]:
        """What a finished run recorded about itself: versions, device, data, the shape of its input, its classes."""
        if not self.finished:
            raise ValueError(f"{self.folder} is not finished: train it to the end before using its model")
        path = self.folder / "provenance.json"
        record = read_table(path)
        if not {"classes", "input", "data"} <= record.keys():
            raise ValueError(f"{path} is damaged: it must name classes, input and data, found {', '.join(record)}")
        return record

    def model(self, *, device: str | torch.device | None = None) -> Classifier:
        """The trained network, in evaluation mode. Needs no dataset."""
        record = self.provenance()
        model = self.build(num_classes=len(record["classes"]), in_channels=record["input"][0])
        load_checkpoint(self.checkpoint, model, fingerprint=self.fingerprint)
        return model.to(choose_device(device)).eval()

    def predictions_path(self, dataset: str) -> Path:
        """Where the predictions for a dataset are stored."""
        return self.folder / "predictions" / predictions.file_name(dataset)

    def predict(
        self, dataset: str, *, root: str | Path | None = None, device: str | torch.device | None = None
    ) -> Predictions:
        """What the model says about a dataset; made once and stored, then read back."""
        return self.predict_all([dataset], root=root, device=device)[0]

    def predict_all(
        self, datasets: list[str], *, root: str | Path | None = None, device: str | torch.device | None = None
    ) -> list[Predictions]:
        """`predict` for several datasets with one load of the model, and none if all are stored."""
        missing = [name for name in datasets if not self._is_stored(name, root)]
        if missing:
            with self.owned():
                model = self.model(device=device)
                for name in missing:
                    predictions.save(self._predict(model, name, root), self.predictions_path(name))
        return [predictions.load(self.predictions_path(name)) for name in datasets]

    def _is_stored(self, name: str, root: str | Path | None) -> bool:
        """Whether predictions are stored; those of a folder only as long as its files are the same."""
        path = self.predictions_path(name)
        if not path.exists() or not name.startswith("folder:"):
            return path.exists()
        return predictions.load(path).info.get("data") == data.load(name, root=root).fingerprint

    def _predict(self, model: Classifier, name: str, root: str | Path | None) -> Predictions:
        """Image files are brought to the size the network was trained on; images in memory must have it."""
        source = data.load(name, root=root)
        record = self.provenance()
        channels, *size = record["input"]
        info = {"run": self.fingerprint, "data": source.fingerprint, **source.info}
        if isinstance(source, FolderSet):
            crop = max(size)
            parts = chunks(source, resize=round(crop * 256 / 224), crop=crop)
        else:
            parts = iter([source])
        own = _labels_among(source.classes, record["classes"])
        found = []
        for part in parts:
            images = part.images
            if channels == 1 and images.shape[1] == 3:
                images = images.float().mean(dim=1, keepdim=True).round().to(images.dtype)
            if list(images.shape[1:]) != [channels, *size]:
                shape, wanted = "x".join(map(str, images.shape[1:])), "x".join(map(str, [channels, *size]))
                raise ValueError(f"{name} has images of {shape}, the run was trained on images of {wanted}")
            # Features of a shifted set's many subsets would take gigabytes; nothing is fitted on them.
            features = not name.partition("/")[0].endswith("-c")
            found.append(
                predictions.predict(model, images, own[part.labels], dataset=name, features=features, info=info)
            )
        return predictions.join(found)


def _labels_among(classes: tuple[str, ...], known: list[str]) -> Tensor:
    """For each class of a dataset its label among the model's classes, by name; -1 for one that the model never saw."""
    position = {name: label for label, name in enumerate(known)}
    return torch.tensor([position.get(name, -1) for name in classes])
