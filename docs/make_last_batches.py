"""The last batches in docs/results.md: how the draws that batch norm remembers go with a network's calibration.

All randomness of a training is named by seed, epoch and step, so the draws of archived runs can be repeated here.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
from make_archives import Archived, rows_of
from make_tables import fingerprints
from scipy.stats import pearsonr, rankdata, spearmanr

from regmixup import Alternate, Mixup
from regmixup.data.splits import generator_for
from regmixup.mixing import Draw
from regmixup.names import signed
from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study
from regmixup.training.config import TrainConfig
from regmixup.types import Row

STUDY, TRAIN_SET, IMAGES, SIZE = "last-batches", "cifar10/train", 50_000, (32, 32)
WHOLE = "refreshed-mixed"
"""The statistics of a whole epoch, mixed as in training."""
MOMENTUM, REMEMBERED = 0.1, 150
"""Of batch norm; and so many batches that what is older weighs less than a millionth."""
FEWEST = 3
"""Networks of which a correlation is told."""
EARLIER = (40, 80, 120, 160, 200)
COLOURS = ("#c53030", "#dd9b22", "#2b6cb0", "#553c9a")
METRICS = {
    "ECE": ("cifar10/test", "", "ece"),
    "accuracy": ("cifar10/test", "", "accuracy"),
    "CIFAR-100 AUROC by Dempster-Shafer": ("cifar100/test", "dempster_shafer", "auroc"),
    "CIFAR-100 AUROC by entropy": ("cifar100/test", "entropy", "auroc"),
}
TEXT = """Batch norm's running statistics weigh a batch by 0.9 to the number of batches after it: they remember some
tens of batches. Mixup draws one lambda for a batch, so a few draws decide how strongly mixed the images were that
predictions are normalised by. How weakly the last batches were mixed is measured by the mean of the larger of lambda
and 1 - lambda, weighted as the statistics weigh them. The last learning rates are near 0: the weights do not follow
the last batches.
"""
COINS = """RegMixup with CutMix throws a coin for a batch. The share of RegMixup, which forwards clean images, too,
among the batches that the statistics remember, and the ECE; fresh seeds, which only describe, also with the statistics
of an epoch:
"""
ASKED = """This was found after the rows had been seen. The study `last-batches` asks it of fresh seeds, with
statistics of one more epoch, mixed as in training (`run.refreshed(mixed=True)`); what decides was written before its
first run.
"""


class Network(NamedTuple):
    """An evaluated network: its training, the label of the evaluation, and its rows."""

    config: TrainConfig
    label: str
    rows: Sequence[Row]

    def value(self, dataset: str, score: str, metric: str) -> float:
        """Return a metric of the network itself, without a temperature."""
        asked = (dataset, score, metric, "none", "")
        return next(r.value for r in self.rows if (r.dataset, r.score, r.metric, r.posthoc, r.corruption) == asked)

    @property
    def ece(self) -> float:
        """Return the ECE in percent."""
        return 100 * self.value(*METRICS["ECE"])


def remembered(config: TrainConfig, value: Callable[[Draw], float], *, earlier: int = 0) -> float:
    """Return the mean of a value of the draws, weighted as batch norm weighs their batches.

    earlier: as if the training had ended so many batches before its end.
    """
    steps, epoch = -(-IMAGES // config.batch_size), config.total_epochs - 1
    total = weights = 0.0
    for back in range(REMEMBERED):
        step = steps - 1 - earlier - back
        count = min(config.batch_size, IMAGES - step * config.batch_size)
        draw = config.objective.draw(count, SIZE, generator_for(config.seed, "draw", epoch, step))
        weight = (1 - MOMENTUM) ** back
        total, weights = total + weight * value(draw), weights + weight
    return total / weights


def weakness(draw: Draw) -> float:
    """Return the larger of lambda and 1 - lambda of a batch."""
    lam = float(draw.lam)
    return max(lam, 1 - lam)


def networks(archived: Sequence[Archived], kind: type, *, fresh: bool, batch_norm: str = "trained") -> list[Network]:
    """Return the evaluated networks of an objective, of the study that asks (fresh) or of all others."""
    found = {}
    for one in archived:
        config, planned = one.planned.config, one.planned
        wanted = type(config.objective) is kind and config.train_set == TRAIN_SET and config.members == 1
        if wanted and planned.batch_norm == batch_norm and (one.study == STUDY) == fresh:
            found[one.folder.name] = Network(config, planned.label, rows_of(one.folder, planned.stem))
    return sorted(found.values(), key=lambda network: (network.config.total_epochs, network.config.seed))


def within(values: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Return each value's difference from the mean of its group."""
    means = {group: mean(v for v, g in zip(values, groups, strict=True) if g == group) for group in groups}
    return [value - means[group] for value, group in zip(values, groups, strict=True)]


