"""Everything from pixels to a decision as one module, and how it is stored: for this package or for other programs.

The module is pure tensor code, which `torch.export` and ONNX can hold. A saved folder has weights.safetensors and
predictor.json, and reading it executes nothing: a network of this package is built anew by its name, any other module
comes from the caller.
"""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.optim.swa_utils import AveragedModel

from regmixup.config import encode, values_of
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.folders import SPLITS
from regmixup.deployment.calibration import Inputs, Promise
from regmixup.metrics.ordering import precise
from regmixup.metrics.scores import SCORES
from regmixup.mixing import to_float
from regmixup.names import check_name, shortened
from regmixup.networks import bake, build, head_of, library_names
from regmixup.networks.contract import Classifier, Head, Normalization, Normalize
from regmixup.networks.outputs import logits_of
from regmixup.posthoc import FittedConformal, MeanField, Posthoc
from regmixup.posthoc.predictive import shrink
from regmixup.predictions.forward import HasVariance
from regmixup.run_folder import FITTED, PUBLISHED
from regmixup.storage import digest, load_tensors, read_table, replacing
from regmixup.training.run import Run

Pixels = Literal["float32", "uint8"]
METADATA = "metadata.json"
WEIGHTS, PREDICTOR = "weights.safetensors", "predictor.json"
MODEL, CONFIG = PUBLISHED, "config.json"  # of a published folder


