"""The figures of a report, each as SVG text. Built without pyplot, so nothing global is touched."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from regmixup.evaluation.calibration import Reliability
    from regmixup.evaluation.entropy_profile import EntropyProfile

COLOURS = ("#3b6fb6", "#d9822b", "#2e8b57", "#8e5ea2", "#b03a4a", "#5a6772")
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a929c",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "svg.fonttype": "none",
    "svg.hashsalt": "regmixup",
}


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _panels(rows: int, columns: int, *, width: float, height: float, share: bool = True) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False)
    return figure, list(axes.flat)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def entropy_heatmaps(profiles: Mapping[str, EntropyProfile]) -> str:
    """Counts over (lambda, entropy), a panel per method: the paper's Figure 3."""
    with rc_context(_STYLE):
        figure, axes = _panels(1, len(profiles), width=3.2, height=2.7)
        top = max(float(p.counts.max()) for p in profiles.values())
        for axis, (method, profile) in zip(axes, profiles.items(), strict=True):
            step = float(profile.lam[1] - profile.lam[0])
            lam_edges = np.linspace(-step / 2, 1 + step / 2, len(profile.lam) + 1)
            mesh = axis.pcolormesh(
                lam_edges,
                profile.edges.numpy(),
                profile.counts.T.numpy(),
                vmin=0,
                vmax=top,
                cmap="magma_r",
                rasterized=True,
            )
            axis.plot(profile.lam.numpy(), profile.mean.numpy(), color="#1b7f9e", linewidth=1.6, label="mean")
            axis.set(title=method, xlabel="λ", xlim=(-step / 2, 1 + step / 2))
        axes[0].set_ylabel("entropy (nats)")
        axes[0].legend(frameon=False, loc="upper left")
        figure.colorbar(mesh, ax=axes, label="pairs", shrink=0.9)
        return _svg(figure)


def reliability_diagrams(diagrams: Mapping[str, Mapping[str, Reliability]]) -> str:
    """Accuracy against confidence in 15 bins, a panel per method, without and with temperature."""
    with rc_context(_STYLE):
        figure, axes = _panels(1, len(diagrams), width=3.2, height=2.9)
        for axis, (method, versions) in zip(axes, diagrams.items(), strict=True):
            axis.plot([0, 1], [0, 1], color="#8a929c", linewidth=1, linestyle=":")
            styles = {"none": (COLOURS[0], "o", "as trained"), "temperature": (COLOURS[1], "s", "with T")}
            for posthoc, diagram in versions.items():
                colour, marker, label = styles[posthoc]
                filled = diagram.count > 0
                confidence, accuracy = diagram.confidence[filled].numpy(), diagram.accuracy[filled].numpy()
                share = diagram.count[filled].numpy() / diagram.total
                axis.plot(confidence, accuracy, color=colour, linewidth=1.2)
                axis.scatter(
                    confidence,
                    accuracy,
                    s=8 + 150 * np.sqrt(share),
                    color=colour,
                    marker=marker,
                    alpha=0.75,
                    linewidths=0,
                    label=f"{label}, ECE {100 * diagram.error:.2f} %",
                )
            axis.set(title=method, xlabel="confidence", xlim=(0, 1.03), ylim=(0, 1.05))
            legend = axis.legend(frameon=False, loc="lower right", fontsize=8)
            for handle in legend.legend_handles:
                handle.set_sizes([25])  # type: ignore[union-attr]
        axes[0].set_ylabel("accuracy")
        return _svg(figure)


def score_histograms(scores: Mapping[str, Mapping[str, np.ndarray]], names: Mapping[str, str]) -> str:
    """Distributions of each method's OOD score, in-distribution and per OOD set, a panel per method.

    scores[method][dataset]: (N,) values. names[method]: the score shown. The first dataset is in-distribution.
    """
    with rc_context(_STYLE):
        figure, axes = _panels(1, len(scores), width=3.2, height=2.7, share=False)
        for axis, (method, sets) in zip(axes, scores.items(), strict=True):
            bins = np.linspace(0, max(float(values.max()) for values in sets.values()), 41)
            for index, (dataset, values) in enumerate(sets.items()):
                weights = np.full(len(values), 1 / len(values))
                filled: Any = {"histtype": "stepfilled", "alpha": 0.35}
                outline: Any = {"histtype": "step", "linewidth": 1.5}
                style = filled if index == 0 else outline
                axis.hist(values, bins=bins.tolist(), weights=weights, color=_colour(index), label=dataset, **style)
            axis.set(title=method, xlabel=names[method].replace("_", "-"), yscale="log", ylim=(1e-4, 1.5))
        axes[0].set_ylabel("share of samples")
        axes[0].legend(frameon=False, fontsize=8)
        return _svg(figure)


def beta_densities(alphas: Mapping[str, float]) -> str:
    """Density of lambda ~ Beta(alpha, alpha) for every mixing method, the central 80 % of the mass shaded (Fig. 1)."""
    from scipy.stats import beta

    with rc_context(_STYLE):
        figure, axes = _panels(1, len(alphas), width=3.2, height=2.2, share=False)
        grid = np.linspace(0.002, 0.998, 600)
        for index, (axis, (method, alpha)) in enumerate(zip(axes, alphas.items(), strict=True)):
            density = beta.pdf(grid, alpha, alpha)
            low, high = beta.ppf([0.1, 0.9], alpha, alpha)
            inside = (grid >= low) & (grid <= high)
            colour = _colour(index + 1)
            axis.plot(grid, density, color=colour)
            axis.fill_between(grid[inside], density[inside], color=colour, alpha=0.3, linewidth=0)
            axis.set(title=f"{method}: Beta({alpha:g}, {alpha:g})", xlabel="λ", xlim=(0, 1))
            axis.set_ylim(0, min(float(density.max()), 6.0) * 1.08)
        axes[0].set_ylabel("density")
        return _svg(figure)


def severity_curves(curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> str:
    """Accuracy against severity, a panel per corruption, a line per method with one standard deviation shaded.

    curves[corruption][method]: (mean, std) at severities 1 to 5, as fractions.
    """
    with rc_context(_STYLE):
        columns = min(5, len(curves))
        rows = -(-len(curves) // columns)
        figure, axes = _panels(rows, columns, width=2.0, height=2.2)
        for axis in axes[len(curves) :]:
            axis.set_visible(False)
        for axis, (corruption, lines) in zip(axes, curves.items(), strict=False):
            for index, (method, points) in enumerate(lines.items()):
                mean = np.array([point[0] for point in points])
                std = np.nan_to_num(np.array([point[1] for point in points]))
                severity = np.arange(1, len(points) + 1)
                axis.plot(severity, 100 * mean, color=_colour(index), marker="o", markersize=3, label=method)
                axis.fill_between(
                    severity, 100 * (mean - std), 100 * (mean + std), color=_colour(index), alpha=0.15, linewidth=0
                )
            axis.set(title=corruption.replace("_", " "), xlabel="severity", xticks=[1, 2, 3, 4, 5])
            axis.title.set_fontsize(9)
        axes[0].set_ylabel("accuracy (%)")
        axes[0].legend(frameon=False, fontsize=8)
        return _svg(figure)
