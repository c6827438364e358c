"""Plugins: what they register is used by name, enters fingerprints, reaches other processes; errors say what to do."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

import regmixup as rm
from regmixup import plugins
from regmixup.cli import main
from regmixup.config import decode, encode, fingerprint
from regmixup.data.images import ImageSet
from regmixup.data.roles import rest_of, role_of, validation_of
from regmixup.methods import METHODS, Method, Spec
from regmixup.study.evaluate_run import cache_key
from regmixup.training.config import resolve

CPU = torch.device("cpu")
PLUGIN = """
from dataclasses import dataclass

import torch
from torch import nn

import regmixup as rm
from regmixup.data.images import ImageSet
from regmixup.objectives.erm import ERM

__version__ = "3"


def noise(size, seed):
    images = torch.randint(256, (size, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return ImageSet(images, torch.arange(size) % 2, ("even", "odd"), "any")


@dataclass(frozen=True, kw_only=True)
class Doubled(ERM):
    def compute(self, model, x, y, draw):
        return super().compute(model, x, y, draw)


rm.data.register("noise/train", lambda: noise(40, 0))
rm.data.register("noise/test", lambda: noise(20, 1))
rm.networks.register("flat", lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)))
rm.objectives.register(Doubled)
rm.methods.register(rm.methods.Method("doubled", "twice", "us", objective=rm.methods.Spec("doubled"), score="first"))
rm.scores.register("first", lambda logits: -logits[:, 0])
"""

PARTS = """
from dataclasses import dataclass

import regmixup as rm
from regmixup.mixing import Draw

__version__ = "7"


@dataclass(frozen=True)
class Plain(rm.losses.Loss):
    def __call__(self, logits, targets):
        return -(targets * logits.log_softmax(dim=1)).sum(dim=1)


@dataclass(frozen=True, kw_only=True)
class Same(rm.Augmentation):
    def draw(self, batch_size, image_size, generator=None):
        return Draw()

    def apply(self, x, draw):
        return x


@dataclass(frozen=True, kw_only=True)
class Last(rm.networks.LinearHead):
    pass