class Deployable(nn.Module):
    """Map images (N, C, H, W), uint8 or float in [0, 1], to {"probs": (N, K), "score": (N,), "accepted": (N,) bool}.

    s(x) = 1/M sum_m f_m(x) over the M members, where f_m is a network's logits, shrunk by their variance v_m where its
    head has one: f_m / sqrt(1 + factor * v_m), the mean-field predictive. Then
    probs = softmax(s / temperature), score = score(s), without temperature, and accepted = score <= threshold.

    members: networks in evaluation mode; they become part of this module and their constraints are baked. Modules of
    any kind that map a batch to logits, or to something that `logits_of` finds them in.
    normalize: (mean, std) per channel, where the members want normalised images: applied to uint8 images, while
    floating-point ones must come normalised. None: the members take pixels, of which uint8 ones are scaled to [0, 1].
    Probabilities and scores are float64 (float32 on devices without it), as in evaluation.

    >>> network = nn.Linear(2, 2)
    >>> network.weight.data, network.bias.data = torch.eye(2), torch.zeros(2)
    >>> module = Deployable([network], temperature=2.0, score="max_logit", threshold=-1.0)
    >>> {name: value.tolist() for name, value in module(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).items()}
    {'probs': [[0.5, 0.5], [0.5, 0.5]], 'score': [-0.0, -1.0], 'accepted': [False, True]}
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        *,
        temperature: float,
        score: str,
        threshold: float,
        factor: float = 0.0,
        normalize: Normalization | None = None,
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(bake(member) for member in members)
        self.temperature = temperature
        self.score = SCORES[check_name("score", score, SCORES)]
        self.threshold = threshold
        self.factor = factor
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.eval().requires_grad_(False)

    def logits(self, images: Tensor) -> Tensor:
        """Return s(x), (N, K)."""
        if self.normalize is not None and images.dtype == torch.uint8:
            images = self.normalize(images)
        images = to_float(images)
        if images.is_floating_point():  # a model in half or double precision takes no others
            images = images.to(next((p.dtype for p in self.parameters() if p.is_floating_point()), images.dtype))
        return precise(torch.stack([self._of_member(member, images) for member in self.members])).mean(dim=0)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        logits = self.logits(images)
        score = self.score(logits)
        probs = (logits / self.temperature).softmax(dim=1)
        return {"probs": probs, "score": score, "accepted": score <= self.threshold}

    def _of_member(self, member: nn.Module, images: Tensor) -> Tensor:
        if not (isinstance(member, Classifier) and isinstance(member.head, HasVariance)):
            return logits_of(member, images)
        features = member.features(images)
        variance = member.head.variance(features)
        return shrink(member.head(features), variance if variance.ndim == 2 else variance[:, None], self.factor)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside DataParallel, DistributedDataParallel, AveragedModel or torch.compile."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    around = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
    while isinstance(model, around) or hasattr(model, "_orig_mod"):
        inside = model.module if isinstance(model, around) else model._orig_mod
        assert isinstance(inside, nn.Module)
        model = inside
    return model


def mean_field_of(posthoc: Posthoc | None, *, uncertain: bool) -> MeanField | None:
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


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The arguments of `networks.build` for the members of a `Deployable`, whose constraints are baked already."""

    network: str
    num_classes: int
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    head: Head
    members: int
    factor: float

    @classmethod
    def of(cls, run: Run, record: Mapping[str, Any], *, members: int = 1, factor: float = 0.0) -> Architecture:
        """Return how the network of a run is built. record: the run's, see `Run.provenance`."""
        return cls(
            network=run.config.network,
            num_classes=len(record["classes"]),
            input_shape=tuple(record["input"]),
            mean=run.config.mean,
            std=run.config.std,
            head=head_of(run.config.head),
            members=members,
            factor=factor,
        )

    def build(self) -> list[Classifier]:
        """Return the networks, freshly initialised."""
        channels, height, width = self.input_shape
        return [
            build(
                self.network,
                num_classes=self.num_classes,
                in_channels=channels,
                normalize=(self.mean, self.std),
                head=self.head,
                image_size=(height, width),
            )
            for _ in range(self.members)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """The facts a predictor stores beside its weights; see there. Later additions have a default."""

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    transform: EvalTransform | None
    temperature: float
    score: str
    threshold: float
    acceptance: float
    validation: str
    fingerprint: str
    limit: float | None = None
    promise: Promise | None = None
    sets: FittedConformal | None = None
    inputs: Inputs = "pixels"
    normalize: Normalization | None = None
    architecture: Architecture | None = field(default=None, repr=False)


def plain(facts: Facts) -> dict[str, Any]:
    """Return the facts of a predictor as JSON values."""
    return encode(Facts(**values_of(facts, Facts)))


class Program(nn.Module):
    """A file that `export` has written, as the module that it holds; it takes uint8 and floating-point images."""

    def __init__(self, program: ExportedProgram, pixels: Pixels, normalize: Normalization | None) -> None:
        super().__init__()
        self.program = program.module()
        self.pixels = pixels
        self.normalize = Normalize(*normalize) if normalize is not None else None

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        if images.dtype != torch.uint8 and self.pixels == "uint8":
            raise ValueError(f"images must be uint8, which this program was exported for, got {images.dtype}")
        if images.dtype == torch.uint8 and self.pixels == "float32":
            images = to_float(images) if self.normalize is None else self.normalize(images)
        return self.program(images)


def public_name(dataset: str, tuned: Mapping[str, Any] | None = None) -> str:
    """Return the name of a dataset without the place of a folder; train, test and the like keep the one above.

    tuned: the record of `regmixup finetune`, whose parts are named by their roles.

    >>> public_name("folder:/home/me/photos/val-10"), public_name("folder:/home/me/photos/test")
    ('folder:photos/val-10', 'folder:photos/test')
    >>> part = "folder:/home/me/photos/val-15"
    >>> public_name(part, {"photos": {"path": "/home/me/photos", "train": "", "validation": "", "test": part}})
    'photos/test'
    """
    photos = {} if tuned is None else tuned["photos"]
    for role in ("train", "validation", "test"):
        if photos.get(role) == dataset:
            return f"{Path(photos['path']).name}/{role}"
    if not dataset.startswith("folder:"):
        return dataset
    whole = find(dataset).whole
    above, own = ("", *Path(whole.removeprefix("folder:")).parts)[-2:]
    return f"folder:{f'{above}/' * (own.lower() in SPLITS)}{own}{dataset.removeprefix(whole)}"


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of a saved folder."""
    if not (folder / PREDICTOR).is_file():
        hint = ": `regmixup.deployment.publish.load` reads its network" if (folder / MODEL).is_file() else ""
        if (folder / FITTED / PREDICTOR).is_file():
            hint = f": name {folder / FITTED}"
        if folder.suffix == ".onnx":
            hint = ". An .onnx file runs in onnxruntime, with the facts in its metadata"
        raise ValueError(
            f"{folder} must be a folder that Predictor.save has written or a .pt2 file, it has no {PREDICTOR}{hint}"
        )
    return read_table(folder / PREDICTOR)


def restore(module: nn.Module, folder: Path, expected: str, architecture: Architecture | None = None) -> None:
    """Load the weights of a saved or published folder into a module of the same architecture.

    expected: the checksum that the facts name. architecture: of a network of this package; in a published folder its
    weights have the names of the library that it comes from.
    """
    published = architecture is not None and not (folder / WEIGHTS).is_file()
    path = folder / (MODEL if published else WEIGHTS)
    try:
        if digest(path) != expected:
            raise ValueError(f"it is not the file that {CONFIG if published else PREDICTOR} belongs to")
        tensors = load_tensors(path)[0]
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    wanted = module.state_dict()
    if published and architecture is not None:
        inner, network = ("members.0.", module.members[0]) if isinstance(module, Deployable) else ("", module)
        own = {theirs: f"{inner}{ours}" for ours, theirs in library_names(architecture.network, network).items()}
        tensors = {own.get(name, name): value for name, value in tensors.items()}
    differing = [f"{name} (not saved)" for name in wanted.keys() - tensors.keys()]
    differing += [f"{name} (saved, but not in the model)" for name in tensors.keys() - wanted.keys()]
    differing += [
        f"{name} ({tuple(tensors[name].shape)} saved, {tuple(wanted[name].shape)} in the model)"
        for name in wanted.keys() & tensors.keys()
        if wanted[name].shape != tensors[name].shape
    ]
    if differing:
        shown = shortened(sorted(differing), 3)
        raise ValueError(f"model must have the architecture that was saved in {folder}; they differ in {shown}")
    module.load_state_dict(tensors)


def read_program(path: Path) -> tuple[ExportedProgram, dict[str, Any]]:
    """Read a .pt2 file and its facts. Unlike a saved folder, a file made for the purpose could execute code."""
    extra = {METADATA: ""}
    try:
        zipfile.ZipFile(path).close()  # first: of a file that is no archive, torch prints the stack
        program = torch.export.load(path, extra_files=extra)
    except Exception as error:  # of many kinds, by what is wrong: no archive, one cut short, another one
        raise ValueError(
            f"{path} must be a file that Predictor.export has written, it cannot be read ({type(error).__name__}: "
            f"{error}): copy or export it again"
        ) from error
    if not extra[METADATA]:
        raise ValueError(f"{path} must be a file that Predictor.export has written, it has no {METADATA}")
    return program, json.loads(extra[METADATA])


def export(
    module: nn.Module, path: str | Path, *, input_shape: tuple[int, ...], pixels: Pixels, facts: Mapping[str, Any]
) -> None:
    """Write `module` for any number of images of `input_shape` (C, H, W), by the suffix of `path`.

    ".pt2": read with torch.export.load; the facts are the extra file "metadata.json".
    ".onnx": input "images", outputs "probs", "score" and "accepted"; the facts are metadata properties, each as JSON.
    pixels: the type of the images, float32 in [0, 1] or uint8; a program accepts one.
    """
    path = Path(path)
    writers = {".pt2": _write_pt2, ".onnx": _write_onnx}
    write = writers[check_name(f"export format of {path}", path.suffix, writers)]
    dtype = getattr(torch, check_name("pixels", pixels, get_args(Pixels)))
    # Two images: from an example of one, torch.export would conclude that every batch has one.
    example = torch.zeros(2, *input_shape, dtype=dtype)
    portable = copy.deepcopy(module).cpu().eval()
    program = torch.export.export(portable, (example,), dynamic_shapes=({0: Dim("batch")},))
    with replacing(path) as temporary:
        write(program, temporary, {**facts, "pixels": pixels})


def _write_pt2(program: ExportedProgram, path: Path, facts: Mapping[str, Any]) -> None:
    torch.export.save(program, path, extra_files={METADATA: json.dumps(facts, indent=2)})


def _write_onnx(program: ExportedProgram, path: Path, facts: Mapping[str, Any]) -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ImportError(f"ONNX export needs {' and '.join(missing)}: pip install 'regmixup[onnx]'")
    names = ["probs", "score", "accepted"]
    onnx = torch.onnx.export(
        program, dynamo=True, input_names=["images"], output_names=names, dynamic_shapes=({0: "batch"},), verbose=False
    )
    assert onnx is not None
    onnx.model.metadata_props.update({name: json.dumps(value) for name, value in facts.items()})
    onnx.save(path)
