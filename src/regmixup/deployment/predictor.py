"""Deploy a trained run: calibrated probabilities, an out-of-distribution score, and whether to accept an image."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.config import check_count, check_number, encode
from regmixup.data.catalogue import get
from regmixup.data.decode import EvalTransform, Source, decode_all
from regmixup.data.roles import check_validation, validation_of
from regmixup.deployment.export import Deployable, Pixels, export
from regmixup.methods import METHODS
from regmixup.metrics.detection import needed_count
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name
from regmixup.objectives import Objective, name_of
from regmixup.objectives.alternate import Alternate
from regmixup.posthoc import MeanField, Posthoc, TemperatureScaling, ensemble
from regmixup.predictions import HasVariance
from regmixup.training.config import choose_device
from regmixup.training.loading import match_channels, reader
from regmixup.training.run import Run
from regmixup.types import Predictions

_MARGIN = 1e-4


@dataclass(frozen=True)
class Decision:
    """The output of a predictor for N images, on the CPU; for a single image without the leading N.

    probs: (N, K) calibrated probabilities of the classes `class_names`. label: (N,) the most probable class.
    score: (N,) larger for images less like the train set. accepted: (N,) bool, score <= threshold.
    """

    probs: Tensor
    label: Tensor
    score: Tensor
    accepted: Tensor
    class_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """A trained model with a temperature and a threshold, both from validation images; `Predictor.from_run` makes it.

    module: the tensor code, see `Deployable`. class_names: K names. input_shape: (C, H, W) of the images.
    transform: how files are resized, as in the run's evaluation; None: they must have that size already.
    temperature, threshold, score: as the module uses them; score is a name. acceptance: the share of validation images
    that the threshold had to accept. validation: the dataset it was fitted on. fingerprint: that of the run.
    """

    module: Deployable = field(repr=False)
    class_names: tuple[str, ...]
    input_shape: tuple[int, int, int]
    transform: EvalTransform | None
    temperature: float
    score: str
    threshold: float
    acceptance: float
    validation: str
    fingerprint: str

    @classmethod
    def from_run(
        cls,
        run: Run | str | Path,
        *,
        validation: str | Predictions | None = None,
        acceptance: float = 0.95,
        score: str | None = None,
        calibrate: bool = True,
        posthoc: Posthoc | None = None,
        root: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> Predictor:
        """Load a finished run (or the folder of one) and fit a temperature and a threshold on validation images.

        validation: a dataset's name, default the validation set that belongs to the run's train set; or Predictions,
            as those of a companion run for a model that was trained on everything. Never a test, shifted or OOD set.
        acceptance: the share of validation images to accept, in (0, 1]; the threshold is the smallest that does.
        score: one of `regmixup.scores.SCORES`; default, the paper's for the method with the run's objective
            (entropy for Mixup, the largest logit for DUQ), else dempster_shafer.
        calibrate: whether to fit a temperature, by ECE; without, it is 1.
        posthoc: for heads that know their logits' variance, a MeanField with the factor to use; default MeanField().
            Other predictives are sampled or need the train features, and are rejected.
        root: where datasets read from disk lie. device: default, the accelerator if there is one.
        """
        run = run if isinstance(run, Run) else Run.open(run)
        record = run.provenance()
        check_number("acceptance", acceptance, above=0, most=1)
        score = check_name("score", _paper_score(run.config.objective) if score is None else score, SCORES)
        device = choose_device(device)
        runs = [run] if run.config.members == 1 else run.members()
        members = [member.model(device=device, root=root) for member in runs]
        mean_field = _mean_field(posthoc, uncertain=isinstance(members[0].head, HasVariance))
        if isinstance(validation, Predictions):
            found = _given(validation, run, len(record["classes"]), mean_field)
        else:
            name = validation if validation is not None else validation_of(run.config.train_set)
            check_validation(name, run.config.train_set)
            parts = [member.predict(name, root=root, device=device) for member in runs]
            found = ensemble([mean_field(part) if mean_field else part for part in parts])
        settings: dict[str, Any] = {
            "temperature": TemperatureScaling().fit(found.logits, found.labels).temperature if calibrate else 1.0,
            "score": score,
            "threshold": accepting_threshold(SCORES[score](found.logits), acceptance),
        }
        return cls(
            module=Deployable(members, **settings, factor=mean_field.factor if mean_field else 0.0),
            class_names=tuple(record["classes"]),
            input_shape=tuple(record["input"]),
            transform=run.transform(),
            **settings,
            acceptance=acceptance,
            validation=found.dataset,
            fingerprint=run.fingerprint,
        )

    def __call__(self, images: Tensor, *, batch_size: int = 256) -> Decision:
        """Decide about images (N, C, H, W), or one image (C, H, W), in uint8 or floating point in [0, 1]."""
        check_count("batch_size", batch_size)
        images = torch.as_tensor(images)
        single = images.ndim == 3
        batch = self._checked(images[None] if single else images, images)
        device = next(self.module.parameters()).device
        with torch.no_grad():
            parts = [self.module(part.to(device)) for part in batch.split(batch_size)]
        found = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
        found["label"] = found["probs"].argmax(dim=1)
        if single:
            found = {name: value[0] for name, value in found.items()}
        return Decision(**found, class_names=self.class_names)

    def predict_file(self, file: Source) -> Decision:
        """Decide about an image file, treated as the run's evaluation treats files: see `transform`.

        file: its path or its bytes, or an image that Pillow has opened.
        """
        channels, *size = self.input_shape
        pixels = decode_all([file], reader(self.transform, size))
        return self(match_channels(pixels, channels)[0])

    def export(self, path: str | Path, *, pixels: Pixels = "float32") -> None:
        """Write a file that runs without this package, for any number of images; see `deployment.export`.

        path: ends in ".pt2" (torch.export) or ".onnx". pixels: float32 in [0, 1], or uint8.
        """
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "module"}
        facts["transform"] = None if self.transform is None else encode(self.transform)
        export(self.module, path, input_shape=self.input_shape, pixels=pixels, facts=facts)

    def _checked(self, batch: Tensor, given: Tensor) -> Tensor:
        """Return the batch in uint8 or float32; raise if it does not hold such images."""
        if batch.ndim != 4 or tuple(batch.shape[1:]) != self.input_shape or len(batch) == 0:
            shape = ", ".join(map(str, self.input_shape))
            raise ValueError(f"images must be (N, {shape}), N >= 1, or ({shape}), got {tuple(given.shape)}")
        if batch.dtype == torch.uint8:
            return batch
        if not batch.is_floating_point():
            raise ValueError(f"images must be uint8 or floating point, got {batch.dtype}")
        low, high = batch.aminmax()
        if not (float(low) >= 0 and float(high) <= 1):
            raise ValueError(f"floating-point images must lie in [0, 1], got {float(low):g} to {float(high):g}")
        return batch.float()


def accepting_threshold(scores: Tensor, acceptance: float) -> float:
    """Return the smallest threshold t such that score <= t for at least the share `acceptance` of the scores (N,).

    It lies a little above the last accepted score, by 1e-4 of it, or half-way to the first rejected one if that is
    nearer: the same scores, rounded otherwise by another batch size, device or runtime, should get the same decisions.

    >>> accepting_threshold(torch.tensor([0.5, 0.25, 1.0, 2.0]), 0.75)
    1.0001
    """
    ordered = scores.double().cpu().sort().values
    last = ordered[needed_count(acceptance, len(ordered)) - 1]
    margin = _MARGIN * float(last.abs())
    rejected = ordered[ordered > last]
    return float(last) + (min(margin, float(rejected[0] - last) / 2) if len(rejected) else margin)


def _paper_score(objective: Objective) -> str:
    """Return the OOD score of the method that is called like an objective; of two in turn, the one they share."""
    if isinstance(objective, Alternate):
        scores = {_paper_score(objective.first), _paper_score(objective.second)}
        return scores.pop() if len(scores) == 1 else "dempster_shafer"
    method = METHODS.get(name_of(objective))
    return method.score if method is not None else "dempster_shafer"


def _mean_field(posthoc: Posthoc | None, *, uncertain: bool) -> MeanField | None:
    """Return the map from logits and their variance to logits; None for heads without a variance."""
    if posthoc is None:
        return MeanField() if uncertain else None
    if not isinstance(posthoc, MeanField):
        raise ValueError(
            f"posthoc must be None or MeanField, the predictive with a closed form, got {type(posthoc).__name__}: "
            "what is sampled or fitted on train features cannot be deployed as one module"
        )
    if not uncertain:
        raise ValueError("posthoc must be None for a head without a variance of its logits, got MeanField")
    return posthoc


def _given(validation: Predictions, run: Run, classes: int, mean_field: MeanField | None) -> Predictions:
    """Check Predictions from the caller and return them; a dataset that is not ours may have any name."""
    known = get(validation.dataset)
    if known is not None and not known.is_folder:
        own = validation.info.get("run") == run.fingerprint
        check_validation(validation.dataset, run.config.train_set, seen=own)
    if not torch.isfinite(validation.logits).all():
        raise ValueError("validation must have finite logits, got NaN or infinite values")
    if validation.probs is not None:
        raise ValueError(
            "validation must have logits alone, as run.predict gives them, got probs, too: what is sampled, or "
            "averaged after the softmax, is not what is deployed"
        )
    if validation.logits.shape[1] != classes:
        raise ValueError(f"validation must have the run's {classes} classes, got {validation.logits.shape[1]}")
    return mean_field(validation) if mean_field else validation