def section(archived: Sequence[Archived]) -> str:
    """Return the text, the table of correlations, the coins, and what fresh seeds said."""
    seen = networks(archived, Mixup, fresh=False)
    if len(seen) < FEWEST:
        return "\n".join([TEXT, f"Not asked yet: that takes {FEWEST} archived networks of Mixup.\n"])
    lengths = [network.config.total_epochs for network in seen]
    mixed = [remembered(network.config, weakness) for network in seen]
    lines = []
    for name, asked in METRICS.items():
        values = [network.value(*asked) for network in seen]
        inside = pearsonr(within(mixed, lengths), within(values, lengths)).statistic
        lines.append([name, signed(spearmanr(mixed, values).statistic), signed(inside)])
    eces = [network.ece for network in seen]
    before = [
        spearmanr([remembered(network.config, weakness, earlier=back) for network in seen], eces).statistic
        for back in EARLIER
    ]
    low, high = signed(min(before)), signed(max(before))
    control = (
        f"Over {len(seen)} networks trained by Mixup on CIFAR-10 for {min(lengths)} to {max(lengths)} epochs, whose "
        f"ECE is between {min(eces):.1f} and {max(eces):.1f} %. For windows that end {EARLIER[0]} to {EARLIER[-1]} "
        f"batches earlier, Spearman's correlation with the ECE is between {low} and {high}. "
        f"Runs: {fingerprints([network.rows[0]] for network in seen)}.\n"
    )
    table = markdown_table(
        ["weakly mixed last batches, and", "Spearman's correlation", "within lengths, Pearson's"], lines
    )
    coins = [COINS, _coins(archived), _described(archived)]
    runs = fingerprints([network.rows[0]] for network in networks(archived, Mixup, fresh=True))
    asked = f"{answer(archived)}{f' Runs: {runs}.' if runs else ''}\n"
    return "\n".join([TEXT, control, table, ASKED, asked, *filter(None, coins)])


def _coins(archived: Sequence[Archived]) -> str:
    """Return a line for each network of RegMixup with CutMix, fresh seeds last."""
    again = {one.config: one for one in networks(archived, Alternate, fresh=True, batch_norm=WHOLE)}
    lines = [
        [str(one.config.seed), str(one.config.total_epochs), f"{remembered(one.config, lambda d: d.branch == 0):.2f}",
         f"{one.ece:.2f}", f"{again[one.config].ece:.2f}" if one.config in again else "–", f"`{one.rows[0].run}`"]
        for fresh in (False, True) for one in networks(archived, Alternate, fresh=fresh)
        if one.label.startswith("regmixup+cutmix")
    ]  # fmt: skip
    return markdown_table(["seed", "epochs", "RegMixup", "ECE", "ECE, statistics of an epoch", "run"], lines)