"""

pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A folder that is the working directory, with mine.py; sys.path does not have it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "mine.py").write_text(PLUGIN)
    return tmp_path / "mine.py"


class TestLoading:
    def test_the_variable_is_set_for_children(self, plugin):
        method = "rm.methods.Method('doubled', '', '', score='first')"
        plugin.write_text(f"import regmixup as rm\nrm.methods.register({method})")  # a child without torch is fast
        plugins.load(["mine"])
        assert os.environ["REGMIXUP_PLUGINS"] == "mine"
        code = "import regmixup as rm; m = rm.methods.get('doubled'); print(m.score, rm.methods.METHODS['dnn'].score)"
        python = [sys.executable, "-c", code]
        found = subprocess.run(python, cwd="/", check=True, capture_output=True, text=True)  # another directory
        assert found.stdout.split() == ["first", "dempster_shafer"]

    def test_a_path_stays_valid_in_another_directory(self, plugin, forget, monkeypatch):
        plugins.load(["./mine.py"])
        assert os.environ["REGMIXUP_PLUGINS"] == str(plugin)
        monkeypatch.chdir("/")
        forget()
        assert "doubled" not in METHODS
        assert rm.methods.get("doubled").description == "twice"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("import nothing", r"ModuleNotFoundError: No module named 'nothing' \(.*mine.py, line 1\)"),
            ("\n\n1 +", r"SyntaxError: invalid syntax \(mine.py, line 3\)"),
            ("raise SystemExit(0)", r"SystemExit: 0 \(.*mine.py, line 1\)"),
            (None, r"ModuleNotFoundError: No module named 'mine'"),
        ],
    )
    def test_one_that_does_not_import(self, plugin, text, message, capsys):
        plugin.unlink() if text is None else plugin.write_text(text)
        where = r"of --plugin or REGMIXUP_PLUGINS"
        with pytest.raises(ValueError, match=rf"^plugin 'mine' {where} does not import: {message}.*\. Name a module"):
            plugins.load(["mine"])
        assert main(["train", "--plugin", "mine"]) == 2
        assert "plugin 'mine' of --plugin" in capsys.readouterr().err

    def test_a_comma_in_a_path_separates_plugins(self, plugin, monkeypatch):
        """The first half is what does not import."""
        monkeypatch.setenv("REGMIXUP_PLUGINS", "a,b/mine.py")
        with pytest.raises(ValueError, match=r"^plugin 'a' .*, or the path of a \.py file, without a comma$"):
            plugins.load()

    def test_a_file_whose_name_is_taken(self, plugin):
        plugin.with_name("code.py").touch()  # a name of the standard library
        with pytest.raises(ValueError, match=r"the module code is already that of .*code\.py: rename the file"):
            plugins.load(["code.py"])

    def test_a_file_that_a_program_executes_by_itself_has_the_origin_of_any_other(self, tmp_path):
        """As the import system's documentation does it; `sys.modules` then lacks the module."""
        path = tmp_path / "by_hand.py"
        path.write_text("import regmixup as rm\n__version__ = '7'\nrm.scores.register('first', max)\n")
        spec = importlib.util.spec_from_file_location("by_hand", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        assert "by_hand" not in sys.modules
        origin = plugins.REGISTERED["score", "first"]
        assert (origin.module, origin.version) == ("by_hand", "7")
        assert origin.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_the_flag_needs_a_name(self, capsys):
        assert main(["list", "--plugin"]) == 2
        assert "--plugin must be followed by a module" in capsys.readouterr().err


class TestNames:
    @pytest.mark.parametrize(
        ("register", "message"),
        [
            (lambda: rm.networks.register("small", nn.Identity), r"not be a built-in one, got 'small'.*wrn28"),
            (lambda: rm.networks.register("timm/mine", nn.Identity), r"must not begin with timm/"),
            (lambda: rm.networks.register("a b", nn.Identity), r"must be letters, digits and \. _ \+ - /, got 'a b'"),
            (lambda: rm.networks.register("x", 3), r"factory of network x must be callable and return a module, got 3"),
            (lambda: rm.data.register("cifar10/mine", list), r"built-in family, got 'cifar10/mine'; built in: .*svhn"),
            (lambda: rm.data.register("a/test", list, role="oodd"), r"role of dataset a/test 'oodd': .* mean 'ood'\?"),
            (lambda: rm.methods.register("x"), r"method must be a Method, got 'x'"),
            (lambda: rm.scores.register("x"), r"score x must have either a function of logits or a fit, got None and"),
            (lambda: rm.objectives.register(nn.ReLU), r"cls must be a subclass of Objective"),
        ],
    )
    def test_a_name_must_be_new_and_plain_and_what_it_names_of_its_kind(self, register, message):
        with pytest.raises(ValueError, match=message):
            register()

    def test_a_name_of_another_plugin_is_taken_but_the_same_file_may_register_again(self, plugin):
        plugins.load(["mine"])
        (plugin.parent / "copy_of_mine.py").write_text(PLUGIN)  # as __main__ and __mp_main__ are one file
        plugins.load(["copy_of_mine"])
        (plugin.parent / "other.py").write_text(PLUGIN + "\n")
        with pytest.raises(ValueError, match=r"dataset must be new, got 'noise/train', which \w*mine has regi"):
            plugins.load(["other"])


class TestFingerprint:
    def test_built_in_configurations_are_untouched(self, plugin):
        before = resolve(rm.configure("digits", "regmixup"), CPU)
        plugins.load(["mine"])
        after = resolve(rm.configure("digits", "regmixup"), CPU)
        assert after.plugins == ()
        assert fingerprint(after) == fingerprint(before)

    def test_what_is_used_enters_with_its_version_and_source(self, plugin, forget):
        plugins.load(["mine"])
        used = {
            "dataset": rm.configure(train_set="noise/train-90"),
            "network": rm.configure(network="flat"),
            "objective": rm.configure(objective=rm.Alternate(first=rm.ERM(), second=rm.objectives.build("doubled"))),
        }
        names = {}
        for what, config in used.items():
            (origin,) = resolve(config, CPU).plugins
            assert (origin.what, origin.module, origin.version) == (what, "mine", "3")
            names[what] = resolve(config, CPU).name
        forget()
        plugin.write_text(PLUGIN + "# changed\n")
        plugins.load(["mine"])
        for what, config in used.items():
            if what != "objective":  # whose class is another one now
                assert resolve(config, CPU).name != names[what]

    def test_it_is_the_same_in_a_worker_process_which_asks_for_no_name_before(self, plugin, forget):
        """Such a process is sent the configuration, and has imported no plugin."""
        plugins.load(["mine"])
        config = resolve(rm.configure("digits", network="flat"), CPU)
        forget()
        assert resolve(config, CPU) == config
        assert [origin.name for origin in config.plugins] == ["flat"]

    def test_classes_that_need_no_registration_enter_with_their_source(self, plugin, forget):
        """A run of an earlier loss, augmentation, head or constraint must not pass for one of the present."""

        def used():
            plugins.load(["parts"])
            parts = sys.modules["parts"]
            vicinal = rm.Vicinal(parts.Same(), loss=parts.Plain())
            configs = {"loss": rm.configure(objective=rm.ERM(loss=parts.Plain()))}
            configs["transform"] = rm.configure(objective=rm.Rotation(rm.Vicinal(parts.Same())), head="rotation")
            configs["head"] = rm.configure(head=parts.Last())
            configs["loss, transform"] = rm.configure(objective=rm.Alternate(rm.ERM(), vicinal))
            return {what: resolve(config, CPU) for what, config in configs.items()}

        Path("parts.py").write_text(PARTS)
        before = used()
        for what, config in before.items():
            assert ", ".join(origin.what for origin in config.plugins) == what
            assert {(origin.module, origin.version) for origin in config.plugins} == {("parts", "7")}
        forget()
        Path("parts.py").write_text(PARTS + "# changed\n")
        assert all(fingerprint(config) != fingerprint(before[what]) for what, config in used().items())

    def test_a_run_with_such_a_class_is_read_where_its_module_is_loaded(self, plugin, forget):
        Path("parts.py").write_text(PARTS)
        plugins.load(["parts"])
        config = rm.configure("digits", objective=rm.ERM(loss=sys.modules["parts"].Plain()), epochs=1, batch_size=512)
        folder = rm.train(config, device="cpu").folder
        assert rm.Run.open(folder).config.objective == config.objective
        forget()
        os.environ["REGMIXUP_PLUGINS"] = ""
        with pytest.raises(ValueError, match=r"uses the loss 'Plain' of the plugin parts, which is not loaded: give"):
            rm.Run.open(folder)

    def test_the_version_can_be_stated(self):
        found = []
        for version in ("1", "2"):
            rm.networks.register("other", nn.Identity, version=version)
            found.append(resolve(rm.configure(network="other"), CPU))
        assert [config.plugins[0].version for config in found] == ["1", "2"]
        assert fingerprint(found[0]) != fingerprint(found[1])


class TestRuns:
    def test_from_the_command_line_to_the_scores(self, plugin, forget, capsys):
        words = "--train-set noise/train --network flat --method doubled --epochs 1 --device cpu --batch-size 16"
        assert main(["train", *words.split(), "--plugin", "mine"]) == 0, capsys.readouterr().err
        folder = next(Path("runs").iterdir())
        assert folder.name.startswith("doubled-noise-train-flat-s0-")
        run = rm.Run.open(folder)
        test, train = run.predict("noise/test"), run.predict("noise/train")
        assert (test.role, train.role) == ("test", "train")
        assert torch.equal(rm.scores.score_all(test)["first"], -test.logits[:, 0].double())
        rows = rm.evaluate(test, ood=[run.predict("photographs/test")])
        assert {"auroc", "aupr"} <= {row.metric for row in rows if row.score == "first"}

        forget()
        os.environ["REGMIXUP_PLUGINS"] = ""
        message = (
            r"config\.json uses the dataset 'noise/train' of the plugin mine, which is not loaded: give --plugin mine"
        )
        with pytest.raises(ValueError, match=message):
            rm.Run.open(folder)
        assert main(["predict", str(folder), "noise/test", "--plugin=mine"]) == 0, capsys.readouterr().err
        forget()
        plugin.write_text(PLUGIN + "# changed\n")
        os.environ["REGMIXUP_PLUGINS"] = "mine"
        message = rf"since {folder} was .* has changed of the dataset 'noise/train' of mine, the network 'flat'"
        with pytest.warns(UserWarning, match=message):
            rm.Run.open(folder)


class TestNetworks:
    def test_a_classifier_keeps_its_last_layer_unless_another_head_is_asked_for(self):
        made = []

        def factory(num_classes, in_channels):
            made.append(nn.Sequential(nn.Conv2d(in_channels, 4, 3), nn.Flatten(), nn.Linear(144, num_classes)))
            return made[-1]

        rm.networks.register("classifier", factory)
        x = torch.rand(5, 1, 8, 8)
        torch.manual_seed(0)
        model = rm.networks.build("classifier", num_classes=3, in_channels=1, image_size=8)
        torch.manual_seed(0)
        assert torch.equal(model(x), factory(3, 1)(x))
        assert model.features(x).shape == (5, 144)
        head = rm.networks.build("classifier", num_classes=3, in_channels=1, image_size=8, head="gp").head
        assert not isinstance(head, nn.Linear)

    def test_one_of_torchvision_and_a_backbone(self):
        rm.networks.register("tv", resnet18)
        assert rm.networks.build("tv", num_classes=7).feature_dim == 512
        rm.networks.register("backbone", lambda: nn.Flatten(), description="pixels")
        model = rm.networks.build("backbone", num_classes=3, image_size=8, normalize=((0.5,) * 3, (0.2,) * 3))
        assert model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape == (2, 3)
        assert rm.networks.NETWORKS["backbone"].description == "pixels"

    @pytest.mark.parametrize("freeze", [0, 1])
    def test_weights_that_the_factory_has_frozen_stay_so(self, plugin, freeze):
        def factory(num_classes):
            stem, *others = layers = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, num_classes)
            nn.init.ones_(stem.requires_grad_(False).weight)
            nn.init.ones_(others[0].weight)
            return nn.Sequential(*layers)

        plugins.load(["mine"])
        rm.networks.register("partly", factory)
        config = rm.configure("digits", "dnn", train_set="noise/train", network="partly", epochs=2, freeze=freeze)
        stem, later = rm.train(config, device="cpu").model(device="cpu").backbone[:2]
        assert torch.equal(stem.weight, torch.ones(4, 1, 3, 3))
        assert not torch.equal(later.weight, torch.ones(4, 4, 3, 3))

    def test_what_cannot_be_a_network(self):
        rm.networks.register("convolution", lambda num_classes: nn.Conv2d(3, num_classes, 3))
        rm.networks.register("fixed", lambda: nn.Flatten())
        with pytest.raises(ValueError, match=r"must return logits \(N, 3\) or features \(N, D\), got \(1"):
            rm.networks.build("convolution", num_classes=3, image_size=8)
        with pytest.raises(ValueError, match=r"dropout must be None for fixed, whose factory has no such parameter"):
            rm.networks.build("fixed", num_classes=3, dropout=0.1)

    def test_a_classifier_must_end_in_a_linear_layer(self):
        rm.networks.register(
            "odd", lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes), nn.Tanh())
        )
        with pytest.raises(ValueError, match=r"must end in an nn\.L"):
            rm.networks.build("odd", num_classes=3, image_size=8)


