"""Slow, obvious twins of `regmixup.mixing`: one image, one pixel, one class at a time, in NumPy and plain Python."""

import math

import numpy as np


def cutmix_box(lam, height, width, centre_row, centre_column):
    """(top, bottom, left, right), half-open: sides int(side * sqrt(1 - lam)), centre plus and minus half, clipped."""
    ratio = math.sqrt(1 - lam)
    half_height = int(height * ratio) // 2
    half_width = int(width * ratio) // 2
    top = max(centre_row - half_height, 0)
    bottom = min(centre_row + half_height, height)
    left = max(centre_column - half_width, 0)
    right = min(centre_column + half_width, width)
    return top, bottom, left, right


def kept_share(box, height, width):
    """The share of pixels outside the box, counted one by one."""
    top, bottom, left, right = box
    kept = 0
    for row in range(height):
        for column in range(width):
            if not (top <= row < bottom and left <= column < right):
                kept += 1
    return kept / (height * width)


def mixup(x, lam, partner):
    """x: (N, C, H, W) array; lam: N weights; partner: N indices."""
    mixed = np.empty_like(x)
    for i in range(len(x)):
        mixed[i] = lam[i] * x[i] + (1 - lam[i]) * x[partner[i]]
    return mixed


def cutmix(x, boxes, partner):
    """x: (N, C, H, W) array; boxes: N rectangles; partner: N indices."""
    mixed = x.copy()
    for i, (top, bottom, left, right) in enumerate(boxes):
        for row in range(top, bottom):
            for column in range(left, right):
                mixed[i, :, row, column] = x[partner[i], :, row, column]
    return mixed


def one_hot(labels, num_classes):
    """(N, K) array with a single 1 in every row."""
    targets = np.zeros((len(labels), num_classes))
    for i, label in enumerate(labels):
        targets[i, label] = 1
    return targets


def mixed_targets(targets, lam, partner):
    """The soft labels: row i is lam_i times its own row plus (1 - lam_i) times its partner's row."""
    mixed = np.empty_like(targets)
    for i in range(len(targets)):
        mixed[i] = lam[i] * targets[i] + (1 - lam[i]) * targets[partner[i]]
    return mixed


def soft_cross_entropy(logits, targets):
    """-sum_k targets_k log softmax(logits)_k of every row."""
    losses = []
    for scores, target in zip(logits, targets, strict=True):
        log_normaliser = math.log(sum(math.exp(s - max(scores)) for s in scores)) + max(scores)
        losses.append(-sum(t * (s - log_normaliser) for s, t in zip(scores, target, strict=True)))
    return np.array(losses)
