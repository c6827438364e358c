"""A deployable module as one file that runs without this package: torch's own format, or ONNX."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch.export import Dim, ExportedProgram

from regmixup.deployment.deployable import Deployable
from regmixup.names import check_name, unknown
from regmixup.storage import replacing

Pixels = Literal["float32", "uint8"]
METADATA = "metadata.json"


def export(
    module: Deployable, path: str | Path, *, input_shape: tuple[int, ...], pixels: Pixels, facts: Mapping[str, Any]
) -> None:
    """Write `module` for any number of images of `input_shape` (C, H, W), by the suffix of `path`.

    ".pt2": read with torch.export.load; the facts are the extra file "metadata.json".
    ".onnx": input "images", outputs "probs", "score" and "accepted"; the facts are metadata properties, each as JSON.
    pixels: what the file takes, float32 in [0, 1] or uint8; a program holds one type.
    """
    path = Path(path)
    writers = {".pt2": _write_pt2, ".onnx": _write_onnx}
    if path.suffix not in writers:
        raise unknown(f"export format of {path}", path.suffix, writers)
    dtype = getattr(torch, check_name("pixels", pixels, get_args(Pixels)))
    # Two images, since torch takes an example of one for a batch that always has one.
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