class TestData:
    def test_roles_and_parts_are_as_for_other_datasets(self, plugin):
        plugins.load(["mine"])
        assert validation_of("noise/train-90") == "noise/val-10"
        assert rest_of("noise/val-10") == "noise/train-90"
        assert len(rm.data.load("noise/train-90")) == 36
        roles = [role_of(name, "noise/train") for name in ("noise/val-10", "noise/test", "digits/test")]
        assert roles == ["train", "test", "ood"]
        assert role_of("noise/test", "digits/train") == "ood"
        assert rm.data.load("path:noise/test").images.shape[1:] == (1, 8, 8)

    def test_what_a_loader_may_return_and_take(self, tmp_path):
        images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
        pairs = torch.utils.data.TensorDataset(images, torch.tensor([0, 1, 2, 0]))
        seen = []
        rm.data.register("own/test", lambda root: seen.append(root) or pairs)
        rm.data.register("own/val", lambda size=3, *, root=None: seen.append(root) or pairs)
        rm.data.register("own/ood", lambda size=3: ImageSet(images, torch.zeros(4).long(), ("a",), "x"), role="ood")
        assert rm.data.load("own/test", root=tmp_path).classes == ("0", "1", "2")
        assert len(rm.data.load("own/val", root=tmp_path)) == 4
        assert seen == [tmp_path, tmp_path]
        assert rm.data.load("own/ood").name == "own/ood"
        rm.data.register("own/wrong", lambda: 3)
        with pytest.raises(ValueError, match=r"own/wrong must be a dataset of \(image, label\) pairs"):
            rm.data.load("own/wrong")


