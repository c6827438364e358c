"""Methods by name, the paper's and others: objective x constraint x head x posthoc, with the values selected for them.

Plain data; listing it imports no torch. Any other combination is one line of `configure`:

    configure("cifar10-wrn28-10", "regmixup", constraint="spectral_norm", head="gp")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regmixup import plugins
from regmixup.names import unknown

if TYPE_CHECKING:
    from regmixup.objectives.alternate import Alternate


@dataclass(frozen=True)
class Spec:
    """An objective, constraint, head, posthoc map, loss or augmentation by name, with the fields that differ."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A named combination.

    train: fields of the recipe that the method replaces, `members` of an ensemble included.
    posthoc: the map applied to its predictions before they are scored; temperature scaling is always reported too.
    score: the OOD score the paper uses for this method (Appendix on OOD detection). Where it does not say: entropy for
    methods that train on mixed labels alone, as it uses for Mixup, and Dempster-Shafer for all others.
    selected: for a recipe by name, the fields of this class that differ there: what the paper selected or borrowed.
    published: whether the paper says which values and score it used; tables mark the methods for which it does not.
    """

    name: str
    description: str
    citation: str
    objective: Spec = Spec("erm")
    constraint: Spec | None = None
    head: Spec = Spec("linear")
    posthoc: Spec | None = None
    train: Mapping[str, Any] = field(default_factory=dict)
    score: str = "dempster_shafer"
    selected: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: bool = True

    def at(self, recipe: str) -> Method:
        """Return the method with the values selected for a recipe."""
        return dataclasses.replace(self, **self.selected.get(recipe, {}))


_PAPER = "Pinto et al., 2022, appendix"
_OURS = "an extension of this project"
_CIFAR10, _CIFAR100, _IMAGENET = "cifar10-wrn28-10", "cifar100-wrn28-10", "imagenet-resnet50"
_CIFAR10_RESNET18, _CIFAR100_RESNET18 = "cifar10-resnet18", "cifar100-resnet18"  # with values carried over
_ON_CIFAR100 = (_CIFAR100, "cifar100-resnet50", _CIFAR100_RESNET18)

_MIXUP, _REGMIXUP, _CUTMIX = Spec("mixup", {"alpha": 0.3}), Spec("regmixup"), Spec("cutmix")
_MIXUP_IMAGENET = Spec("mixup", {"alpha": 0.1})
# The paper cross-validates the CutMix family and does not publish what it selected. CutMix has alpha 1, as in its own
# paper. In a combination each part has what was selected for it alone, or the nearest to that in the paper's grid for
# combinations, alpha in {0.1, 0.3, 1, 10} and eta in {0.1, 1, 3}: 10 for RegMixup on every dataset.
_IN_COMBINATION = Spec("regmixup", {"alpha": 10.0})
_PIXMIX = Spec("vicinal", {"transform": Spec("pixmix")})
_SNGP_BOUND = Spec("spectral_norm", {"c": 6.0, "norm": "convolution"})
_SAMPLED = Spec("monte_carlo", {"samples": 10})


def _alternate(first: Spec, second: Spec) -> Spec:
    return Spec("alternate", {"first": first, "second": second})


def _alpha_10(objective: str) -> dict[str, dict[str, Any]]:
    """Return RegMixup's alpha beyond CIFAR-10, shared by the objectives that estimate its loss."""
    return {recipe: {"objective": Spec(objective, {"alpha": 10.0})} for recipe in (*_ON_CIFAR100, _IMAGENET)}


def _laplace(prior_variance: float | None, samples: int = 1000) -> Spec:
    """Return the Laplace map with the factors and scales of the code the paper used, which its sigma_0 belongs to."""
    fields = {"prior": "split", "n_eff": 128.0, "fisher": "sampled", "average": "running", "samples": samples}
    return Spec("laplace", {**fields, "prior_variance": prior_variance})


def _sngp(lr: float) -> dict[str, Any]:
    """Return the recipe of SNGP's released code."""
    steps = {"schedule": "step", "milestones": (75, 150, 200), "lr_decay": 0.2, "warmup_epochs": 1.0}
    sizes = {"epochs": 250, "batch_size": 256, "lr": lr, "weight_decay": 6e-4, "decay_on": "backbone"}
    return {"train": {"network": "wrn28-10-sngp", **steps, **sizes}}


