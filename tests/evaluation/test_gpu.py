"""Evaluation on a GPU gives the rows of a CPU. Needs a GPU."""

import pytest
import torch

from regmixup.evaluation.evaluate import evaluate
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.posthoc import LastLayerLaplace
from regmixup.types import Predictions

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def predictions(dataset, labels, seed, dtype=torch.float32):
    """Logits of ten classes, with features, that are right about three times in four."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(len(labels), 10, generator=generator, dtype=dtype)
    logits[torch.arange(len(labels)), labels.clamp(min=0)] += 4.0 * (labels >= 0)
    features = torch.randn(len(labels), 5, generator=generator)
    return Predictions(logits, labels, features=features, head_weight=torch.ones(10, 5), dataset=dataset)


# Samples in float64: two float32 means that differ by rounding may change places in an order.
@pytest.mark.parametrize(
    ("posthoc", "dtype"), [(None, torch.float32), (LastLayerLaplace(prior_variance=1.0, samples=50), torch.float64)]
)
def test_rows_of_a_gpu_are_those_of_a_cpu(posthoc, dtype):
    labels = torch.randint(0, 10, (3000,), generator=torch.Generator().manual_seed(1))
    test, validation = predictions("toy/test", labels, 2, dtype), predictions("toy/val", labels[:1000], 3, dtype)
    shift = [predictions(f"toy-c/fog/{severity}", labels, 3 + severity, dtype) for severity in (1, 5)]
    ood = [predictions("other/test", torch.full((2000,), -1), 9, dtype)]
    fitted = posthoc.fit(train=predictions("toy/train", labels, 10, dtype)) if posthoc is not None else None

    def rows(device):
        def moved(those):
            return [one.to(device) for one in those]

        return evaluate(
            test.to(device), validation=validation.to(device), shift=moved(shift), ood=moved(ood),
            posthoc=fitted, bootstrap=Bootstrap(resamples=100),
        )  # fmt: skip

    expected, found = rows("cpu"), rows("cuda")
    assert len(expected) == len(found) > 100
    for ours, theirs in zip(found, expected, strict=True):
        keys = [(row.metric, row.dataset, row.score, row.n) for row in (ours, theirs)]
        assert keys[0] == keys[1]
        for name in ("value", "low", "high"):
            if getattr(theirs, name) is not None:
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-6, abs=1e-7), (theirs, name)
