"""regmixup: train reliable image classifiers, and measure how reliable they are.

    import regmixup as rm
    loss = rm.RegMixup(alpha=20)(model, x, y).loss

Names are imported when first used, so `import regmixup` costs almost nothing.
"""

from __future__ import annotations

__version__ = "0.3.0.dev0"

TYPE_CHECKING = False  # instead of importing `typing`, which takes longer than everything else here
if TYPE_CHECKING:
    from typing import Any

    from regmixup import (
        data,
        losses,
        methods,
        metrics,
        networks,
        objectives,
        posthoc,
        predictions,
        recipes,
        report,
        study,
    )
    from regmixup.augmentations import Augmentation, AugMixChains, Cutout, GaussianNoise, PixMix
    from regmixup.deployment.finetune import finetune
    from regmixup.deployment.predictor import Predictor
    from regmixup.evaluation.evaluate import evaluate
    from regmixup.metrics import scores
    from regmixup.mixing import Draw
    from regmixup.objectives import Objective
    from regmixup.objectives.alternate import Alternate
    from regmixup.objectives.augmix import AugMix
    from regmixup.objectives.batch_transform import BatchTransform
    from regmixup.objectives.bimodal import Bimodal
    from regmixup.objectives.cutmix import CutMix
    from regmixup.objectives.duq import DUQ
    from regmixup.objectives.erm import ERM
    from regmixup.objectives.half_regmixup import HalfRegMixup
    from regmixup.objectives.label_smoothing import LabelSmoothing
    from regmixup.objectives.mixup import Mixup
    from regmixup.objectives.regcutmix import RegCutMix
    from regmixup.objectives.regmixup import RegMixup
    from regmixup.objectives.rotation import Rotation
    from regmixup.objectives.vicinal import Vicinal
    from regmixup.training import sharpness
    from regmixup.training.config import TrainConfig, configure
    from regmixup.training.engine import Engine
    from regmixup.training.run import Run
    from regmixup.training.train import train
    from regmixup.types import Batch, LossOutput, Predictions, Row

_HOMES = {
    "augmentations": ("AugMixChains", "Augmentation", "Cutout", "GaussianNoise", "PixMix"),
    "deployment.finetune": ("finetune",),
    "deployment.predictor": ("Predictor",),
    "evaluation.evaluate": ("evaluate",),
    "mixing": ("Draw",),
    "objectives": ("Objective",),
    "objectives.batch_transform": ("BatchTransform",),
    "training.config": ("TrainConfig", "configure"),
    "training.engine": ("Engine",),
    "training.run": ("Run",),
    "training.train": ("train",),
    "types": ("Batch", "LossOutput", "Predictions", "Row"),
}
"""The modules with public names that are neither modules nor objectives themselves."""
_MODULES = {"scores": "metrics.scores", "sharpness": "training.sharpness"}
"""Public modules that lie in a room."""

__all__ = [
    "DUQ", "ERM", "Alternate", "AugMix", "AugMixChains", "Augmentation", "Batch", "BatchTransform", "Bimodal",
    "CutMix", "Cutout", "Draw", "Engine", "GaussianNoise", "HalfRegMixup", "LabelSmoothing", "LossOutput", "Mixup",
    "Objective", "PixMix", "Predictions", "Predictor", "RegCutMix", "RegMixup", "Rotation", "Row", "Run",
    "TrainConfig", "Vicinal", "configure", "data", "evaluate", "finetune", "losses", "methods", "metrics", "networks",
    "objectives", "posthoc", "predictions", "recipes", "report", "scores", "sharpness", "study", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        from regmixup.names import unknown

        raise AttributeError(str(unknown("name in regmixup", name, __all__)))
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is not None:
        value = getattr(import_module(f"regmixup.{home}"), name)
    elif name.islower():
        value = import_module(f"regmixup.{_MODULES.get(name, name)}")
    else:
        from regmixup.objectives import OBJECTIVES

        value = next(cls for cls in OBJECTIVES.values() if cls.__name__ == name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]
