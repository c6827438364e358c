"""What any module says about images: logits, features and the head, in evaluation mode."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regmixup import networks
from regmixup.predictions.forward import predict_batches
from regmixup.predictions.forward import predict_images as predict


def small():
    torch.manual_seed(0)
    return networks.build("small", num_classes=3, in_channels=1, normalize=((0.3,), (0.4,)), dropout=0.5)


def images(count=20):
    return torch.randint(256, (count, 1, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def labels(count=20):
    return torch.arange(count) % 3


class TestPredict:
    def test_it_says_what_the_model_says_in_evaluation_mode(self):
        model = small().train()
        found = predict(model, images(), labels(), dataset="toy", info={"a": "b"})
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            torch.testing.assert_close(found.logits, model.eval()(images()), rtol=0, atol=1e-6)
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert torch.equal(found.labels, labels())
        assert (found.dataset, found.info) == ("toy", {"a": "b"})

    @pytest.mark.parametrize("training", [True, False])
    def test_the_mode_is_restored(self, training):
        model = small().train(training)
        predict(model, images(), labels())
        assert all(module.training == training for module in model.modules())

    def test_a_part_frozen_in_evaluation_mode_stays_frozen(self):
        model = small().train()
        frozen = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d)).eval()
        predict(model, images(), labels())
        assert model.training
        assert not frozen.training

    def test_features_and_the_linear_head_explain_the_logits(self):
        found = predict(small(), images(), labels())
        assert found.features.shape == (20, 64)
        explained = found.features @ found.head_weight.T + found.head_bias
        torch.testing.assert_close(explained, found.logits, rtol=0, atol=1e-5)
        assert found.logits.std() > 0

    def test_a_head_without_bias(self):
        model = small()
        model.head = nn.Linear(64, 3, bias=False)
        found = predict(model, images(), labels())
        assert found.head_weight is not None
        assert found.head_bias is None

    def test_a_head_that_is_not_linear_has_no_weights_to_store(self):
        model = small()
        model.head = nn.Sequential(nn.Linear(64, 3), nn.Tanh())
        found = predict(model, images(), labels())
        assert found.features is not None
        assert found.head_weight is None
        assert found.head_bias is None

    def test_predictions_do_not_change_when_training_goes_on(self):
        model = small()
        found = predict(model, images(), labels())
        before = replace(found, head_weight=found.head_weight.clone(), head_bias=found.head_bias.clone())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        assert torch.equal(found.head_weight, before.head_weight)
        assert torch.equal(found.head_bias, before.head_bias)

    def test_a_plain_module_gets_uint8_images_as_objectives_give_them(self):
        """Objectives divide uint8 pixels by 255 before the model sees them; prediction must do the same."""
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        found = predict(model, images(), labels())
        with torch.no_grad():
            assert torch.equal(found.logits, model(images().float() / 255))
        assert found.features is None
        assert found.head_weight is None

    def test_a_model_whose_forward_does_more_than_its_head_is_believed(self):
        class Scaled(nn.Module):
            """Has `features` and `head`, as several torchvision models do, and another step in between."""

            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(64, 4), nn.Linear(4, 3)

            def features(self, x):
                return self.body(x.flatten(1))

            def forward(self, x):
                return self.head(self.features(x).relu())

        torch.manual_seed(0)
        model = Scaled()
        pixels = images().float() / 255
        with torch.no_grad():
            torch.testing.assert_close(predict(model, pixels, labels()).logits, model(pixels))

    @pytest.mark.parametrize("batch_size", [1, 7])
    def test_the_batch_size_does_not_matter(self, batch_size):
        whole, parts = predict(small(), images(), labels()), predict(small(), images(), labels(), batch_size=batch_size)
        torch.testing.assert_close(parts.logits, whole.logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(parts.features, whole.features, rtol=0, atol=1e-5)

    def test_results_are_float32_without_history(self):
        model = small().double()
        found = predict(model, images(), labels())
        for name in ("logits", "features", "head_weight", "head_bias"):
            tensor = getattr(found, name)
            assert tensor.dtype == torch.float32, name
            assert not tensor.requires_grad, name

    def test_as_many_labels_as_images_are_needed(self):
        with pytest.raises(ValueError, match=r"images and labels must be .*, got \(20, 1, 8, 8\), \(19,\)"):
            predict(small(), images(), labels(19))


class TestBatches:
    def test_more_behind_the_labels_and_labels_in_a_column_are_taken(self):
        batches = [[images(), labels()[:, None], ["name"] * 20]]
        assert torch.equal(predict_batches(small(), batches).labels, labels())

    def test_without_labels_they_are_unknown(self):
        for batches in ([images()], [(images(), labels())]):
            assert predict_batches(small(), batches, labelled=False).labels.tolist() == [-1] * 20

    @pytest.mark.parametrize(
        ("batches", "message"),
        [
            ([], "batches of toy must hold at least one"),
            ([images()], r"pairs of tensors .*, got one tensor of shape \(20, 1, 8, 8\)"),
            ([{"image": 1}], r"got dict .'image': 1"),
            ([("a", "b")], "got tuple .'a', 'b'"),
            ([3], "got int"),
            ([(images(), labels().float())], "torch.float32; labels are integers"),
            ([(images()[0], torch.tensor(1))], r"must be wrapped in torch.utils.data.DataLoader"),
        ],
    )
    def test_what_is_no_pair_is_refused(self, batches, message):
        with pytest.raises(ValueError, match=message):
            predict_batches(small(), batches, dataset="toy")
