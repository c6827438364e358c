"""Configurations: checked, written as JSON, read back and named by a fingerprint."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
import torch

import regmixup.config
from regmixup import recipes
from regmixup.config import (
    Bounds,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Share,
    check_count,
    check_fields,
    check_number,
    decode,
    encode,
    fingerprint,
    introduced,
)
from regmixup.networks.constraints import SpectralNorm
from regmixup.networks.gp_head import GPHead
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.regmixup import RegMixup
from regmixup.plugins import Origin
from regmixup.recipes import Recipe
from regmixup.training.config import TrainConfig, configure


@dataclass(frozen=True, kw_only=True)
class Leaf:
    kind_of: Literal["soft", "hard"] = "soft"
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class BigLeaf(Leaf):
    size: int = 2


@dataclass(frozen=True, kw_only=True)
class Bounded:
    rate: Positive = 1.0
    limit: NotNegative | None = 0.0
    share: Share = 0.5
    size: Count = 1
    freeze: CountOrZero | Literal["always"] = 0
    rates: tuple[Positive, ...] | None = None
    level: Annotated[CountOrZero, Bounds(check_number, most=10), "a note of others"] = 0
    of_subclasses: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str
    leaf: Leaf = Leaf()
    other: Leaf | None = None
    numbers: tuple[float, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    flag: bool = False
    rate: float | None = None
    notes: dict[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_fields(self)


FULL = Tree(
    name="oak",
    leaf=BigLeaf(weight=0.5, size=3),
    other=Leaf(kind_of="hard"),
    numbers=(1.0, 2.5),
    leaves=(Leaf(), BigLeaf()),
    flag=True,
    rate=0.1,
)


def through_json(config):
    return json.loads(json.dumps(encode(config)))


class TestRoundTrip:
    @pytest.mark.parametrize("config", [Tree(name="bare"), FULL], ids=["defaults", "everything"])
    def test_nested_dataclasses(self, config):
        values = through_json(config)
        decoded = decode(Tree, values)
        assert decoded == config
        assert values == through_json(config)  # as it was
        assert type(decoded.leaf) is type(config.leaf)
        assert hash(decoded) == hash(config)

    def test_a_run_with_a_nested_objective(self):
        config = configure(objective=Alternate(RegMixup(alpha=10), CutMix()), seed=3)
        assert decode(TrainConfig, through_json(config)) == config

    def test_the_name_of_a_run_has_the_folder_without_its_path(self, tmp_path):
        def name(train_set):
            return configure("imagenet-resnet50", "dnn", train_set=train_set, network="timm/resnet18").name

        assert re.fullmatch(r"dnn-photos-resnet18-s0-[0-9a-f]{12}", name(f"folder:{tmp_path}/photos/train-85/train-82"))
        assert name(f"folder:{tmp_path}/fruit/Train").startswith("dnn-fruit-resnet18-")
        assert name("folder:/train").startswith("dnn-train-resnet18-")
        assert name("folder:photos/train-90").startswith("erm-folder-photos-train-90-timm-")

    def test_fields_left_out_take_their_defaults(self):
        assert decode(Tree, {"name": "x", "leaf": {"weight": 2.0}}) == Tree(name="x", leaf=Leaf(weight=2.0))


class TestRefusals:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"name": "x", "flga": True}, "unknown field of Tree in here 'flga': did you mean 'flag'"),
            (
                {"name": "x", "leaf": {"wieght": 1}},
                "unknown field of Leaf in here.leaf 'wieght': did you mean 'weight'",
            ),
            ({"name": "x", "leaf": {"kind": "BigLaef"}}, "unknown kind in here.leaf 'BigLaef': did you mean 'BigLeaf'"),
            ({"flag": True}, "here must have the fields name, got no name"),
            ({"name": "x", "flag": 1}, "here.flag must be bool, got 1"),
            ({"name": "x", "rate": True}, r"here.rate must be float \| None, got True"),
            ({"name": "x", "numbers": "12"}, r"here.numbers must be tuple\[float, ...\], got '12'"),
            ({"name": "x", "numbers": [1, "2"]}, "here.numbers must be float, got '2'"),
            ({"name": "x", "leaf": None}, "here.leaf must be .*Leaf, got None"),
            ({"name": "x", "other": 3}, r"here.other must be .*Leaf \| None, got 3"),
            ({"name": "x", "leaf": {"kind": "BigLeaf", "size": 2.0}}, "here.leaf.size must be int, got 2.0"),
            ({"name": "x", "notes": [1]}, r"here.notes must be dict.*, got \[1\]"),
            ([1, 2], r"here must be a table of Tree, got \[1, 2\]"),
        ],
    )
    def test_decode_names_the_place(self, values, message):
        with pytest.raises(ValueError, match=message):
            decode(Tree, values, "here")

    def test_decode_checks_values_as_the_class_does(self):
        values = {**through_json(recipes.get("digits")), "epochs": 0}
        with pytest.raises(ValueError, match="epochs must be an integer >= 1, got 0"):
            decode(Recipe, values)


# Other values for fields of every kind, plain and introduced later.
OTHER = {
    "train_set": "digits/val",
    "epochs": 41,
    "lr": 0.2,
    "nesterov": False,
    "milestones": (1,),
    "shards": 2,
    "mean": (0.3,),
    "init": "weights.pth",
    "select": "val-accuracy",
    "freeze": "always",
    "ema": 0.999,
    "objective": RegMixup(alpha=19.0),
    "constraint": SpectralNorm(c=0.7),
    "head": GPHead(ridge=2.0),
    "members": 2,
    "seed": 1,
    "plugins": (Origin("network", "mine", "my_plugin", "1.0", "0" * 64),),
}


class TestFingerprint:
    def test_equal_configurations_have_equal_names(self):
        assert (
            fingerprint(configure())
            == fingerprint(configure())
            == fingerprint(decode(TrainConfig, encode(configure())))
        )

    def test_every_field_enters(self):
        base = replace(configure(), milestones=(2,), select="val-nll")
        changed = {name: fingerprint(replace(base, **{name: value})) for name, value in OTHER.items()}
        assert encode(base).keys() == {"kind", *(f.name for f in dataclasses.fields(TrainConfig))}
        assert len({fingerprint(base), *changed.values()}) == len(OTHER) + 1

    @pytest.mark.parametrize(
        ("as_int", "as_float"),
        [
            (Tree(name="x", rate=0), Tree(name="x", rate=0.0)),
            (Tree(name="x", numbers=(1, 2)), Tree(name="x", numbers=(1.0, 2.0))),
            (configure(objective=RegMixup(alpha=20), lr=1), configure(objective=RegMixup(alpha=20.0), lr=1.0)),
        ],
    )
    def test_an_integer_in_a_float_field_is_that_float(self, as_int, as_float):
        assert fingerprint(as_int) == fingerprint(as_float)

    def test_the_class_enters_and_an_integer_field_stays_an_integer(self):
        assert fingerprint(Leaf()) != fingerprint(BigLeaf())
        assert json.dumps(encode(BigLeaf())) == '{"kind": "BigLeaf", "kind_of": "soft", "weight": 1.0, "size": 2}'

    def test_the_numerics_version_enters(self, monkeypatch):
        before = fingerprint(FULL)
        monkeypatch.setattr(regmixup.config, "NUMERICS_VERSION", regmixup.config.NUMERICS_VERSION + 1)
        assert fingerprint(dataclasses.replace(FULL)) != before


class TestChecks:
    @pytest.mark.parametrize("value", [0.5, 1e300, np.float32(2), np.int64(2)])
    def test_numbers_within_bounds_pass(self, value):
        check_number("x", value)
        check_number("x", value, above=0)
        check_number("x", value, least=0.5)

    @pytest.mark.parametrize("value", [math.nan, -math.inf, np.float32("inf"), "1", None, True])
    def test_other_things_are_not_numbers(self, value):
        with pytest.raises(ValueError, match=r"^alpha must be a finite number, got ") as error:
            check_number("alpha", value)
        assert str(error.value).endswith(f"got {value!r}")

    def test_bounds_are_strict_or_not_as_named(self):
        check_number("x", 0, least=0)
        with pytest.raises(ValueError, match=r"^x must be a finite number > 0, got 0$"):
            check_number("x", 0, above=0)
        check_number("x", 1, above=0, most=1)
        with pytest.raises(ValueError, match=r"^x must be a finite number > 0 and <= 1, got 2$"):
            check_number("x", 2, above=0, most=1)
        with pytest.raises(ValueError, match=r"^x must be a finite number >= 0 and < 1, got 1$"):
            check_number("x", 1, least=0, below=1)

    @pytest.mark.parametrize("value", [0, 1.0, True, "3"])
    def test_counts_are_integers_of_at_least_one(self, value):
        with pytest.raises(ValueError, match=r"^epochs must be an integer >= 1, got ") as error:
            check_count("epochs", value)
        assert str(error.value).endswith(f"got {value!r}")

    def test_counts_may_start_elsewhere(self):
        check_count("padding", 0, least=0)
        check_count("epochs", 1)
        with pytest.raises(ValueError, match="padding must be an integer >= 0, got -1"):
            check_count("padding", -1, least=0)

    def test_choices_name_the_field_the_nearest_and_the_options(self):
        check_fields(Leaf(kind_of="hard"))
        with pytest.raises(ValueError, match="unknown kind_of 'sotf': did you mean 'soft'\\? Available: hard, soft"):
            check_fields(Leaf(kind_of="sotf"))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rate": 0}, "rate must be a finite number > 0, got 0"),
            ({"rate": None}, "rate must be a finite number > 0, got None"),
            ({"limit": -1.0}, "limit must be a finite number >= 0, got -1.0"),
            ({"share": 1}, "share must be a finite number >= 0 and < 1, got 1"),
            ({"size": 0}, "size must be an integer >= 1, got 0"),
            ({"rates": 1.0}, "rates must be a tuple of numbers, got 1.0"),
            ({"rates": (1, 0)}, "each number of rates must be a finite number > 0, got 0"),
            ({"freeze": "never"}, "freeze must be an integer >= 0, got 'never'"),
            ({"level": -1}, "level must be an integer >= 0, got -1"),
            ({"level": 11}, "level must be a finite number <= 10, got 11"),
        ],
    )
    def test_numbers_lie_within_the_bounds_of_their_type(self, changes, message):
        check_fields(Bounded())
        check_fields(Bounded(limit=None, freeze="always", level=10, rates=(1, 2.5)))
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_fields(Bounded(**changes))

    def test_a_field_that_is_set_after_the_checks_is_not_checked(self):
        @dataclass(frozen=True)
        class Late:
            rate: Positive
            total: Count = field(init=False)

            def __post_init__(self):
                check_fields(self)
                object.__setattr__(self, "total", 3)

        assert Late(1.0).total == 3
        with pytest.raises(ValueError, match=r"^rate must be"):
            Late(0.0)

    def test_a_class_with_a_type_that_is_not_imported_is_not_checked(self):
        """As one of a user's own with an import under `if TYPE_CHECKING:`."""

        @dataclass(frozen=True)
        class Stranger:
            table: "Table"  # noqa: F821

        check_fields(Stranger(3))

    def test_a_type_within_bounds_is_stored_and_read_as_the_plain_one(self):
        bounded = Bounded(freeze="always", rates=(1.0, 2.5))
        assert decode(Bounded, through_json(bounded)) == bounded
        with pytest.raises(ValueError, match=r"^config\.limit must be Optional\[float\], got 'high'$"):
            decode(Bounded, {"limit": "high"})


