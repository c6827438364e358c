"""A small version of the digits study."""

from pathlib import Path

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
