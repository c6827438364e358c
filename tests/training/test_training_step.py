"""One training step: its gradient is that of the mean loss over the whole batch, however it is sharded."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regmixup import networks
from regmixup.data.images import ImageSet
from regmixup.data.loader import ResidentLoader
from regmixup.data.splits import generator_for
from regmixup.networks.contract import Classifier
from regmixup.training.distributed import Ranks
from regmixup.training.guard import Guard
from regmixup.training.optim import make_optimizer, set_lr
from regmixup.training.reporting import Tally, means
from regmixup.training.shards import Shard
from regmixup.training.step import ForwardPass, TrainingStep
from tests.training.short import config

CPU = torch.device("cpu")
IMAGES = 7


def linear():
    """Softmax regression in float64: no batch norm, so that shards do not see each other."""
    torch.manual_seed(0)
    return Classifier(nn.Flatten(), nn.Linear(64, 10), feature_dim=64).double()


def dealt(method, num_shards, *, model=None):
    """A step on the one batch of 7 images, dealt into shards."""
    settings = config(method, batch_size=IMAGES, crop_padding=0)
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(IMAGES, 1, 8, 8, generator=generator, dtype=torch.float64)
    dataset = ImageSet(images, torch.arange(IMAGES), tuple("0123456789"), "made up")
    model = model or linear()
    loader = ResidentLoader(dataset, batch_size=IMAGES, seed=0, device=CPU)
    optimizer = make_optimizer(model, settings)
    guard, tally = Guard(CPU, Ranks(), buffers=model.buffers()), Tally(CPU)
    step = TrainingStep(ForwardPass(model.train(), settings, loader), optimizer, guard, tally)
    shards = []
    for shard in range(num_shards):
        picked = next(loader.shard(shard, num_shards).picks(0))
        count = len(picked.index)
        draw = settings.objective.draw(count, (1, 8, 8), generator_for(0, "draw"))
        shards.append(Shard(picked, draw, count, IMAGES, seed=5))
    return step, shards


@pytest.mark.parametrize("shards", [1, 3])
def test_parts_of_any_size_add_up_to_the_gradient_of_the_whole(shards):
    step, shards = dealt("dnn", shards)
    model = step.model
    images, labels = step.loader.images, step.loader.labels
    expected = torch.autograd.grad(nn.functional.cross_entropy(model(images), labels), list(model.parameters()))
    loss = nn.functional.cross_entropy(model(images), labels).item()
    set_lr(step.optimizer, 0.0)
    step(shards)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-15)
    assert means(step.tally.totals())["loss"] == pytest.approx(loss, rel=1e-12)
    assert step.tally.totals()["loss", "clean", "train_accuracy"][-1] == IMAGES


def test_a_plain_step_is_forward_backward_and_update():
    """Without all that a run adds: w <- w - lr times the gradient of the objective, by torch's own SGD."""
    step, shards = dealt("regmixup", 1)
    model, (shard,) = step.model, shards
    batch = step.loader.load(shard.picked)
    output = step.config.objective(model, batch.x, batch.y, draw=shard.draw)
    gradients = torch.autograd.grad(output.loss, list(model.parameters()))
    expected = [weight.detach() - 0.5 * slope for weight, slope in zip(model.parameters(), gradients, strict=True)]
    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    step(shards)
    for weight, updated in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.detach(), updated, rtol=1e-12, atol=1e-15)


def test_a_part_without_images_changes_nothing_and_gives_every_weight_a_gradient():
    """A rank that a small last batch leaves without images still takes part in the exchange."""
    step, shards = dealt("regmixup", 1)
    set_lr(step.optimizer, 0.0)
    step(shards)
    expected = [parameter.grad.clone() for parameter in step.model.parameters()]
    totals = step.tally.totals()
    step.tally.restore({})
    empty = replace(shards[0], count=0, seed=None)
    step([*shards, empty])
    assert all(torch.equal(a.grad, b) for a, b in zip(step.model.parameters(), expected, strict=True))
    assert step.tally.totals() == totals
    step([empty])
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in step.model.parameters())


def test_the_seed_of_a_part_decides_its_dropout():
    def after(seed):
        torch.manual_seed(3)
        model = networks.build("small", num_classes=10, in_channels=1, dropout=0.5).double()
        step, (shard,) = dealt("dnn", 1, model=model)
        step([replace(shard, seed=seed)])
        return model.head.weight.detach().clone()

    assert torch.equal(after(5), after(5))
    assert not torch.equal(after(5), after(6))


def test_all_that_an_update_changes_is_in_its_tensors():
    """A captured step puts them back after its rehearsals; only the tally has its own way back."""
    model = networks.build("small", num_classes=10, in_channels=1, constraint="spectral_norm", head="rbf")
    step, shards = dealt("dnn", 1, model=model.double())
    before = [tensor.detach().clone() for tensor in step.tensors()]
    state = {name: value.clone() for name, value in step.model.state_dict().items()}
    momenta = [value["momentum_buffer"].clone() for value in step.optimizer.state.values()]
    for _ in range(2):
        step(shards)
    with torch.no_grad():
        for tensor, value in zip(step.tensors(), before, strict=True):
            tensor.copy_(value)
    assert all(torch.equal(value, state[name]) for name, value in step.model.state_dict().items())
    found = [value["momentum_buffer"] for value in step.optimizer.state.values()]
    assert all(torch.equal(a, b) for a, b in zip(found, momenta, strict=True))
    assert (step.guard.step, step.guard.first_bad_step()) == (0, None)