def _sngp18(lr: float) -> dict[str, Any]:
    """Return SNGP's rate for batches of 128, decay and warm-up, with the epochs and cosine of the recipe."""
    return {"train": {"lr": lr, "warmup_epochs": 1.0, "weight_decay": 6e-4, "decay_on": "backbone"}}


# On digits, 320 steps with 64 features need a wider kernel, a smaller rate and faster centroids.
_SNGP_SELECTED = {
    "digits": {"head": Spec("gp", {"kernel_std": 0.15}), "train": {"lr": 0.01}},
    _CIFAR10: _sngp(0.16),
    _CIFAR100: _sngp(0.08),
    _CIFAR10_RESNET18: _sngp18(0.08),
    _CIFAR100_RESNET18: _sngp18(0.04),
}
_DUQ_DIGITS = {"objective": Spec("duq", {"penalty": 0.1}), "head": Spec("rbf", {"momentum": 0.99}), "train": {}}
# DUQ's released code; on CIFAR-100 a class has about 1.28 images in a batch.
_DUQ, _RBF_100 = {"lr": 0.05, "nesterov": False}, Spec("rbf", {"initial_count": 1.28})
_DUQ_WRN = {**_DUQ, "epochs": 200, "milestones": (60, 120, 160), "lr_decay": 0.2, "dropout": 0.3}
# DUQ's released code for ResNet-18, in the 100 epochs of the recipe.
_DUQ18 = {**_DUQ, "schedule": "step", "milestones": (25, 50, 75), "lr_decay": 0.2}
_COIN = _alternate(_IN_COMBINATION, Spec("regcutmix"))
# FMFP's and SURE's released code: SGD without Nesterov momentum, SAM, and SWA from epoch 120 of 200 on.
_SWA = {"average": "swa", "average_from": 0.6, "average_lr": 0.05}
_FMFP = {"nesterov": False, "sharpness": "sam", "rho": 0.05, **_SWA}
_SURE100 = {"alpha": 10.0, "scale": "sum", "passes": "separate"}
_AUGMIX = {"epochs": 100, "schedule": "cosine", "mean": (0.5,) * 3, "std": (0.5,) * 3, "dropout": 0.0}

