"""Metrics given batch by batch, by one process and by two, against the exact functions on everything at once."""

import json

import pytest
import torch
from torch import distributed as dist
from torch.utils.data import DistributedSampler, TensorDataset

from regmixup.metrics import AUGRC, AUROC, augrc, auroc
from tests.training.ranks import run_ranks

COUNT = 101
"""Odd, so that a DistributedSampler over two processes repeats a sample."""


def samples():
    """Scores far outside [0, 1] with ties, whether a sample is out of distribution, and whether it was right."""
    generator = torch.Generator().manual_seed(0)
    ood = torch.rand(COUNT, generator=generator) < 0.4
    scores = (40 * torch.randn(COUNT, generator=generator) + 30 * ood).round()
    return scores, ood, torch.rand(COUNT, generator=generator) < 0.7


def expected():
    scores, ood, correct = samples()
    return {"auroc": auroc(scores[~ood], scores[ood]), "augrc": augrc(scores, correct)}


def streamed(parts, *, numbered=False):
    """Return both metrics of the samples with these numbers, part after part."""
    scores, ood, correct = samples()
    first, second = AUROC(), AUGRC()
    for part in parts:
        index = part if numbered else None
        first.update(scores[part], ood[part], index=index)
        second.update(scores[part], correct[part], index=index)
    return {"auroc": first.compute(), "augrc": second.compute()}


@pytest.mark.parametrize("size", [1, 7, COUNT])
def test_batches_give_the_value_of_all_samples_to_the_last_bit(size):
    assert streamed(torch.arange(COUNT).split(size)) == expected()


def test_torchmetrics_squashes_raw_scores_batch_by_batch_and_is_wrong():
    """Scores above 17 become 1 in float32, all of them ties. Passed as ranks in [0, 1], both agree."""
    from torchmetrics.classification import BinaryAUROC

    scores, ood, _ = samples()
    theirs = BinaryAUROC()
    theirs.update(scores, ood.long())
    assert abs(float(theirs.compute()) - expected()["auroc"]) > 0.01
    theirs.reset()
    theirs.update((scores - scores.min()) / (scores.max() - scores.min()), ood.long())
    assert float(theirs.compute()) == pytest.approx(expected()["auroc"], abs=1e-6)


def test_a_numbered_sample_counts_once_and_the_two_sets_have_numbers_of_their_own():
    metric, index = AUROC(), torch.arange(3)
    inside, outside = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.9, 0.05])
    for _ in range(2):
        metric.update(inside, torch.zeros(3, dtype=torch.bool), index=index)
        metric.update(outside[:2], torch.ones(2, dtype=torch.bool), index=index[:2])
    metric.update(outside[2:], torch.ones(1, dtype=torch.bool))  # without a number
    assert metric.compute() == auroc(inside, outside)


def in_ranks(folder):
    """Write what each of two processes computes, by how the samples were dealt."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {
        "uneven": streamed(
            [torch.arange(90), torch.zeros(0, dtype=torch.int64)] if rank else [torch.arange(90, COUNT)]
        ),
        "one has none": streamed([torch.arange(COUNT)] if rank else []),
    }
    sampler = DistributedSampler(TensorDataset(torch.arange(COUNT)), shuffle=True, seed=3)
    dealt = torch.tensor(list(sampler)).split(8)
    found |= {"padded": streamed(dealt, numbered=True), "padded, not numbered": streamed(dealt)}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_two_processes_compute_what_one_does(tmp_path):
    assert run_ranks(2, in_ranks, tmp_path) == [0, 0]
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert one == other
    for dealt in ("uneven", "one has none", "padded"):
        assert one[dealt] == expected(), dealt
    assert one["padded, not numbered"]["augrc"] != expected()["augrc"]  # what `index` is for


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AUROC().compute(), "samples of both kinds before compute, got 0 in- and 0 out"),
        (lambda: AUGRC().compute(), "samples before compute, got none"),
        (
            lambda: AUGRC().update(torch.rand(3), torch.ones(3)),
            r"correct must be booleans of shape \(3,\), got torch.fl",
        ),
        (lambda: AUROC().update(torch.tensor([0.1, torch.nan]), torch.ones(2).bool()), "scores must not contain NaN"),
        (
            lambda: AUROC().update(torch.rand(2), torch.ones(2).bool(), index=torch.rand(2)),
            r"index must be int64 numbers of shape \(2,\), got torch.float32",
        ),
    ],
)
def test_what_they_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reset_forgets_and_compute_does_not():
    scores, ood, _ = samples()
    metric = AUROC()
    metric.update(scores, ood)
    assert metric.compute() == metric.compute() == expected()["auroc"]
    metric.reset()
    metric.update(torch.tensor([0.0, 1.0]), torch.tensor([False, True]))
    assert metric.compute() == 1.0
