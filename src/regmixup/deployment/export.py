"""Predictors on disk: a folder that this package reads, or a file that runs without it.

A saved folder has weights.safetensors and predictor.json, and reading it executes nothing: a network of this package is
built anew by its name, any other module comes from the caller. A .pt2 or .onnx file holds the program itself.

An .onnx file is read, too, perhaps a stranger's; onnxruntime runs it. It is a graph of tensor operations and cannot run
other code. Its metadata are checked as those of a saved folder are, and must agree with the graph.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.export import Dim

from regmixup.config import check_number, decode, encode, values_of
from regmixup.data.catalogue import find
from regmixup.data.decode import EvalTransform
from regmixup.data.folders import SPLITS
from regmixup.deployment.calibration import Calibrated
from regmixup.mixing import to_float
from regmixup.names import check_name
from regmixup.networks import build, head_of, library_names, plain_normalize
from regmixup.networks.contract import Classifier, Head, Normalization, Normalize
from regmixup.run_folder import FITTED, PUBLISHED
from regmixup.storage import digest, load_tensors, read_table, replacing
from regmixup.training.run import Run

Inputs = Literal["pixels", "as given"]
Pixels = Literal["float32", "uint8"]
OUTPUTS = ("probs", "score", "accepted")
WEIGHTS, PREDICTOR = "weights.safetensors", "predictor.json"


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The arguments of `networks.build` for the network of a `Deployable`, whose constraints are baked already."""

    network: str
    num_classes: int
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    head: Head

    @classmethod
    def of(cls, run: Run) -> Architecture:
        """Return how the network of a finished run is built."""
        record = run.provenance()
        return cls(
            network=run.config.network,
            num_classes=len(record["classes"]),
            input_shape=tuple(record["input"]),
            mean=run.config.mean,
            std=run.config.std,
            head=head_of(run.config.head),
        )

    def build(self) -> Classifier:
        """Return the network, freshly initialised."""
        channels, height, width = self.input_shape
        return build(
            self.network,
            num_classes=self.num_classes,
            in_channels=channels,
            normalize=(self.mean, self.std),
            head=self.head,
            image_size=(height, width),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts(Calibrated):
    """The facts a predictor stores beside its weights; see `Predictor` for the meaning of each."""

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    transform: EvalTransform | None
    validation: str
    fingerprint: str
    inputs: Inputs = "pixels"
    normalize: Normalization | None = None
    architecture: Architecture | None = field(default=None, repr=False)

    def check(self, file: Path) -> None:
        """Raise unless a predictor can be made of these facts, which come from a file, perhaps a stranger's."""
        check_number(f"{file}: temperature", self.temperature, above=0)
        check_number(f"{file}: threshold", self.threshold)
        if self.transform is not None and (self.transform.size,) * 2 != self.input_shape[1:]:
            raise ValueError(f"{file}: transform must crop to the model's {self.input_shape}, got {self.transform}")
        built, classes = self.architecture, len(self.class_names)
        channels = sorted({1, *self.input_shape[:1]})  # one value may serve all channels
        try:
            plain_normalize(self.normalize, *channels)
            if built is not None:
                plain_normalize((built.mean, built.std), *channels)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if built is not None and (built.num_classes, built.input_shape) != (classes, self.input_shape):
            raise ValueError(f"{file}: {built} must take inputs {self.input_shape} and have {classes} logits, as named")
        if self.sets is not None and self.sets.num_classes not in (None, classes):
            raise ValueError(f"{file}: sets must be of the {classes} classes, got sets of {self.sets.num_classes}")


def encode_facts(facts: Facts) -> dict[str, Any]:
    """Return the facts of a predictor as JSON values."""
    return encode(Facts(**values_of(facts, Facts)))


def public_name(dataset: str) -> str:
    """Return the name of a dataset without the place of a folder; train, test and the like keep the one above.

    >>> [public_name(f"folder:{path}") for path in ("/home/me/photos/val-10", "/home/me/photos/test", "test")]
    ['folder:photos/val-10', 'folder:photos/test', 'folder:test']
    """
    if not dataset.startswith("folder:"):
        return dataset
    whole = find(dataset).whole
    folder = Path(whole.removeprefix("folder:"))
    above = f"{folder.parent.name}/" if folder.name.lower() in SPLITS else ""
    name = f"{above}{folder.name}{dataset.removeprefix(whole)}"
    return f"folder:{name.removeprefix('/')}"


def read_saved(folder: Path) -> tuple[Facts, str]:
    """Return the facts in a folder of `Predictor.save` or `publish`, and the checksum of its weights."""
    file = folder / PREDICTOR
    if not file.is_file():
        hint = f": name {folder / FITTED}" if (folder / FITTED / PREDICTOR).is_file() else ""
        raise ValueError(
            f"{folder} must be a folder of Predictor.save, or of publish with a predictor, it has no {PREDICTOR}{hint}"
        )
    table = read_table(file)
    checksum = str(table.pop("weights", ""))
    facts = decode(Facts, table, str(file))
    facts.check(file)
    return facts, checksum


def load_weights(network: nn.Module, folder: Path, checksum: str, architecture: Architecture | None) -> None:
    """Load the weights of a saved or published folder into a network.

    checksum: of their file, in the facts beside it. architecture: by it, `publish` has named the tensors.
    """
    saved = (folder / WEIGHTS).is_file()
    path = folder / (WEIGHTS if saved else PUBLISHED)
    try:
        if digest(path) != checksum:
            raise ValueError("it is not the file that the facts beside it belong to")
        tensors = load_tensors(path)[0]
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    if architecture is not None and not saved:
        names = {theirs: ours for ours, theirs in library_names(architecture.network, network).items()}
        tensors = {names.get(name, name): tensor for name, tensor in tensors.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"model must have the architecture that was saved in {folder}: {error}") from error


def export(
    module: nn.Module, path: str | Path, *, input_shape: tuple[int, ...], pixels: Pixels, facts: Mapping[str, Any]
) -> None:
    """Write `module` for any number of images of `input_shape` (C, H, W), by the suffix of `path`.

    ".pt2": read with torch.export.load; the facts are the extra file "metadata.json".
    ".onnx": input "images", outputs "probs", "score" and "accepted"; the facts are metadata properties, each as JSON.
    pixels: the type of the images, float32 in [0, 1] or uint8; a program accepts one.
    """
    path = Path(path)
    suffix = check_format(path)
    dtype = getattr(torch, check_name("pixels", pixels, get_args(Pixels)))
    # Two images: from an example of one, torch.export would conclude that every batch has one.
    example = torch.zeros(2, *input_shape, dtype=dtype)
    portable = copy.deepcopy(module).cpu().eval()
    program = torch.export.export(portable, (example,), dynamic_shapes=({0: Dim("batch")},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names folders of this machine
    facts = {**facts, "pixels": pixels}
    with replacing(path) as temporary:
        if suffix == ".pt2":
            torch.export.save(program, temporary, extra_files={"metadata.json": json.dumps(facts, indent=2)})
            return
        onnx = torch.onnx.export(
            program,
            dynamo=True,
            input_names=["images"],
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: "batch"},),
            verbose=False,
        )
        assert onnx is not None
        onnx.model.metadata_props.update({name: json.dumps(fact) for name, fact in facts.items()})
        onnx.save(temporary)


def check_format(path: Path) -> str:
    """Return the suffix of a path in small letters, or raise what keeps a predictor from being exported to it."""
    suffix = check_name(f"export format of {path}", path.suffix.lower(), (".pt2", ".onnx"))
    missing = [name for name in ("onnx", "onnxscript") if suffix == ".onnx" and find_spec(name) is None]
    if missing:
        raise ValueError(f"export to ONNX needs {' and '.join(missing)}: pip install 'regmixup[onnx]', or give a .pt2")
    return suffix


class OnnxProgram(nn.Module):
    """Map images (N, C, H, W) to probs, score and accepted as `Deployable` does, by the graph of a file."""

    def __init__(self, path: Path, session: Any, facts: Facts, pixels: Pixels) -> None:
        super().__init__()
        self.path, self.session, self.pixels = path, session, pixels
        self.normalize = Normalize(*facts.normalize) if facts.normalize is not None else None

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        if self.pixels == "uint8" and images.dtype != torch.uint8:
            raise ValueError(f"images must be uint8, which {self.path} was exported for, got {images.dtype}")
        if self.pixels == "float32" and images.dtype == torch.uint8:
            images = to_float(images) if self.normalize is None else self.normalize(images)
        try:
            outputs = self.session.run(list(OUTPUTS), {"images": images.numpy()})
        except Exception as error:  # onnxruntime's errors have no class of their own below Exception
            raise ValueError(f"onnxruntime cannot run {self.path}: {error}") from error
        return dict(zip(OUTPUTS, map(torch.from_numpy, outputs), strict=True))


def load_onnx(path: Path) -> tuple[Facts, OnnxProgram]:
    """Return the facts in a file of `Predictor.export`, and its program. A ValueError names the file."""
    if find_spec("onnxruntime") is None:
        raise ValueError(f"{path} needs onnxruntime to run: pip install onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: they are raised below; warnings are about graphics cards
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        properties = session.get_modelmeta().custom_metadata_map
        table = {name: json.loads(text) for name, text in properties.items()}
    except Exception as error:  # as above
        raise ValueError(f"cannot read {path} as a file of Predictor.export: {error}") from error
    pixels = cast("Pixels", check_name(f"pixels in {path}", str(table.pop("pixels", "")), get_args(Pixels)))
    facts = decode(Facts, table, str(path))
    facts.check(path)
    _check_graph(path, session, facts, pixels)
    return facts, OnnxProgram(path, session, facts, pixels)


def _check_graph(path: Path, session: Any, facts: Facts, pixels: Pixels) -> None:
    """Raise unless the graph takes and gives tensors of the shapes, the first dimension aside, that the facts say."""
    kind = {"uint8": "tensor(uint8)", "float32": "tensor(float)"}[pixels]
    tensors = {tensor.name: tensor.shape[1:] for tensor in (*session.get_inputs(), *session.get_outputs())}
    described = {"images": [*facts.input_shape], "probs": [len(facts.class_names)], "score": [], "accepted": []}
    if tensors != described or session.get_inputs()[0].type != kind:
        raise ValueError(f"{path}: its metadata describe {described} of {kind}, the graph has {tensors}")
