"""Deploy a trained model: calibrated probabilities, a score of how unsure they are, whether to accept the answer."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import check_count, decode, values_of
from regmixup.data.catalogue import get
from regmixup.data.decode import EvalTransform, Source, decode_all, open_rgb
from regmixup.data.roles import check_validation, validation_of
from regmixup.deployment import export as files
from regmixup.deployment.calibration import CONFIDENCE, Calibration, Labelled
from regmixup.deployment.export import Architecture, Facts, Pixels, Program, public_name
from regmixup.deployment.module import Deployable, unwrapped
from regmixup.deployment.validation import collect, look_like_pixels
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name, counted
from regmixup.networks import import_components, plain_normalize
from regmixup.networks.contract import Normalization
from regmixup.objectives import Objective
from regmixup.objectives.duq import DUQ
from regmixup.posthoc import Conformal, MeanField, ensemble
from regmixup.predictions.forward import HasVariance
from regmixup.storage import digest, save_tensors, write_table
from regmixup.training.config import choose_device
from regmixup.training.loading import match_channels, reader
from regmixup.training.run import Run
from regmixup.types import Predictions, as_tensor


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
        names = ", ".join(name for name, value in vars(self).items() if value is not None)
        counts = f"{counted(self.label.numel(), 'image')}, {counted(len(self.class_names), 'class')}"
        return f"Decision({counts}, {int(self.accepted.sum()):,} accepted: {names})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(Facts):
    """A trained model with a temperature and a threshold, both from validation images.

    `Predictor.from_run` makes it from a run of this package, `Predictor.fit` from any module, `Predictor.load` from
    what `save` or `export` has written.

    module: the tensor code, see `Deployable`. class_names: K names. input_shape: (C, H, W) of the images.
    transform: how files are resized, as in the run's evaluation; None: they must have that size already.
    temperature, threshold, score: as the module uses them; score is a name. acceptance: the share of validation images
    that the threshold had to accept or, with a promise, could accept at most.
    validation: the dataset they were fitted on; images, errors: how many images fitted the temperature, and how many
    of these the model has wrong. fingerprint: that of the run; "" for other models.
    promise: the share of errors among the accepted that is not exceeded, and how surely. sets: makes label sets.
    inputs: "pixels", images are in [0, 1] or uint8; "as given", floating-point ones may have any values; "normalised",
    too, but `fit` saw values below 0, none beyond -20 or 20, so that images which look like pixels give a warning.
    normalize: (mean, std) that uint8 images and files get before the model. architecture: how `load` builds the model.
    """

    module: Deployable | Program = field(repr=False)

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        validation_loader: Iterable[Any],
        *,
        held_out: Iterable[Any] | None = None,
        acceptance: float = 0.95,
        risk: float | None = None,
        confidence: float = CONFIDENCE,
        sets: Conformal | None = None,
        score: str = "entropy",
        calibrate: bool = True,
        class_names: Sequence[str] | None = None,
        normalize: Normalization | None = None,
        transform: EvalTransform | None = None,
    ) -> Predictor:
        """Fit a temperature, a threshold and label sets for any model, on images that it was not trained on.

        model: a module from a batch to logits (N, K); it is copied, and stays as it is.
        validation_loader: batches (x, y) without augmentation, such as a DataLoader; y: (N,) classes. x: images, or
            other tensors, as the model takes them; uint8 is scaled to [0, 1].
        acceptance: the share of validation images to accept, in (0, 1]; the threshold is the smallest that does. With
            `risk` it is the most to accept.
        risk: accept as many images as possible while at most this share of the accepted is classified wrongly, with
            the probability `confidence`; see `deployment.calibration`. An error says if nothing can be promised.
        sets: a `rm.posthoc.Conformal`, for label sets.
        held_out: a second loader, for `risk` and `sets` alone: their images must have had no part in fitting the
            temperature or choosing the model. Default: half of the validation images, in an order that their number
            alone decides.
        score: one of `regmixup.scores.SCORES`. calibrate: whether to fit a temperature; without, it is 1.
        class_names: K names in the order of the logits; default "0", "1", ...
        normalize: (mean, std) per channel, if the loader gives normalised images: applied to files and uint8 images.
        transform: how image files are resized and cropped; None: they must have the loader's size.
        """
        fitting = Calibration(
            acceptance=acceptance, risk=risk, confidence=confidence, sets=sets, score=score, calibrate=calibrate
        )
        if held_out is not None and risk is None and sets is None:
            raise ValueError("held_out is for risk and sets, got it without either: give risk=, sets= or one loader")
        if not isinstance(transform, EvalTransform | None):
            raise ValueError(f"transform must be None or an EvalTransform of regmixup.data.decode, got {transform!r}")
        normalize = plain_normalize(normalize)
        module = Deployable(
            [copy.deepcopy(unwrapped(model))], temperature=1.0, score=score, threshold=0.0, normalize=normalize
        )
        collected = collect(module, validation_loader, "validation_loader", normalize)
        second = None if held_out is None else collect(module, held_out, "held_out", normalize).labelled
        classes = collected.labelled.logits.shape[1]
        names = tuple(map(str, range(classes) if class_names is None else class_names))
        if len(names) != classes:
            raise ValueError(f"class_names must be the model's {classes} classes, got {len(names)} names")
        fitted = fitting.fit(collected.labelled, second)
        module.temperature, module.threshold = fitted.temperature, fitted.threshold
        return cls(
            module=module,
            class_names=names,
            input_shape=collected.shape,
            transform=transform,
            score=score,
            acceptance=acceptance,
            validation="",
            fingerprint="",
            inputs="as given" if collected.inputs == "pixels" and normalize is not None else collected.inputs,
            normalize=normalize,
            **vars(fitted),
        )

    @classmethod
    def from_run(
        cls,
        run: Run | str | Path,
        *,
        validation: str | Predictions | None = None,
        acceptance: float = 0.95,
        risk: float | None = None,
        confidence: float = CONFIDENCE,
        sets: Conformal | None = None,
        score: str | None = None,
        calibrate: bool = True,
        factor: float = MeanField().factor,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> Predictor:
        """Load a finished run (or the folder of one) and fit a temperature and a threshold on validation images.

        validation: a dataset's name, default the validation set that belongs to the run's train set; or Predictions,
            as those of a companion run for a model that was trained on everything. Never a test, shifted or OOD set.
        acceptance, risk, confidence, sets, calibrate: as in `fit`, whose `held_out` is half of `validation`.
        score: one of `regmixup.scores.SCORES`; default, see `deployed_score`.
        factor: of `rm.posthoc.MeanField`, which shrinks the logits of a head that knows their variance.
        root: where datasets read from disk lie. device: default, the accelerator if there is one.
        """
        run = run if isinstance(run, Run) else Run.open(run)
        record = run.provenance()
        score = check_name("score", deployed_score(run.config.objective) if score is None else score, SCORES)
        fitting = Calibration(
            acceptance=acceptance, risk=risk, confidence=confidence, sets=sets, score=score, calibrate=calibrate
        )
        device = choose_device(device)
        members = [member.model(device=device, root=root) for member in run.members()]
        if isinstance(validation, Predictions):
            parts = [_checked_predictions(validation, run, len(record["classes"]))]
        else:
            name = validation_of(run.config.train_set) if validation is None else validation
            check_validation(name, run.config.train_set)
            parts = [member.predict(name, root=root, device=device) for member in run.members()]
        if isinstance(members[0].head, HasVariance):
            parts = [MeanField(factor=factor)(part) for part in parts]
        predictions = ensemble(parts)
        fitted = fitting.fit(Labelled(predictions.logits, predictions.labels))
        return cls(
            module=Deployable(
                members, temperature=fitted.temperature, score=score, threshold=fitted.threshold, factor=factor
            ),
            class_names=tuple(record["classes"]),
            input_shape=tuple(record["input"]),
            transform=run.transform(),
            score=score,
            acceptance=acceptance,
            validation=predictions.dataset,
            fingerprint=run.fingerprint,
            architecture=Architecture.of(run, record, members=len(members), factor=factor),
            **vars(fitted),
        )

    @classmethod
    def load(
        cls, path: str | Path, *, model: nn.Module | None = None, device: str | torch.device | None = None
    ) -> Predictor:
        """Load what `save`, `export` or `regmixup publish` has written.

        path: a folder of `save` or `publish`, from which nothing is executed; or a .pt2 file of `export`, which
            torch.export reads: load only files that you trust.
        model: for a folder whose model this package cannot build, one of the same architecture; it is copied, and the
            copy gets the saved weights. device: default, the accelerator if there is one; a .pt2 file runs on the CPU.
        """
        path = Path(path)
        import_components()
        if path.suffix == ".pt2" and path.is_file():
            if model is not None or device not in (None, "cpu", torch.device("cpu")):
                raise ValueError(f"model and device are for saved folders, {path} holds its own, for the CPU")
            program, table = files.read_program(path)
            pixels = table.pop("pixels")
            facts = decode(Facts, table, f"metadata of {path}")
            return cls(module=Program(program, pixels, facts.normalize), **values_of(facts))
        table = files.read_facts(path)
        checksum = str(table.pop("weights", ""))
        facts = decode(Facts, table, str(path / files.PREDICTOR))
        facts.check(path / files.PREDICTOR)
        built = facts.architecture
        tensors = files.read_weights(path, checksum, built)
        if model is not None:
            members: Sequence[nn.Module] = [copy.deepcopy(unwrapped(model))]
        elif built is not None:
            members = built.build()
        else:
            raise ValueError(
                f"model must be given for {path}, whose model is not a network of this package: "
                "Predictor.load(folder, model=one of the same architecture)"
            )
        module = Deployable(
            members,
            temperature=facts.temperature,
            score=facts.score,
            threshold=facts.threshold,
            factor=built.factor if built is not None else 0.0,
            normalize=facts.normalize,
        )
        if built is not None and not (path / files.WEIGHTS).is_file():  # published
            network = module.members[0]
            files.restore(network, files.in_our_names(tensors, built.network, network), path)
        else:
            files.restore(module, tensors, path)
        return cls(module=module.to(choose_device(device)), **values_of(facts))

    def save(self, folder: str | Path) -> None:
        """Write weights.safetensors and predictor.json, from which `load` makes this predictor again.

        For a model that `fit` was given, `load` needs a module of its architecture: no code is stored.
        """
        if isinstance(self.module, Program):
            raise ValueError("a predictor loaded from a .pt2 file cannot be saved as weights: copy that file instead")
        weights = Path(folder) / files.WEIGHTS
        save_tensors(weights, self.module.state_dict(), {})
        write_table(weights.with_name(files.PREDICTOR), {**files.plain(self), "weights": digest(weights)})

    def export(self, path: str | Path, *, pixels: Pixels = "float32") -> None:
        """Write a file that runs without this package, for any number of images; see `deployment.export`.

        path: ends in ".pt2" (torch.export) or ".onnx". pixels: float32 in [0, 1], or uint8.
        """
        facts = {**files.plain(replace(self, architecture=None)), "validation": public_name(self.validation)}
        files.export(self.module, path, input_shape=self.input_shape, pixels=pixels, facts=facts)

    def __call__(self, images: Tensor | Source | Sequence[Tensor | Source], *, batch_size: int = 256) -> Decision:
        """Decide about images (N, C, H, W), or one image (C, H, W), in uint8 or floating point in [0, 1].

        Files, bytes and Pillow images are taken as well, see `read`; also a list of such, or of tensors (C, H, W).
        """
        check_count("batch_size", batch_size)
        if isinstance(images, list | tuple) and images:
            parts = [self._to_tensor(image) for image in images]
            if len(kinds := {(tuple(part.shape), part.dtype) for part in parts}) != 1:
                raise ValueError(f"images in a list must have one shape and type, got {kinds}")
            images = torch.stack(parts)
        images = self._to_tensor(images)
        single = images.ndim == len(self.input_shape)
        batch = self._checked(images[None] if single else images, images)
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
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
        channels, height, width = self.input_shape
        if self.transform is None and not self.fingerprint and (size := open_rgb(file).size) != (width, height):
            raise ValueError(
                f"image files must have {width}x{height} pixels, as the images of the validation_loader, got "
                f"{size[0]}x{size[1]}: give Predictor.fit transform=EvalTransform(size=..., resize=...), of "
                "regmixup.data.decode, to resize and crop them"
            )
        return match_channels(decode_all([file], reader(self.transform, (height, width))), channels)[0]

    def _to_tensor(self, images: object) -> Tensor:
        if isinstance(images, Source):
            return self.read(images)
        return as_tensor("images that are no path, bytes or Pillow image", images)

    def _checked(self, batch: Tensor, given: Tensor) -> Tensor:
        """Return the batch in uint8 or float32; raise if it does not hold such images."""
        if tuple(batch.shape[1:]) != tuple(self.input_shape) or len(batch) == 0:
            shape = ", ".join(map(str, self.input_shape))
            raise ValueError(f"images must be (N, {shape}), N >= 1, or ({shape}), got {tuple(given.shape)}")
        if batch.dtype == torch.uint8:
            if self.inputs != "pixels" and self.normalize is None:
                raise ValueError(
                    "images must be floating point, as in the validation_loader, whose values were not in [0, 1], got "
                    "uint8 or a file: give Predictor.fit normalize=(mean, std) to say how pixels become such values"
                )
            return batch
        if not batch.is_floating_point():
            raise ValueError(f"images must be uint8 or floating point, got {batch.dtype}")
        low, high = map(float, batch.aminmax())
        if not math.isfinite(low + high) or (self.inputs == "pixels" and not 0 <= low <= high <= 1):
            contract = "lie in [0, 1]" if self.inputs == "pixels" else "be finite"
            raise ValueError(f"floating-point images must {contract}, got {low:g} to {high:g}")
        if self.inputs == "normalised" and look_like_pixels(batch):
            warnings.warn(
                "images look like pixels, but Predictor.fit was given normalised ones, so the answers are wrong. "
                "Normalise them, or give fit normalize=(mean, std) and here uint8",
                stacklevel=3,
            )
        return batch.float()


def deployed_score(objective: Objective) -> str:
    """Return the score of a predictor by default: entropy, and for DUQ, whose logits are kernels, the largest logit.

    Not Dempster-Shafer, the paper's for most methods: on our runs entropy finds errors of the model better in every
    case and OOD images about as well or better (docs/results.md, "Which score?").
    """
    return "max_logit" if isinstance(objective, DUQ) else "entropy"


def _checked_predictions(validation: Predictions, run: Run, classes: int) -> Predictions:
    """Check Predictions from the caller and return them; a dataset that is not ours may have any name."""
    known = get(validation.dataset)
    if known is not None and not known.is_folder:
        made_here = validation.info.get("run") == run.fingerprint
        check_validation(validation.dataset, run.config.train_set, seen=made_here)
    if validation.probs is not None:
        raise ValueError(
            "validation must have logits alone, as run.predict gives them, got probs, too: what is sampled, or "
            "averaged after the softmax, is not what is deployed"
        )
    if validation.logits.shape[1] != classes:
        raise ValueError(f"validation must have the run's {classes} classes, got {validation.logits.shape[1]}")
    return validation
