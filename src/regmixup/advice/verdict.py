"""Verdict of `advise`: from the values of every candidate in every fold to a recommendation with intervals, in words.

The rule, fixed before anything is measured:

1. The plan says how many folds there are. Until all candidates have been trained on all of them, or with fewer than 5,
   the verdict is "undecided": looking again and again until something is significant finds something. So it is where
   plain training learned next to nothing.
2. A candidate's difference from plain training is paired by fold. Folds share train images, so its interval is that of
   the corrected resampled t statistic (Nadeau and Bengio, 2003; Bouckaert and Frank, 2004 for folds).
3. The best of several candidates is better than it should be by luck. In each metric the intervals hold for all C
   candidates together: each is taken at the level 1 - 0.05 / C (Bonferroni), so the one that is picked is covered.
4. One metric, the goal, decides: a candidate is recommended if its interval lies on the better side of 0; of several,
   the one whose bound is farthest from 0. What the other metrics say is reported beside it, and decides nothing.

So where no candidate differs from plain training, one is recommended in at most 2.5 % of cases (the better side alone).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean
from typing import Literal

from regmixup.names import check_name, percent
from regmixup.report.significance import LEVEL, resampled_difference
from regmixup.types import higher_is_better

PLAIN = "plain"
"""The reference candidate: cross-entropy on clean images."""
LEAST_FOLDS = 5
ABOVE_CHANCE = 1.5
"""Plain training must be right this many times as often as naming the largest class; else nothing was learned."""
Goal = Literal["accuracy", "nll", "ece", "shift", "ood"]
Values = Mapping[str, Mapping[int, Mapping[str, float]]]
"""Of each candidate, for each fold, the value of each metric."""


@dataclass(frozen=True)
class Metric:
    """label: as printed. metric: its name in rows. percent: printed times 100."""

    label: str
    metric: str
    percent: bool

    @property
    def sign(self) -> int:
        """Return 1 if larger is better, -1 if smaller is."""
        return 1 if higher_is_better(self.metric) else -1


METRICS = {
    "accuracy": Metric("accuracy", "accuracy", percent=True),
    "nll": Metric("NLL", "nll", percent=False),
    "ece": Metric("ECE", "ece", percent=True),
    "shift": Metric("accuracy under shift", "accuracy", percent=True),
    "ood": Metric("AUROC of left-out classes", "auroc", percent=True),
}


@dataclass(frozen=True)
class Candidate:
    """A way to train. method: as in `regmixup list methods`. fields: of its objective. cost: images for each clean one.

    ema: decay of the running mean of the weights.
    """

    label: str
    method: str
    objective: str
    fields: Mapping[str, float] = field(default_factory=dict)
    ema: float = 0.0
    cost: int = 1


def _regmixup(alpha: float, eta: float) -> Candidate:
    label = f"RegMixup (alpha {alpha:g}, eta {eta:g})"
    return Candidate(label, "regmixup", "regmixup", {"alpha": alpha, "eta": eta}, cost=2)


CANDIDATES = {
    PLAIN: Candidate("plain training", "dnn", "erm"),
    "regmixup-10": _regmixup(10.0, 1.0),
    "regmixup-10-half": _regmixup(10.0, 0.5),
    "regmixup-1": _regmixup(1.0, 1.0),
    "label-smoothing": Candidate("label smoothing 0.1", "label-smoothing", "label_smoothing", {"smoothing": 0.1}),
    "ema": Candidate("EMA of the weights (0.99)", "dnn", "erm", ema=0.99),
}


@dataclass(frozen=True)
class Effect:
    """A candidate's mean and its difference from plain training in one metric: mean over folds, and the interval that
    holds for all candidates together."""

    candidate: str
    metric: str
    value: float
    difference: float
    low: float
    high: float

    @property
    def evidence(self) -> Literal["better", "worse", "none"]:
        """Return on which side of 0 the interval lies; "none" if it does not."""
        if not (self.low > 0 or self.high < 0):
            return "none"
        return "better" if (self.low > 0) == (METRICS[self.metric].sign > 0) else "worse"

    @property
    def bound(self) -> float:
        """Return the less favourable end of the interval, larger for better."""
        return self.low if METRICS[self.metric].sign > 0 else -self.high

    @property
    def numbers(self) -> str:
        """Return the difference with its interval, in percent points where the metric is a share."""
        mean, low, high = (_number(self.metric, value, "+") for value in (self.difference, self.low, self.high))
        return f"{mean} [{low}, {high}]"

    def __str__(self) -> str:
        """Return the difference in words, such as "accuracy +1.2 [+0.4, +2.0] points"."""
        return f"{METRICS[self.metric].label} {self.numbers}{' points' * METRICS[self.metric].percent}"


@dataclass(frozen=True)
class Verdict:
    """decision: "use" a candidate, keep "plain" training, or "undecided". choice: the candidate to use.

    sentences: the verdict in words, the first one alone is the recommendation. effects: every candidate but plain
    training in every metric; none before two folds are done. plain: the means of plain training by metric.
    folds, planned: how many are done by all candidates, and how many the plan has.
    """

    decision: Literal["use", "plain", "undecided"]
    choice: str
    sentences: tuple[str, ...]
    effects: tuple[Effect, ...]
    plain: Mapping[str, float]
    folds: int
    planned: int
    goal: Goal


def judge(values: Values, *, goal: Goal, planned: int, images: int, chance: float = 0.0) -> Verdict:
    """Return the verdict on the candidates, by the rule above.

    values: of "plain" and every candidate; only folds that all of them have count. planned: the number of folds.
    images: test images in all folds together. chance: the accuracy of always naming the largest class.
    """
    check_name("goal", goal, METRICS)
    for name in values:
        check_name("candidate", name, CANDIDATES)
    candidates = [name for name in values if name != PLAIN]
    if PLAIN not in values or not candidates:
        raise ValueError(f"values must hold {PLAIN!r} and at least one other candidate, got {', '.join(values)}")
    folds = sorted(set.intersection(*(set(of_folds) for of_folds in values.values())))
    first = values[PLAIN][folds[0]] if folds else {}
    metrics = [metric for metric in METRICS if metric in first]
    plain = {metric: fmean(values[PLAIN][fold][metric] for fold in folds) for metric in metrics}
    effects = tuple(
        _effect(values, name, metric, folds, planned, images, len(candidates))
        for metric in metrics
        for name in candidates
        if len(folds) >= 2
    )
    decision: Literal["use", "plain", "undecided"] = "undecided"
    choice = ""
    if goal not in metrics or len(folds) < max(planned, LEAST_FOLDS):
        sentences = _undecided(goal, metrics, len(folds), planned)
    elif plain.get("accuracy", 1.0) < ABOVE_CHANCE * chance:
        right = f"plain training is right on {percent(plain['accuracy'])} of the images"
        short = "such trainings are too short to compare; give more --minutes and --epochs"
        sentences = [f"undecided: {right}, and naming the largest class on {percent(chance)}: {short}"]
    else:
        winners = [effect for effect in effects if effect.metric == goal and effect.evidence == "better"]
        choice = max(winners, key=lambda effect: effect.bound).candidate if winners else ""
        decision = "use" if choice else "plain"
        sentences = _words(effects, goal, choice, plain)
    return Verdict(decision, choice, tuple(sentences), effects, plain, len(folds), planned, goal)


def _effect(
    values: Values, name: str, metric: str, folds: Sequence[int], planned: int, images: int, candidates: int
) -> Effect:
    own, reference = ([values[who][fold][metric] for fold in folds] for who in (name, PLAIN))
    found = resampled_difference(own, reference, test_share=1 / (max(planned, 2) - 1))
    low, high = found.interval(1 - LEVEL / candidates)
    if metric in ("accuracy", "shift"):
        # Counted in whole images, a difference may come out the same in every fold by chance, with no spread at all.
        # At least as many images changed sides as the net gain, and one might have: McNemar's error is no smaller.
        changed = abs(found.mean) + 1 / images
        half = NormalDist().inv_cdf(1 - LEVEL / candidates / 2) * math.sqrt(changed / images)
        low, high = min(low, found.mean - half), max(high, found.mean + half)
    return Effect(name, metric, fmean(own), found.mean, low, high)


def _undecided(goal: str, metrics: Sequence[str], folds: int, planned: int) -> list[str]:
    if folds and goal not in metrics:
        return [f"undecided: {METRICS[goal].label} could not be measured on these images"]
    if planned < LEAST_FOLDS:
        return [f"undecided: the plan has {planned} folds, and fewer than {LEAST_FOLDS} say too little about chance"]
    return [f"undecided: {folds} of {planned} folds are done by every candidate; the same command goes on"]


def _words(effects: Sequence[Effect], goal: Goal, choice: str, plain: Mapping[str, float]) -> list[str]:
    """Return the verdict of a complete plan: what to use, what speaks for and against it, and about RegMixup."""
    label = METRICS[goal].label
    labels = {effect.candidate: CANDIDATES[effect.candidate].label for effect in effects}
    of_goal = {effect.candidate: effect for effect in effects if effect.metric == goal}
    mixed = {name: effect for name, effect in of_goal.items() if CANDIDATES[name].objective == "regmixup"}
    sentences = []
    if choice:
        others = [effect for effect in effects if effect.candidate == choice and effect.metric != goal]
        told = [str(effect) for effect in others if effect.evidence == "better"]
        sentences.append(f"use {labels[choice]}: {', '.join([str(of_goal[choice]), *told])}")
        if harm := [str(effect) for effect in others if effect.evidence == "worse"]:
            sentences.append(f"it is worse in {', '.join(harm)}")
        if nothing := [METRICS[effect.metric].label for effect in others if effect.evidence == "none"]:
            sentences.append(f"no evidence for or against it in {', '.join(nothing)}")
    else:
        sentences.append(f"train plainly: no candidate is shown to be better in {label}")
    if mixed and choice not in mixed:
        best = max(mixed.values(), key=lambda effect: effect.bound)
        if all(effect.evidence == "worse" for effect in mixed.values()):
            sentences.append(f"do not use RegMixup here: at equal compute every setting of it is worse, at best {best}")
        elif choice and best.evidence == "better":
            sentences.append(f"RegMixup is better than plain training, too: {labels[best.candidate]}, {best}")
        else:
            sentences.append(f"no evidence for RegMixup at equal compute: {labels[best.candidate]}, {best}")
        sentences += [
            f"{labels[effect.candidate]} is better in {effect}, which was not the goal"
            for effect in effects
            if effect.candidate in mixed and effect.metric != goal and effect.evidence == "better"
        ]
    if goal in ("accuracy", "shift", "ood") and plain[goal] > 0.99:
        sentences.append(f"plain training reaches {percent(plain[goal])} {label}: there is next to nothing to gain")
    return sentences


def to_markdown(verdict: Verdict, words: str, plan: str) -> str:
    """Return the page: the verdict, a table of means and differences, and what was done. words, plan: lines of text."""
    metrics = list(verdict.plain)
    lines = ["# Advice", "", *(f"- {line}" for line in words.splitlines()), ""]
    if metrics:
        goal = METRICS[verdict.goal].label
        heads = [METRICS[metric].label + " (the goal)" * (METRICS[metric].label == goal) for metric in metrics]
        lines += [f"Means over {verdict.folds} of {verdict.planned} folds, and differences from plain training with "
                  "intervals that hold for all candidates of a column together.", ""]  # fmt: skip
        lines += [f"| candidate | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines.append(f"| {CANDIDATES[PLAIN].label} | {' | '.join(_number(m, verdict.plain[m]) for m in metrics)} |")
        for name in dict.fromkeys(effect.candidate for effect in verdict.effects):
            own = {effect.metric: effect for effect in verdict.effects if effect.candidate == name}
            cells = [f"{_number(m, own[m].value)}, {own[m].numbers}" for m in metrics]
            lines.append(f"| {CANDIDATES[name].label} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, "```text", plan, "```", ""])


def _number(metric: str, value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if METRICS[metric].percent else f"{value:{sign}.3f}"
