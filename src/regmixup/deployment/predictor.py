"""Deploy a trained model: calibrated probabilities, a score of how unsure they are, whether to accept the answer."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from regmixup.config import check_count, values_of
from regmixup.data.decode import EvalTransform, Source, decode_all
from regmixup.data.roles import check_ood_validation, check_validation, validation_of
from regmixup.deployment import export as files
from regmixup.deployment.calibration import Calibrated, Calibration
from regmixup.deployment.export import Architecture, Facts, Pixels, public_name
from regmixup.deployment.module import Deployable, unwrapped
from regmixup.names import warn_user
from regmixup.networks import import_components, plain_normalize
from regmixup.networks.contract import Normalization
from regmixup.objectives import Objective
from regmixup.objectives.duq import DUQ
from regmixup.posthoc import Conformal, MeanField
from regmixup.predictions.forward import pair_of, weights_device
from regmixup.storage import digest, save_tensors, write_table
from regmixup.training.engine import choose_device
from regmixup.training.loading import AS_TRAINED, make_decoder, match_channels
from regmixup.training.run import Run
from regmixup.types import Predictions, as_tensor, refuse_probs


@dataclass(frozen=True)
class Decision:
    """The output of a predictor for N images, on the CPU; for a single image without the leading N.

    probs: (N, K) calibrated probabilities of the classes `class_names`. label: (N,) the most probable class.
    score: (N,) larger where the model is less sure. accepted: (N,) bool, score <= threshold.
    sets: (N, K) bool, the conformal label sets, where the predictor has them.
    """

    probs: Tensor
    label: Tensor
    score: Tensor
    accepted: Tensor
    class_names: tuple[str, ...]
    sets: Tensor | None = None

    def __repr__(self) -> str:
        """Return the class, its probability and the decision of a single image, or how many of several are accepted."""
        if self.label.ndim == 0:
            decided = "accepted" if self.accepted else "unsure"
            return f"Decision({self.class_names[self.label]!r}, {float(self.probs.max()):.1%}, {decided})"
        return f"Decision({len(self.label):,} images, {int(self.accepted.sum()):,} accepted)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(Facts):
    """A trained model with a temperature and a threshold, both from validation images.

    `from_run` makes it from a run of this package, `fit` from any module, `load` from what `save` has written.

    module: the tensor code, see `Deployable`. class_names: K names. input_shape: (C, H, W) of the images.
    transform: how files are resized, as in the run's evaluation; None: they must have that size already.
    temperature, threshold, score: as the module uses them; score is a name. acceptance: the share of validation images
    that the threshold had to accept or, with a promise, could accept at most.
    validation: the dataset they were fitted on; images, errors: how many images fitted the temperature, and how many
    of these the model has wrong. fingerprint: that of the run; "" for other models.
    promise: the share of errors among the accepted that is not exceeded, and how surely. sets: makes label sets.
    choice: how score="auto" chose the score.
    inputs: "pixels", images are in [0, 1] or uint8; "as given", floating-point ones may have any values.
    normalize: (mean, std) that uint8 images and files get before the model. architecture: how `load` builds the model.
    """

    module: Deployable = field(repr=False)

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        validation_loader: Iterable[Any],
        *,
        class_names: Sequence[str] | None = None,
        normalize: Normalization | None = None,
        transform: EvalTransform | None = None,
        ood: Iterable[Any] | None = None,
        score: str = "entropy",
        acceptance: float = 0.95,
        risk: float | None = None,
        confidence: float = 0.95,
        sets: Conformal | None = None,
    ) -> Predictor:
        """Fit a temperature, a threshold and label sets for any model, on images that it was not trained on.

        model: a module from a batch to logits (N, K); it is copied, and stays as it is.
        validation_loader: batches (x, y) without augmentation, such as a DataLoader; y: (N,) classes. x: images, or
            other tensors, as the model takes them, in uint8, which is scaled to [0, 1], or floating point.
        class_names: K names in the order of the logits; default "0", "1", ...
        normalize: (mean, std) per channel, if the loader gives normalised images: applied to files and uint8 images.
        transform: how image files are resized and cropped; None: they must have the loader's size.
        ood: with score="auto", out-of-distribution validation images: batches like those of validation_loader, whose
            labels are ignored and may be missing, or a torch Dataset. Not the ones you report on.
        score, acceptance, risk, confidence, sets: see `deployment.calibration.Calibration`.
        """
        calibration = Calibration(score=score, acceptance=acceptance, risk=risk, confidence=confidence, sets=sets)
        normalize = plain_normalize(normalize)
        module = Deployable(copy.deepcopy(unwrapped(model)), normalize=normalize)
        batches = (pair_of(batch, "validation_loader") for batch in validation_loader)
        validation, shape, are_pixels = _forward(module, batches, "validation_loader", normalize=normalize)
        classes = validation.logits.shape[1]
        names = tuple(map(str, range(classes) if class_names is None else class_names))
        if len(names) != classes:
            raise ValueError(f"class_names must be the model's {classes} classes, got {len(names)} names")
        ood_logits = _forward_ood(module, ood, shape) if ood is not None else None
        facts = Facts(
            class_names=names,
            input_shape=shape,
            transform=transform,
            validation="",
            fingerprint="",
            inputs="pixels" if are_pixels and normalize is None else "as given",
            normalize=normalize,
            **vars(calibration.fit(validation, ood_logits)),
        )
        return cls._of(module.network, facts)

    @classmethod
    def from_run(
        cls,
        run: Run | str | Path,
        *,
        validation: str | None = None,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
        ood: str | Iterable[Any] | None = None,
        score: str | None = None,
        acceptance: float = 0.95,
        risk: float | None = None,
        confidence: float = 0.95,
        sets: Conformal | None = None,
    ) -> Predictor:
        """Load a finished run (or the folder of one) and fit a temperature and a threshold on validation images.

        validation: a dataset, never a test, shifted or OOD set; default, the one that belongs to the run's train set.
        root: where datasets read from disk lie. device: default, the accelerator if there is one.
        ood: with score="auto", a dataset of OOD validation images, such as `folder:PATH` or
            "tiny-imagenet/openood-cifar10-val", never a test set; or batches as in `fit`.
        score: default, that of `deployed_score`. acceptance, risk, confidence, sets: as in `fit`.
        """
        run = open_single(run)
        train_set = run.config.train_set
        score = deployed_score(run.config.objective) if score is None else score
        calibration = Calibration(score=score, acceptance=acceptance, risk=risk, confidence=confidence, sets=sets)
        device = choose_device(device)
        validation = validation_of(train_set) if validation is None else validation
        check_validation(validation, train_set)
        network = run.model(device=device, root=root)
        predictions, ood_logits = as_deployed(run.predict(validation, root=root, device=device)), None
        if predictions.info.get("data", "") == run.provenance()["data"].get(train_set):
            alike = f"{validation} has the images of {train_set}, or files of the same names and sizes"
            warn_user(f"{alike}: if they are copies, the model is surer of them than of new images")
        if isinstance(ood, str):
            check_ood_validation(ood, train_set)
            ood_logits = as_deployed(run.predict(ood, root=root, device=device)).logits
        elif ood is not None:
            ood_logits = _forward_ood(Deployable(network), ood, tuple(run.provenance()["input"]))
        return cls.from_calibrated(run, network, calibration.fit(predictions, ood_logits), validation=validation)

    @classmethod
    def from_calibrated(cls, run: Run, network: nn.Module, calibrated: Calibrated, *, validation: str) -> Predictor:
        """Return the predictor of a run and its network. validation: the dataset that the other values fit."""
        architecture = Architecture.of(run)
        facts = Facts(
            class_names=tuple(run.provenance()["classes"]),
            input_shape=architecture.input_shape,
            transform=run.transform(),
            validation=validation,
            fingerprint=run.fingerprint,
            architecture=architecture,
            **vars(calibrated),
        )
        return cls._of(network, facts)

    @classmethod
    def load(
        cls, path: str | Path, *, model: nn.Module | None = None, device: str | torch.device | None = None
    ) -> Predictor:
        """Load a folder of `save` or `regmixup publish`, of which nothing is executed, or an .onnx file of `export`.

        model: for a folder whose model this package cannot build, one of the same architecture; it is copied, and the
            copy gets the saved weights. device: default, the accelerator if there is one; the CPU for an .onnx file.
        """
        if Path(path).suffix.lower() == ".onnx":
            if model is not None or str(device or "cpu") != "cpu":
                raise ValueError(f"{path} has its model in it and runs on the CPU: give no model and no other device")
            facts, program = files.load_onnx(Path(path))
            return cls(module=cast("Deployable", program), **values_of(facts))  # save and export refuse it
        import_components()
        facts, checksum = files.read_saved(Path(path))
        if model is not None:
            network = copy.deepcopy(unwrapped(model))
        elif facts.architecture is not None:
            network = facts.architecture.build()
        else:
            raise ValueError(
                f"model must be given for {path}, whose model is not a network of this package: "
                "Predictor.load(folder, model=one of the same architecture)"
            )
        predictor = cls._of(network, facts)
        files.load_weights(predictor.module.network, Path(path), checksum, facts.architecture)
        predictor.module.to(choose_device(device))
        return predictor

    @classmethod
    def _of(cls, network: nn.Module, facts: Facts) -> Predictor:
        settings = {name: getattr(facts, name) for name in ("temperature", "score", "threshold", "normalize")}
        return cls(module=Deployable(network, **settings), **values_of(facts))

    def save(self, folder: str | Path) -> None:
        """Write weights.safetensors and predictor.json, from which `load` makes this predictor again.

        For a model that `fit` was given, `load` needs a module of its architecture: no code is stored.
        """
        self._check_weights()
        weights = Path(folder) / files.WEIGHTS
        save_tensors(weights, self.module.network.state_dict(), {})
        write_table(weights.with_name(files.PREDICTOR), {**files.encode_facts(self), "weights": digest(weights)})

    def export(self, path: str | Path, *, pixels: Pixels = "float32") -> None:
        """Write a file that runs without this package, for any number of images; see `deployment.export`.

        path: ends in ".pt2" (torch.export) or ".onnx". pixels: float32 in [0, 1], or uint8.
        """
        self._check_weights()
        facts = {**files.encode_facts(replace(self, architecture=None)), "validation": public_name(self.validation)}
        files.export(self.module, path, input_shape=self.input_shape, pixels=pixels, facts=facts)

    def _check_weights(self) -> None:
        if isinstance(self.module, files.OnnxProgram):
            raise ValueError(f"{self.module.path} is an exported program, without weights to write: copy that file")

    def __call__(self, images: Tensor | Source | Sequence[Tensor | Source], *, batch_size: int = 256) -> Decision:
        """Decide about images (N, C, H, W), or one image (C, H, W), in uint8 or floating point in [0, 1].

        Files, bytes and Pillow images are taken as well, see `read`; also a list of such, or of tensors (C, H, W).
        """
        check_count("batch_size", batch_size)
        if isinstance(images, list | tuple) and images:
            listed = [self._to_tensor(image) for image in images]
            if len({image.dtype == torch.uint8 for image in listed}) > 1:
                raise ValueError("images must be all uint8 or files, or all floating point, got a list of both")
            images = torch.stack(listed)
        images = self._to_tensor(images)
        single = images.ndim == len(self.input_shape)
        batch = self._checked(images[None] if single else images)
        device = weights_device(self.module)
        with torch.no_grad():
            outputs = [self.module(part.to(device)) for part in batch.split(batch_size)]
        decided = {name: torch.cat([output[name] for output in outputs]).cpu() for name in outputs[0]}
        if (logits := decided["probs"].shape[1]) != len(self.class_names):
            raise ValueError(f"class_names must be the model's {logits} classes, got {len(self.class_names)} names")
        decided["label"] = decided["probs"].argmax(dim=1)
        if self.sets is not None:
            decided["sets"] = self.sets.of_probs(decided["probs"])
        if single:
            decided = {name: value[0] for name, value in decided.items()}
        return Decision(**decided, class_names=self.class_names)

    def predict_file(self, file: Source) -> Decision:
        """Decide about an image file, treated as the run's evaluation treats files: see `read`."""
        return self(self.read(file))

    def read(self, file: Source) -> Tensor:
        """Return an image file as uint8 (C, H, W), of the size that the model takes: see `transform`.

        file: its path or its bytes, or an image that Pillow has opened.
        """
        if len(self.input_shape) != 3:
            raise ValueError(f"files need a model of images (C, H, W), this one takes inputs of {self.input_shape}")
        remedy = "give Predictor.fit transform=EvalTransform(size=..., resize=...), of regmixup.data.decode"
        decode = make_decoder(self.transform, self.input_shape[1:], hint=AS_TRAINED if self.fingerprint else remedy)
        return match_channels(decode_all([file], decode), self.input_shape[0])[0]

    def _to_tensor(self, images: object) -> Tensor:
        if isinstance(images, Source):
            return self.read(images)
        return as_tensor("images that are no path, bytes or Pillow image", images)

    def _checked(self, batch: Tensor) -> Tensor:
        """Return the batch in uint8 or float32; raise if it does not hold such images."""
        if tuple(batch.shape[1:]) != tuple(self.input_shape) or len(batch) == 0:
            shape = ", ".join(map(str, self.input_shape))
            raise ValueError(f"images must be (N, {shape}), N >= 1, or ({shape}), got {tuple(batch.shape)}")
        _check_dtype("images", batch)
        if batch.dtype == torch.uint8:
            if self.inputs != "pixels" and self.normalize is None:
                raise ValueError(
                    "images must be floating point, as in the validation_loader, whose values were not in [0, 1], got "
                    "uint8 or a file: give Predictor.fit normalize=(mean, std) to say how pixels become such values"
                )
            return batch
        low, high = map(float, batch.aminmax())
        if not math.isfinite(low + high) or (self.inputs == "pixels" and not 0 <= low <= high <= 1):
            contract = "lie in [0, 1]" if self.inputs == "pixels" else "be finite"
            raise ValueError(f"floating-point images must {contract}, got {low:g} to {high:g}")
        return batch.float()


