"""Publish a run: a folder with weights, a configuration and a model card, as model hubs expect it; and load it.

    model.safetensors     the weights, under the names of the library that the network comes from
    config.json           for timm's networks what `timm.create_model("local-dir:FOLDER")` reads; for `load`, of any
    predictor.json        what else `rm.Predictor.load(FOLDER)` needs, such as temperature and threshold; optional
    README.md             the model card, with metadata for a hub in front

Nothing in it is executed when it is loaded, changed weights are refused, and it names no folder of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import regmixup
from regmixup import predictions
from regmixup.config import decode, encode
from regmixup.data.catalogue import find
from regmixup.data.roles import overlap, role_of, validation_of
from regmixup.deployment.card import CardContents, render_card
from regmixup.deployment.export import PREDICTOR, Architecture, encode_facts, load_weights, public_name
from regmixup.deployment.predictor import Predictor, as_deployed, open_single
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.networks import bake, import_components, library_state_dict
from regmixup.networks.contract import Classifier
from regmixup.run_folder import CONFIG, FITTED, PUBLISHED, predictions_folder, read_finetuned
from regmixup.storage import check_writable, digest, read_json, save_tensors, write_json, write_table, write_text
from regmixup.training.config import TrainConfig
from regmixup.training.engine import choose_device
from regmixup.training.run import Run
from regmixup.types import Predictions, Role

CARD = "README.md"


def publish(
    run: Run | str | Path,
    folder: str | Path,
    *,
    predictor: Predictor | None = None,
    calibrate: bool = False,
    license: str = "unknown",
    test: str = "",
    root: str | Path | None = None,
) -> Path:
    """Write a finished run into a new or empty folder, ready to be uploaded to a model hub, and return the folder.

    predictor: made from this run: its temperature and threshold are published, too. Default: the one in
        RUN/predictor, as `finetune` leaves it; else, with `calibrate`, one fitted on the run's validation set.
    license: of the weights, as a hub calls it, such as "mit".
    test: a dataset of test images to report results on, which is predicted if need be. Needed for a model of image
        folders, of whose role only you know; `regmixup finetune` has recorded it.
    root: where datasets read from disk lie.

    The card's numbers are measured, with 95 % intervals, on the predictions that the run folder holds: `run.predict`,
    `regmixup predict` and studies put them there. Constraints on the weights are baked into them.
    """
    run, folder = open_single(run), Path(folder)
    architecture = Architecture.of(run)
    if predictor is None and (run.folder / FITTED / PREDICTOR).is_file():
        predictor = Predictor.load(run.folder / FITTED, device="cpu")
    to_fit = predictor is None and calibrate
    fitted_on = validation_of(run.config.train_set) if to_fit else ""
    _check(run, folder, test, fitted_on if predictor is None else predictor.validation)
    if to_fit:
        predictor = Predictor.from_run(run, root=root)
    if predictor is not None and predictor.fingerprint != run.fingerprint:
        raise ValueError(
            f"predictor must be made from the run {run.folder.name}, got one of the run "
            f"{predictor.fingerprint[:12] or 'of another model'}: Predictor.from_run(run)"
        )
    tuned = read_finetuned(run.folder)
    if test:
        run.predict(test, root=root)
    elif tuned:
        test = tuned["photos"]["test"]
    contents = CardContents(
        run=run,
        tuned=tuned,
        architecture=architecture,
        predictor=predictor,
        results=list(_measure(run, predictor, test)),
        name=folder.resolve().name,
        license=license,
    )
    _write(contents, bake(run.model(device="cpu", root=root)), folder)
    return folder


def _check(run: Run, folder: Path, test: str, fitted_on: str) -> None:
    """Raise what keeps a run from being published in a folder. fitted_on: the validation images of its predictor."""
    empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not empty:
        raise ValueError(f"folder must be new or empty, got {folder}, which is not: give another, or delete it")
    check_writable(folder / PUBLISHED)
    if test and (role := _role_here(test, run.config, fitted_on)) not in ("test", ""):
        raise ValueError(f"test must name test images, got {test}, whose images have the role {role} here")


def _role_here(test: str, config: TrainConfig, fitted_on: str) -> Role:
    """Return what images were used for; if for nothing, the role of their dataset, "" for a folder or a part of one."""
    used: dict[str, Role] = {config.train_set: "train", config.validation: "validation", fitted_on: "validation"}
    for dataset, role in used.items():
        if dataset and overlap(find(test), find(dataset)):
            return role
    return "" if find(test).is_folder else role_of(test, config.train_set)


def load(folder: str | Path, *, device: str | torch.device | None = None) -> Classifier:
    """Return the network of a published folder, in evaluation mode: from pixels, uint8 or in [0, 1], to logits.

    `rm.Predictor.load(folder)` adds calibrated probabilities and decisions, where a predictor was published.
    device: default, the accelerator if there is one.
    """
    import_components()
    path = Path(folder) / CONFIG
    facts = read_json(path).get("regmixup") if path.is_file() else None
    if not isinstance(facts, dict) or not {"architecture", "weights"} <= facts.keys():
        raise ValueError(f"{folder} must be a folder that `regmixup publish` has written, it has no such {CONFIG}")
    architecture = decode(Architecture, facts["architecture"], str(path))
    model = architecture.build()
    load_weights(model, Path(folder), str(facts["weights"]), architecture)
    return model.to(choose_device(device)).eval()


def _measure(run: Run, predictor: Predictor | None, test_set: str) -> Iterator[Measured]:
    """Measure the stored predictions as they are deployed: the mean-field predictive if the head gives a variance."""
    stored: dict[str, list[Predictions]] = {"test": [], "shifted": [], "ood": []}
    for path in sorted(predictions_folder(run.folder, run.batch_norm).glob("*.safetensors")):
        part = predictions.load(path)
        role = "test" if part.dataset == test_set else part.role
        if role in stored and not part.dataset.startswith("path:"):  # images between two others have no right answer
            stored[role].append(replace(as_deployed(part), dataset=public_name(part.dataset)))
    temperature = predictor.temperature if predictor is not None else None
    for test in stored["test"]:
        sets = ModelPredictions(test=test, shift=stored["shifted"], ood=stored["ood"], temperature=temperature)
        yield measure_models(sets)


def _write(contents: CardContents, model: Classifier, folder: Path) -> None:
    text = render_card(contents)  # first: what fails here leaves no half of a folder
    save_tensors(folder / PUBLISHED, library_state_dict(contents.architecture.network, model), {"format": "pt"})
    weights = digest(folder / PUBLISHED)
    write_json(folder / CONFIG, _config(contents, weights, model.feature_dim))
    if contents.predictor is not None:
        public = {"validation": public_name(contents.predictor.validation), "weights": weights}
        write_table(folder / PREDICTOR, {**encode_facts(contents.predictor), **public})
    write_text(folder / CARD, text)


def _config(contents: CardContents, weights: str, feature_dim: int) -> dict[str, Any]:
    architecture, classes = contents.architecture, contents.run.provenance()["classes"]
    config: dict[str, Any] = {"num_classes": len(classes), "num_features": feature_dim, "label_names": classes}
    if contents.timm:
        from regmixup.networks.timm_models import published_config

        transform = contents.run.transform()
        config |= published_config(
            architecture.network,
            input_shape=architecture.input_shape,
            num_classes=len(classes),
            mean=architecture.mean,
            std=architecture.std,
            interpolation=transform.interpolation if transform is not None else "bicubic",
            crop=(transform.size, transform.resize) if transform is not None else (1, 1),
        )
    config["regmixup"] = {
        "version": regmixup.__version__,
        "fingerprint": contents.run.fingerprint,
        "weights": weights,
        "architecture": encode(architecture),
    }
    return config