_METHODS = (
    Method("dnn", "plain cross-entropy", "Vapnik, 1991"),
    Method(
        "label-smoothing",
        "cross-entropy on labels moved 0.1 towards uniform",
        "Szegedy et al., 2016",
        objective=Spec("label_smoothing"),
    ),
    Method(
        "mixup",
        "cross-entropy on mixed images alone, alpha 0.3",
        "Zhang et al., 2018",
        objective=_MIXUP,
        score="entropy",
        selected={_IMAGENET: {"objective": _MIXUP_IMAGENET}},
    ),
    Method(
        "cutmix",
        "cross-entropy on images with a pasted rectangle",
        "Yun et al., 2019",
        objective=_CUTMIX,
        score="entropy",
        published=False,
    ),
    Method(
        "regmixup",
        "cross-entropy on clean images + cross-entropy on strongly mixed ones, alpha 20",
        "Pinto et al., 2022",
        objective=_REGMIXUP,
        selected=_alpha_10("regmixup"),
    ),
    Method(
        "regcutmix",
        "cross-entropy on clean images + cross-entropy on CutMix's",
        _PAPER,
        objective=Spec("regcutmix"),
        published=False,
    ),
    Method(
        "mixup+cutmix",
        "Mixup or CutMix, chosen at random at every step",
        _PAPER,
        objective=_alternate(_MIXUP, _CUTMIX),
        score="entropy",
        selected={_IMAGENET: {"objective": _alternate(_MIXUP_IMAGENET, _CUTMIX)}},
        published=False,
    ),
    Method(
        "regmixup+cutmix",
        "RegMixup or CutMix, chosen at random at every step",
        _PAPER,
        objective=_alternate(_IN_COMBINATION, _CUTMIX),
        published=False,
    ),
    Method(
        "regmixup+regcutmix",
        "RegMixup or RegCutMix, chosen at random at every step",
        _PAPER,
        objective=_COIN,
        published=False,
    ),
    Method(
        "reliable",
        "RegMixup or RegCutMix, chosen at random at every step, and SWA: the winner of our search",
        _OURS,
        objective=_COIN,
        train=_SWA,
        score="max_probability",
    ),
    Method(
        "dnn-sn",
        "spectral norm of every convolution at most 0.5",
        "Miyato et al., 2018",
        constraint=Spec("spectral_norm", {"c": 0.5}),
    ),
    Method(
        "dnn-srn",
        "stable rank of every convolution at most 0.3 of the full",
        "Sanyal et al., 2020",
        constraint=Spec("stable_rank", {"ratio": 0.3}),
    ),
    Method(
        "sngp",
        "bounded convolutions and a Gaussian-process head, 10 Monte-Carlo samples",
        "Liu et al., 2020",
        constraint=_SNGP_BOUND,
        head=Spec("gp"),
        posthoc=_SAMPLED,
        selected=_SNGP_SELECTED,
    ),
    Method(
        "duq",
        "distances to class centroids with a gradient penalty",
        "van Amersfoort et al., 2020",
        objective=Spec("duq", {"penalty": 0.5}),
        head=Spec("rbf"),
        train=_DUQ,
        score="max_logit",
        selected={
            "digits": _DUQ_DIGITS,
            _CIFAR10: {"train": _DUQ_WRN},
            _CIFAR100: {"train": _DUQ_WRN, "head": _RBF_100},
            "cifar100-resnet50": {"head": _RBF_100},
            _CIFAR10_RESNET18: {"train": _DUQ18},
            _CIFAR100_RESNET18: {"head": _RBF_100},
        },
    ),
    Method(
        "kfac-llla",
        "plain cross-entropy, then a Kronecker-factored Laplace approximation of the last layer",
        "Kristiadi et al., 2020",
        posthoc=_laplace(None),
        score="entropy",
        selected={
            "digits": {"posthoc": _laplace(None, samples=100)},
            _CIFAR10: {"posthoc": _laplace(1.0)},
            "cifar10-resnet50": {"posthoc": _laplace(0.6)},
            _CIFAR100: {"posthoc": _laplace(4.0)},
            "cifar100-resnet50": {"posthoc": _laplace(0.1)},
        },
    ),
    Method(
        "augmix",
        "agreement between an image and two randomly augmented versions of it",
        "Hendrycks et al., 2020",
        objective=Spec("augmix"),
        selected={
            _CIFAR10: {"train": _AUGMIX},
            _CIFAR100: {"train": _AUGMIX},
            _IMAGENET: {"objective": Spec("augmix", {"severity": 1.0})},
        },
    ),
    Method(
        "deep-ensemble",
        "five plain networks from different seeds, mean of logits",
        "Lakshminarayanan et al., 2017",
        train={"members": 5},
    ),
    Method(
        "half-regmixup",
        "RegMixup at the cost of plain training: half of each batch clean, half mixed",
        _OURS,
        objective=Spec("half_regmixup"),
        selected=_alpha_10("half_regmixup"),
    ),
    Method(
        "bimodal",
        "RegMixup's loss by importance sampling: each image clean or mixed",
        _OURS,
        objective=Spec("bimodal"),
        selected=_alpha_10("bimodal"),
    ),
    Method(
        "reg-gaussian-noise",
        "cross-entropy on clean images + cross-entropy on noisy ones",
        _OURS,
        objective=Spec("vicinal", {"transform": Spec("gaussian_noise")}),
    ),
    Method("pixmix", "cross-entropy on clean images + cross-entropy on PixMix's", "Hendrycks et al., 2022", _PIXMIX),
    Method(
        "cutout",
        "plain cross-entropy on images with a blank square",
        "DeVries and Taylor, 2017",
        train={"cutout": 16},
        selected={recipe: {"train": {"cutout": 8}} for recipe in _ON_CIFAR100} | {"digits": {"train": {"cutout": 4}}},
    ),
    Method(
        "logitnorm",
        "cross-entropy of normalised logits",
        "Wei et al., 2022",
        Spec("erm", {"loss": Spec("logitnorm")}),
        # With the published tau of 0.04, 320 steps are too few; 0.3 is the best of three on validation images.
        selected={"digits": {"objective": Spec("erm", {"loss": Spec("logitnorm", {"tau": 0.3})})}},
    ),
    Method(
        "rotation",
        "plain cross-entropy + cross-entropy of four rotations, from a second head",
        "Hendrycks et al., 2019",
        Spec("rotation", {"objective": Spec("erm")}),
        head=Spec("rotation"),
    ),
    Method(
        "fmfp",
        "plain cross-entropy with SAM and SWA: flat minima",
        "Zhu et al., 2022",
        train=_FMFP,
        score="max_probability",
    ),
    Method(
        "sure",
        "RegMixup, SAM, SWA and cosines as logits; without SURE's ranking loss",
        "Li et al., 2024",
        objective=Spec("regmixup", {**_SURE100, "eta": 0.5}),
        head=Spec("cosine"),
        train=_FMFP,
        score="max_probability",
        selected={recipe: {"objective": Spec("regmixup", _SURE100)} for recipe in _ON_CIFAR100},
    ),
    Method(
        "regmixup+sngp",
        "RegMixup with SNGP's network; mixed images stay out of the covariance",
        _OURS,
        objective=_REGMIXUP,
        constraint=_SNGP_BOUND,
        head=Spec("gp"),
        posthoc=_SAMPLED,
        selected={
            recipe: _SNGP_SELECTED.get(recipe, {}) | _alpha_10("regmixup").get(recipe, {})
            for recipe in (*_SNGP_SELECTED, *_alpha_10("regmixup"))
        },
    ),
)
METHODS = {method.name: method for method in _METHODS}
REFERENCE = "dnn"
"""Plain training, which other methods are compared with where a study has it."""


