"""The last-layer Laplace approximation with Kronecker factors (KFAC-LLLA; Kristiadi et al., 2020).

The head s = W phi + b gets a Gaussian posterior around its trained weights: prior variance sigma_0, and the curvature
n A x G of the train loss, with A the mean of phi phi^T, G that of the loss's curvature in the logits, and n G for the
bias. With A = Q_A diag(a) Q_A^T and G = Q_G diag(g) Q_G^T the covariance of an input's logits is diagonal in Q_G:

    Sigma(x) = Q_G diag(d(x)) Q_G^T,   d_k(x) = sum_j (q_j^T phi)^2 v_jk + 1 / (n g_k + tau),   tau = 1 / sigma_0

where v_jk is 1 / (n a_j g_k + tau) for the exact prior, 1 / ((sqrt(n) a_j + sqrt(tau)) (sqrt(n) g_k + sqrt(tau))) for
the prior split between the factors, and the last term belongs to the bias. So two eigendecompositions serve every prior
variance, every input and every sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regmixup.config import Count, CountOrZero, NotNegative, Positive
from regmixup.metrics.calibration import ece
from regmixup.names import warn_user
from regmixup.posthoc.base import Posthoc, check_held_out, probabilities, required
from regmixup.posthoc.predictive import Noise, monte_carlo, shrunk
from regmixup.types import Predictions

_PIECE = 2**22
# 1, 2, 4 and 6 in every decade: contains all that the paper selected (1, 0.6, 4 and 0.1).
_GRID = (
    0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 0.6,
    1.0, 2.0, 4.0, 6.0, 10.0, 20.0, 40.0, 60.0, 100.0, 200.0, 400.0, 600.0, 1000.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LastLayerLaplace(Posthoc):
    """Fit on train predictions with features and a linear head; the defaults agree with laplace-torch's `kron`.

    prior_variance: sigma_0; None tries each of `grid` on the validation set and keeps the one of the smallest ECE.
    fisher: G from the whole distribution of labels, or from one label drawn for each sample.
    average: A and G as means over the train set, or as running averages over batches of `batch_size`.
    n_eff: how many samples the curvature counts for; None is the size of the train set. The code behind the paper's
    sigma_0 takes 128, its batch size, so those values are on that scale.
    prior: added to the eigenvalues of the Kronecker product ("exact"), or to each factor ("split").
    predictive: the mean softmax of `samples` draws, or mean-field logits with `factor`.
    The code that the paper used is LastLayerLaplace(fisher="sampled", average="running", n_eff=128, prior="split").

    One train sample, phi = 1, p = (1/2, 1/2) and no bias: G has eigenvalues 0 and 1/2, so d = (1, 2/3).

    >>> logits, weight = torch.zeros(1, 2), torch.zeros(2, 1)
    >>> train = Predictions(logits, torch.tensor([0]), features=torch.ones(1, 1), head_weight=weight)
    >>> LastLayerLaplace(prior_variance=1.0).fit(train=train).variance(torch.ones(1, 1))
    tensor([[0.8333, 0.8333]], dtype=torch.float64)
    """

    head: ClassVar[str] = "linear"
    needs_train: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    prior_variance: Positive | None = None
    grid: tuple[Positive, ...] = _GRID
    fisher: Literal["exact", "sampled"] = "exact"
    average: Literal["exact", "running"] = "exact"
    batch_size: Count = 128
    n_eff: Positive | None = None
    prior: Literal["exact", "split"] = "exact"
    predictive: Literal["monte_carlo", "mean_field"] = "monte_carlo"
    samples: Count = 1000
    factor: NotNegative = math.pi / 8
    seed: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid:
            raise ValueError("grid must hold at least one prior variance, got none")

    @property
    def needs_validation(self) -> bool:
        return self.prior_variance is None

    def fit(self, *, train: Predictions | None = None, validation: Predictions | None = None) -> FittedLaplace:
        """Decompose the curvature of the train set, and search for sigma_0 if none is given."""
        if train is None:
            raise ValueError("LastLayerLaplace needs train predictions, got None")
        features = required(train, "features", "LastLayerLaplace")
        required(train, "head_weight", "LastLayerLaplace")
        check_held_out(train, role="train")
        of_features, of_logits = self.factors(features, train.logits)
        a, g = torch.linalg.eigh(of_features), torch.linalg.eigh(of_logits)
        fitted = FittedLaplace(
            laplace=self,
            prior_variance=self.prior_variance if self.prior_variance is not None else self.grid[0],
            # Rounding can leave eigenvalues of a singular matrix a little below zero.
            feature_values=a.eigenvalues.clamp(min=0),
            feature_basis=a.eigenvectors,
            class_values=g.eigenvalues.clamp(min=0),
            class_basis=_directed(g.eigenvectors),
            count=float(len(train)) if self.n_eff is None else self.n_eff,
            bias=train.head_bias is not None,
        )
        if self.prior_variance is not None:
            return fitted
        if validation is None:
            raise ValueError("LastLayerLaplace needs validation predictions to choose prior_variance, got None")
        check_held_out(validation)
        return self._tuned(fitted, validation)

    def factors(self, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return A (D, D) and G (K, K) of features phi (N, D) and logits (N, K), with p = softmax(logits), float64.

        fisher: "exact" averages diag(p) - p p^T; "sampled" averages (p - e_y)(p - e_y)^T with one y ~ p a sample.
        average: "exact" is the mean over all samples; "running" is F <- rho_k F + (1 - rho_k) F_k over the batches'
        means F_k, k = 0, 1, ..., with rho_k = min(1 - 1 / (k + 1), 0.95), as the published code has it.
        """
        generator = torch.Generator().manual_seed(self.seed)
        uniform = torch.rand(len(logits), dtype=torch.float64, generator=generator)
        mean_features = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
        mean_logits = torch.zeros(logits.shape[1], logits.shape[1], dtype=torch.float64)
        for k, start in enumerate(range(0, len(logits), self.batch_size)):
            part = slice(start, start + self.batch_size)
            phi, probs = features[part].double(), logits[part].double().softmax(dim=1)
            if self.fisher == "exact":
                curvature = probs.mean(dim=0).diag() - probs.T @ probs / len(probs)
            else:
                residual = probs - _sampled(probs, uniform[part])
                curvature = residual.T @ residual / len(probs)
            share = len(phi) / (start + len(phi)) if self.average == "exact" else max(1 / (k + 1), 0.05)
            mean_features.lerp_(phi.T @ phi / len(phi), share)
            mean_logits.lerp_(curvature, share)
        return mean_features, mean_logits

    def _tuned(self, fitted: FittedLaplace, validation: Predictions) -> FittedLaplace:
        """Return the member of the grid with the smallest validation ECE, the first of equals."""
        errors: list[float] = []
        for prior_variance in self.grid:
            predictions = replace(fitted, prior_variance=prior_variance)(validation)
            errors.append(ece(probabilities(predictions), validation.labels))
        best = self.grid[errors.index(min(errors))]
        if len(self.grid) > 1 and best in (min(self.grid), max(self.grid)):
            warn_user(f"the best prior variance, {best:g}, lies on the edge of the grid: it may be too narrow")
        return replace(fitted, prior_variance=best, objective=min(errors))


