"""Training starts from a file's weights: what fits by name and shape is taken, and its checksum identifies the file."""

import re
import shutil

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

import regmixup as rm
from regmixup import networks
from regmixup.cli import main
from regmixup.networks import timm_models
from regmixup.storage import digest
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.config import resolve
from regmixup.training.initial_weights import load_initial_weights, read_tensors
from tests.networks.weights import randomise_batch_norm
from tests.training.short import config

pytestmark = pytest.mark.usefixtures("few_digits")

CPU = torch.device("cpu")


def built(network, *, classes=10, channels=3, **settings):
    torch.manual_seed(5)
    return networks.build(network, num_classes=classes, in_channels=channels, **settings)


def started(network, path, *, classes=10, channels=3, size=32, **settings):
    """A network that has started from a file, and what was taken from it."""
    model = built(network, classes=classes, channels=channels, **settings)
    values = {"network": network, "init": str(path), "mean": (0.5,) * channels, "std": (0.5,) * channels}
    return model, load_initial_weights(model, config(**values), input_shape=(channels, size, size))


def saved(path, model):
    """The state dict of a network whose values are all its own."""
    randomise_batch_norm(model)
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    else:
        torch.save(model.state_dict(), path)
    return path


class TestNames:
    def test_ours_from_torchvision_are_the_same_function(self, tmp_path):
        theirs = torchvision.models.resnet18(num_classes=10)
        theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        model, found = started("resnet18", saved(tmp_path / "weights.pth", theirs))
        assert (found.initialised, found.left_out) == ((), ())
        x = torch.rand(2, 3, 32, 32)
        torch.testing.assert_close(model.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-5)

    def test_another_stem_and_another_number_of_classes_are_initialised(self, tmp_path):
        theirs = torchvision.models.resnet18(num_classes=7)
        model, found = started("resnet18", saved(tmp_path / "weights.pth", theirs))
        assert found.initialised == ("backbone.0.weight", "head.weight", "head.bias")
        assert found.left_out == ("conv1.weight", "fc.weight", "fc.bias")
        fresh = built("resnet18").state_dict()
        for name, value in model.state_dict().items():
            assert torch.equal(value, fresh[name]) == (
                name in found.initialised or name.endswith("num_batches_tracked")
            ), name
        assert str(found) == (
            f"init: 99 of 102 tensors from weights.pth (sha256 {digest(tmp_path / 'weights.pth')[:12]}); "
            "initialised: backbone.0.weight, head.weight, head.bias; left out: conv1.weight, fc.weight, fc.bias"
        )

    @pytest.mark.parametrize("name", ["test_vit", "test_efficientnet"])
    def test_timms_are_the_same_function_and_can_be_given_back(self, tmp_path, name):
        theirs = timm.create_model(name, num_classes=10)
        model, found = started(f"timm/{name}", saved(tmp_path / "weights.safetensors", theirs), size=160)
        assert (found.initialised, found.left_out) == ((), ())
        x = torch.rand(2, 3, 160, 160)
        torch.testing.assert_close(model.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-5)
        timm.create_model(name, num_classes=10).load_state_dict(networks.library_state_dict(f"timm/{name}", model))

    def test_other_names_in_the_same_order_are_taken_when_asked_for(self, tmp_path):
        theirs = timm.create_model("test_resnet", num_classes=7)
        randomise_batch_norm(theirs)
        state = theirs.state_dict()
        names = [f"layer_{number}.{name.rpartition('.')[2]}" for number, name in enumerate(state)]
        renamed = dict(zip(names, state.values(), strict=True))
        torch.save(renamed, tmp_path / "a.pth")
        with pytest.raises(ValueError, match=r"the order is the same: --init by-order:.*a\.pth"):
            started("timm/test_resnet", tmp_path / "a.pth", size=160)
        model, found = started("timm/test_resnet", f"by-order:{tmp_path / 'a.pth'}", size=160)
        assert found.initialised == ("head.weight", "head.bias")
        x = torch.rand(2, 3, 160, 160)
        expected = theirs.eval().forward_head(theirs.forward_features(x), pre_logits=True)
        torch.testing.assert_close(model.eval().features(x), expected)
        torch.save(dict(list(state.items())[2:]), tmp_path / "b.pth")
        with pytest.raises(ValueError, match=r"init by order must be a \.pth or \.pt file with the network's"):
            started("timm/test_resnet", f"by-order:{tmp_path / 'b.pth'}", size=160)

    def test_a_constrained_network_takes_the_plain_weights(self, tmp_path):
        source = built("small", channels=1)
        for layer in (source.backbone[i] for i in (0, 3, 7)):
            nn.init.normal_(layer.weight)  # of the seed, they would be the network's own
        model, found = started(
            "small", saved(tmp_path / "a.pt", source), channels=1, size=8, constraint="spectral_norm", image_size=8
        )
        weights = model.state_dict()
        assert torch.equal(weights["backbone.0.parametrizations.weight.original"], source.backbone[0].weight)
        assert found.left_out == ()
        assert all(".parametrizations.weight.0." in name for name in found.initialised)
        model.eval()  # which leaves the vectors of the power iterations as they are, and so does a frozen backbone
        norms = [torch.linalg.matrix_norm(model.backbone[i].weight.flatten(1), 2).item() for i in (0, 3, 7)]
        assert norms == pytest.approx([0.5] * 3, rel=0.05)

    def test_what_training_scripts_wrap_around_is_removed(self, tmp_path):
        source = built("small", channels=1)
        state = {f"module.{name}": value for name, value in source.state_dict().items()}
        torch.save({"state_dict": state, "epoch": 3}, tmp_path / "a.pth")
        assert started("small", tmp_path / "a.pth", channels=1, size=8)[1].initialised == ()

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"ema": 0.9, "optimizer": "adamw", "lr": 1e-3},
            {"average": "swa", "sharpness": "friendly"},
            {"ema": 0.9, "select": "val-nll"},
        ],
        ids=["plain", "ema", "swa", "selected"],
    )
    def test_a_checkpoint_of_ours_gives_the_model_that_its_run_has(self, tmp_path, changes):
        run = rm.train(config(epochs=1, **changes), tmp_path, device="cpu")
        model, found = started("small", run.checkpoint, channels=1, size=8)
        assert (found.initialised, found.left_out) == ((), ())
        x = torch.rand(3, 1, 8, 8)
        model.normalize = run.model(device="cpu").normalize
        assert torch.equal(model.eval()(x), run.model(device="cpu")(x))