class TestScores:
    def test_a_fitted_score_joins_those_of_features(self):
        def fit(train):
            mean = train.features.mean(dim=0)
            return lambda features: (features - mean).norm(dim=1)

        rm.scores.register("far", fit=fit)
        logits, features = torch.randn(6, 3), torch.randn(6, 4)
        given = rm.Predictions(logits, torch.tensor([0, 1, 2, 0, 1, 2]), features=features)
        assert "far" in rm.scores.available(given, given)
        assert "far" not in rm.scores.available(given)
        found = rm.scores.fit_scores(given)["far"](features)
        assert torch.equal(found, (features - features.mean(dim=0)).norm(dim=1))

    WRONG = (lambda x: x.max(1), lambda x: x, lambda x: x[:, 0] * torch.nan, lambda x: x[1:, 0])

    @pytest.mark.parametrize("wrong", WRONG, ids=["tuple", "matrix", "nan", "short"])
    def test_a_score_that_is_no_number_for_each_sample_is_named(self, wrong):
        rm.scores.register("odd", wrong)
        rm.scores.register("odder", fit=lambda train: wrong)
        contract = r"must return a tensor of shape \(6,\) without NaN, larger for more out-of-distribution, got "
        given = rm.Predictions(torch.randn(6, 3), torch.arange(6) % 3, features=torch.randn(6, 4))
        with pytest.raises(ValueError, match=f"^score odd {contract}"):
            rm.evaluate(given)
        with pytest.raises(ValueError, match=f"^score odder {contract}"):
            rm.scores.fit_scores(given)["odder"](given.features)

    def test_a_study_measures_again_what_another_version_of_a_score_has_measured(self):
        keys = [cache_key([], ())]
        for version in ("1", "2", "2"):
            rm.scores.register("own", lambda logits: logits[:, 0], version=version)
            keys.append(cache_key([], ()))
        assert len(set(keys)) == 3
        assert keys[2] == keys[3]


