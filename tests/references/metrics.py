"""Slow, obvious twins of the metrics and scores: loops over samples, bins, thresholds and pairs, one idea per function.

Nothing here is shared with the package. Probabilities are (N, K), labels (N,), scores (N,), all anything numpy reads.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import wraps
from itertools import pairwise

import numpy as np


def top(probs):
    """(confidence, predicted class) of every sample; the first class wins a tie."""
    return [(float(max(row)), list(row).index(max(row))) for row in np.asarray(probs, dtype=np.float64)]


def accuracy(probs, labels):
    return sum(predicted == label for (_, predicted), label in zip(top(probs), labels, strict=True)) / len(labels)


def nll(probs, labels):
    chosen = [row[label] for row, label in zip(np.asarray(probs, dtype=np.float64), labels, strict=True)]
    return sum(math.inf if p == 0 else -math.log(p) for p in chosen) / len(chosen)


def brier(probs, labels):
    total = 0.0
    for row, label in zip(np.asarray(probs, dtype=np.float64), labels, strict=True):
        total += sum((p - (k == label)) ** 2 for k, p in enumerate(row))
    return total / len(labels)


def _weighted_gap(members, count):
    """n_b / N |mean confidence - mean accuracy| of one bin's (confidence, correct) pairs; nothing if it is empty."""
    if not members:
        return 0.0
    confidence = sum(c for c, _ in members) / len(members)
    correct = sum(a for _, a in members) / len(members)
    return len(members) / count * abs(confidence - correct)


def _samples(probs, labels):
    return [(c, float(predicted == label)) for (c, predicted), label in zip(top(probs), labels, strict=True)]


def width_bin(confidence, num_bins=15):
    """The index b with b / B < confidence <= (b + 1) / B; confidence 0 belongs to bin 0."""
    for b in range(num_bins):
        if b / num_bins < confidence <= (b + 1) / num_bins or (b == 0 and confidence == 0):
            return b
    raise ValueError(confidence)


def ece(probs, labels, num_bins=15):
    samples = _samples(probs, labels)
    total = 0.0
    for b in range(num_bins):
        total += _weighted_gap([s for s in samples if width_bin(s[0], num_bins) == b], len(samples))
    return total


def equal_mass_edges(confidence, num_bins=15):
    """Sorted confidences interpolated at the positions j N / B; `np.interp` clamps position N to the largest value."""
    count = len(confidence)
    positions = [j * count / num_bins for j in range(num_bins + 1)]
    return np.interp(positions, np.arange(count), np.sort(np.asarray(confidence, dtype=np.float64)))


def adaptive_ece_interp(probs, labels, num_bins=15):
    samples = _samples(probs, labels)
    edges = equal_mass_edges([c for c, _ in samples], num_bins)
    total = 0.0
    for low, high in pairwise(edges):
        total += _weighted_gap([s for s in samples if low < s[0] <= high], len(samples))
    return total


def adaptive_ece_split(probs, labels, num_bins=15):
    """Sort (stably) and deal out runs: the first N mod B runs get one sample more."""
    samples = sorted(_samples(probs, labels), key=lambda sample: sample[0])
    count, total, start = len(samples), 0.0, 0
    for b in range(num_bins):
        size = count // num_bins + (b < count % num_bins)
        total += _weighted_gap(samples[start : start + size], count)
        start += size
    return total


def auroc(id_scores, ood_scores):
    """The share of (in, out) pairs in the right order, a tie counting one half."""
    won = 0.0
    for a in id_scores:
        for b in ood_scores:
            won += 1.0 if b > a else 0.5 if b == a else 0.0
    return won / (len(id_scores) * len(ood_scores))


def average_precision(id_scores, ood_scores):
    """Lower the threshold through all distinct scores; OOD is positive, "found" means score >= threshold."""
    total, last_recall = 0.0, 0.0
    for threshold in sorted({*id_scores, *ood_scores}, reverse=True):
        found = sum(s >= threshold for s in ood_scores)
        false = sum(s >= threshold for s in id_scores)
        recall = found / len(ood_scores)
        total += (recall - last_recall) * found / (found + false)
        last_recall = recall
    return total


def fpr_accepting_id(id_scores, ood_scores, accepted, out_of):
    """Raise the threshold until at least `accepted` / `out_of` of the ID scores are <= it: the share of OOD also <=."""
    for threshold in sorted(id_scores):
        if sum(s <= threshold for s in id_scores) * out_of >= accepted * len(id_scores):
            return sum(s <= threshold for s in ood_scores) / len(ood_scores)
    raise AssertionError("the largest score accepts all")


def digits_50(twin):
    """Compute a twin of one sample's logits with 50 digits."""

    @wraps(twin)
    def computed(logits, *options):
        with localcontext() as context:
            context.prec = 50
            return float(twin([Decimal(float(s)) for s in logits], *options))

    return computed


