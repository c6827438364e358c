"""`regmixup train --help`: the flags that people use first. Imports no torch; `--help-all` has every flag."""

from __future__ import annotations

from collections.abc import Sequence

HELP = """usage: regmixup train [--method NAME] [--recipe NAME] [options]

Train one model. --recipe and --method choose the defaults; any field can then be changed. A finished run is never
repeated; an interrupted one is resumed.

what to train:
  --method NAME          named combination of objective, constraint and head [regmixup]
  --recipe NAME          named training configuration [digits; imagenet-resnet50 for a folder]
  --train-set NAME       a dataset, or folder:PATH
  --network NAME         a network, or timm/NAME
  --init FILE            initial weights
  --seed N               decides initialisation, data order, augmentation, mixing and dropout [0]
  --alpha, --eta, ...    fields of the method's objective are flags, too

how to train:
  --epochs N             --batch-size N         --lr RATE              --schedule NAME
  --weight-decay RATE    --ema DECAY            --class-weights balanced
  --select NAME          which epoch is the model, by validation images

where and how fast:
  --runs FOLDER          folder for run folders [runs]
  --root FOLDER          folder with the datasets' official files
  --device NAME          for example cpu or cuda:0
  --precision NAME       float32, bfloat16, ...
  --compile on|off       compile the step [auto]
  --dry-run              print the resolved configuration, check everything, and write nothing

Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1

`regmixup list` has the names. --help-all explains every flag, with the defaults of the recipe and the method given."""


def main(_: Sequence[str]) -> None:
    """Print the help of `regmixup train`."""
    print(HELP)