def drawn(archived: Sequence[Archived]) -> str:
    """Return the figure, as SVG text: a point for each network of Mixup, hollow for fresh seeds."""
    points = [
        (remembered(network.config, weakness), network.ece, network.config.total_epochs, fresh)
        for fresh in (False, True)
        for network in networks(archived, Mixup, fresh=fresh)
    ]
    lengths = sorted({epochs for _, _, epochs, _ in points})
    colours = {epochs: COLOURS[index % len(COLOURS)] for index, epochs in enumerate(lengths)}
    weak = [mixed for mixed, *_ in points] or [0.8, 0.95]
    left, right = min(weak) - 0.01, max(weak) + 0.01
    top = 1.1 * max((ece for _, ece, *_ in points), default=15.0)

    def place(mixed: float, ece: float) -> tuple[float, float]:
        return 50 + (mixed - left) / (right - left) * 330, 250 - ece / top * 220

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 300" width="500" height="300" '
        'font-family="sans-serif" font-size="10">',
        "<title>ECE of networks of Mixup against how weakly their last batches were mixed</title>",
        '<rect width="500" height="300" fill="white"/>',
        '<path d="M50 30V250H380" fill="none" stroke="#666"/>',
        '<text x="50" y="20" font-weight="bold">ECE in percent</text>',
        '<text x="380" y="284" text-anchor="end">mean of the larger of lambda and 1 − lambda, last batches</text>',
    ]
    for tick in range(0, math.ceil(top), 5):
        y = place(0, tick)[1]
        parts.append(
            f'<path d="M50 {y:.1f}H380" stroke="#ddd"/><text x="44" y="{y + 3:.1f}" text-anchor="end">{tick}</text>'
        )
    for tick in (step / 20 for step in range(10, 21) if left <= step / 20 <= right):
        parts.append(f'<text x="{place(tick, 0)[0]:.1f}" y="266" text-anchor="middle">{tick:g}</text>')
    for mixed, ece, epochs, fresh in points:
        x, y = place(mixed, ece)
        fill = "white" if fresh else colours[epochs]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colours[epochs]}"/>')
    for line, epochs in enumerate(lengths):
        at = 40 + 16 * line
        parts.append(f'<circle cx="394" cy="{at}" r="3.5" fill="{colours[epochs]}"/>')
        parts.append(f'<text x="402" y="{at + 3}">{epochs} epochs</text>')
    parts.append(f'<text x="390" y="{43 + 16 * len(lengths)}">hollow: fresh seeds</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def answer(archived: Sequence[Archived]) -> str:
    """Return what the fresh networks of Mixup say, by the criterion in the study's file, which is of all of them."""
    trained, again = (networks(archived, Mixup, fresh=True, batch_norm=kind) for kind in ("trained", WHOLE))
    asked = {planned.config for planned in load_study(STUDY).runs() if type(planned.config.objective) is Mixup}
    done = {one.config.seed for one in trained} & {one.config.seed for one in again}
    if len(done) < len(asked):
        some = f"{len(done)} of its {len(asked)} networks of Mixup are there. It decides with all of them."
        return some if done else "It has not been run yet."
    mixed = [remembered(network.config, weakness) for network in trained]
    return verdict(mixed, *([network.ece for network in some] for some in (trained, again)))


def summary(archived: Sequence[Archived]) -> str:
    """Return the line on it that the page begins with; "" before the study has networks."""
    if not networks(archived, Mixup, fresh=True, batch_norm="trained"):
        return ""
    told = answer(archived).replace("**", "")
    where = "#why-does-the-calibration-of-mixup-differ-from-seed-to-seed"
    return f"- **Whether the last batches decide Mixup's calibration**: {told} [What was asked]({where}).\n"


def _described(archived: Sequence[Archived]) -> str:
    """Return how the ECE of RegMixup with CutMix spreads, of which the study expects the same."""
    kinds = [networks(archived, Alternate, fresh=True, batch_norm=kind) for kind in ("trained", WHOLE)]
    if min(map(len, kinds)) < FEWEST:
        return ""
    before, after = (stdev(network.ece for network in some) for some in kinds)
    less = "less, as expected" if after < before else "more, against what was expected"
    return (
        f"The ECE of the {len(kinds[0])} fresh networks of RegMixup with CutMix spreads {less}: its standard deviation "
        f"is {before:.2f} and {after:.2f} points.\n"
    )


def by_order(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the share of all orders whose Spearman's correlation is as low: the one-sided p, exactly."""
    ranks = rankdata(others)
    sums = np.array(list(itertools.permutations(rankdata(some)))) @ ranks
    return float(np.mean(sums <= rankdata(some) @ ranks + 1e-9))


def verdict(mixed: Sequence[float], trained: Sequence[float], again: Sequence[float]) -> str:
    """Return whether the cause is confirmed. trained, again: ECE in percent, by either statistics."""
    correlation, p = spearmanr(mixed, trained).statistic, by_order(mixed, trained)
    deviations = stdev(trained), stdev(again)
    holds = [p < 0.05, deviations[1] < deviations[0] / 2]
    said = ("It is not confirmed", "Half of it is confirmed", "The cause is confirmed")[sum(holds)]
    return (
        f"**{said}**: over {len(mixed)} fresh networks Spearman's correlation is {signed(correlation)} (one-sided "
        f"p {p:.2g} over all orders), and the standard deviation of the ECE is {deviations[0]:.2f} points with the "
        f"statistics that training left, {deviations[1]:.2f} with those of an epoch (means {mean(trained):.2f} and "
        f"{mean(again):.2f} %)."
    )
