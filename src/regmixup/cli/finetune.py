"""`regmixup finetune`: from a folder of photographs to a calibrated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional, arg

from regmixup.cli.parsing import Switch, parse
from regmixup.cli.progress import LiveProgress
from regmixup.config import values_of
from regmixup.deployment.request import Request
from regmixup.names import printable


@dataclass(frozen=True, kw_only=True)
class FinetuneVerb(Request):
    """Fine-tune a pretrained network on a folder of images: train, calibrate, test, and write a report page.

    PHOTOS has one subfolder of images per class, or train/ and val/ or test/ with such subfolders; or it is a .csv file
    with the columns path and label. The command prints what it found and chose. It chooses and fits nothing on test
    images. After Ctrl-C, the same command continues.

    Example: regmixup finetune ~/photos

    Example: regmixup finetune ~/photos --minutes 30 --backbone timm/resnet50 --init resnet50.pth --export model.onnx

    Example: regmixup finetune labels.csv --freeze --ood ~/other-images

    Example: regmixup finetune ~/photos --minutes 60 --against regmixup
    """

    photos: Positional[Annotated[Path, arg(metavar="PHOTOS")]]
    """A folder with one subfolder per class, or with train/ and val/ or test/; or a .csv file of path,label."""
    against: str | None = None
    """Instead, compare --method with this method: train both on five folds, and print the paired difference."""
    runs: Path = Path("runs")
    """Folder for run folders."""
    freeze: Switch = False
    tensorboard: Switch = False

    def __post_init__(self) -> None:
        """Leave the checks to `main`: in the CLI library's errors of a class, its name comes first."""


def main(args: Sequence[str]) -> None:
    verb = parse(FinetuneVerb, "finetune", args)
    options = values_of(verb, Request)
    Request(**options)  # now: torch, which takes seconds to load, is not needed to refuse a value
    console = Console()
    _say(console, "loading      PyTorch, which may take some seconds")
    from regmixup.deployment.against import compare  # only now: help need not wait for torch
    from regmixup.deployment.finetune import finetune

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


def _say(console: Console, line: str) -> None:
    """Print at once, also into a file or a pipe, without escape sequences that names of files may contain.

    A command to copy must stay on one line, which the progress bars would break at the width of the terminal.
    """
    text = printable(line, keep="\n")
    if console.is_terminal:
        console.print(Text(text), soft_wrap=True)
    else:
        print(text, flush=True)