def get(name: str) -> Method:
    """Return a method by name, or raise with the nearest one."""
    plugins.load_if_unknown(name, METHODS)
    if name not in METHODS:
        raise ValueError(f"{unknown('method', name, METHODS)}. Name the module of one of your own by --plugin")
    return METHODS[name]


def register(method: Method) -> None:
    """Make a method of your own known by its name, beside those of METHODS. Call it in a plugin, see `plugins`.

    What it names (objective, head, constraint, posthoc map) is looked up when the method is used.
    """
    if not isinstance(method, Method):
        raise ValueError(f"method must be a Method, got {method!r}")
    plugins.record("method", method.name, METHODS)
    METHODS[method.name] = method


def reliable() -> Alternate:
    """Return the objective of the method `reliable`, for a training loop of your own.

    The method also averages weights: after 60 % of the epochs the learning rate is 0.05, and the model is the mean of
    the weights at the ends of these epochs. docs/reliable.md has the loop.

    >>> type(reliable().first).__name__, type(reliable().second).__name__
    ('RegMixup', 'RegCutMix')
    """
    from regmixup.objectives.alternate import Alternate
    from regmixup.objectives.regcutmix import RegCutMix
    from regmixup.objectives.regmixup import RegMixup

    return Alternate(RegMixup(alpha=10.0), RegCutMix())


def images_per_clean_image(objective: Mapping[str, Any]) -> float:
    """Return how many images a step forwards for a clean one. objective: as in config.json.

    >>> images_per_clean_image({"kind": "RegMixup"}), images_per_clean_image({"kind": "Mixup", "samples": 3})
    (2.0, 3.0)
    """
    kind, samples = objective["kind"], float(objective.get("samples", 1))
    if kind == "Alternate":
        first, second = (images_per_clean_image(objective[side]) for side in ("first", "second"))
        return objective["probability"] * first + (1 - objective["probability"]) * second
    if kind == "Rotation":
        return images_per_clean_image(objective["objective"]) + (3 if objective["weight"] else 0)
    if 0 in (objective.get("eta"), objective.get("jsd_weight")):  # which leaves the second term out
        return 1.0
    if kind == "HalfRegMixup":
        clean = objective.get("share", 0.5)
        return clean + (1 - clean) * samples
    if kind == "AugMix":
        return 3.0
    return 1 + samples if kind in ("RegMixup", "RegCutMix", "Vicinal") else samples
