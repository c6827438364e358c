"""Slow, obvious twins of conformal label sets: one image and one class at a time, in plain Python numbers."""

from __future__ import annotations

import math
from fractions import Fraction


def softmax(logits):
    weights = [math.exp(s - max(logits)) for s in logits]
    return [w / sum(weights) for w in weights]


def score(probs, k, *, method, lam=0.01, k_reg=5):
    """s(x, k); a class is ranked before k if it is more probable, or as probable and has a smaller number."""
    if method == "lac":
        return 1 - probs[k]
    before = [p for j, p in enumerate(probs) if p > probs[k] or (p == probs[k] and j < k)]
    found = sum(sorted(before, reverse=True)) + probs[k]
    if method == "raps":
        found += lam * max(0, len(before) + 1 - k_reg)
    return found


def quantile(scores, level):
    """The ceil((n + 1) level)-th smallest of n scores; level is read as the decimal number it is written as."""
    place = math.ceil((len(scores) + 1) * Fraction(str(level)))
    return sorted(scores)[place - 1] if place <= len(scores) else math.inf
