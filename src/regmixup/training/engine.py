"""The device, and settings of execution, which may change the speed and safety of a run, but not what it computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from regmixup.config import Checked, NotNegative
from regmixup.data.files import cache_folder
from regmixup.networks.precision import cudnn, float32_products
from regmixup.training.config import TrainConfig

Choice = Literal["auto", "on", "off"]

_SHORT = 2000
"""Steps below which compiling (up to a minute) costs more than it saves."""


@dataclass(frozen=True, kw_only=True)
class Engine(Checked):
    """Settings of execution. None of this enters the run's fingerprint."""

    compile: Choice = "auto"
    """Use torch.compile for the forward and backward pass. auto: on CUDA, if the run has enough steps to make up for
    the compilation."""
    graphs: Choice = "auto"
    """Replay each step as one CUDA graph. auto: on CUDA, except with several shards or SAM with dropout."""
    deterministic: bool = False
    """Give the same bits for the same seed on CUDA, too. This uses slower algorithms and no compilation."""
    checkpoint_minutes: NotNegative = 5.0
    """Largest number of minutes between checkpoints; 0 for one after every step. A checkpoint is also saved on Ctrl-C
    and SIGTERM, at the end, and after any epoch that took a hundred times as long as saving."""


@dataclass(frozen=True)
class Execution:
    """The choices of an `Engine` for one run on one device; `str` describes them in one line.

    >>> print(Execution(torch.device("cuda"), "bfloat16", True, True))
    cuda: bfloat16, compiled, one CUDA graph per step
    """

    device: torch.device
    precision: str
    compile: bool
    graphs: bool

    def __str__(self) -> str:
        parts = [self.precision, "compiled" if self.compile else "not compiled"]
        if self.device.type == "cuda":
            parts.append("one CUDA graph per step" if self.graphs else "kernel by kernel")
        return f"{self.device.type}: {', '.join(parts)}"


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Return the given device, or the accelerator torch sees (under torchrun, each process its own), or the CPU."""
    if device is None:
        device = torch.accelerator.current_accelerator(check_available=True) or "cpu"
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be one that torch knows, such as cpu or cuda:0, got {device!r}") from error
    if str(device) == "cuda" and "LOCAL_RANK" in os.environ:
        # A process that sees no GPU but its own calls it 0, whatever its rank.
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count()))
    return device


def check_present(device: torch.device) -> None:
    """Raise unless this machine has the device: better than every run of a study finding out for itself."""
    if device.type == "cpu":
        return
    present = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count() if present is not None and present.type == device.type else 0
    if (device.index or 0) >= count:
        here = f"{count} of the kind {device.type}" if count else "none of that kind"
        raise ValueError(f"device must be one of this machine, which has {here}, got {device}")


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or the type of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def choose_execution(
    engine: Engine, config: TrainConfig, device: torch.device, *, steps: int, dropout: bool = False
) -> Execution:
    """Decide what `auto` means. Asking with "on" for what cannot be is an error.

    steps: of the whole run. dropout: whether the network has any.
    """
    cannot_compile = _why_not_compiled(engine, config)
    cannot_capture = _why_not_captured(config, device, dropout=dropout)
    for name, obstacle in (("compile", cannot_compile), ("graphs", cannot_capture)):
        if obstacle and getattr(engine, name) == "on":
            raise ValueError(f"{name} must be auto or off here, got 'on': {obstacle}")
    pays = device.type == "cuda" and steps >= _SHORT
    compiled = not cannot_compile and (engine.compile == "on" or (engine.compile == "auto" and pays))
    captured = not cannot_capture and engine.graphs != "off"
    return Execution(device, config.precision, compiled, captured)


def _why_not_compiled(engine: Engine, config: TrainConfig) -> str:
    if config.objective.differentiates_twice:
        return f"torch.compile cannot differentiate twice, as {type(config.objective).__name__} must"
    return "it would not be deterministic" if engine.deterministic else ""


def _why_not_captured(config: TrainConfig, device: torch.device, *, dropout: bool) -> str:
    if device.type != "cuda":
        return f"there are no CUDA graphs on {device.type}"
    if dropout and config.sharpness != "none":
        return "both passes of SAM need one dropout mask, and a graph draws two"
    return f"a step takes {config.num_shards} passes" if config.num_shards > 1 else ""


@contextmanager
def settings(device: torch.device, engine: Engine, precision: str) -> Iterator[None]:
    """Set what training needs process-wide, and restore it: gradients, device, generators, precision, determinism."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # which enables gradients, too
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)  # networks are built in it, whatever a script uses for its own
        # fork_rng would otherwise start every accelerator of the machine.
        seeded = [] if device.type == "cpu" else [device]
        stack.enter_context(torch.random.fork_rng(seeded, device_type=device.type if seeded else "cuda"))
        # torch turns oneDNN off for good where a CPU lacks bfloat16, at the first large product in that precision. So
        # the bits of later runs would depend on this one, and those of a resumed run on where it was interrupted.
        onednn = torch.backends.mkldnn
        stack.callback(onednn.set_flags, onednn.enabled)
        if device.type == "cpu" and precision == "bfloat16" and onednn.is_available():
            onednn.set_flags(onednn.enabled and torch.ops.mkldnn._is_mkldnn_bf16_supported())
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))  # streams, graphs and seeds are those of the current one
            stack.enter_context(cudnn(benchmark=not engine.deterministic, deterministic=engine.deterministic))
            stack.enter_context(float32_products(precision))
        if engine.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
            torch.use_deterministic_algorithms(True)
        yield
