"""An exported .onnx file as the model of a predictor; onnxruntime runs it.

The file may be a stranger's. It is a graph of tensor operations and cannot run other code. Its metadata are checked as
those of a saved folder are, and must agree with the inputs and outputs of the graph.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from regmixup.config import decode
from regmixup.deployment.export import OUTPUTS, Facts, Pixels
from regmixup.mixing import to_float
from regmixup.names import check_name
from regmixup.networks.contract import Normalize


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
