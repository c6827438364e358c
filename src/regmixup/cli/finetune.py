"""`regmixup finetune`: from a folder of photographs to a calibrated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from tyro.conf import Positional

from regmixup.cli.parsing import Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.names import printable
from regmixup.recipes import BACKBONE

_FOR_A_MODEL = ("acceptance", "risk", "score", "export")


@dataclass(frozen=True)
class FinetuneVerb:
    """Fine-tune a pretrained network on a folder of images: train, calibrate, test, and write a report page.

    PATH has one subfolder of images per class, or train/ and val/ or test/ with such subfolders. Prints what it
    found and chose. Nothing is chosen or fitted on test images. The same command goes on after Ctrl-C.

    Example: regmixup finetune ~/photos

    Example: regmixup finetune ~/photos --minutes 30 --backbone timm/resnet50 --init resnet50.pth --export model.onnx

    Example: regmixup finetune ~/photos --minutes 60 --against regmixup
    """

    photos: Positional[Path]
    """A folder of class folders, or one with train/ and val/ or test/."""
    backbone: str = BACKBONE
    """Network, such as any timm/...; see `regmixup list networks`."""
    init: str = "timm"
    """Its pretrained weights: timm for its own (from its cache, else downloaded), or a .safetensors, .pth or .pt file
    with timm's, torchvision's or our names."""
    method: str = "dnn"
    """The training of all weights after the linear probe, see `regmixup list methods`; dnn is plain cross-entropy,
    no worse than RegMixup on a few hundred images in our tests. --against compares them on yours."""
    against: str | None = None
    """Compare --method with this one instead: both are trained on five folds, and the paired difference is printed."""
    minutes: float = 10.0
    """The time for everything. The measured pace decides image size and epochs; with fewer than 5 that fit, the linear
    probe is the model. Where it turns out slower, training stops at the last epoch that fits, and the same command goes
    on with the others."""
    epochs: int | None = None
    """Epochs of fine-tuning, whatever the time; 0 for the linear probe alone."""
    image_size: int | None = None
    """Side of the images, whatever the time."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every class has the same weight in the loss, however many images it has."""
    acceptance: float = 0.95
    """Share of validation images that the threshold accepts; with --risk, at most."""
    risk: float | None = None
    """Accept so that at most this share of the accepted is wrong, with 95 % confidence."""
    score: str | None = None
    """How unsure the model is, which the threshold limits and the report shows: entropy (the default),
    max_probability, dempster_shafer, energy or another score of logits."""
    export: Path | None = None
    """Also write the model as a .pt2 or .onnx file, which runs without this package."""
    hide_unreadable: Switch = False
    """Put a dot before the names of files that cannot be decoded, instead of refusing the folder."""
    seed: int = 0
    """Decides data order, augmentation, mixing and dropout."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    workers: int | None = None
    """Processes that decode image files; default: one per core, at most 4."""


def main(args: Sequence[str]) -> None:
    verb = parse(FinetuneVerb, "finetune", args)
    _say("loading      PyTorch, which may take some seconds")
    from regmixup.deployment.against import compare  # only now: help need not wait for torch
    from regmixup.deployment.finetune import finetune

    options = {name: value for name, value in vars(verb).items() if name not in ("photos", "against")}
    if verb.against is not None:
        for name in _FOR_A_MODEL:
            if options.pop(name) != getattr(FinetuneVerb, name):
                raise ValueError(f"--{name} is for a model, and --against makes none")
    with LiveProgress(Console(), total=1) as progress:
        show: dict[str, Any] = {
            "say": _say, "advance": progress.advance,
            "watch": lambda label, config: progress.hooks(label, config.epochs),
        }  # fmt: skip
        if verb.against is not None:
            compare(verb.photos, against=verb.against, **options, **show)
        else:
            finetune(verb.photos, **options, **show)


def _say(line: str) -> None:
    """Print at once, also into a file or a pipe, without escape sequences that names of files may contain."""
    print(printable(line, keep="\n"), flush=True)
