"""Is training in bfloat16 equivalent to float32? Two one-sided tests on the archived runs of the study `precision`.

    regmixup study precision --archive results/precision
    python benchmarks/equivalence.py results/precision

Two means are equivalent at the level of 5 % if the 90 % interval of their difference (Welch's, seeds independent) lies
within the margin. Margins were written down before the first run; they are in percent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from regmixup.study.archive import archived_rows, find_archive
from regmixup.study.plan import load_study
from regmixup.training.config import resolve

MARGINS = {
    ("cifar10/test", "accuracy"): 0.4,
    ("cifar10/test", "ece"): 0.4,
    ("cifar100/test", "auroc"): 1.0,
    ("tiny-imagenet/val", "auroc"): 1.0,
    ("svhn/test", "auroc"): 2.0,
}
"""A third of what RegMixup changes at this length, or less; SVHN's varies by ten points between seeds."""


def values(folder: Path) -> dict[str, dict[tuple[str, str], list[float]]]:
    """Return for each precision the values over seeds, in percent; detection by the method's own score."""
    found: dict[str, dict[tuple[str, str], list[float]]] = {}
    for planned in load_study("precision").runs():
        config = resolve(planned.config, torch.device("cuda"))
        if (own := find_archive([folder], config, planned.stem)) is None:
            continue
        for row in archived_rows(own, planned.stem):
            key = (row.dataset, row.metric)
            if key in MARGINS and row.posthoc == "none" and row.score in ("", "dempster_shafer"):
                found.setdefault(config.precision, {}).setdefault(key, []).append(100 * row.value)
    return found


def table(folder: Path) -> str:
    """Return the verdicts on the archived runs of a folder as a Markdown table."""
    found = values(folder)
    lines = ["| | float32 | bfloat16 | difference, 90 % interval | margin | |", "|---|---|---|---|---|---|"]
    for key, margin in MARGINS.items():
        one, other = (np.array(found.get(precision, {}).get(key, [])) for precision in ("float32", "bfloat16"))
        if min(len(one), len(other)) < 2:
            lines.append(f"| {' '.join(key)} | n {len(one)} | n {len(other)} | | {margin} | too few runs |")
            continue
        interval = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.9)
        verdict = "equivalent" if -margin < interval.low and interval.high < margin else "undecided"
        if interval.low > margin or interval.high < -margin:
            verdict = "different"
        means = [f"{v.mean():.2f} ± {v.std(ddof=1):.2f} (n {len(v)})" for v in (one, other)]
        difference = f"{other.mean() - one.mean():+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
        lines.append(f"| {' '.join(key)} | {means[0]} | {means[1]} | {difference} | {margin} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print(table(parser.parse_args().folder))


if __name__ == "__main__":
    main()
