"""BatchTransform: plain cross-entropy on its images and targets is the objective's loss."""

import pickle
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from regmixup.losses import CrossEntropy, Focal
from regmixup.objectives import batch_transform
from tests.objectives.cases import CLASSES, OBJECTIVE_CASES, batch, conv_net, gradients, seeded

WEIGHT = (1.0, 0.5, 2.0, 0.1, 3.0)
NAMES = [
    "erm", "label_smoothing", "cutmix/samples=2", "bimodal/all", "vicinal", "regmixup/eta=0", "regmixup/sum",
    "alternate/regmixup-regcutmix",
]  # fmt: skip
CASES = {name: OBJECTIVE_CASES[name] for name in NAMES}
for name in ("regcutmix/all", "half_regmixup/all"):
    CASES[name] = replace(OBJECTIVE_CASES[name], passes="joint")
CASES["regmixup/eta=0.3, samples=3"] = rm.RegMixup(10, eta=0.3, samples=3, lam="sample")
each_case = pytest.mark.parametrize("objective", CASES.values(), ids=CASES.keys())


@each_case
def test_cross_entropy_of_the_transformed_batch_is_the_loss_with_its_gradient(objective):
    """With batch norm, because all images are forwarded together in both ways."""
    (x, y), plain, other = batch(dtype=torch.float64), *(conv_net(dtype=torch.float64) for _ in range(2))
    expected = objective(plain, x, y, seeded(3)).loss
    images, targets = rm.BatchTransform(objective, num_classes=CLASSES)(x, y, seeded(3))
    loss = F.cross_entropy(other(images), targets)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(other, loss), gradients(plain, expected))
    assert not targets.requires_grad


@each_case
def test_class_weights_and_smoothing_are_part_of_the_targets(objective):
    (x, y), model = batch(dtype=torch.float64), conv_net(batch_norm=False, dtype=torch.float64)
    weighted = replace(objective, loss=CrossEntropy(WEIGHT, 0.1))
    images, targets = rm.BatchTransform(weighted, num_classes=CLASSES)(x, y, seeded(3))
    torch.testing.assert_close(F.cross_entropy(model(images), targets), weighted(model, x, y, seeded(3)).loss)


def test_a_draw_can_be_given_and_the_global_seed_suffices():
    transform, (x, y) = rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES), batch()
    draw = rm.RegMixup().draw(7, x.shape[1:], seeded(4))
    torch.manual_seed(4)
    assert all(map(torch.equal, transform(x, y, draw=draw), transform(x, y)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_in_a_loader_without_gradients_on_pixels_and_on_features(mode):
    transform = pickle.loads(pickle.dumps(rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES)))
    assert transform == rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES)
    x, y = batch()
    with mode():
        images, targets = transform((255 * x).to(torch.uint8), y[:, None], seeded())
        features, _ = transform(x.flatten(1), y, seeded())
    assert (images.dtype, targets.dtype) == (torch.float32, torch.float32)
    assert images.max() <= 1
    assert features.shape == (14, 144)
    assert transform(x.bfloat16(), y)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (rm.AugMix(), "cross-entropy of soft targets, got AugMix"),
        (rm.DUQ(), "soft targets, got DUQ"),
        (rm.Rotation(rm.RegMixup()), "soft targets, got Rotation"),
        (rm.ERM(loss=Focal()), r"loss must be None or CrossEntropy\(\) for a transform, got Focal"),
        (rm.RegMixup(passes="separate"), "passes must be joint"),
    ],
)
def test_what_is_no_cross_entropy_of_soft_targets_is_refused(objective, message):
    with pytest.raises(ValueError, match=message):
        rm.BatchTransform(objective, num_classes=5)


@pytest.mark.parametrize("term", [torch.sum, lambda logits: logits.softmax(1).log().mean()], ids=["logits", "entropy"])
def test_a_term_beside_the_cross_entropies_is_refused(term):
    """It would be missing in the framework's loss."""

    class Penalised(rm.RegMixup):
        def compute(self, model, x, y, draw):
            out = super().compute(model, x, y, draw)
            return replace(out, loss=out.loss + term(out.logits))

    with pytest.raises(ValueError, match=r"^objective must have no term beside its cross-entropies, got .*Penalised"):
        rm.BatchTransform(Penalised(), num_classes=5)(*batch())


@pytest.mark.parametrize("count", [1, 4])
def test_class_weights_of_another_number_of_classes_are_refused(count):
    objective = rm.RegMixup(loss=CrossEntropy(weight=(2.0,) * count))
    message = f"^weight must have one number per class, 5, got {count}$"
    with pytest.raises(ValueError, match=message):
        rm.BatchTransform(objective, num_classes=5)(*batch())
    with pytest.raises(ValueError, match=message):
        objective(lambda x: torch.zeros(len(x), 5), *batch())


def test_labels_beyond_the_number_of_classes_are_refused():
    with pytest.raises(ValueError, match=r"y must hold labels in \[0, 3\)"):
        rm.BatchTransform(rm.RegMixup(), num_classes=3)(*batch())
    with pytest.raises(ValueError, match="num_classes must be an integer >= 1, got 0"):
        rm.BatchTransform(rm.RegMixup(), num_classes=0)
    with pytest.raises(ValueError, match=r"^objective must be an Objective such as rm\.RegMixup\(\), got <class"):
        rm.BatchTransform(rm.RegMixup, num_classes=5)


def test_labels_that_another_library_has_mixed_are_told_once():
    """As those of timm's Mixup; one-hot rows are not."""
    from timm.data import Mixup

    batch_transform._warn_of_mixed_labels.cache_clear()
    transform, (x, y) = rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES), batch(6)
    mixed = Mixup(mixup_alpha=1.0, label_smoothing=0.0, num_classes=CLASSES)(x.clone(), y)
    transform(x, F.one_hot(y, CLASSES).float())
    with pytest.warns(UserWarning, match="^y must be class indices or one-hot rows, got soft labels: .* mixed twice"):
        transform(*mixed)
    transform(*mixed)
