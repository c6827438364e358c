"""torch.compile for the forward pass, with every undocumented option of inductor that we use.

Such options may disappear with any release of torch. So each is looked up first, and one that is missing is left out
with a remark: compiling then takes longer or makes slower kernels, and computes the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regmixup.mixing import Draw
from regmixup.networks import batch_norm

_OPTIONS = ("graph_partition", "unsafe_marked_cacheable_functions", "realize_reads_threshold")


class CompiledForward(nn.Module):
    """A compiled `loop.ForwardPass`. sizes: the numbers of images to compile for.

    Another number, as in the last, partial batch of an epoch, is not worth compiling for.
    """

    def __init__(self, forward: nn.Module, sizes: Collection[int]) -> None:
        super().__init__()
        self.plain, self.sizes = forward, frozenset(sizes)
        options = compile_options(forward.get_submodule("model"))
        self._compiled = torch.compile(forward.forward, fullgraph=True, dynamic=False, options=options)

    def forward(self, picked: Any, draw: Draw) -> Any:
        if picked is None or len(getattr(picked, fields(picked)[0].name)) not in self.sizes:
            return self.plain.forward(picked, draw)
        return self._compiled(picked, draw)


def compile_options(model: nn.Module) -> dict[str, Any]:
    """Return the options of torch.compile for a model, those that this torch has.

    * Partitions of the graph are for torch's own CUDA graphs: without them compiling is a twentieth shorter.
    For models with the layers of `networks.batch_norm`:
    * Their functions with a backward pass of their own are taken as they are: tracing through each of them makes
      compiling half as long again. Their source text is the key under which compiled code is cached for later runs.
    * The gradient before a batch norm is an expression of up to eight tensors (with ReLU, dropout and a sum of two
      gradients). It is not stored: that would be in float32, and read as often.
    """
    options: dict[str, Any] = {"graph_partition": False}
    if any(isinstance(module, batch_norm.BatchNorm2d) for module in model.modules()):
        text = hashlib.sha256(Path(batch_norm.__file__).read_bytes()).hexdigest()
        for function in batch_norm.OPAQUE:
            torch.compiler.allow_in_graph(function)
        keys = {f"{function.__module__}.{function.__name__}": text for function in batch_norm.OPAQUE}
        options |= {"unsafe_marked_cacheable_functions": keys, "realize_reads_threshold": 8}
    missing = missing_options()
    return {name: value for name, value in options.items() if name not in missing}


def missing_options() -> list[str]:
    """Return the options among ours that this torch does not have."""
    try:
        from torch._inductor import list_options

        known = list_options()
    except ImportError:
        known = []
    return [name for name in _OPTIONS if name not in known]