def exact_softmax(logits):
    weights = [s.exp() for s in logits]
    return [w / sum(weights) for w in weights]


@digits_50
def entropy(logits):
    return -sum(p * p.ln() for p in exact_softmax(logits))


@digits_50
def dempster_shafer(logits):
    """K / (K + sum exp s) as written in the paper."""
    return len(logits) / (len(logits) + sum(s.exp() for s in logits))


@digits_50
def energy(logits):
    return -sum(s.exp() for s in logits).ln()


@digits_50
def max_probability(logits):
    return 1 - max(exact_softmax(logits))


@digits_50
def max_logit(logits):
    return -max(logits)


@digits_50
def gen(logits, gamma="0.1", num_top=100):
    """sum p^gamma (1 - p)^gamma over the largest probabilities."""
    probs = sorted(exact_softmax(logits), reverse=True)
    return sum((p * (1 - p)) ** Decimal(gamma) for p in probs[:num_top])


@digits_50
def max_logit_pnorm(logits, p=5):
    if len(logits) == 2:  # c = (d / 2, -d / 2), so that d cancels
        return -(Decimal(2) ** (-1 / Decimal(p))) * (logits[0] != logits[1])
    centred = [s - sum(logits) / len(logits) for s in logits]
    norm = sum(abs(c) ** Decimal(p) for c in centred) ** (1 / Decimal(p))
    return -max(centred) / max(norm, Decimal("1e-12"))


@digits_50
def odin(logits, temperature=1000):
    return 1 - max(exact_softmax([s / temperature for s in logits]))


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def best_temperature(logits, labels, temperatures, criterion):
    """Try them one by one; a later temperature must be strictly better to win. `criterion` is `ece` or `nll`."""
    best, best_value = None, math.inf
    for temperature in temperatures:
        value = criterion(softmax(np.asarray(logits, dtype=np.float64) / temperature), labels)
        if value < best_value:
            best, best_value = temperature, value
    return best, best_value


def _filled_bins(probs, labels, num_bins):
    samples = _samples(probs, labels)
    bins = [[s for s in samples if width_bin(s[0], num_bins) == b] for b in range(num_bins)]
    return [members for members in bins if members], len(samples)


def debiased_squared_ece(probs, labels, num_bins=15):
    """Squared gap of every bin less the unbiased variance of its accuracy; may be negative. One sample: no variance."""
    bins, count = _filled_bins(probs, labels, num_bins)
    total = 0.0
    for members in bins:
        right = [a for _, a in members]
        variance = np.var(right, ddof=1) / len(right) if len(right) > 1 else 0.0
        total += len(members) / count * (_weighted_gap(members, len(members)) ** 2 - variance)
    return total


def _won(a, b):
    return 1.0 if b > a else 0.5 if b == a else 0.0


def delong_components(id_scores, ood_scores):
    """DeLong's structural components, by all pairs: for every ID and for every OOD sample, its share of pairs won."""
    for_id = [sum(_won(a, b) for b in ood_scores) / len(ood_scores) for a in id_scores]
    for_ood = [sum(_won(a, b) for a in id_scores) / len(id_scores) for b in ood_scores]
    return np.array(for_id), np.array(for_ood)


def aurc(scores, correct):
    """Mean risk of the i surest samples, i = 1..N, for scores without ties."""
    order = sorted(range(len(scores)), key=lambda i: scores[i])
    risks = [sum(not correct[j] for j in order[: i + 1]) / (i + 1) for i in range(len(order))]
    return sum(risks) / len(risks)


def augrc(scores, correct):
    """Area under errors among the i surest / N against i / N, by the trapezoid rule, for scores without ties."""
    order, total = sorted(range(len(scores)), key=lambda i: scores[i]), len(scores)
    errors = [sum(not correct[j] for j in order[:i]) / total for i in range(total + 1)]
    return sum((left + right) / 2 / total for left, right in pairwise(errors))


def failure_auroc(scores, correct):
    """The share of (right, wrong) pairs in which the wrong one has the larger score, a tie counting one half."""
    right = [s for s, c in zip(scores, correct, strict=True) if c]
    wrong = [s for s, c in zip(scores, correct, strict=True) if not c]
    return auroc(right, wrong)


def fisher(features, labels):
    """trace(S_W^-1 S_B), sample by sample."""
    features = np.asarray(features, dtype=np.float64)
    centre, width = features.mean(axis=0), features.shape[1]
    within, between = np.zeros((width, width)), np.zeros((width, width))
    for k in set(labels):
        members = [f for f, label in zip(features, labels, strict=True) if label == k]
        mean = sum(members) / len(members)
        within += sum(np.outer(f - mean, f - mean) for f in members)
        between += len(members) * np.outer(mean - centre, mean - centre)
    return within, between
