"""BatchTransform: plain cross-entropy on its images and targets is the objective's loss."""

import pickle
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import nn
from torch.nn import functional as F

import regmixup as rm
from regmixup.losses import CrossEntropy, Focal
from regmixup.objectives import batch_transform
from tests.objectives.cases import CLASSES, OBJECTIVE_CASES, batch, conv_net, gradients, seeded

WEIGHT = (1.0, 0.5, 2.0, 0.1, 3.0)


QUICK = {"erm", "label_smoothing", "cutmix/samples=2", "bimodal/all", "gaussian_noise", "regmixup/eta=0"}
QUICK |= {"regmixup/sum", "augmix/jsd_weight=0", "alternate/regmixup-regcutmix"}


def transformable(objective):
    sides = [getattr(objective, name, objective) for name in ("first", "second")]
    joint = all(getattr(side, "passes", "joint") == "joint" for side in sides)
    return joint and all(hasattr(side, "loss") and getattr(side, "jsd_weight", 0) == 0 for side in sides)


CASES = {name: case for name, case in OBJECTIVE_CASES.items() if transformable(case) and name in QUICK}
CASES |= {
    f"{name}/joint": replace(OBJECTIVE_CASES[name], passes="joint") for name in ("regcutmix/all", "half_regmixup/all")
}
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


@pytest.mark.parametrize(("eta", "samples", "scale"), [(1, 1, "mean"), (0.5, 3, "mean"), (2, 2, "sum")])
def test_rows_sum_to_the_weights_of_their_terms(eta, samples, scale):
    """c = (1 + m) / (1 + eta) for clean images and eta c / m for mixed ones; 1 + eta times that for "sum"."""
    objective = rm.RegMixup(20, eta=eta, samples=samples, scale=scale)
    x, y = batch(dtype=torch.float64)
    images, targets = rm.BatchTransform(objective, num_classes=CLASSES)(x, y)
    clean = (1 + samples) / (1 + eta) * (1 + eta if scale == "sum" else 1)
    expected = torch.tensor([clean] * 7 + [eta * clean / samples] * 7 * samples, dtype=torch.float64)
    torch.testing.assert_close(targets.sum(dim=1), expected)
    assert torch.equal(images[:7], x)


def test_a_draw_can_be_given_and_the_global_seed_suffices():
    transform, (x, y) = rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES), batch()
    draw = rm.RegMixup().draw(7, x.shape[1:], seeded(4))
    torch.manual_seed(4)
    for one, other in zip(transform(x, y, draw=draw), transform(x, y), strict=True):
        assert torch.equal(one, other)


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
    ("make", "message"),
    [
        (lambda: rm.BatchTransform(rm.AugMix(), num_classes=5), "cross-entropy of soft targets, got AugMix"),
        (lambda: rm.BatchTransform(rm.Alternate(rm.ERM(), rm.DUQ()), num_classes=5), "soft targets, got DUQ"),
        (
            lambda: rm.BatchTransform(rm.ERM(loss=Focal()), num_classes=5),
            "loss must be None or CrossEntropy.*got Focal",
        ),
        (lambda: rm.BatchTransform(rm.ERM(loss=CrossEntropy(ignore_index=1)), num_classes=5), "without ignore_index"),
        (lambda: rm.BatchTransform(rm.RegMixup(passes="separate"), num_classes=5), "passes must be joint"),
        (lambda: rm.BatchTransform(rm.RegMixup(), num_classes=0), "num_classes must be an integer >= 1, got 0"),
        (lambda: rm.BatchTransform(rm.RegMixup(), num_classes=3)(*batch()), r"y must hold labels in \[0, 3\)"),
    ],
)
def test_what_is_no_cross_entropy_of_soft_targets_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def mean_focal(logits, targets):
    return Focal()(logits, targets).mean()


@pytest.mark.parametrize(
    "criterion",
    [F.cross_entropy, nn.CrossEntropyLoss(weight=torch.tensor(WEIGHT)), SoftTargetCrossEntropy(), mean_focal],
    ids=["function", "weighted", "timm", "focal"],
)
def test_a_criterion_that_passes_the_check_gives_the_loss_of_the_objective_with_it(criterion):
    """Also where a row's loss is not plain cross-entropy: then it is that of the objective with this loss."""
    objective, state = rm.RegMixup(10, eta=0.5, samples=2), torch.get_rng_state()
    transform, (x, y), model = rm.BatchTransform(objective, num_classes=CLASSES), batch(), conv_net()
    transform.check(criterion)
    assert torch.equal(torch.get_rng_state(), state)
    each = {"loss": lambda logits, targets: torch.stack([criterion(*row) for row in rows(logits, targets)])}
    images, targets = transform(x, y, seeded(3))
    torch.testing.assert_close(
        criterion(model(images), targets), replace(objective, **each)(model, x, y, seeded(3)).loss
    )


def rows(logits, targets):
    return zip(logits.split(1), targets.split(1), strict=True)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (LabelSmoothingCrossEntropy(), r"soft targets \(N, K\), .* losses of class indices do not, got .* which fails"),
        (nn.BCEWithLogitsLoss(), "linear in the target.* got .* from BCEWithLogitsLoss.*Binary cross-entropy"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "linear in the target.*label smoothing"),
        (lambda f, t: SoftTargetCrossEntropy()(f, t) / t.sum(), "linear in the target"),
        (nn.CrossEntropyLoss(reduction="sum"), "must be the mean over rows, .* for 4 rows with a sum of"),
        (nn.CrossEntropyLoss(reduction="none"), r"must return one number, got shape \(4,\)"),
    ],
)
def test_a_criterion_for_which_the_loss_would_be_another_is_refused(criterion, message):
    transform = rm.BatchTransform(rm.RegMixup(), num_classes=CLASSES)
    with pytest.raises(ValueError, match=message):
        transform.check(criterion)


@pytest.mark.parametrize(
    ("own", "theirs", "twice"),
    [(WEIGHT, WEIGHT, True), (WEIGHT, (1.0,) * 5, False), ((2.0,) * 5, WEIGHT, False), (None, WEIGHT, False)],
)
def test_class_weights_in_both_the_objective_and_the_criterion_are_refused(own, theirs, twice):
    objective = rm.Alternate(rm.CutMix(), rm.RegMixup(loss=CrossEntropy(weight=own)))
    told = r"class weights must .* count twice, got CrossEntropy\(weight=\(1.0, 0.5, .* and CrossEntropyLoss"
    with pytest.raises(ValueError, match=told) if twice else nullcontext():
        rm.BatchTransform(objective, num_classes=CLASSES).check(nn.CrossEntropyLoss(weight=torch.tensor(theirs)))


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
