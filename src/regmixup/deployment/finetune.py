"""From a folder of photographs to a model to use: `regmixup finetune PHOTOS`, `rm.finetune(path)`.

    inspect    classes, parts, unreadable files, copies                      folder.py
    probe      a linear head on stored features of the frozen backbone       probe.py
    plan       the pace of training is measured; it decides the epochs       probe.py
    fine-tune  all weights, from the probe's head; an ordinary run           `rm.train`
    finish     the better of both on validation, calibrated, tested          finish.py
               its score beside nearest neighbours in the features           detection.py

Both the probe and the fine-tuned model are ordinary runs; the probe's has no epochs, its weights are those of the file
it starts from. Nothing is chosen or fitted on test images.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from regmixup.deployment.finish import finish
from regmixup.deployment.folder import Advance
from regmixup.deployment.job import prepare
from regmixup.deployment.request import Request
from regmixup.training.config import TrainConfig
from regmixup.training.run import Run
from regmixup.training.train import train

Watch = Callable[[str, TrainConfig], Mapping[str, Any]]
"""Called with the name of a training and its configuration; returns callbacks for `rm.train`."""


def finetune(
    path: str | Path,
    runs: str | Path = "runs",
    *,
    say: Callable[[str], object] = print,
    watch: Watch = lambda *_: {},
    advance: Advance = lambda *_: None,
    **options: Any,
) -> Run:
    """Fine-tune a pretrained backbone on a folder of photographs; return the run, which is an ordinary one.

    path: a folder of class folders, or one with train/ and val/ or test/, or a CSV table; see `folder.inspect`.
    options: the fields of `deployment.request.Request`, which are the flags of `regmixup finetune`: backbone, init,
    method, minutes, epochs, freeze, lr, batch_size, augmentation, precision, image_size, class_weights, acceptance,
    risk, score, ood, export, tensorboard, seed, device, workers.
    say: called with every line about what was found and chosen. watch: called before all weights are trained, see
    `Watch`. advance: called with "reading" or "features", the number of images just done, and that of all.

    Beside what every run has, its folder gets report.html, finetune.json with all numbers, and predictor/, which
    `rm.Predictor.load` reads. Called again, it goes on where it was interrupted.
    """
    begun = time.monotonic()
    job = prepare(path, runs, Request.of(options), say=say, advance=advance)
    request, work = job.request, job.work_folder()
    weights = work / "probe.safetensors"
    job.write_probe(weights)
    plan = job.plan(work, 60 * request.minutes - (time.monotonic() - begun))
    job.say(f"epochs       {'0 (--freeze)' if request.freeze else plan.describe(request.minutes)}")
    train_here = partial(train, runs=runs, device=job.device, workers=request.workers)
    candidates = {"linear probe": train_here(job.configure(epochs=0, init=str(weights)))}
    if plan.epochs:
        # The curve on validation images is for the report page; the last epoch stays the model.
        validation = job.photos.parts["validation"].name
        config = replace(job.configure(epochs=plan.epochs, init=str(weights)), validation=validation)
        candidates["fine-tuned"] = train_here(config, tensorboard=request.tensorboard, **watch("fine-tuning", config))
    run = finish(job, candidates)
    job.say(f"time         {time.monotonic() - begun:.0f} s in all. To use the model:")
    job.say(shlex.join(["regmixup", "predict", str(run.folder), "photo.jpg"]))
    return run
