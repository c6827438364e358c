"""Rows with values that a test gives, and the trainings that they are from."""

from claims import Training

from regmixup.types import Row


def measured(values, dataset="svhn/test", metric="auroc", score="dempster_shafer", **place):
    """Rows: a value for each seed of each label."""
    return [
        Row(method=label, seed=seed, run=f"{label}{seed}", dataset=dataset, metric=metric, score=score, value=value,
            train_set="cifar10/train", **place)
        for label, own in values.items()
        for seed, value in enumerate(own)
    ]  # fmt: skip


def trained(epochs):
    return Training("cifar10-resnet18", (f"epochs {epochs} instead of 100",), epochs, "bfloat16")
