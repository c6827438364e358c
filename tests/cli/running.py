"""Command lines run in this process, and files for them."""

import numpy as np

from regmixup.cli import main


def run(*words: object) -> int:
    """Exit status of a command line. The CLI library itself leaves by SystemExit for --help-all and wrong flags."""
    try:
        return main([str(word) for word in words])
    except SystemExit as leaving:
        return int(leaving.code or 0)


def logits_file(path, count=60, classes=4, seed=0, **extra):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    logits = rng.normal(size=(count, classes)) + 3 * np.eye(classes)[labels]
    np.savez(path, logits=logits, labels=labels, **extra)
    return path
