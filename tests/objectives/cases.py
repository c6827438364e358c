"""The objectives, models and batches that the tests of this folder share."""

import dataclasses

import torch
from torch import nn

from regmixup.augmentations import AugMixChains, Cutout, GaussianNoise, PixMix
from regmixup.networks import RotationHead
from regmixup.objectives import OBJECTIVES
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.augmix import AugMix
from regmixup.objectives.bimodal import Bimodal
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.duq import DUQ
from regmixup.objectives.erm import ERM
from regmixup.objectives.half_regmixup import HalfRegMixup
from regmixup.objectives.label_smoothing import LabelSmoothing
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.regcutmix import RegCutMix
from regmixup.objectives.regmixup import RegMixup
from regmixup.objectives.rotation import Rotation
from regmixup.objectives.vicinal import Vicinal

CLASSES = 5


def _has_defaults(cls):
    missing = dataclasses.MISSING
    return all(f.default is not missing or f.default_factory is not missing for f in dataclasses.fields(cls))


DEFAULTS = {name: cls() for name, cls in OBJECTIVES.items() if _has_defaults(cls)}
DEFAULTS["vicinal"] = Vicinal(GaussianNoise())
VARIANTS = {
    "mixup/sample": Mixup(lam="sample"),
    "mixup/samples=2": Mixup(samples=2),
    "mixup/permutation": Mixup(pairing="permutation"),
    "cutmix/sample": CutMix(lam="sample"),
    "cutmix/samples=2": CutMix(samples=2),
    "regmixup/eta=0": RegMixup(eta=0.0),
    "regmixup/sample": RegMixup(lam="sample"),
    "regmixup/samples=2": RegMixup(samples=2),
    "regmixup/separate": RegMixup(passes="separate"),
    "regmixup/sum": RegMixup(scale="sum", eta=2.0),
    "regmixup/permutation": RegMixup(pairing="permutation"),
    "regcutmix/all": RegCutMix(
        alpha=0.3, eta=0.1, scale="sum", passes="separate", lam="sample", pairing="permutation", samples=2
    ),
    "half_regmixup/all": HalfRegMixup(
        alpha=0.3, eta=2, scale="sum", passes="separate", lam="sample", pairing="permutation", samples=2, share=0.3
    ),
    "bimodal/all": Bimodal(
        alpha=0.3, eta=2, scale="sum", lam="sample", pairing="permutation", samples=2, clean_probability=0.75
    ),
    "vicinal/all": Vicinal(GaussianNoise(0.3), eta=2, scale="sum", passes="separate", samples=2),
    "vicinal/cutout": Vicinal(Cutout(4), eta=0.5),
    "vicinal/augmix_chains": Vicinal(AugMixChains(width=2, depth=2)),
    "vicinal/pixmix": Vicinal(PixMix(2), samples=2),
    "rotation/erm": Rotation(ERM()),
    "rotation/regmixup": Rotation(RegMixup(), weight=0.5),
    "rotation/coin": Rotation(Alternate(RegMixup(passes="separate-clean"), Vicinal(Cutout(4)))),
    "label_smoothing/0.3": LabelSmoothing(smoothing=0.3),
    "augmix/jsd_weight=0": AugMix(jsd_weight=0.0),
    "augmix/width=2": AugMix(width=2, depth=2, jsd_weight=1.0),
    "duq/penalty=0": DUQ(penalty=0.0),
    "alternate/mixup-cutmix": Alternate(Mixup(), CutMix()),
    "alternate/regmixup-cutmix": Alternate(RegMixup(), CutMix()),
    "alternate/regmixup-regcutmix": Alternate(RegMixup(), RegCutMix(), probability=0.3),
    "alternate/erm-regmixup": Alternate(ERM(), RegMixup(lam="sample")),
    "alternate/augmix-regmixup": Alternate(AugMix(), RegMixup()),
}
OBJECTIVE_CASES = DEFAULTS | VARIANTS


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def conv_net(*, batch_norm=True, dtype=torch.float32, seed=0):
    """A convolution, a batch norm where wanted, a linear head: 3-channel images of any size to 5 logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        norm = nn.BatchNorm2d(6) if batch_norm else nn.Identity()
        layers = [nn.Conv2d(3, 6, 3, padding=1, bias=False), norm, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(24, CLASSES)).to(dtype)


class RotationNet(nn.Sequential):
    """Layers of which the last is that of a `RotationHead`, with the interface of `networks.Classifier`."""

    @property
    def head(self):
        return self[-1]

    def features(self, x):
        return self[:-1](x)


def with_rotation(model, seed=1):
    """A network of layers with a layer for rotations beside its last one."""
    last = model[-1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = RotationHead().build(last.in_features, last.out_features)
    head.load_state_dict(last.state_dict(), strict=False)
    return RotationNet(*model[:-1], head.to(last.weight.dtype))


def net_for(objective, **options):
    """`conv_net`, with outputs below 0 for an objective on log kernels, and a second head for rotations."""
    model = conv_net(**options)
    if isinstance(objective, Rotation):
        return with_rotation(model)
    return nn.Sequential(*model, nn.LogSigmoid()) if isinstance(objective, DUQ) else model


def batch(batch_size=7, *, dtype=torch.float32, seed=0, size=(6, 8)):
    """Random images (not square) and labels."""
    generator = seeded(100 + seed)
    x = torch.rand(batch_size, 3, *size, dtype=torch.float64, generator=generator).to(dtype)
    return x, torch.randint(CLASSES, (batch_size,), generator=generator)


def batch_for(objective, batch_size=7, **options):
    """Random images, square where they will be rotated, and labels."""
    return batch(batch_size, **options, size=(8, 8) if isinstance(objective, Rotation) else (6, 8))


def gradients(model, loss):
    """The gradient of `loss` for every parameter, as fresh tensors."""
    return torch.autograd.grad(loss, list(model.parameters()))


def forwarded(model):
    """A list that collects the images of every later forward pass of `model`."""
    calls = []
    model.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0].detach()))
    return calls
