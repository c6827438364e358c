"""Slow, obvious twins of the last-layer Laplace approximation: one sample at a time, inverses as written."""

import math

import torch


def factors(features, logits, batch_size=None, labels=None):
    """A and G as lists of one pair per batch, each the mean over the batch's samples.

    labels: drawn classes for the one-sample Fisher; None for diag(p) - p p^T.
    """
    size = batch_size or len(logits)
    pairs = []
    for start in range(0, len(logits), size):
        chosen = range(start, min(start + size, len(logits)))
        a = sum(torch.outer(features[n], features[n]) for n in chosen) / len(chosen)
        g = 0
        for n in chosen:
            p = logits[n].softmax(dim=0)
            if labels is None:
                g = g + torch.diag(p) - torch.outer(p, p)
            else:
                gradient = p.clone()
                gradient[labels[n]] -= 1
                g = g + torch.outer(gradient, gradient)
        pairs.append((a, g / len(chosen)))
    return pairs


def running(pairs):
    """F <- rho_k F + (1 - rho_k) F_k with rho_k = min(1 - 1 / (k + 1), 0.95)."""
    a, g = 0, 0
    for k, (a_k, g_k) in enumerate(pairs):
        rho = min(1 - 1 / (k + 1), 0.95)
        a, g = rho * a + (1 - rho) * a_k, rho * g + (1 - rho) * g_k
    return a, g


def split_covariance(phi, a, g, *, n_eff, prior_variance, bias):
    """(phi^T V^-1 phi) U^-1 + B^-1 with U = sqrt(n) G + sqrt(tau) I, V = sqrt(n) A + sqrt(tau) I, B = n G + tau I."""
    tau = 1 / prior_variance
    u = math.sqrt(n_eff) * g + math.sqrt(tau) * torch.eye(len(g), dtype=g.dtype)
    v = math.sqrt(n_eff) * a + math.sqrt(tau) * torch.eye(len(a), dtype=a.dtype)
    b = n_eff * g + tau * torch.eye(len(g), dtype=g.dtype)
    covariance = (phi @ torch.linalg.inv(v) @ phi) * torch.linalg.inv(u)
    return covariance + torch.linalg.inv(b) if bias else covariance


def full_covariance(phi, features, weight, *, prior_variance):
    """J H^-1 J^T with H the Hessian of the summed cross-entropy in all weights (K, D), by autograd, plus the prior."""
    classes, dim = weight.shape

    def loss(w):
        log_probs = (features @ w.reshape(classes, dim).T).log_softmax(dim=1)
        return -log_probs[:, 0].sum()  # the Hessian does not depend on the labels

    hessian = torch.autograd.functional.hessian(loss, weight.flatten())
    posterior = torch.linalg.inv(hessian + torch.eye(len(hessian), dtype=hessian.dtype) / prior_variance)
    jacobian = torch.kron(torch.eye(classes, dtype=phi.dtype), phi[None])
    return jacobian @ posterior @ jacobian.T
