"""SAM and Friendly-SAM step as pytorch-optimizer's do, in a loop of one's own and in a run; SWA as torch's."""

import copy
import math

import pytest
import pytorch_optimizer
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

import regmixup as rm
from regmixup.data.loader import epoch_batches
from regmixup.data.splits import generator_for, seed_for
from regmixup.data.streaming import StreamingLoader
from regmixup.training import loading
from regmixup.training.run import Run
from regmixup.training.sharpness import SAM, has_dropout
from tests.training.short import BATCH, IMAGES, STEPS, config, ending, load_few, tensors_of

ORACLES = {"sam": pytorch_optimizer.SAM, "friendly": pytorch_optimizer.FriendlySAM}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(10, 6, generator=generator).double(), torch.randint(3, (10,), generator=generator))
        for _ in range(count)
    ]


def backward(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_own_loop_takes_the_steps_of_another_library(name, optimizer):
    """Batch norm in both passes uses the statistics of the batch, so that the weights are comparable.

    The oracle adds up the norm of the gradient in float32.
    """
    ours, theirs = network(), network()
    sam = SAM(optimizer(ours.parameters(), lr=0.1, weight_decay=0.01), rho=0.3, friendly=name == "friendly", model=ours)
    oracle = ORACLES[name](theirs.parameters(), optimizer, rho=0.3, lr=0.1, weight_decay=0.01)
    for x, y in batches(5):
        loss = sam.step(lambda x=x, y=y: backward(ours, x, y))
        oracle.zero_grad()
        expected = backward(theirs, x, y)
        oracle.step(lambda x=x, y=y: backward(theirs, x, y))
        assert loss.item() == pytest.approx(expected.item(), abs=1e-7)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


def test_buffers_move_once_and_both_passes_have_one_dropout_mask():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    before, masks = copy.deepcopy(model[0]), []
    model[1].register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    (x, y), *_ = batches(1)
    SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.1, model=model).step(lambda: backward(model, x, y))
    before(x)
    assert torch.equal(model[0].running_mean, before.running_mean)
    assert model[0].num_batches_tracked == 1
    assert torch.equal(*masks)
    assert masks[0].any()


def test_both_passes_have_one_draw_of_the_generator_that_the_step_gets():
    model, objective, generator = network(), rm.RegMixup(20), torch.Generator().manual_seed(3)
    (x, y), *_ = batches(1)
    draws = []

    def closure():
        draws.append(objective.draw(10, (6,), generator))
        loss = objective(model, x, y, draw=draws[-1]).loss
        loss.backward()
        return loss

    sam = SAM(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        sam.step(closure, generator=generator)
    again = torch.Generator().manual_seed(3)
    drawn = [objective.draw(10, (6,), again).lam for _ in range(2)]
    assert [draw.lam for draw in draws] == [drawn[0], drawn[0], drawn[1], drawn[1]]
    with pytest.raises(ValueError, match=r"^generator must be a torch\.Generator or None, got 3"):
        sam.step(closure, generator=3)


@pytest.mark.parametrize("friendly", [False, True])
def test_a_loop_that_saves_and_loads_goes_on_as_if_it_had_not(tmp_path, friendly):
    def start():
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, SAM(optimizer, rho=0.3, friendly=friendly, model=model)

    def steps(model, sam, part):
        for x, y in part:
            sam.zero_grad()
            sam.step(lambda x=x, y=y: backward(model, x, y))

    whole, sam = start()
    steps(whole, sam, batches(3))
    torch.save({"model": whole.state_dict(), "sam": sam.state_dict()}, tmp_path / "checkpoint.pt")
    steps(whole, sam, batches(5)[3:])
    resumed, sam = start()
    stored = torch.load(tmp_path / "checkpoint.pt")
    resumed.load_state_dict(stored["model"])
    sam.load_state_dict(stored["sam"])
    steps(resumed, sam, batches(5)[3:])
    for weight, expected in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(weight, expected)
    other = SAM(torch.optim.SGD(whole.parameters(), lr=0.1), friendly=not friendly)
    with pytest.raises(ValueError, match=r"^state must have the entries optimizer.*, got optimizer"):
        other.load_state_dict(stored["sam"])


@pytest.mark.parametrize("wrong", [network(), [torch.ones(2, requires_grad=True)]], ids=["model", "weights"])
def test_anything_but_an_optimizer_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^optimizer must be a torch optimizer, such as .*, got (Sequential|list)$"):
        SAM(wrong)


def test_a_gradient_of_zero_moves_nothing_and_rho_must_be_positive():
    weight = torch.ones(2, requires_grad=True)
    SAM(torch.optim.SGD([weight], lr=1.0), rho=0.1).step(lambda: ((weight * 0).sum().backward(), weight.sum())[1])
    assert weight.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"^rho must be .* got 0"):
        SAM(torch.optim.SGD([weight], lr=1.0), rho=0)