class TestFieldsThatLeft:
    def test_the_introductory_value_is_ignored_and_any_other_is_an_error(self):
        stored = encode(configure())
        old = stored | {"transform": "", "layer_decay": 1.0}
        assert fingerprint(decode(TrainConfig, old)) == fingerprint(configure())
        with pytest.raises(ValueError, match=r"^config\.layer_decay must be 1\.0: this package no longer has"):
            decode(TrainConfig, stored | {"layer_decay": 0.9})

    def test_a_field_whose_other_value_left_stays_and_names_the_one_it_has(self):
        stored = encode(configure())
        assert stored["batch_norm"] == "local"
        with pytest.raises(ValueError, match="unknown batch_norm 'synchronised': Available: local"):
            decode(TrainConfig, stored | {"batch_norm": "synchronised"})


class TestFieldsIntroducedLater:
    """They stay out of the fingerprint while they have the value of the runs that came before them."""

    def test_nested_fields_leave_the_fingerprint_of_the_whole_alone(self):
        @dataclasses.dataclass(frozen=True)
        class Inner:
            alpha: float

        @dataclasses.dataclass(frozen=True)
        class Outer:
            inner: Inner
            parts: tuple[Inner, ...] = ()

        old = fingerprint(Outer(Inner(1), (Inner(2),)))
        later = dataclasses.make_dataclass(
            "Inner", [("alpha", float), ("loss", str | None, introduced(None))], bases=(Inner,), frozen=True
        )
        assert fingerprint(Outer(later(1), (later(2),))) == old
        assert fingerprint(Outer(later(1, loss="focal"), (later(2),))) != old
        assert fingerprint(Outer(later(1), (later(2, loss="focal"),))) != old

    def test_they_are_written_and_read_all_the_same(self):
        later = dataclasses.make_dataclass("Later", [("a", int), ("b", int, introduced(3))], frozen=True)
        assert encode(later(1)) == {"kind": "Later", "a": 1, "b": 3}
        assert decode(later, encode(later(1, 4))) == later(1, 4)
        assert decode(later, {"kind": "Later", "a": 1}) == later(1, 3)


@pytest.mark.parametrize("value", [torch.ones(2), (1, b"a"), [object()], len])
def test_a_field_that_json_cannot_hold_is_named(value):
    @dataclasses.dataclass(frozen=True)
    class Weighted:
        weight: Any = None

    with pytest.raises(
        ValueError, match=r"^weight must be a number, text, .* or None to be recorded in a configuration, got "
    ):
        encode(Weighted(value))
