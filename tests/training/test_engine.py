"""What `auto` means, what cannot be asked for, and what training leaves behind in the process."""

import gc
from contextlib import contextmanager, nullcontext

import pytest
import torch

import regmixup as rm
from regmixup.data.splits import generator_for
from regmixup.training.compilation import kind_of, uncollected
from regmixup.training.engine import Engine, choose_execution, settings
from tests.training.short import config

CPU, MPS, CUDA = (torch.device(name) for name in ("cpu", "mps", "cuda"))
LONG, SHORT = 100_000, 100


def chosen(device, *, compile="auto", graphs="auto", steps=LONG, passes=1, deterministic=False, method="regmixup"):
    engine = Engine(compile=compile, graphs=graphs, deterministic=deterministic)
    return choose_execution(engine, config(method, precision="float32", shards=passes), device, steps=steps)


class TestChoice:
    @pytest.mark.parametrize(("compile", "graphs"), [("auto", "auto"), ("on", "off"), ("off", "on")])
    def test_on_cuda_everything_is_on_unless_it_is_off(self, compile, graphs):
        found = chosen(CUDA, compile=compile, graphs=graphs)
        assert (found.compile, found.graphs) == (compile != "off", graphs != "off")

    @pytest.mark.parametrize("device", [CPU, MPS], ids=str)
    def test_elsewhere_nothing_is_on_unless_asked_for_and_graphs_cannot_be(self, device):
        assert str(chosen(device)) == f"{device}: float32, not compiled"
        assert chosen(device, compile="on").compile
        with pytest.raises(
            ValueError, match=f"graphs must be auto or off here, got 'on': .*no CUDA graphs on {device}"
        ):
            chosen(device, graphs="on")

    @pytest.mark.parametrize(("compile", "expected"), [("auto", False), ("on", True), ("off", False)])
    def test_a_short_run_does_not_repay_compiling(self, compile, expected):
        assert chosen(CUDA, compile=compile, steps=SHORT).compile is expected
        assert chosen(CUDA, compile=compile, steps=SHORT).graphs

    def test_several_passes_per_step_are_not_captured(self):
        found = chosen(CUDA, passes=4)
        assert (found.compile, found.graphs) == (True, False)
        with pytest.raises(ValueError, match="graphs must be auto or off here, got 'on': a step takes 4 passes"):
            chosen(CUDA, graphs="on", passes=4)

    def test_what_differentiates_twice_is_not_compiled(self):
        found = chosen(CUDA, method="duq")
        assert (found.compile, found.graphs) == (False, True)
        with pytest.raises(ValueError, match=r"got 'on': torch\.compile cannot differentiate twice, as DUQ must"):
            chosen(CUDA, compile="on", method="duq")

    def test_determinism_leaves_compiling_out(self):
        assert not chosen(CUDA, deterministic=True).compile
        with pytest.raises(ValueError, match="compile must be auto or off here, got 'on': it would not be determin"):
            chosen(CUDA, deterministic=True, compile="on")


class TestEngine:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"compile": "onn"}, "unknown compile 'onn': did you mean 'on'"),
            ({"checkpoint_minutes": -1}, "checkpoint_minutes must be a finite number >= 0, got -1"),
        ],
    )
    def test_a_wrong_one_is_explained(self, fields, message):
        with pytest.raises(ValueError, match=message):
            Engine(**fields)


@pytest.mark.parametrize("method", ["regmixup", "regmixup+cutmix", "augmix", "pixmix"])
def test_the_draws_of_a_method_are_of_one_kind_of_or_of_one_for_each_branch(method):
    """Each is captured as a CUDA graph of its own."""
    objective = rm.configure("cifar10-wrn28-10", method).objective
    draws = [objective.draw(6, (3, 32, 32), generator_for(0, step)) for step in range(20)]
    assert len({kind_of(draw) for draw in draws}) == len({draw.branch for draw in draws})


def test_garbage_collection_is_as_before_after_compiling_even_if_that_fails():
    def compile():
        with uncollected():
            assert not gc.isenabled()
            raise RuntimeError("no compiler")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="no compiler"):
        compile()
    assert gc.isenabled()


@pytest.mark.parametrize("before", [False, True])
def test_determinism_and_the_generator_are_as_before_after_training(before):
    torch.use_deterministic_algorithms(before)
    try:
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        with settings(CPU, Engine(deterministic=True), "float32"):
            assert torch.are_deterministic_algorithms_enabled()
            torch.rand(5)
        assert torch.are_deterministic_algorithms_enabled() is before
        assert torch.equal(torch.rand(3), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_and_float32_are_there_whatever_the_caller_has_set(mode):
    try:
        torch.set_default_dtype(torch.float64)
        with mode(), settings(CPU, Engine(), "float32"):
            weight = torch.ones(1, requires_grad=True)
            (2 * weight).sum().backward()
            assert (weight.grad.item(), weight.dtype) == (2.0, torch.float32)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_around_training_is_refused(tmp_path):
    """Its copies of the weights would outlive the step: in bfloat16 nothing would be learned."""
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match=r"^train must be called outside torch.autocast"),
    ):
        rm.train(rm.configure("digits", epochs=1), tmp_path, device="cpu")


@pytest.mark.parametrize("supported", [True, False])
def test_a_cpu_without_bfloat16_has_onednn_off_from_the_first_step_on(monkeypatch, supported):
    """torch turns it off at the first large product, which a resumed run may have later or not at all."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    with settings(CPU, Engine(), "bfloat16"):
        assert torch.backends.mkldnn.enabled == supported
    with settings(CPU, Engine(), "float32"):
        assert torch.backends.mkldnn.enabled


def test_the_devices_own_streams_and_seeds_are_used_during_training(monkeypatch):
    """`torch.cuda.Stream()`, `torch.cuda.graph` and `torch.cuda.manual_seed` mean the current device."""
    current = ["cuda:0"]

    @contextmanager
    def made_current(device):
        current.append(str(device))
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", made_current)
    monkeypatch.setattr(torch.random, "fork_rng", lambda *_, **__: nullcontext())
    with settings(torch.device("cuda:1"), Engine(), "bfloat16"):
        assert current[-1] == "cuda:1"
        assert torch.backends.cudnn.benchmark
    assert current == ["cuda:0"]
    assert not torch.backends.cudnn.benchmark