@pytest.mark.parametrize("friendly", [False, True])
def test_weights_that_the_optimizer_gets_later_are_moved_like_the_first(friendly):
    """As where layers are thawed one after the other."""
    first, second = (torch.ones(2, requires_grad=True) for _ in range(2))
    seen = []

    def closure():
        seen.append(second.detach().clone())
        loss = (first * second).sum()
        loss.backward()
        return loss

    optimizer = torch.optim.SGD([first], lr=0.1)
    sam = SAM(optimizer, rho=1.0, friendly=friendly)
    sam.step(closure)
    optimizer.add_param_group({"params": [second]})
    sam.step(closure)
    moved = [not torch.equal(after, before) for before, after in zip(seen[::2], seen[1::2], strict=True)]
    assert moved == [False, True]


@pytest.mark.parametrize("returned", [None, 0.5, rm.ERM()])
def test_a_closure_that_does_not_return_the_loss_is_refused_before_the_step(returned):
    weight = torch.ones(2, requires_grad=True)

    def closure():
        weight.square().sum().backward()
        return returned

    with pytest.raises(ValueError, match=f"^closure must return the loss, a tensor, got {type(returned).__name__}$"):
        SAM(torch.optim.SGD([weight], lr=0.1)).step(closure)
    assert torch.equal(weight, torch.ones(2))


def test_a_closure_without_a_backward_pass_is_refused():
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"^closure must call backward on its loss, got no gradient"):
        SAM(torch.optim.SGD([weight], lr=0.1)).step(lambda: weight.sum())


def test_a_second_pass_that_fails_leaves_the_weights_where_they_were():
    weight, passes = torch.ones(2, requires_grad=True), []

    def closure():
        if passes:
            raise KeyboardInterrupt
        passes.append(loss := weight.square().sum())
        loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        SAM(torch.optim.SGD([weight], lr=1.0), rho=0.1).step(closure)
    assert weight.tolist() == [1, 1]


def test_under_one_autocast_both_passes_have_their_own_weights():
    """Autocast keeps the rounded weights of the first pass, and would use them in the second."""
    model, losses = nn.Linear(4, 1, bias=False), []

    def closure():
        losses.append(model(torch.ones(2, 4)).float().square().mean())
        losses[-1].backward()
        return losses[-1]

    model.weight.data.fill_(1.0)
    with torch.autocast("cpu", torch.bfloat16):
        SAM(torch.optim.SGD(model.parameters(), lr=1e-3), rho=1.0).step(closure)
    assert [loss.item() for loss in losses] == [16, 36]  # all four weights at 1, then at 1.5


def test_dropout_is_seen_wherever_it_is():
    assert has_dropout(nn.Sequential(nn.Dropout(0.1)))
    assert not has_dropout(nn.Sequential(nn.Dropout(0.0), nn.Linear(1, 1)))


