"""`regmixup publish`: from a trained run to a folder for a model hub."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from regmixup.cli.parsing import Switch, parse
from regmixup.deployment.card import NOT_MEASURED
from regmixup.deployment.export import MODEL, PREDICTOR
from regmixup.deployment.predictor import Predictor
from regmixup.deployment.publish import CARD, check, publish
from regmixup.names import printable
from regmixup.run_folder import FITTED
from regmixup.training.run import Run


@dataclass(frozen=True)
class PublishVerb:
    """Write a finished run as a folder that a model hub takes: weights, configuration, model card, checksums.

    Uploads nothing: it prints the command that does. The card's results are measured on the predictions in the run
    folder, so store those first: regmixup predict RUN TEST_SET [OOD_SET ...].

    Example: regmixup publish runs/regmixup-... my-model --calibrate --license mit
    """

    run: Positional[Path]
    """A folder of a finished run."""
    folder: Positional[Path]
    """The folder to write; new or empty."""
    calibrate: Switch = False
    """Fit a temperature and a threshold on the run's validation set and publish them, too; without effect on a
    fine-tuned run, whose own are published."""
    predictor: Path | None = None
    """Publish this one instead, a folder of Predictor.save; default: RUN/predictor, if `finetune` has made one."""
    license: str = "unknown"
    """Licence of the weights as the hub calls it, such as mit or cc-by-4.0."""
    name: str = ""
    """Name of the model; default: the folder's."""
    test: str = ""
    """Dataset of test images to report results on; needed for a model of image folders: folder:PATH."""
    root: Path | None = None
    """Folder with the datasets' official files, for --calibrate and --test; embedded datasets need none."""


def main(args: Sequence[str]) -> None:
    verb = parse(PublishVerb, "publish", args)
    if verb.calibrate and verb.predictor is not None:
        raise ValueError("calibrate and predictor exclude each other: give one of them")
    run = Run.open(verb.run)
    check(run, verb.folder, test=verb.test)
    fitted = run.folder / FITTED
    predictor: Predictor | Path | None = verb.predictor
    if predictor is None and (fitted / PREDICTOR).is_file():  # a new fit would lose its score and its promise
        print(f"{fitted}: temperature and threshold as fitted there")
    elif verb.calibrate:
        predictor = Predictor.from_run(run, root=verb.root)
    publish(
        run, verb.folder, predictor=predictor, license=verb.license, name=verb.name, test=verb.test,
        root=verb.root,
    )  # fmt: skip
    folder = verb.folder
    if NOT_MEASURED in (folder / CARD).read_text():
        print(f"warning: {folder / CARD} has no results, as {verb.run} holds no predictions of test images: give "
              "--test DATASET", file=sys.stderr)  # fmt: skip
    if verb.license == "unknown":
        print("warning: no licence is named, so nobody may use the weights: give --license", file=sys.stderr)
    print(f"weights  {folder / MODEL}\ncard     {folder / CARD}: read it, and add what only you know")
    print(printable(f"upload   hf upload YOUR_NAME/MODEL {shlex.quote(str(folder))} ."))
