"""Objects given to `rm.train`: datasets, networks and transforms without a name, what is recorded, and the errors."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset
from torchvision.transforms import v2
from torchvision.transforms.functional import to_pil_image

import regmixup as rm
from regmixup.data.splits import seed_for
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.stopping import Interrupted
from tests.training.short import assert_same_ending, ending, signal_after

pytestmark = pytest.mark.usefixtures("forget")


class Bars(Dataset):
    """Grey images with horizontal or vertical bars."""

    classes = ("horizontal", "vertical")

    def __init__(self, size=40, seed=0, *, pil=False):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(256, (size, 1, 8, 1), generator=generator, dtype=torch.uint8).expand(size, 1, 8, 8)
        self.labels, self.pil = torch.arange(size) % 2, pil
        self.images = torch.where(self.labels.view(-1, 1, 1, 1) == 0, rows, rows.transpose(2, 3))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        return to_pil_image(image) if self.pil else image, int(self.labels[index])


class Noisy(Bars):
    def __getitem__(self, index):
        return torch.rand(1, 8, 8), 0


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(1, 8, 8), 0


def net(num_classes=2, width=4):
    layers = [nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * width, num_classes))


def seeded_net(**fields):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return net(**fields)


def config(**changes):
    return rm.configure("digits", "regmixup", **{"epochs": 2, "batch_size": 16, **changes})


def train(runs, changes=None, **objects):
    return rm.train(config(**changes or {}), runs, device="cpu", workers=0, **{"dataset": Bars(), **objects})


def test_an_object_gives_the_run_that_its_name_gives(tmp_path):
    """Bit for bit: a dataset, given and registered."""
    rm.data.register("bars/train", Bars)
    rm.networks.register("net", net)
    named = rm.train(config(train_set="bars/train", network="net"), tmp_path / "named", device="cpu")
    for dataset in (Bars(), Bars(pil=True), rm.data.from_dataset(Bars(), "bars")):
        given = train(tmp_path / "given", {"network": "net"}, dataset=dataset)
        assert_same_ending(ending(given), ending(named))


def test_a_module_is_trained_from_its_weights_as_a_copy(tmp_path):
    module = seeded_net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run = train(tmp_path, {"lr": 1e-12, "weight_decay": 0.0}, network=module)
    weights = list(run.model(device="cpu").state_dict().values())
    kept = [value for name, value in before.items() if not name.endswith(("running_mean", "running_var", "tracked"))]
    found = [value for value in weights if any(value.shape == one.shape and torch.allclose(value, one) for one in kept)]
    assert len(found) >= len(kept)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    x = torch.rand(5, 1, 8, 8)
    model = run.model(device="cpu")
    with torch.no_grad():
        assert torch.allclose(model(x), model.head(model.features(x)))


class TestIdentity:
    def test_the_same_objects_are_the_same_run(self, tmp_path):
        first = train(tmp_path, network=seeded_net())
        written = first.checkpoint.stat().st_mtime_ns
        again = train(tmp_path, network=seeded_net())
        assert (again.folder, again.checkpoint.stat().st_mtime_ns) == (first.folder, written)

    def test_whatever_they_do_enters_the_fingerprint(self, tmp_path):
        data = rm.data.from_dataset(Bars(), "bars")
        flipped = replace(data, labels=1 - data.labels)
        changed = replace(data, images=data.images.clone().fill_(7))
        scaled = seeded_net()
        scaled[-1].weight.data *= 2
        objects = [
            {"dataset": data},
            {"dataset": flipped},
            {"dataset": changed},
            {"dataset": replace(data, classes=("a", "b"))},
            {"network": seeded_net()},
            {"network": scaled},
            {"network": seeded_net(width=5)},
            {"transform": v2.RandomCrop(8, 1)},
            {"transform": v2.RandomCrop(8, 2)},
        ]
        names = [rm.train(config(network="small"), tmp_path, device="cpu", workers=0, dry_run=True,
                          **{"dataset": data, **given}).folder.name for given in objects]  # fmt: skip
        assert len(set(names)) == len(objects)

    def test_the_run_records_class_module_source_length_and_content(self, tmp_path):
        run = train(tmp_path, {"select": "val-nll"}, validation=Bars(20, seed=1), transform=v2.RandomCrop(8, 1))
        stored = json.loads((run.folder / "config.json").read_text())
        found = {(entry["what"], entry["version"]): entry for entry in stored["plugins"]}
        assert found.keys() == {("dataset", "40 images"), ("dataset", "20 images"), ("transform", "")}
        own = found["dataset", "40 images"]
        assert own["module"] == f"object:{__name__}.Bars"
        assert own["name"] == stored["train_set"] == run.config.train_set
        assert own["sha256"][:12] in own["name"]
        assert found["transform", ""]["name"] == stored["transform"]
        record = run.provenance()["data"]
        assert record[run.config.train_set] == rm.data.from_dataset(Bars(), "any").fingerprint
        assert record[run.config.validation] == rm.data.from_dataset(Bars(20, seed=1), "any").fingerprint

    def test_a_run_of_objects_is_opened_where_they_are_known_and_nowhere_else(self, tmp_path, forget):
        run = train(tmp_path, network=seeded_net())
        assert rm.Run.open(run.folder).predict("digits/test", device="cpu").logits.shape[1] == 2
        forget()
        with pytest.raises(
            ValueError, match=r"uses the dataset 'Bars-.{12}/train', an object of .*Bars that was given"
        ):
            rm.Run.open(run.folder)
        again = train(tmp_path, network=seeded_net())
        assert rm.Run.open(run.folder) == again


class TestPredicting:
    def test_a_dataset_is_predicted_as_a_test_set(self, tmp_path):
        run, test = train(tmp_path), Bars(30, seed=2)
        found = run.predict(test, device="cpu")
        assert (found.role, len(found)) == ("test", 30)
        model = run.model(device="cpu")
        with torch.no_grad():
            expected = model(test.images)
        torch.testing.assert_close(found.logits, expected)
        assert found.labels.tolist() == test.labels.tolist()
        assert run.predict(Bars(), device="cpu").dataset != found.dataset


@pytest.mark.parametrize("objects", [{}, {"transform": v2.Compose([v2.RandomCrop(8, 1), v2.RandAugment()])}], ids=str)
def test_resuming_ends_with_the_same_bits(tmp_path, objects):
    """With balanced sampling of an unbalanced set."""
    few = rm.data.from_dataset(Bars(), "bars").select(torch.tensor([*range(0, 40, 2), 1, 3]))
    rm.networks.register("net", net)
    given = {"dataset": few, **objects}
    changes = {"network": "net", "sampling": "balanced", "random_erasing": 0.0 if objects else 0.5, "batch_size": 6}
    whole = train(tmp_path / "whole", changes, **given)
    with signal_after(6), pytest.raises(Interrupted):
        train(tmp_path / "cut", changes, **given)
    assert_same_ending(ending(train(tmp_path / "cut", changes, **given)), ending(whole))


def test_a_transform_sees_pil_images_and_its_result_is_trained_on(tmp_path):
    """One that removes the image leaves nothing to learn from: the gradient of a convolution without bias is zero."""
    seen = []

    def black(image):
        seen.append((image.mode, image.size, float(torch.rand(()))))
        return torch.zeros(1, 8, 8, dtype=torch.uint8)

    module = nn.Sequential(nn.Conv2d(1, 4, 8, bias=False), nn.Flatten(), nn.Linear(4, 2))
    changes = {"mean": (0.0,), "std": (1.0,), "weight_decay": 0.0, "seed": 5, "transform": "black"}
    rm.data.register_transform("black", black)
    run = train(tmp_path, changes, network=module)
    tensors = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors
    kernel = next(value for name, value in tensors.items() if name.startswith("model.") and value.ndim == 4)
    assert torch.equal(kernel, module[0].weight)
    assert {entry[:2] for entry in seen} == {("L", (8, 8))}
    assert len({entry[2] for entry in seen}) == len(seen) == 80
    with torch.random.fork_rng():
        torch.manual_seed(seed_for(5, "transform", 0, 0))
        torch.randint(2**32, ())
        assert float(torch.rand(())) in {entry[2] for entry in seen}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            {"dataset": "digits/train"},
            r"dataset must be a map-style .*Names belong into the configuration, as train_set",
        ),
        ({"dataset": Endless()}, r"dataset must be a map-style torch Dataset of \(image, label\) or an ImageSet"),
        ({"dataset": Noisy()}, "dataset must give the same image every time, got a Noisy whose images differ"),
        ({"validation": Bars(10, seed=1)}, "validation must be empty where select is last"),
        ({"network": "resnet18"}, "network must be an nn.Module, got 'resnet18'"),
        (
            {"network": net(num_classes=5)},
            "it ends in a linear layer of 5 outputs for 2 classes: replace it by one of 2",
        ),
        ({"network": net}, "network must be an nn.Module, got .*register a factory under a name, rm.networks.register"),
        ({"network": nn.Flatten(0)}, "network Flatten-.* must return logits"),
        (
            {"transform": Bars().__getitem__},
            r"got .* at 0x.*: register it under a name, rm\.data\.register_transform\(",
        ),
        ({"transform": v2.Lambda(lambda image: image)}, "transform must have a repr that says what it does"),
        ({"transform": "crop"}, "transform must be callable, such as a torchvision v2 transform, got 'crop'"),
    ],
)
def test_what_cannot_be_given(tmp_path, objects, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **objects)
    assert not list(tmp_path.iterdir())


def test_images_that_were_trained_on_select_nothing(tmp_path):
    with pytest.raises(ValueError, match="validation must be images that were not trained on, got those of dataset"):
        train(tmp_path, {"select": "val-nll"}, validation=Bars())
    assert not list(tmp_path.iterdir())
