"""What any module says about images: logits, features and the head, class moments and variances, in evaluation mode."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regmixup import networks
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.predictions.forward import predict_batches
from regmixup.predictions.store import join, load, save

IMAGES = torch.randint(256, (20, 1, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
LABELS = torch.arange(20) % 3


def small():
    torch.manual_seed(0)
    return networks.build("small", num_classes=3, in_channels=1, normalize=((0.3,), (0.4,)), dropout=0.5)


def predict(model, images=IMAGES, labels=LABELS, batch_size=1000, **options):
    batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
    return predict_batches(model, batches, **options)


class TestPredict:
    def test_it_says_what_the_model_says_in_evaluation_mode(self):
        model = small().train()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        predictions = predict(model, dataset="toy")
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        with torch.no_grad():
            torch.testing.assert_close(predictions.logits, model.eval()(IMAGES), rtol=0, atol=1e-6)
        assert torch.equal(predictions.labels, LABELS)
        assert predictions.dataset == "toy"

    @pytest.mark.parametrize("training", [True, False])
    def test_the_mode_of_every_part_is_restored(self, training):
        model = small().train(training)
        frozen = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d)).eval()
        predict(model)
        assert all(module.training == (training and module is not frozen) for module in model.modules())

    def test_features_and_the_linear_head_explain_the_logits(self):
        predictions = predict(small())
        assert predictions.features.shape == (20, 64)
        explained = predictions.features @ predictions.head_weight.T + predictions.head_bias
        torch.testing.assert_close(explained, predictions.logits, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("head", [nn.Linear(64, 3, bias=False), nn.Sequential(nn.Linear(64, 3), nn.Tanh())])
    def test_what_a_head_lacks_is_not_stored(self, head):
        model = small()
        model.head = head
        predictions = predict(model)
        assert predictions.features is not None
        assert (predictions.head_weight is not None) == isinstance(head, nn.Linear)
        assert predictions.head_bias is None

    def test_predictions_do_not_change_when_training_goes_on(self):
        model = small()
        predictions = predict(model)
        before = predictions.head_weight.clone(), predictions.head_bias.clone()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        assert torch.equal(predictions.head_weight, before[0])
        assert torch.equal(predictions.head_bias, before[1])

    def test_a_plain_module_gets_uint8_images_as_objectives_give_them(self):
        """Objectives divide uint8 pixels by 255 before the model sees them; prediction must do the same."""
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        predictions = predict(model)
        with torch.no_grad():
            assert torch.equal(predictions.logits, model(IMAGES.float() / 255))
        assert predictions.features is None
        assert predictions.head_weight is None

    def test_the_batch_size_does_not_matter(self):
        whole, parts = predict(small()), predict(small(), batch_size=7)
        torch.testing.assert_close(parts.logits, whole.logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(parts.features, whole.features, rtol=0, atol=1e-5)

    def test_results_are_float32_without_history(self):
        predictions = predict(small().double())
        for name in ("logits", "features", "head_weight", "head_bias"):
            tensor = getattr(predictions, name)
            assert tensor.dtype == torch.float32, name
            assert not tensor.requires_grad, name


class TestBatches:
    def test_more_behind_the_labels_and_labels_in_a_column_are_taken(self):
        batches = [[IMAGES, LABELS[:, None], ["name"] * 20]]
        assert torch.equal(predict_batches(small(), batches).labels, LABELS)

    def test_without_labels_they_are_unknown(self):
        for batches in ([IMAGES], [(IMAGES, LABELS)]):
            assert predict_batches(small(), batches, labelled=False).labels.tolist() == [-1] * 20

    @pytest.mark.parametrize(
        ("batches", "message"),
        [
            ([], "batches of toy must hold at least one"),
            ([IMAGES], r"pairs of tensors .*, got Tensor tensor"),
            ([{"image": 1}], r"got dict .'image': 1"),
            ([(IMAGES, LABELS[:19])], r"of shapes \(20, 1, 8, 8\) and \(19,\)"),
            ([(IMAGES, LABELS.float())], "torch.float32; labels are integers"),
            ([(IMAGES[0], torch.tensor(1))], r"such as those of torch.utils.data.DataLoader"),
        ],
    )
    def test_what_is_no_pair_is_refused(self, batches, message):
        with pytest.raises(ValueError, match=message):
            predict_batches(small(), batches, dataset="toy")


class TestMoments:
    """Class moments are kept where features are not, and say the same about the Fisher criterion."""

    def test_moments_of_batches_are_those_of_the_features(self):
        predictions = predict(small(), batch_size=8, moments=True)
        expected, stored = ClassMoments.of(predictions.features, LABELS, 3), ClassMoments.stored(predictions)
        assert stored.count.tolist() == expected.count.tolist()
        torch.testing.assert_close(stored.mean, expected.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(stored.scatter, expected.scatter, rtol=1e-9, atol=1e-9)

    def test_they_stand_in_for_features_in_a_file_and_in_parts(self, tmp_path):
        rows = (slice(9), slice(9, 20))
        parts = [predict(small(), IMAGES[part], LABELS[part], features=False, moments=True) for part in rows]
        save(join(parts), tmp_path / "p.safetensors")
        stored = load(tmp_path / "p.safetensors")
        assert stored.features is None
        assert stored.class_scatter.dtype == torch.float64
        expected = fisher_criterion(predict(small()).features, LABELS)
        assert ClassMoments.stored(stored).criterion() == pytest.approx(expected, rel=1e-5)

    def test_samples_of_unknown_class_are_left_out(self):
        labels = LABELS.where(LABELS != 2, torch.tensor(-1))
        predictions = predict(small(), labels=labels, features=False, moments=True)
        assert predictions.class_count.tolist() == [7, 7, 0]
        known = labels >= 0
        expected = predict(small(), IMAGES[known], labels[known], features=False, moments=True)
        torch.testing.assert_close(predictions.class_scatter, expected.class_scatter, rtol=1e-6, atol=1e-6)

    def test_moments_that_do_not_belong_together_are_refused(self):
        predictions = predict(small(), features=False, moments=True)
        with pytest.raises(ValueError, match="class_scatter must hold"):
            ClassMoments.stored(replace(predictions, class_scatter=predictions.class_scatter[:-1]))


class TestVariance:
    """Heads that know the variance of their logits: it is stored beside them."""

    def model(self):
        torch.manual_seed(0)
        return networks.build("small", num_classes=3, in_channels=1, image_size=8, head="gp").eval()

    @pytest.mark.parametrize("features", [True, False])
    def test_the_variance_is_stored_for_every_class(self, features):
        model = self.model()
        predictions = predict(model, batch_size=8, features=features)
        with torch.no_grad():
            expected = model.head.variance(model.features(IMAGES.float() / 255)).expand(20, 3)
        torch.testing.assert_close(predictions.logit_variance, expected)
        assert predictions.logit_variance.is_contiguous()
        assert (predictions.features is not None) == features
        assert not model.head._forward_pre_hooks

    def test_other_heads_have_none(self):
        assert predict(small()).logit_variance is None

    def test_parts_of_a_dataset_are_joined_with_their_variance(self):
        whole = predict(self.model())
        joined = join([predict(self.model(), IMAGES[part], LABELS[part]) for part in (slice(3), slice(3, 20))])
        for name in ("logits", "labels", "features", "logit_variance"):
            torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
        assert joined.probs is None
