"""Plain PyTorch, Lightning, Accelerate and timm, by the code of the examples, train as our own loop does.

The same weights, lambda and partners: all draw from a generator with the same seed, two batches per update.
"""

import re
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm
from tests.frameworks import OBJECTIVE, assert_same_training, batches, example, network, own_loop, seeded, weights_of
from tests.training.ranks import run_ranks

UPDATES, ACCUMULATE = 2, 2


def own(**options):
    model = network()
    losses, _ = own_loop(model, batches(UPDATES * ACCUMULATE), accumulate=ACCUMULATE, generator=seeded(), **options)
    return model, losses


def loader():
    x, y = (torch.cat(column) for column in zip(*batches(UPDATES * ACCUMULATE), strict=True))
    return DataLoader(TensorDataset(x, y), batch_size=8)


def test_another_draw_would_train_another_model():
    """So that the other tests of this file can tell."""
    other = network()
    own_loop(other, batches(4), accumulate=ACCUMULATE, generator=seeded(6))
    assert (weights_of(other) - weights_of(own()[0])).abs().max() > 1e-4


def step_by_step(model, data, *, dtype=None):
    """Train by the example's step; return the mean loss of each update."""
    step, generator, losses = example("in_pytorch")["step"], seeded(), []
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for update in range(len(data) // ACCUMULATE):
        parts = data[update * ACCUMULATE : (update + 1) * ACCUMULATE]
        draws = [OBJECTIVE.draw(len(x), x.shape[1:], generator) for x, _ in parts]
        losses.append(step(model, optimizer, scaler, OBJECTIVE, parts, draws, dtype=dtype))
    return losses


@pytest.mark.parametrize("compiled", [False, True])
def test_pytorch_with_a_scaler_accumulation_and_compilation(compiled):
    model, (expected, own_losses) = network(), own()
    if compiled:
        model.compile(backend="eager")
    losses = step_by_step(model, batches(UPDATES * ACCUMULATE))
    assert_same_training(model, expected)
    means = [sum(pair) / 2 for pair in zip(own_losses[::2], own_losses[1::2], strict=True)]
    assert losses == pytest.approx(means, rel=1e-6)


def train_on_ranks(path):
    """Each of two processes trains on its own batches with DDP; then each alone in bfloat16, by the step and by us."""
    dist.init_process_group("gloo")
    rank, step, data = dist.get_rank(), example("in_pytorch")["step"], batches(4)
    model = network()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts, generator = data[2 * rank : 2 * rank + 2], seeded(rank)
    draws = [OBJECTIVE.draw(len(x), x.shape[1:], generator) for x, _ in parts]
    step(wrapped, optimizer, torch.amp.GradScaler("cpu"), OBJECTIVE, parts, draws, dtype=None)
    dist.destroy_process_group()

    # Here, because on CPUs without bfloat16 arithmetic its first use changes later float32 results of the process.
    half, single, expected = network().float(), network().float(), network().float()
    data = [(x.float(), y) for x, y in data]
    step_by_step(half, data, dtype=torch.bfloat16)
    own_loop(expected, data, accumulate=ACCUMULATE, generator=seeded(), dtype=torch.bfloat16)
    own_loop(single, data, accumulate=ACCUMULATE, generator=seeded())
    found = {"ddp": model, "half": half, "own half": expected, "single": single}
    torch.save({name: weights_of(value) for name, value in found.items()}, path / f"{rank}.pt")


def test_pytorch_on_two_processes_takes_the_mean_gradient_and_autocast_is_our_own(tmp_path):
    assert run_ranks(2, train_on_ranks, tmp_path) == [0, 0]
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(one["ddp"], other["ddp"])
    data = batches(4)
    (first,), (second,) = (
        own_loop(network(), data[2 * rank : 2 * rank + 2], accumulate=2, generator=seeded(rank))[1] for rank in range(2)
    )
    expected = weights_of(network()) - 0.1 * (first + second) / 2
    torch.testing.assert_close(one["ddp"], expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(one["half"], one["own half"], rtol=0, atol=1e-6)
    assert (one["half"] - one["single"]).abs().max() > 1e-5  # it was in bfloat16


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # Lightning's own
@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:You defined a `validation_step` but")
def test_lightning(tmp_path):
    import lightning

    module = example("in_lightning")["Classifier"](network(), OBJECTIVE, lr=0.1, generator=seeded())
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    module.on_train_batch_end = lambda outputs, batch, batch_idx: losses.append(
        ACCUMULATE * outputs["loss"].item()  # Lightning has divided it
    )
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=1,
        accumulate_grad_batches=ACCUMULATE,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        accelerator="cpu",
        **quiet,
    )
    trainer.fit(module, loader())
    expected, own_losses = own()
    assert_same_training(module.network, expected, losses, own_losses)


@contextmanager
def fresh_accelerator(**options):
    """Accelerate keeps its state for the whole process, in which other tests need another one."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    try:
        yield Accelerator(cpu=True, **options)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


def test_accelerate():
    train_epoch = example("in_accelerate")["train_epoch"]
    model = network()
    with fresh_accelerator(gradient_accumulation_steps=ACCUMULATE) as accelerator:
        prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader())
        losses = train_epoch(accelerator, *prepared, OBJECTIVE, seeded())
    expected, own_losses = own()
    assert_same_training(model, expected, losses, own_losses)


def accumulated(model, loss_of):
    """Train as timm's script accumulates, which divides the loss; return the loss of every batch."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for number, (x, y) in enumerate(loader()):
        loss = loss_of(x, y)
        losses.append(loss.item())
        (loss / ACCUMULATE).backward()
        if number % ACCUMULATE == ACCUMULATE - 1:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def test_a_task_of_timm():
    model = network()
    task = example("in_timm")["make_task"](model, OBJECTIVE, seeded())
    losses = accumulated(task.get_trainable_module(), lambda x, y: task(x, y)["loss"])
    expected, own_losses = own()
    assert_same_training(model, expected, losses, own_losses)
    assert task.get_checkpoint_state()["state_dict"].keys() == model.state_dict().keys()
    x, y = batches(1)[0]
    assert task(x, y)["output"].shape == (8, 10)
    model.eval()
    torch.testing.assert_close(task(x, y)["loss"], torch.nn.functional.cross_entropy(model(x), y))


def test_the_loop_of_timms_script_with_a_transform_for_its_mixup():
    from timm.loss import SoftTargetCrossEntropy

    model, step = network(), example("in_timm")["script_step"]
    transform, generator = rm.BatchTransform(OBJECTIVE, num_classes=10), seeded()

    def loss_of(x, y):
        return step(model, lambda x, y: transform(x, y, generator), SoftTargetCrossEntropy(), x, y)

    losses = accumulated(model, loss_of)
    expected, own_losses = own()
    assert_same_training(model, expected, losses, own_losses)


def test_the_patch_of_timms_script_in_the_documents():
    """Its lines, with the names that the script has there, give the objective's loss; the prefetcher is refused."""
    from timm.loss import SoftTargetCrossEntropy

    page = (Path(__file__).parents[1] / "docs" / "frameworks.md").read_text()
    diff = re.search(r"```diff\n(.*?)```", page, flags=re.DOTALL)[1]
    patch = "\n".join(line[1:].strip() for line in diff.splitlines() if line.startswith("+"))
    names = {"args": SimpleNamespace(num_classes=10, prefetcher=False), "device": "cpu"}
    names["SoftTargetCrossEntropy"] = SoftTargetCrossEntropy
    exec(patch, names)
    (x, y), model = batches(1)[0], network()
    torch.manual_seed(3)
    images, targets = names["mixup_fn"](x, y)
    torch.manual_seed(3)
    expected = rm.RegMixup(alpha=20)(model, x, y).loss
    torch.testing.assert_close(names["train_loss_fn"](model(images), targets), expected, rtol=1e-6, atol=1e-6)
    names["args"].prefetcher = True
    with pytest.raises(AssertionError, match="--no-prefetcher"):
        exec(patch, names)


def test_openood_calls_our_network_as_its_own_and_gives_predictions_with_features_and_head():
    """As its evaluator, its ViM and its ReAct net call it; its preprocessor has normalised the pixels."""
    code, model, (pixels, labels) = example("in_openood"), network().eval(), batches(1)[0]
    x = (pixels - 0.2) / 0.5
    net = code["OpenOODNet"](model, (0.2,), (0.5,)).eval()
    stored = code["predictions_of"](net, [{"data": x, "label": labels}], "digits/test")
    torch.testing.assert_close(stored.logits, model(pixels).detach())
    torch.testing.assert_close(stored.features, model.features(pixels).detach())
    torch.testing.assert_close(stored.features @ stored.head_weight.T + stored.head_bias, stored.logits)
    _, maps = net(x, return_feature_list=True)
    torch.testing.assert_close(maps[-1].flatten(1), stored.features)
    assert torch.equal(net.get_fc_layer()(stored.features), net(x))
