"""Slow, obvious twins of the scores of ensembles and of features: one sample and one formula at a time.

Nothing here is shared with the package. Features are (N, D), labels (N,), weight (K, D) and bias (K,), all of numpy.
"""

from __future__ import annotations

import math

import numpy as np


def entropy(probs):
    return -sum(p * math.log(p) for p in probs if p > 0)


def softmax(logits):
    weights = [math.exp(s - max(logits)) for s in logits]
    return [w / sum(weights) for w in weights]


def mutual_information(member_logits):
    """H of the mean less the mean of H, sample by sample."""
    found = []
    for n in range(member_logits.shape[1]):
        members = [softmax(list(member[n])) for member in member_logits]
        mean = [sum(column) / len(members) for column in zip(*members, strict=True)]
        found.append(entropy(mean) - sum(entropy(probs) for probs in members) / len(members))
    return np.array(found)


def energy(logits):
    return -math.log(sum(math.exp(s) for s in logits))


def head(feature, weight, bias):
    return [sum(w * f for w, f in zip(row, feature, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def covariance(features, mean):
    """The mean of (f - mean)(f - mean)^T."""
    return sum(np.outer(f - mean, f - mean) for f in features) / len(features)


def classes(features, labels):
    """(mean, covariance, count) of every class."""
    found = []
    for k in sorted(set(labels.tolist())):
        own = features[labels == k]
        found.append((own.mean(axis=0), covariance(own, own.mean(axis=0)), len(own)))
    return found


def tied(found):
    return sum(count * sigma for _, sigma, count in found) / sum(count for *_, count in found)


def knn(train, features, k):
    """The k-th smallest of all distances between vectors of length 1."""

    def scaled(feature):
        return feature / math.sqrt(sum(v * v for v in feature))

    found = []
    for feature in features:
        distances = sorted(math.dist(scaled(feature), scaled(other)) for other in train)
        found.append(distances[k - 1])
    return np.array(found)


def vim(train, features, weight, bias, dim):
    """The formulas of the paper: origin, null space, alpha, virtual logit less energy."""
    origin = -np.linalg.pinv(weight) @ bias
    values, vectors = np.linalg.eig(covariance(train, origin))
    order = np.argsort(-values.real)
    null = vectors.real[:, order[dim:]]

    def residual(x):
        return np.linalg.norm(null @ np.linalg.pinv(null) @ (x - origin))

    largest = sum(max(head(x, weight, bias)) for x in train)
    alpha = largest / sum(residual(x) for x in train)
    return np.array([alpha * residual(x) + energy(head(x, weight, bias)) for x in features])


def react(train, features, weight, bias, percentile):
    threshold = np.percentile(train.flatten(), percentile)
    return np.array([energy(head([min(v, threshold) for v in x], weight, bias)) for x in features])


def ash(features, weight, bias, percentile):
    found = []
    for x in features:
        removed = round(len(x) * percentile / 100)
        left = sorted(range(len(x)), key=lambda i: x[i])[removed:]
        scale = math.exp(sum(x) / sum(x[i] for i in left))
        shaped = [x[i] * scale if i in left else 0.0 for i in range(len(x))]
        found.append(energy(head(shaped, weight, bias)))
    return np.array(found)


def scale(features, weight, bias, percentile):
    scores = []
    for x in features:
        left = sorted(x)[round(len(x) * percentile / 100) :]
        factor = math.exp(sum(x) / sum(left))
        scores.append(energy(head([v * factor for v in x], weight, bias)))
    return np.array(scores)


def fdbd(train, features, weight, bias):
    """The mean distance to the boundaries of the other classes, over the distance to the mean train feature."""
    mean = [sum(column) / len(train) for column in zip(*train, strict=True)]
    scores = []
    for x in features:
        logits = head(x, weight, bias)
        y = logits.index(max(logits))
        others = [c for c in range(len(logits)) if c != y]
        distances = [(logits[y] - logits[c]) / math.dist(weight[y], weight[c]) for c in others]
        scores.append(-sum(distances) / len(others) / math.dist(x, mean))
    return np.array(scores)


def nnguide(train, features, weight, bias, k):
    """The energy times the mean of the k largest products with train features scaled by theirs."""

    def cosine(a, b):
        return sum(v * w for v, w in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    scores = []
    for x in features:
        products = sorted(-energy(head(z, weight, bias)) * cosine(x, z) for z in train)
        scores.append(energy(head(x, weight, bias)) * sum(products[-k:]) / k)
    return np.array(scores)
