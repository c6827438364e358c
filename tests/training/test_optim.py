"""AdamW, freezing, clipping and the running mean do what plain PyTorch does."""

import math

import pytest
import torch
from torch import nn

import regmixup as rm
from regmixup import networks
from regmixup.data.loader import epoch_batches
from regmixup.data.splits import seed_for
from regmixup.networks.contract import Classifier
from regmixup.networks.gp_head import GPHead
from regmixup.training.optim import make_optimizer, set_frozen, set_lr
from regmixup.training.run import Run
from regmixup.training.weight_copies import running_mean
from tests.training.short import BATCH, FINE_TUNING, IMAGES, STEPS, config, load_few, same_bits, tensors_of

pytestmark = pytest.mark.usefixtures("few_digits")


def plain(**changes):
    """No augmentation, no dropout, no mixing: what a loop of a few lines can repeat."""
    return config("dnn", **{"crop_padding": 0, "flip": False, "dropout": 0.0, **FINE_TUNING, **changes})


def trained_by_hand(settings, model):
    """A plain loop with torch's own optimizers, parameter by parameter; returns the mean of weights and buffers."""
    images, labels = load_few("digits/train").images, load_few("digits/train").labels
    groups = []
    for parameter in model.parameters():
        decay = 0.0 if settings.decay_on == "weights" and parameter.ndim == 1 else settings.weight_decay
        groups.append({"params": [parameter], "weight_decay": decay})
    if settings.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, betas=settings.betas, foreach=False)
    else:
        optimizer = torch.optim.SGD(groups, momentum=0.9, nesterov=True, foreach=False)
    mean = {name: value.clone() for name, value in model.state_dict().items()}
    updates = 0
    for epoch in range(settings.epochs):
        frozen = settings.freeze == "always" or epoch < settings.freeze
        model.train()
        if frozen:
            model.backbone.eval()
        model.backbone.requires_grad_(not frozen)
        for step, index in enumerate(epoch_batches(IMAGES, BATCH, settings.seed, epoch)):
            lr = settings.lr * (1 + math.cos(math.pi * (epoch + step / STEPS) / settings.epochs)) / 2
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
            optimizer.step()
            kept = min(settings.ema, (1 + updates) / (10 + updates))
            updates += 1
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    mean[name] = kept * mean[name] + (1 - kept) * value
    return mean


@pytest.mark.parametrize(
    "changes", [{"freeze": 0, "decay_on": "weights"}, {"freeze": 1, "optimizer": "sgd", "lr": 0.05}], ids=str
)
def test_every_step_is_that_of_a_plain_loop(tmp_path, monkeypatch, changes):
    """In float64, over three epochs of four steps, the last of two images: weights, statistics and their mean."""
    build = Run.build
    monkeypatch.setattr(Run, "build", lambda run, **shape: build(run, **shape).double())
    settings = plain(**changes)
    run = rm.train(settings, tmp_path, device="cpu")
    torch.manual_seed(seed_for(settings.seed, "init"))
    twin = run.build(num_classes=10, input_shape=(1, 8, 8))
    first = {name: value.clone() for name, value in twin.state_dict().items()}
    mean = trained_by_hand(settings, twin)
    weights, averages = tensors_of(run, "model."), tensors_of(run, "ema.")
    assert averages.pop("updates") == 3 * STEPS
    assert weights.keys() == averages.keys()
    for name in weights:
        torch.testing.assert_close(weights[name], twin.state_dict()[name], rtol=1e-9, atol=1e-11, msg=name)
        torch.testing.assert_close(averages[name], mean[name], rtol=1e-9, atol=1e-11, msg=name)
        assert not torch.equal(weights[name], first[name])


class TestFreezing:
    def test_for_good_the_backbone_keeps_every_bit_and_the_head_learns(self, tmp_path):
        settings = plain(freeze="always", epochs=2, weight_decay=0.1)
        run = rm.train(settings, tmp_path, device="cpu")
        torch.manual_seed(seed_for(settings.seed, "init"))
        before = run.build(num_classes=10, input_shape=(1, 8, 8)).state_dict()
        for name, value in tensors_of(run, "model.").items():
            assert same_bits(value, before[name]) == name.startswith("backbone."), name

    def test_a_head_without_weights_is_refused(self):
        model = Classifier(nn.Linear(2, 2), nn.Identity(), feature_dim=2)
        with pytest.raises(ValueError, match=r"^freeze must be 0 for a head without weights, such as Identity$"):
            set_frozen(model, frozen=True)


def test_the_groups_decay_or_not_and_share_their_learning_rate():
    optimizer = make_optimizer(networks.build("small", num_classes=10, in_channels=1), config(decay_on="weights"))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [5e-4, 0.0]
    assert optimizer.param_groups[0]["lr"] is optimizer.param_groups[1]["lr"]
    set_lr(optimizer, 0.5)
    assert float(optimizer.param_groups[1]["lr"]) == 0.5


class TestRunningMean:
    def test_it_is_what_a_run_gives_as_its_model_and_both_are_kept(self, tmp_path):
        run = rm.train(config(ema=0.9), tmp_path, device="cpu")
        model = run.model(device="cpu").state_dict()
        mean, last = tensors_of(run, "ema."), tensors_of(run, "model.")
        for name, value in last.items():
            assert same_bits(model[name], mean[name])
            assert not torch.equal(model[name], value), name
        plain_run = rm.train(config(), tmp_path, device="cpu")
        assert all(same_bits(value, last[name]) for name, value in tensors_of(plain_run, "model.").items())

    def test_a_head_that_is_finalized_sees_the_features_of_each_copy(self, tmp_path):
        """A GP's precision after one pass over the train images: of the last model, the mean and the selected one."""
        settings = config(head=GPHead(num_features=16), ema=0.9, select="val-nll")
        run = rm.train(settings, tmp_path, device="cpu")
        images, precisions = load_few("digits/train").images, []
        for prefix in ("model.", "ema.", "best."):
            stored = tensors_of(run, prefix)
            model = run.build(num_classes=10, input_shape=(1, 8, 8))
            model.load_state_dict(stored, strict=False)
            assert model.finalize([images])
            torch.testing.assert_close(model.head.precision, stored["head.precision"], rtol=1e-4, atol=1e-5)
            precisions.append(stored["head.precision"])
        assert not torch.equal(precisions[0], precisions[1])

    def test_the_vectors_of_power_iterations_keep_their_length(self, tmp_path):
        """A mean of them is shorter, and the constraint would let weights through that are too large."""
        run = rm.train(config("dnn-sn", ema=0.9), tmp_path, device="cpu")
        vectors = [value for name, value in tensors_of(run, "ema.").items() if name.endswith((".power.u", ".power.v"))]
        assert [float(vector.norm()) for vector in vectors] == pytest.approx([1.0] * 6, rel=1e-5)

    def test_it_copies_whole_numbers_and_keeps_infinities(self):
        model = nn.Module()
        model.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        model.register_buffer("count", torch.tensor(3))
        model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        average = running_mean(model, decay=0.5)
        model.weight.data.fill_(4.0)
        model.count.fill_(7)
        average.update()  # the first decay is 1/10
        assert average.state()["weight"].tolist() == pytest.approx([3.7, 3.8])
        assert average.state()["mask"].tolist() == [0.0, -torch.inf]
        assert (int(average.state()["count"]), int(average.updates)) == (7, 1)