def test_a_method_without_its_objective_is_an_error_when_it_is_used():
    rm.methods.register(Method("lonely", "", "", objective=Spec("nowhere")))
    with pytest.raises(ValueError, match=r"unknown objective 'nowhere'"):
        rm.configure("digits", "lonely")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": "entropie"}, "unknown score of method mistyped 'entropie': did you mean 'entropy'"),
        ({"train": {"epoch": 5}}, "unknown field of TrainConfig in `train` of method mistyped 'epoch': .* 'epochs'"),
        ({"objective": Spec("regmixup", {"alhpa": 5})}, "unknown field of RegMixup 'alhpa': did you mean 'alpha'"),
    ],
)
def test_a_method_that_names_what_there_is_not_is_an_error_when_it_is_used(fields, message):
    """Not when it is registered: the score or objective may be registered after it, and listing imports no torch."""
    rm.methods.register(Method("mistyped", "", "", **fields))
    with pytest.raises(ValueError, match=message):
        rm.configure("digits", "mistyped")


def test_an_objective_must_be_registered_under_a_name_of_its_own_and_record_its_values():
    class Hidden(rm.ERM):
        def __init__(self, strength):
            object.__setattr__(self, "strength", strength)

    with pytest.raises(ValueError, match=r"must be registered, got Hidden: call rm.objectives.register\(Hidden\)"):
        resolve(rm.configure("digits", objective=rm.Alternate(rm.ERM(), Hidden(1))), CPU)
    with pytest.raises(ValueError, match="must be a dataclass"):
        rm.objectives.register(Hidden)
    with pytest.raises(ValueError, match="must have a new name, got RegMixup"):
        rm.objectives.register(type("RegMixup", (rm.ERM,), {}))
    assert type(decode(rm.Objective, encode(rm.RegMixup(5)))) is rm.RegMixup