def by_hand(settings, model):
    """A plain loop with the oracle; the second pass leaves the buffers alone. Return the model of every epoch."""
    images, labels = load_few("digits/train").images, load_few("digits/train").labels
    oracle = ORACLES[settings.sharpness](
        model.parameters(), torch.optim.SGD, rho=settings.rho, lr=1.0, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    epochs = []
    for epoch in range(settings.epochs):
        for step, index in enumerate(epoch_batches(IMAGES, BATCH, settings.seed, epoch)):
            for group in oracle.param_groups:
                group["lr"] = settings.lr * (1 + math.cos(math.pi * (epoch + step / STEPS) / settings.epochs)) / 2
            oracle.zero_grad()
            backward(model, images[index], labels[index])
            buffers = [buffer.clone() for buffer in model.buffers()]
            oracle.step(lambda index=index: backward(model, images[index], labels[index]))
            for buffer, kept in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(kept)
        epochs.append(copy.deepcopy(model))
    return epochs


@pytest.mark.usefixtures("few_digits")
class TestInARun:
    @pytest.mark.parametrize("name", ORACLES)
    def test_weights_statistics_and_their_mean_are_those_of_a_plain_loop(self, tmp_path, monkeypatch, name):
        """In float64. The mean of the last two of four epochs as torch's AveragedModel, its statistics as update_bn."""
        build = Run.build
        monkeypatch.setattr(Run, "build", lambda run, **shape: build(run, **shape).double())
        changes = {"crop_padding": 0, "flip": False, "dropout": 0.0, "epochs": 4, "sharpness": name, "rho": 0.1}
        settings = config("dnn", average="swa", average_from=0.5, **changes)
        run = rm.train(settings, tmp_path, device="cpu")
        torch.manual_seed(seed_for(settings.seed, "init"))
        epochs = by_hand(settings, run.build(num_classes=10, input_shape=(1, 8, 8)))
        for tensor_name, tensor in tensors_of(run, "model.").items():
            torch.testing.assert_close(tensor, epochs[-1].state_dict()[tensor_name], rtol=1e-5, atol=1e-6)
        averaged = AveragedModel(epochs[2])
        for model in epochs[2:]:
            averaged.update_parameters(model)
        images = load_few("digits/train").images
        update_bn([images[index] for index in epoch_batches(IMAGES, BATCH, settings.seed, 4)], averaged)
        model = run.model(device="cpu").state_dict()
        for tensor_name, tensor in averaged.module.state_dict().items():
            if tensor.is_floating_point():
                torch.testing.assert_close(model[tensor_name], tensor, rtol=1e-5, atol=1e-6, msg=tensor_name)

    def test_statistics_of_the_mean_are_of_what_the_objective_forwards(self, tmp_path):
        settings = config(average="swa", crop_padding=0, flip=False, dropout=0.0)
        run = rm.train(settings, tmp_path, device="cpu")
        model = run.model(device="cpu")
        expected = copy.deepcopy(model)
        forwarded = []
        images = load_few("digits/train")
        for step, index in enumerate(epoch_batches(IMAGES, BATCH, settings.seed, settings.epochs)):
            generator = generator_for(settings.seed, "draw", settings.epochs, step)
            recorder = lambda x: forwarded.append(x) or torch.zeros(len(x), 10)  # noqa: E731
            settings.objective(recorder, images.images[index], images.labels[index], generator=generator)
        assert [len(batch) for batch in forwarded[:2]] == [2 * BATCH, 2 * BATCH]
        update_bn(forwarded, expected)
        estimated = dict(model.named_buffers())
        for name, buffer in expected.named_buffers():
            if buffer.is_floating_point():
                torch.testing.assert_close(estimated[name], buffer, rtol=1e-4, atol=1e-5)

    def test_statistics_are_estimated_with_the_workers_that_the_user_asks_for(self, tmp_path, monkeypatch):
        counts = []

        class Counted(StreamingLoader):
            def __init__(self, *args, workers, **fields):
                counts.append(workers)
                super().__init__(*args, workers=workers, **fields)

        monkeypatch.setattr(loading, "StreamingLoader", Counted)
        rm.train(config(average="swa", epochs=1, rand_augment=1), tmp_path, device="cpu", workers=0)
        assert counts == [0, 0]


@pytest.mark.usefixtures("few_digits")
class TestSWA:
    def test_the_history_validates_the_weights_in_training(self, tmp_path):
        """The mean has not begun in the first epochs, and has no batch-norm statistics of its own before the end."""
        changes = {"epochs": 2, "validation": "digits/val"}
        averaged = rm.train(config(average="swa", average_from=0.5, **changes), tmp_path, device="cpu")
        plain = rm.train(config(**changes), tmp_path, device="cpu")
        assert ending(averaged)[1] == ending(plain)[1]

    def test_a_backbone_frozen_to_the_end_keeps_the_statistics_that_the_head_has_learned_on(self, tmp_path):
        run = rm.train(config("dnn", average="swa", average_from=0.3, freeze="always"), tmp_path, device="cpu")
        model, trained = tensors_of(run, "swa."), tensors_of(run, "model.")
        statistics = [name for name in trained if "running" in name]
        assert statistics
        assert all(torch.equal(model[name], trained[name]) for name in statistics)
        assert not torch.equal(model["head.weight"], trained["head.weight"])

    def test_the_mean_of_constrained_weights_meets_the_constraint(self, tmp_path):
        """The mean of unit vectors is shorter than 1, and would make singular values look smaller than they are."""
        run = rm.train(config("dnn-sn", average="swa", average_from=0.1, lr=0.1, epochs=6), tmp_path, device="cpu")
        bound, model = run.config.constraint.c, run.model(device="cpu")
        layers = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
        norms = [torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item() for layer in layers]
        assert norms == pytest.approx([bound] * len(layers), rel=0.01)


def test_the_learning_rate_while_weights_are_averaged():
    settings = config(average="swa", epochs=4, average_lr=0.05)
    assert settings.lr_at(2.9) == config(epochs=4).lr_at(2.9)
    assert settings.lr_at(3) == 0.05
    with pytest.raises(ValueError, match=r"^average must be none with a running mean"):
        config(average="swa", ema=0.9)
