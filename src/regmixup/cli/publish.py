"""`regmixup publish`: from a trained run to a folder for a model hub."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from regmixup.cli.parsing import Switch, parse
from regmixup.deployment.publish import CARD, publish
from regmixup.names import printable
from regmixup.run_folder import PUBLISHED


@dataclass(frozen=True)
class PublishVerb:
    """Write a finished run as a folder that a model hub takes: weights, configuration, model card.

    Uploads nothing: it prints the command that does. The card's results are measured on the predictions in the run
    folder, so store those first: regmixup predict RUN TEST_SET [OOD_SET ...].

    Example: regmixup publish runs/regmixup-... my-model --calibrate --license mit
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """A folder of a finished run."""
    folder: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    """The folder to write; new or empty."""
    calibrate: Switch = False
    """Fit a temperature and a threshold on the run's validation set and publish them, too; without effect where
    RUN/predictor has them, as after `finetune`."""
    license: str = "unknown"
    """Licence of the weights as the hub calls it, such as mit or cc-by-4.0."""
    test: str = ""
    """Dataset of test images to report results on; needed for a model of image folders: folder:PATH."""
    root: Path | None = None
    """Folder with the datasets' official files, for --calibrate and --test; embedded datasets need none."""


def main(args: Sequence[str]) -> None:
    verb = parse(PublishVerb, "publish", args)
    folder = publish(**vars(verb))
    print(printable(f"weights  {folder / PUBLISHED}"))
    print(printable(f"card     {folder / CARD}: read it, and add what only you know"))
    print(printable(f"upload   hf upload YOUR_NAME/MODEL {shlex.quote(str(folder))} ."))
