"""Everything from pixels to a decision as one module, and that module as one file that runs without this package.

The module is pure tensor code, which `torch.export` and ONNX can hold.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from regmixup.metrics.ordering import precise
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name, unknown
from regmixup.networks import bake
from regmixup.networks.contract import Classifier
from regmixup.posthoc.predictive import shrink
from regmixup.predictions import HasVariance
from regmixup.storage import replacing

Pixels = Literal["float32", "uint8"]
METADATA = "metadata.json"


class Deployable(nn.Module):
    """Map images (N, C, H, W), uint8 or float in [0, 1], to {"probs": (N, K), "score": (N,), "accepted": (N,) bool}.

    s(x) = 1/M sum_m f_m(x) over the M members, where f_m is a network's logits, shrunk by their variance v_m where its
    head has one: f_m / sqrt(1 + factor * v_m), the mean-field predictive. Then
    probs = softmax(s / temperature), score = score(s), without temperature, and accepted = score <= threshold.

    members: networks in evaluation mode; they become part of this module and their constraints are baked.
    Probabilities and scores are float64 (float32 on devices without it), as in evaluation.

    >>> network = nn.Linear(2, 2)
    >>> network.weight.data, network.bias.data = torch.eye(2), torch.zeros(2)
    >>> module = Deployable([network], temperature=2.0, score="max_logit", threshold=-1.0)
    >>> {name: value.tolist() for name, value in module(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).items()}
    {'probs': [[0.5, 0.5], [0.5, 0.5]], 'score': [-0.0, -1.0], 'accepted': [False, True]}
    """

    def __init__(
        self, members: Sequence[nn.Module], *, temperature: float, score: str, threshold: float, factor: float = 0.0
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(bake(member) for member in members)
        self.temperature = temperature
        self.score = SCORES[check_name("score", score, SCORES)]
        self.threshold = threshold
        self.factor = factor
        self.eval().requires_grad_(False)

    def logits(self, images: Tensor) -> Tensor:
        """Return s(x), (N, K)."""
        return precise(torch.stack([self._of_member(member, images) for member in self.members])).mean(dim=0)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        logits = self.logits(images)
        score = self.score(logits)
        probs = (logits / self.temperature).softmax(dim=1)
        return {"probs": probs, "score": score, "accepted": score <= self.threshold}

    def _of_member(self, member: nn.Module, images: Tensor) -> Tensor:
        if not (isinstance(member, Classifier) and isinstance(member.head, HasVariance)):
            return member(images)
        features = member.features(images)
        variance = member.head.variance(features)
        return shrink(member.head(features), variance if variance.ndim == 2 else variance[:, None], self.factor)


def export(
    module: Deployable, path: str | Path, *, input_shape: tuple[int, ...], pixels: Pixels, facts: Mapping[str, Any]
) -> None:
    """Write `module` for any number of images of `input_shape` (C, H, W), by the suffix of `path`.

    ".pt2": read with torch.export.load; the facts are the extra file "metadata.json".
    ".onnx": input "images", outputs "probs", "score" and "accepted"; the facts are metadata properties, each as JSON.
    pixels: the type of the images, float32 in [0, 1] or uint8; a program accepts one.
    """
    path = Path(path)
    writers = {".pt2": _write_pt2, ".onnx": _write_onnx}
    if path.suffix not in writers:
        raise unknown(f"export format of {path}", path.suffix, writers)
    dtype = getattr(torch, check_name("pixels", pixels, get_args(Pixels)))
    # Two images: from an example of one, torch.export would conclude that every batch has one.
    example = torch.zeros(2, *input_shape, dtype=dtype)
    portable = copy.deepcopy(module).cpu().eval()
    program = torch.export.export(portable, (example,), dynamic_shapes=({0: Dim("batch")},))
    with replacing(path) as temporary:
        writers[path.suffix](program, temporary, {**facts, "pixels": pixels})


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