def deployed_score(objective: Objective) -> str:
    """Return the score of a predictor by default: entropy, and for DUQ, whose logits are kernels, the largest logit.

    Not Dempster-Shafer, the paper's for most methods: on our runs entropy finds errors of the model better in every
    case and OOD images about as well or better (docs/results.md, "Which score?").
    """
    return "max_logit" if isinstance(objective, DUQ) else "entropy"


def open_single(run: Run | str | Path) -> Run:
    """Return a run, opened if need be; raise if it is an ensemble."""
    run = run if isinstance(run, Run) else Run.open(run)
    if run.config.members > 1:
        raise ValueError(
            f"run must be one model, {run.folder} is an ensemble of {run.config.members}: name one of its members, "
            f"{', '.join(member.folder.name for member in run.members())}"
        )
    return run


def as_deployed(predictions: Predictions) -> Predictions:
    """Return predictions of a run as its predictor has them: the mean-field predictive if the head gives a variance."""
    return MeanField()(predictions) if predictions.logit_variance is not None else predictions


@torch.no_grad()
def _forward(
    module: Deployable,
    batches: Iterable[tuple[Tensor, Tensor]],
    name: str,
    *,
    shape: tuple[int, ...] | None = None,
    normalize: Normalization | None = None,
) -> tuple[Predictions, tuple[int, ...], bool]:
    """Return logits and labels of batches (x, y), the shape of an x, and whether all x are pixels: uint8 or in [0, 1].

    name: of the argument they come from. shape: of every x; default, that of the first.
    """
    device, logits, labels, are_pixels = weights_device(module), [], [], True
    for x, y in batches:
        _check_dtype(f"inputs of {name}", x)
        shape = tuple(x.shape[1:]) if shape is None else shape
        if tuple(x.shape[1:]) != shape:
            raise ValueError(f"{name} must hold inputs of one shape, {shape} as before, got {tuple(x.shape[1:])}")
        plain_normalize(normalize, *sorted({1, *shape[:1]}))
        if x.is_floating_point():
            low, high = x.aminmax()
            are_pixels &= bool(low >= 0) and bool(high <= 1)
        logits.append(module.logits(x.to(device)).cpu())
        labels.append(y.cpu())
    if shape is None or not logits:
        raise ValueError(f"{name} must hold at least one batch, got none")
    collected = torch.cat(logits)
    refuse_probs(collected, "the model's logits", remedy="leave out its softmax")
    return Predictions(collected, torch.cat(labels)), shape, are_pixels


def _forward_ood(module: Deployable, ood: Iterable[Any], shape: tuple[int, ...]) -> Tensor:
    """Return the logits of batches, or of a Dataset, whose labels do not count. shape: of the validation inputs."""
    batches = DataLoader(ood, batch_size=256) if isinstance(ood, Dataset) else ood
    pairs = (pair_of(batch, "ood", labelled=False) for batch in batches)
    predicted, _, _ = _forward(module, pairs, "ood", shape=shape)
    return predicted.logits


def _check_dtype(name: str, x: Tensor) -> None:
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise ValueError(f"{name} must be uint8 or floating point, got {x.dtype}")
