"""`regmixup finetune`: from a folder of photographs to a calibrated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional

from regmixup.cli.parsing import Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.cli.train_help import PACKAGE, print_group, read_fields
from regmixup.config import values_of
from regmixup.deployment.request import Request
from regmixup.names import printable


@dataclass(frozen=True, kw_only=True)
class FinetuneVerb(Request):
    """Fine-tune a pretrained network on a folder of images: train, calibrate, test, and write a report page.

    PHOTOS has one subfolder of images per class, or train/ and val/ or test/ with such subfolders; or it is a .csv file
    with the columns path and label. Prints what it found and chose. Nothing is chosen or fitted on test images. The
    same command goes on after Ctrl-C.

    Example: regmixup finetune ~/photos

    Example: regmixup finetune ~/photos --minutes 30 --backbone timm/resnet50 --init resnet50.pth --export model.onnx

    Example: regmixup finetune labels.csv --freeze --ood ~/other-images

    Example: regmixup finetune ~/photos --minutes 60 --against regmixup
    """

    photos: Positional[Path]
    """A folder of class folders, or one with train/ and val/ or test/; or a .csv file of path,label."""
    against: str | None = None
    """Compare --method with this one instead: both are trained on five folds, and the paired difference is printed."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    freeze: Switch = False
    tensorboard: Switch = False


GROUPS = {
    "the model": ("backbone", "init", "image_size", "freeze"),
    "the training of all weights": (
        "minutes", "epochs", "method", "lr", "batch_size", "augmentation", "precision", "class_weights", "seed",
    ),
    "the decisions": ("acceptance", "risk", "score", "ood"),
    "what is written": ("runs", "export", "tensorboard"),
    "a comparison of two methods on your images": ("against",),
    "the machine": ("device", "workers"),
}  # fmt: skip
"""The flags of the help, by what they are about."""


def main(args: Sequence[str]) -> None:
    if {"-h", "--help"} & {*args}:
        print_help()
        raise SystemExit(0)  # as --help of the verbs that the CLI library serves
    verb = parse(FinetuneVerb, "finetune", args)
    console = Console()
    _say(console, "loading      PyTorch, which may take some seconds")
    from regmixup.deployment.against import compare  # only now: help need not wait for torch
    from regmixup.deployment.finetune import finetune

    options = values_of(verb, Request)
    with LiveProgress(console, total=1) as progress:

        def say(line: str) -> None:
            progress.clear()  # a line comes after the work of the bar above it
            _say(console, line)

        show: dict[str, Any] = {
            "say": say,
            "advance": progress.advance,
            "watch": lambda label, config: progress.hooks(label, config.epochs),
        }
        if verb.against is not None:
            compare(verb.photos, verb.runs, against=verb.against, **options, **show)
        else:
            finetune(verb.photos, verb.runs, **options, **show)


def print_help() -> None:
    """Print the flags in groups, each with its text and default."""
    fields = read_fields(PACKAGE / "deployment/request.py") | read_fields(PACKAGE / "cli/finetune.py")
    console = Console(highlight=False)
    about = (getdoc(FinetuneVerb) or "").replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n\n")
    console.print(f"usage: regmixup finetune PHOTOS [options]\n\n{about}", markup=False)
    for title, names in GROUPS.items():
        print_group(console, title, {name: fields[name] for name in names}, values_of(Request()) | {"runs": "runs"})


def _say(console: Console, line: str) -> None:
    """Print at once, also into a file or a pipe, without escape sequences that names of files may contain.

    A command to copy must stay on one line, which the progress bars would break at the width of the terminal.
    """
    text = printable(line, keep="\n")
    if console.is_terminal:
        console.print(Text(text), soft_wrap=True)
    else:
        print(text, flush=True)