def _sampled(probs: Tensor, uniform: Tensor) -> Tensor:
    """Return one-hot classes drawn from each row, one uniform number each: (N, K)."""
    cumulated = probs.cumsum(dim=1)
    drawn = (cumulated < uniform[:, None] * cumulated[:, -1:]).sum(dim=1)
    return torch.zeros_like(probs).scatter_(1, drawn[:, None], 1.0)


def _directed(vectors: Tensor) -> Tensor:
    """Return eigenvectors (K, K) with the sign that makes sum_k sqrt(k) v_k positive.

    A library may return either sign, and samples of the posterior, though not their distribution, depend on it.
    """
    return vectors * (torch.arange(1, len(vectors) + 1).to(vectors).sqrt() @ vectors).sign()


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedLaplace:
    """Predictions with features -> predictions under the posterior. `objective`: validation ECE, where it was tuned.

    The tensors are the eigenvalues and eigenvectors of A and G. count: n. bias: whether the head has one.
    """

    laplace: LastLayerLaplace
    prior_variance: float
    objective: float | None = None
    feature_values: Tensor = field(repr=False)
    feature_basis: Tensor = field(repr=False)
    class_values: Tensor = field(repr=False)
    class_basis: Tensor = field(repr=False)
    count: float
    bias: bool
    noise: Noise = field(repr=False, default_factory=Noise)

    def spectrum(self, features: Tensor) -> Tensor:
        """Return d(x), the eigenvalues of the logits' covariance: features (N, D) -> float64 (N, K)."""
        n, tau, device = self.count, 1 / self.prior_variance, features.device
        if features.ndim != 2 or features.shape[1] != len(self.feature_values):
            raise ValueError(f"features must be (N, {len(self.feature_values)}), got {tuple(features.shape)}")
        a, g = self.feature_values.to(device)[:, None], self.class_values.to(device)
        if self.laplace.prior == "exact":
            weight = 1 / (n * a * g + tau)
        else:
            weight = 1 / ((math.sqrt(n) * a + math.sqrt(tau)) * (math.sqrt(n) * g + math.sqrt(tau)))
        bias = 1 / (n * g + tau) if self.bias else torch.zeros_like(g)
        parts = features.split(max(1, _PIECE // features.shape[1]))
        basis = self.feature_basis.to(device)
        return torch.cat([(part.double() @ basis).square() @ weight + bias for part in parts])

    def variance(self, features: Tensor) -> Tensor:
        """Return the variance of every logit, the diagonal of Sigma(x): features (N, D) -> float64 (N, K)."""
        return self.spectrum(features) @ self.class_basis.to(features.device).square().T

    def __call__(self, predictions: Predictions, temperature: float = 1.0) -> Predictions:
        features = required(predictions, "features", "LastLayerLaplace")
        if self.laplace.predictive == "mean_field":
            return shrunk(predictions, self.variance(features), self.laplace.factor, temperature)
        probs = monte_carlo(
            predictions.logits,
            self.spectrum(features),
            samples=self.laplace.samples,
            seed=self.laplace.seed,
            temperature=temperature,
            basis=self.class_basis,
            noise=self.noise,
        )
        return replace(predictions, probs=probs, logit_variance=None, member_logits=None)
