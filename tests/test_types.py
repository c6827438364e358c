"""What Predictions and Row promise."""

import math

import numpy as np
import pytest
import torch

from regmixup.types import Predictions, Row, look_like_probabilities, role_in_name, with_known_scale

LOGITS, LABELS = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
FIELDS = {
    "features": torch.zeros(4, 7),
    "probs": torch.zeros(4, 3),
    "logit_variance": torch.zeros(4, 3),
    "member_logits": torch.zeros(5, 4, 3),
    "head_weight": torch.zeros(3, 7),
    "head_bias": torch.zeros(3),
}


def test_predictions_hold_what_they_were_given():
    predictions = Predictions(LOGITS, LABELS, **FIELDS, dataset="d", info={"a": "b"})
    assert all(getattr(predictions, name) is value for name, value in FIELDS.items())
    assert (len(predictions), predictions.dataset, predictions.info) == (4, "d", {"a": "b"})


def test_arrays_are_kept_as_tensors_and_labels_as_int64():
    given = {name: value.numpy() for name, value in FIELDS.items()}
    predictions = Predictions(LOGITS.double().numpy(), LABELS.int().numpy(), **given)
    assert all(torch.equal(getattr(predictions, name), value) for name, value in FIELDS.items())
    assert torch.equal(predictions.logits, LOGITS.double())
    assert torch.equal(predictions.labels, LABELS)
    assert predictions.labels.dtype == torch.int64


@pytest.mark.parametrize("change", [lambda array: array[::-1], lambda array: array.astype(">f8")])
def test_arrays_that_pytorch_cannot_hold_are_copied(change):
    array = change(np.arange(12.0).reshape(4, 3))
    assert Predictions(array, LABELS).logits.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("labels", None, "None"),
        ("labels", np.array(["cat", "dog"]), r"array\(\['cat', 'dog'\].*"),
        ("probs", [[1.0], [1.0, 2.0]], r"\[\[1.0\], \[1.0, 2.0\]\]"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused_by_name(name, value, got):
    with pytest.raises(ValueError, match=f"^{name} must be a tensor or an array of numbers, got {got}$"):
        Predictions(**{"logits": LOGITS, "labels": LABELS, name: value})


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("logits", torch.zeros(4), r"must be a floating-point \(N, K\) tensor, got torch.float32 of shape \(4,\)"),
        ("logits", torch.zeros(4, 3, dtype=torch.int64), r"must be a floating-point \(N, K\) tensor, got torch.int64"),
        ("labels", torch.zeros(4), r"must be an integer \(N,\) tensor, got torch.float32"),
        ("labels", torch.zeros(4, dtype=torch.bool), r"must be an integer \(N,\) tensor, got torch.bool"),
        ("labels", LABELS[:, None], r"must be \(N\) for logits .*, got .* \(4, 1\)"),
        ("labels", torch.zeros(5).long(), r"must be \(N\) for logits"),
        ("features", torch.zeros(5, 7), r"must be \(N, D\) for logits"),
        ("features", torch.tensor(1.0), r"must be \(N, D\) for logits"),
        ("probs", torch.zeros(4, 2), r"must be \(N, K\) for logits"),
        ("logit_variance", torch.zeros(4, 2), r"must be \(N, K\) for logits"),
        ("member_logits", torch.zeros(4, 5, 3), r"must be \(M, N, K\) for logits"),
        ("member_logits", torch.zeros(4, 3), r"must be \(M, N, K\) for logits"),
    ],
)
def test_every_field_has_its_shape(name, tensor, message):
    with pytest.raises(ValueError, match=f"^{name} {message}"):
        Predictions(**{"logits": LOGITS, "labels": LABELS, name: tensor})


def test_info_is_text_as_in_files():
    with pytest.raises(ValueError, match=r"^info must hold text, got 3 of 'epoch'$"):
        Predictions(LOGITS, LABELS, info={"run": "abc", "epoch": 3})


def test_a_row_is_named_fields_only_and_empty_by_default():
    with pytest.raises(TypeError):
        Row("study")
    row = Row()
    assert math.isnan(row.value)
    assert row.posthoc == "none"
    assert (row.seed, row.severity, row.low, row.high, row.n) == (None,) * 5


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cifar10/train-90", "train"), ("svhn/extra", "train"), ("imagenet/val-tune", "validation"),
        ("imagenet/val-test", "test"), ("digits-c/fog/3", "shifted"), ("path:digits/test", "shifted"), ("test", ""),
    ],
)  # fmt: skip
def test_predictions_that_state_no_role_have_the_one_their_name_tells(name, role):
    assert role_in_name(name) == Predictions(LOGITS, LABELS, dataset=name).role == role


def test_a_stated_role_stands_whatever_the_name_and_an_unknown_one_is_refused():
    assert Predictions(LOGITS, LABELS, dataset="digits/test", role="ood").role == "ood"
    with pytest.raises(ValueError, match="role must be one of train, validation, test, shifted, ood, got 'valid'"):
        Predictions(LOGITS, LABELS, role="valid")


@pytest.mark.parametrize(
    ("logits", "noted"),
    [
        (torch.randn(5000, 3).log_softmax(dim=1), True),
        (torch.cat([torch.randn(4999, 3).log_softmax(dim=1), torch.ones(1, 3)]), False),
        (torch.ones(4, 3), False),
        (torch.zeros(4, 1), False),
        (torch.zeros(0, 3), False),
    ],
)
def test_log_probabilities_are_noted_as_such_and_other_logits_stay_as_they_are(logits, noted):
    given = Predictions(logits, torch.zeros(len(logits), dtype=torch.long), info={"run": "a"})
    found = with_known_scale(given)
    assert found.from_probs == noted
    assert found.info["run"] == "a"
    assert (found is given) != noted
    assert with_known_scale(found) is found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.75, 0.25], [0.34, 0.67]], True),
        ([[0.75, 0.25], [0.34, 0.68]], False),
        ([[0.096] * 10], True),
        ([[0.094] * 10], False),
        ([[0.00096] * 1000], True),
        ([[0.00094] * 1000], False),
        ([[0.0, 1.0]], True),
        ([[-0.5, 1.5]], False),
        ([[75.0, 25.0]], False),
    ],
)
def test_probabilities_are_told_by_their_sums(rows, expected):
    assert look_like_probabilities(torch.tensor(rows)) == expected
