"""The parts of a run in training: its data, network, optimizer and loaders, and where and how they run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from regmixup.data.decode import EvalTransform
from regmixup.data.images import LabelledImages
from regmixup.data.loader import Loader
from regmixup.networks.contract import Classifier
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.training.engine import Engine
from regmixup.training.initial_weights import InitialWeights
from regmixup.training.optim import Average, Copy
from regmixup.training.run import Run
from regmixup.training.selection import Selection


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts that a run trains with; `setup.prepare` builds them.

    shape: channels, height and width of what the network sees. transform: how image files are brought to that size.
    average: the running mean of the weights. initial: the weights that training starts from, if they are not random.
    shard_numbers: the shards that this process computes, with a loader for each.
    """

    run: Run
    dataset: LabelledImages
    device: torch.device
    ranks: Ranks
    engine: Engine
    shape: tuple[int, int, int]
    transform: EvalTransform | None
    model: Classifier
    optimizer: torch.optim.Optimizer
    average: Average | None
    selection: Selection | None
    initial: InitialWeights | None
    shard_numbers: range
    loaders: list[Loader]

    @property
    def config(self) -> TrainConfig:
        return self.run.config

    @property
    def steps(self) -> int:
        """Return the number of steps of an epoch."""
        return len(self.loaders[0])

    @property
    def num_images(self) -> int:
        """Return the number of images of an epoch."""
        return self.loaders[0].num_images

    @property
    def copies(self) -> list[Copy]:
        """Return the further copies of the weights that a checkpoint holds."""
        return [copy for copy in (self.average, self.selection) if copy is not None]

    @property
    def data_fingerprint(self) -> str:
        """Return the fingerprint of the train set, and of the validation set if one selects the epoch."""
        return self.dataset.fingerprint + (f"+{self.selection.dataset.fingerprint}" if self.selection else "")
