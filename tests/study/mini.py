"""A small version of the digits study."""

from pathlib import Path

from regmixup.study.plan import Study, load_study
from regmixup.study.planned_run import PlannedRun

MINI = """
title = "Mini"
recipe = "digits"
methods = ["dnn", "regmixup"]
seeds = [0, 1]

[train]
epochs = 5
batch_size = 64

[evaluate]
validation = "digits/val"
test = "digits/test"
shift = ["digits-c/contrast/1", "digits-c/contrast/5"]
ood = ["photographs/test"]
profile = "path:digits/test"
resamples = 100
"""

FEW_SETS = MINI.replace('profile = "path:digits/test"', "").replace('"digits-c/contrast/1", ', "")
"""The same without the paths between images, which are most of what is predicted, and with one shifted set."""


def write_mini(folder: Path, text: str = MINI) -> Path:
    path = folder / "mini.toml"
    path.write_text(text)
    return path


def load_mini(folder: Path, text: str = MINI) -> Study:
    return load_study(str(write_mini(folder, text)))


def plan_mini(folder: Path, text: str = MINI) -> list[PlannedRun]:
    """The runs of the study, in its order."""
    return list(load_mini(folder, text).runs())
