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
    """Write a finished run as a folder for a model hub: weights, configuration, model card.

    This uploads nothing; it prints the command that does. The card's results are measured on the predictions in the run
    folder, so store those first: regmixup predict RUN TEST_SET [OOD_SET ...].

    Example: regmixup publish runs/regmixup-... my-model --calibrate --license mit
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Folder of a finished run."""
    folder: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    """Folder to write. It must be new or empty."""
    calibrate: Switch = False
    """Fit a temperature and a threshold on the run's validation set, and publish them, too. This has no effect if the
    run already has a predictor, as after `finetune`."""
    license: str = "unknown"
    """Licence of the weights, by its name on the hub, such as mit or cc-by-4.0."""
    test: str = ""
    """Dataset of test images to report results on. A model of image folders needs it: folder:PATH."""
    root: Path | None = None
    """Folder with the datasets' official files, for --calibrate and --test; embedded datasets need none."""


def main(args: Sequence[str]) -> None:
    verb = parse(PublishVerb, "publish", args)
    folder = publish(**vars(verb))
    print(printable(f"weights  {folder / PUBLISHED}"))
    print(printable(f"card     {folder / CARD}: read it, and add what only you know"))
    print(printable(f"upload   hf upload YOUR_NAME/MODEL {shlex.quote(str(folder))} ."))
