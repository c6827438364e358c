"""All of the paper's tables by number, in its order, and the costs that its text gives."""

from __future__ import annotations

from regmixup.report.paper import accuracy, calibration, selection, unscaled, vicinal

TABLES = {
    table.number: table
    for table in (
        accuracy.SUMMARY,
        accuracy.TEST_ACCURACY,
        accuracy.SHIFT_ACCURACY,
        accuracy.IMAGENET,
        accuracy.DETECTION,
        calibration.ADAECE_TEST,
        calibration.ADAECE_IMAGENET,
        calibration.ADAECE_SHIFT,
        selection.HYPERPARAMETERS,
        unscaled.ADAECE_UNSCALED_CIFAR10,
        unscaled.ADAECE_UNSCALED_CIFAR100,
        unscaled.ADAECE_UNSCALED_IMAGENET,
        selection.MIXUP_GRID,
        selection.MIXUP_GRID_IMAGENET,
        selection.MIXUP_GRID_OTHERS,
        selection.REGMIXUP_GRID,
        calibration.ECE_TEST,
        calibration.ECE_IMAGENET,
        calibration.ECE_SHIFT,
        vicinal.VICINAL_CIFAR10,
        vicinal.VICINAL_CIFAR100,
    )
}

COSTS = {"mixup": 1.2, "regmixup": 1.5, "augmix": 4.0, "deep-ensemble": 5.0}
"""Training time over that of plain cross-entropy, by method (Section 4); the paper has no table of it."""