class TestRefusal:
    @pytest.mark.parametrize(
        ("theirs", "network", "counts"),
        [
            ("resnet34", "resnet18", "fits 99 of its backbone's 100 tensors by name and shape, and 81"),
            ("resnet18", "small", "fits 0 of its backbone's 15 tensors by name and shape, and 102"),
        ],
    )
    def test_weights_of_another_architecture(self, tmp_path, theirs, network, counts):
        path = saved(tmp_path / "a.pth", torchvision.models.get_model(theirs))
        with pytest.raises(ValueError, match=rf"^init must hold weights of {network}: .*a.pth {re.escape(counts)} of "):
            started(network, path)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            (
                "a.pth",
                nn.Linear(2, 2),
                r"must be a file of plain tensors.*a.pth cannot .*\(UnpicklingError\)\. If .*save model.state_dict\(\)",
            ),
            ("a.pt", {"epoch": 3}, r"must hold named tensors \(a state dict\), found none in .*a.pt"),
            ("a.npz", {}, "must be a .safetensors, .pth or .pt file, or timm, got .*a.npz"),
        ],
    )
    def test_files_that_are_no_state_dict(self, tmp_path, name, content, message):
        torch.save(content, tmp_path / name)
        with pytest.raises(ValueError, match=f"^init {message}"):
            started("small", tmp_path / name, channels=1)

    def test_no_file_and_no_weights_in_timm(self, tmp_path):
        with pytest.raises(ValueError, match=r"^init must be timm or the path of a file with weights, found no file /"):
            resolve(config(init=str(tmp_path / "nothing.pth")), CPU)
        with pytest.raises(
            ValueError, match=r"^init must be a file or empty for small, got 'timm', which fits networks timm/"
        ):
            resolve(config(init="timm"), CPU)
        with pytest.raises(
            ValueError, match=r"^init must be a file or empty for timm/darknet17, which timm has no weights"
        ):
            resolve(config(network="timm/darknet17", init="timm"), CPU)


class TestIdentity:
    def test_a_change_of_the_file_is_noticed(self, tmp_path):
        path = saved(tmp_path / "a.pth", built("small", channels=1))
        settings = resolve(config(epochs=2, init=str(path)), CPU)
        saved(path, built("small", channels=1, classes=4))
        with pytest.raises(ValueError, match=r"^init must be the file that the run began with \(sha256 [0-9a-f]{64}\)"):
            rm.train(settings, tmp_path / "runs", device="cpu")

    def test_the_checksum_is_in_the_fingerprint_and_the_path_is_not(self, tmp_path):
        path = saved(tmp_path / "a.pth", built("small", channels=1))
        copy = shutil.copy(path, tmp_path / "copy.pth")
        here, there, without = (resolve(config(init=str(init)), CPU) for init in (path, copy, ""))
        assert here.name == there.name != without.name
        assert here.init == f"{path}@sha256:{digest(path)}"
        saved(path, built("small", channels=1, classes=4))
        assert resolve(config(init=str(path)), CPU).name != here.name


