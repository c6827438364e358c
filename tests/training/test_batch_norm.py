"""Batch norm: its counters, its statistics estimated again, and parts of one image."""

import pytest
import torch
from torch.optim.swa_utils import update_bn

import regmixup as rm
from regmixup import data
from regmixup.data.loader import ResidentLoader
from regmixup.data.splits import generator_for
from regmixup.training.batch_norm import refresh_batches, refreshing
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.loading import make_decoder
from tests.training.short import config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return rm.train(config(epochs=1, batch_size=64, dropout=0.0), tmp_path_factory.mktemp("runs"), device="cpu")


def test_a_trained_network_takes_part_in_update_bn(run):
    model = run.model(device="cpu")
    before = model.state_dict()
    counters = [name for name in before if name.endswith("num_batches_tracked")]
    assert counters
    batches = data.load("digits/train").images.split(150)
    update_bn(batches, model)
    assert {int(model.get_buffer(name)) for name in counters} == {len(batches)}


def test_training_counts_no_batches(run):
    names = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors
    assert any(name.endswith("running_mean") for name in names)
    assert not any(name.endswith("num_batches_tracked") for name in names)


@pytest.mark.parametrize("changes", [{"shards": 3, "ema": 0.5}, {"freeze": "always"}], ids=str)
def test_a_step_with_clean_statistics_leaves_those_of_plain_training(changes, tmp_path):
    """One step on all images: before it, the weights are the same."""
    buffers = {}
    for objective in (rm.ERM(), rm.RegMixup(passes="separate-clean"), rm.RegMixup(passes="separate")):
        asked = config(epochs=1, batch_size=450, dropout=0.0, objective=objective, **changes)
        model = rm.train(asked, tmp_path, device="cpu").model(device="cpu")
        buffers[getattr(objective, "passes", "plain")] = torch.cat([b.flatten().double() for b in model.buffers()])
    torch.testing.assert_close(buffers["separate-clean"], buffers["plain"], rtol=1e-6, atol=1e-7)
    moved = (buffers["separate"] - buffers["plain"]).abs().max()
    assert (moved < 1e-7) if "freeze" in changes else (moved > 1e-3)


class TestRefreshed:
    def test_statistics_are_those_of_update_bn(self, run):
        """Without dropout, which that function turns on."""
        model = run.model(device="cpu")
        update_bn(refresh_batches(data.load("digits/train"), make_decoder(None, (8, 8))), model)
        found = run.refreshed().model(device="cpu")
        torch.testing.assert_close(found.state_dict(), model.state_dict())
        assert not any(module.training for module in found.modules())
        assert {layer.momentum for layer in found.modules() if isinstance(layer, torch.nn.BatchNorm2d)} == {0.1}

    def test_augmented_statistics_are_those_of_update_bn_on_the_batches_of_training(self, run):
        whole = data.load("digits/train")
        loader = ResidentLoader(whole, batch_size=run.config.batch_size, seed=0, device=torch.device("cpu"), padding=1)
        model = run.model(device="cpu")
        update_bn((loader.load(picked).x for picked in loader.picks(run.config.total_epochs)), model)
        found = run.refreshed(augmented=True).model(device="cpu")
        torch.testing.assert_close(found.state_dict(), model.state_dict())
        clean = run.refreshed().model(device="cpu").state_dict()
        assert any(not torch.allclose(value, clean[name]) for name, value in found.state_dict().items())

    def test_nothing_else_changes(self, tmp_path):
        """Weights, dropout, power iterations and a Gaussian process's precision stay as they are."""
        run = rm.train(config("sngp", epochs=1, batch_size=64, dropout=0.5), tmp_path, device="cpu")
        before, found = run.model(device="cpu"), run.refreshed().model(device="cpu")
        changed = {
            name.rpartition(".")[2]
            for name, value in found.state_dict().items()
            if not torch.equal(value, before.state_dict()[name])
        }
        assert changed == {"running_mean", "running_var", "num_batches_tracked"}
        again = run.refreshed().model(device="cpu")  # dropout would make it another
        torch.testing.assert_close(found.state_dict(), again.state_dict(), rtol=0, atol=0)

    @pytest.mark.parametrize("method", ["regmixup", "regmixup+cutmix"])
    def test_mixed_statistics_are_the_means_over_the_batches_of_an_epoch_that_goes_on(self, method, tmp_path):
        """Without dropout, the inputs that the objective forwards give update_bn the same."""
        run = rm.train(config(method, epochs=1, batch_size=64, dropout=0.0), tmp_path, device="cpu")
        own = run.config
        loader = ResidentLoader(data.load("digits/train"), batch_size=64, seed=0, device=torch.device("cpu"), padding=1)
        model, seen = run.model(device="cpu"), []
        for step, batch in enumerate(loader.epoch(own.total_epochs)):
            draw = own.objective.draw(len(batch.y), (8, 8), generator_for(own.seed, "draw", own.total_epochs, step))
            own.objective(lambda x: seen.append(x) or model(x), batch.x, batch.y, draw=draw)
        update_bn(seen, model)
        found = run.refreshed(mixed=True).model(device="cpu").state_dict()
        torch.testing.assert_close(found, model.state_dict())
        moved = [name for name in found if "running" in name]
        for other in (run.refreshed(augmented=True), run):
            before = other.model(device="cpu").state_dict()
            assert any(not torch.allclose(found[name], before[name]) for name in moved)

    def test_a_loss_with_a_gradient_penalty_mixes_nothing(self, tmp_path):
        run = rm.train(config("duq", epochs=1, batch_size=64, dropout=0.0), tmp_path, device="cpu")
        mixed, augmented = (
            one.model(device="cpu") for one in (run.refreshed(mixed=True), run.refreshed(augmented=True))
        )
        torch.testing.assert_close(mixed.state_dict(), augmented.state_dict())


def test_a_network_without_batch_norm_cannot_be_refreshed():
    with pytest.raises(ValueError, match="must have batch norm"), refreshing(torch.nn.Linear(1, 1)):
        pass
