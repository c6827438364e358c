"""A run: its configuration, its folder (see `regmixup.run_folder`), its trained model, and its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import torch

from regmixup import data, networks, plugins, predictions, run_folder
from regmixup.config import decode, encode, fingerprint
from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast, float32_products
from regmixup.predictions.predict import PredictOptions, predict_all
from regmixup.storage import owning, write_json
from regmixup.training.batch_norm import forward_mixture, refresh_batches, refreshing
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.engine import check_present, choose_device
from regmixup.training.loading import make_decoder, one_more_epoch
from regmixup.types import Precision, Predictions

BatchNorm = Literal["trained", "refreshed", "refreshed-augmented", "refreshed-mixed"]


@dataclass(frozen=True)
class Run:
    """A training run and its folder.

    batch_norm: the statistics that its model and predictions use, those of training or "refreshed" ones; see
    `refreshed`. The folder and the weights are the same. predicts_in: the precision of its predictions.
    """

    folder: Path
    config: TrainConfig
    batch_norm: BatchNorm = "trained"
    predicts_in: Precision = "float32"

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open an existing run folder."""
        folder = Path(folder)
        if (folder / run_folder.PUBLISHED).is_file():
            raise ValueError(
                f"{folder} is not a run folder, `regmixup publish` has written it: "
                "regmixup.deployment.publish.load reads its network; give publish --calibrate to classify files"
            )
        if not (folder / run_folder.CONFIG).is_file():
            raise ValueError(f"{folder} is not a run folder: it has no config.json")
        return cls(folder, _read_config(folder))

    @classmethod
    def of(cls, config: TrainConfig, runs: str | Path) -> Run:
        """Return the run of a resolved configuration among `runs`, whether it is there or not."""
        return cls(Path(runs) / config.name, config)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of what the configuration computes."""
        return fingerprint(self.config)

    @property
    def checkpoint(self) -> Path:
        return self.folder / run_folder.CHECKPOINT

    @property
    def finished(self) -> bool:
        """Return whether training has ended and its results can be read; only one that is damaged is then repeated."""
        with suppress(OSError):  # which `why_unfinished` raises again where training would begin
            return not self.why_unfinished()
        return False

    def why_unfinished(self, *, whole: bool = False) -> str:
        """Return what keeps the run from being finished: a file that is missing, damaged or not the last; or "".

        whole: also compare the weights with their checksum, which reads all of them. OSError if a file is there and
        cannot be read now.
        """
        try:
            if fingerprint(_read_config(self.folder)) != self.fingerprint:
                return "config.json is that of another run"
            run_folder.read_provenance(self.folder)
            if self.config.members > 1:
                for member in self.members():
                    if reason := member.why_unfinished(whole=whole):
                        return reason
                return ""
            stored = read_checkpoint(self.checkpoint, fingerprint=self.fingerprint, whole=whole)
            if stored.position.epoch != self.config.total_epochs:
                return f"{run_folder.CHECKPOINT} is not that of the last epoch"
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            return str(error)
        return ""

    def members(self) -> list[Run]:
        """Return the runs of its models: those of an ensemble, which lie beside its own folder, or itself.

        Seed s of M members uses the seeds s M, ..., s M + M - 1, none twice.
        """
        count, seed = self.config.members, self.config.seed
        if count == 1:
            return [self]
        configs = [replace(self.config, members=1, seed=seed * count + index) for index in range(count)]
        return [replace(self, folder=self.folder.parent / config.name, config=config) for config in configs]

    def refreshed(self, *, augmented: bool = False, mixed: bool = False) -> Run:
        """Return this run with batch-norm statistics estimated again from the images of its train set.

        augmented: cropped and flipped as in training, in its batches; else as in evaluation. mixed: as training
        forwards them, cropped, flipped and mixed by its objective; its own statistics are of the last batches alone.

        The weights are the same, nothing is trained. Predictions are stored beside the others.
        """
        kind: BatchNorm = "refreshed-augmented" if augmented else "refreshed"
        return replace(self, batch_norm="refreshed-mixed" if mixed else kind)

    @contextmanager
    def owned(self, ranks: Ranks | None = None) -> Iterator[None]:
        """Lock the folder against other processes and write its config.json; of several ranks, the first does."""
        if ranks is not None and not ranks.is_first:
            yield
            return
        with owning(self.folder):
            write_json(self.folder / run_folder.CONFIG, encode(self.config))  # as it may be damaged
            yield

    def check_same_data(self, recorded: str, current: str) -> None:
        """Raise if it would go on with other data than it began with. recorded, current: fingerprints."""
        if recorded != current:
            names = " or ".join(filter(None, (self.config.train_set, self.config.validation)))
            raise ValueError(
                f"{names} has changed since {self.folder} was trained on it (fingerprint {recorded[:12]}, "
                f"now {current[:12]}): delete the run folder to train again"
            )

    def history(self) -> list[dict[str, Any]]:
        """Return one record per finished epoch."""
        return run_folder.read_history(self.folder)

    def build(self, *, num_classes: int, input_shape: Sequence[int]) -> Classifier:
        """Build the run's network, freshly initialised. input_shape: channels, height and width of the images."""
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
        """Return what a finished run recorded: versions, device, data, the shape of its input, its classes."""
        if reason := self.why_unfinished():
            raise ValueError(f"{self.folder} is not finished ({reason}): train it to the end before using its model")
        return run_folder.read_provenance(self.folder)

    def transform(self) -> EvalTransform | None:
        """Return how image files are brought to the network's size; None: they must have it already."""
        stored = self.provenance()["transform"]
        return None if stored is None else decode(EvalTransform, stored, f"transform of {self.folder}")

    def model(self, *, device: str | torch.device | None = None, root: str | Path | None = None) -> Classifier:
        """Return the trained network, in evaluation mode. Refreshed, it needs its train set, which lies in `root`."""
        if self.config.members > 1:
            raise ValueError(f"{self.folder} is an ensemble of {self.config.members} models: take one of run.members()")
        record, device = self.provenance(), choose_device(device)
        check_present(device)
        model = self.build(num_classes=len(record["classes"]), input_shape=record["input"])
        read_checkpoint(self.checkpoint, fingerprint=self.fingerprint).restore_model(model)
        model = model.to(device).eval()
        if self.batch_norm != "trained":
            images = data.load(self.config.train_set, root=root)
            with float32_products(self.predicts_in), autocast(self.predicts_in, device), refreshing(model):
                self._forward_train_set(model, images, device)
        return model

    def _forward_train_set(self, model: Classifier, images: LabelledImages, device: torch.device) -> None:
        """Forward every train image once, as `batch_norm` says."""
        if self.batch_norm == "refreshed":
            for part in refresh_batches(images, make_decoder(self.transform(), self.provenance()["input"][1:])):
                model(part.to(device))
            return
        batches = one_more_epoch(images, self.config, device)
        if self.batch_norm == "refreshed-mixed":
            forward_mixture(model, self.config, batches)
            return
        for batch in batches:
            model(batch.x)

    def predictions_path(self, dataset: str) -> Path:
        """Return where the predictions for a dataset are stored."""
        return run_folder.predictions_folder(self.folder, self.batch_norm) / predictions.file_name(dataset)

    def predict(self, dataset: str, **options: Unpack[PredictOptions]) -> Predictions:
        """Return the model's predictions for a dataset, by name, made once, then read back; see `PredictOptions`."""
        return self.predict_all([dataset], **options)[0]

    def predict_all(self, datasets: Sequence[str], **options: Unpack[PredictOptions]) -> list[Predictions]:
        """`predict` for several datasets with one load of the model, and none if all are stored."""
        return predict_all(self, datasets, **options)


def _read_config(folder: Path) -> TrainConfig:
    path = folder / run_folder.CONFIG
    try:
        values = run_folder.read_config(folder)
        missing = plugins.missing(values.get("plugins"), folder)
        if not missing:
            return decode(TrainConfig, values, str(path))
    except ValueError as error:
        raise ValueError(f"{error}. The command that trained this run writes the file again") from error
    raise ValueError(f"{path} uses {missing}")