def test_a_run_starts_from_the_file_prints_what_it_took_and_records_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = built("small", channels=1, classes=4)
    path = saved(tmp_path / "weights.safetensors", source)
    words = ["--init", "weights.safetensors", "--epochs", "1", "--freeze", "always", "--optimizer", "adamw"]
    main(["train", *words, "--device", "cpu", "--runs", "runs"])
    (folder,) = (tmp_path / "runs").iterdir()
    run = rm.Run.open(folder)
    assert "init: 15 of 17 tensors from weights.safetensors (sha256 " in " ".join(capsys.readouterr().out.split())
    record = run.provenance()["init"]
    assert record["sha256"] == digest(path)
    assert (record["loaded"], record["initialised"]) == (15, ["head.weight", "head.bias"])
    assert sorted(record["left_out"]) == ["head.bias", "head.weight"]
    assert "\n" not in run.provenance()["execution"]
    weights = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint).tensors
    for name, value in source.state_dict().items():
        if name.startswith("backbone.") and not name.endswith("num_batches_tracked"):
            assert torch.equal(weights[f"model.{name}"], value), name  # it was frozen


class TestTimm:
    def test_its_own_weights_are_fitted_by_timm_to_gray_images_and_another_size(self, tmp_path, monkeypatch):
        path = saved(tmp_path / "model.safetensors", timm.create_model("test_vit", num_classes=1000))
        monkeypatch.setattr(timm_models, "_download", lambda *_: path)
        model, found = started("timm/test_vit", "timm", channels=1, size=96, image_size=96)
        assert (found.source, found.sha256) == ("timm", digest(path))
        assert found.initialised == ("head.weight", "head.bias")
        theirs = read_tensors(path)["patch_embed.proj.weight"]
        torch.testing.assert_close(model.backbone[0].patch_embed.proj.weight, theirs.sum(1, keepdim=True))
        assert found.left_out == ("head.weight", "head.bias")

    def test_without_a_network_the_error_says_where_to_put_the_file(self, monkeypatch):
        def unreachable(*_):
            raise ConnectionError("Name or service not known\nmore")

        monkeypatch.setattr(timm_models, "_download", unreachable)
        with pytest.raises(
            ValueError,
            match=r"^init must find timm's weights for timm/resnet18, .* \(ConnectionError: Name or service not known\)"
            r". Get model.safetensors from https://huggingface.co/timm/resnet18.a1_in1k .* \(--init PATH\), or copy",
        ):
            resolve(config(network="timm/resnet18", init="timm"), CPU)


def test_a_run_of_no_epochs_is_its_initial_weights(tmp_path):
    first = rm.train(config(epochs=1), tmp_path, device="cpu")
    nothing = {"epochs": 0, "cooldown_epochs": 2, "select": "val-nll"}
    run = rm.train(config(init=str(first.checkpoint), **nothing), tmp_path, device="cpu")
    assert run.finished
    assert "selected" not in run.provenance()
    assert run.history() == []
    states = [one.model(device="cpu").state_dict() for one in (first, run)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    before = run.checkpoint.stat().st_mtime_ns
    assert rm.train(run.config, tmp_path, device="cpu").checkpoint.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="epochs must be an integer >= 1, got 0"):
        config(epochs=0)


def test_positions_of_a_transformer_are_fitted_to_the_size_of_the_images_as_timm_does(tmp_path):
    """Else they would stay random: they are too few numbers for the check of the architecture to notice."""
    theirs = timm.create_model("test_vit", num_classes=7)
    file = saved(tmp_path / "weights.pth", theirs)
    model, found = started("timm/test_vit", file, size=96, image_size=96)
    assert [name for name in found.initialised if not name.startswith("head.")] == []
    overlay = {"state_dict": theirs.state_dict()}
    resized = timm.create_model(
        "test_vit", img_size=96, num_classes=0, pretrained=True, pretrained_cfg_overlay=overlay
    ).eval()
    x = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(model.eval().features(x), resized(x))
    assert not torch.equal(resized.pos_embed[:, :10], theirs.pos_embed[:, :10])
