"""The figures of the documents: results from the archives, concepts from small trainings, corruptions of a photograph.

python results/figures.py     # draws those of concepts and corruptions anew, in two minutes; build.py draws the rest
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from archives import RESULTS, trained
from claims import LOWER_IS_BETTER, NAMES
from comparisons import against, mean_of, welch, with_holm
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import beta

import regmixup as rm
from regmixup.data.catalogue import BENCHMARK, EXTRA

IMAGES = RESULTS.parent / "docs" / "images"

COLOURS = {"dnn": "#2b6cb0", "mixup": "#6b8e23", "regmixup": "#c53030"}
TITLES = {"dnn": "plain", "mixup": "Mixup, alpha 0.3", "regmixup": "RegMixup, alpha 20"}
"""Of concepts."""
IMAGES_SHOWN = (1.25, 2.5, 5, 10, 20)


def write(folder: Path) -> None:
    """Write every figure as SVG; the same archives give the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "regmixup", "font.size": 9, "svg.fonttype": "none"}):
        save(length_figure(), folder / "length.svg")
        save(methods_figure(), folder / "standard.svg")


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")


def length_figure() -> Figure:
    """Return each metric against the images that training forwards, with 95 % intervals over seeds."""
    figure = Figure(figsize=(7, 4.8))
    quantities = ("accuracy", "shift accuracy", "ECE", "near-OOD AUROC by MSP")
    for axes, quantity in zip(figure.subplots(2, 2).flat, quantities, strict=True):
        for method in ("dnn", "regmixup"):
            settings = [trained(method, epochs) for epochs in (25, 50, 100, 200)]
            means = [mean_of(setting, quantity) for setting in settings]
            reach = [mean.value - mean.low for mean in means]
            axes.errorbar(
                [setting.images for setting in settings], [mean.value for mean in means], yerr=reach,
                color=COLOURS[method], label=NAMES[method], marker="o", markersize=4, capsize=2, linewidth=1.6,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(IMAGES_SHOWN, labels=[f"{images:g}" for images in IMAGES_SHOWN])
        axes.minorticks_off()
        axes.set_title(f"{quantity.replace('shift', 'CIFAR-10-C')}, %", fontsize=9)
        axes.set_xlabel("images forwarded, millions")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure


def methods_figure() -> Figure:
    """Return the differences of every method from plain training after 100 epochs, a panel per quantity.

    Blue ones are better and red ones worse after Holm's correction over a panel.
    """
    quantities = ("accuracy", "shift accuracy", "near-OOD AUROC by MSP", "SVHN AUROC by MSP", "ECE", "AUGRC")
    by_images = sorted(against("dnn", 100), key=lambda pair: (pair[0].images, pair[0].method))
    pairs = {f"{pair[0].method}, {pair[0].images:g} M": pair for pair in by_images}
    figure = Figure(figsize=(10, 0.5 + 0.25 * len(pairs)))
    for axes, quantity in zip(figure.subplots(1, len(quantities), sharey=True), quantities, strict=True):
        less = quantity in LOWER_IS_BETTER
        tested = with_holm({name: welch(*pair, quantity) for name, pair in pairs.items()})
        for line, name in enumerate(reversed(pairs)):
            difference = tested[name]
            better = (difference.value < 0) == less
            colour = "#888888" if not difference.stands else "#2b6cb0" if better else "#c53030"
            axes.plot(difference.value, line, "o", color=colour, markersize=3.5)
            if difference.low is not None:
                axes.plot([difference.low, difference.high], [line, line], color=colour, linewidth=1.2)
        axes.axvline(0, color="black", linewidth=1)
        name = quantity.replace(" AUROC by ", " AUROC\nby ")
        axes.set_title(f"{name}\n{'less' if less else 'more'} is better", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3, axis="x")
    figure.axes[0].set_ylim(-0.7, len(pairs) - 0.3)
    figure.axes[0].set_yticks(range(len(pairs)), labels=reversed(pairs))
    figure.tight_layout()
    return figure


def alpha_figure() -> Figure:
    """Return the densities of lambda for three alphas, and what they make of two digits."""
    digits = rm.data.load("digits/train")
    first, second = (digits.images[int((digits.labels == label).int().argmax()), 0].float() for label in (3, 0))
    alphas = {0.3: "#6b8e23", 1.0: "#888888", 20.0: "#c53030"}
    figure = Figure(figsize=(9, 3))
    left, right = figure.add_gridspec(1, 2, width_ratios=(1, 1.3), wspace=0.12)
    axes = figure.add_subplot(left)
    grid = np.linspace(0.005, 0.995, 400)
    cells = right.subgridspec(len(alphas), 9, wspace=0.08, hspace=0.3)
    for line, (alpha, colour) in enumerate(alphas.items()):
        axes.plot(grid, beta.pdf(grid, alpha, alpha), color=colour, label=f"alpha {alpha:g}")
        for place, quantile in enumerate(np.linspace(0.06, 0.94, 9)):
            lam = float(beta.ppf(quantile, alpha, alpha))
            cell = figure.add_subplot(cells[line, place])
            cell.imshow(lam * first + (1 - lam) * second, cmap="gray_r", vmin=0)
            cell.set(xticks=[], yticks=[], ylabel=f"{alpha:g}" if place == 0 else "")
    axes.set(xlabel="lambda", ylabel="density", ylim=(0, 5.5), title="share of the first image")
    axes.legend(frameon=False)
    return figure


def barrier_figure(seeds: int = 3) -> Figure:
    """Return the entropy between pairs of test digits of different classes, for networks trained on digits."""
    test = rm.data.load("digits/test")
    ends = torch.randint(len(test), (400, 2), generator=torch.Generator().manual_seed(0))
    ends = ends[test.labels[ends[:, 0]] != test.labels[ends[:, 1]]]
    first, second = (test.images[ends[:, side]].float() / 255 for side in (0, 1))
    lams = torch.linspace(0, 1, 21)
    figure = Figure(figsize=(6, 3.4))
    axes = figure.add_subplot()
    for method, colour in COLOURS.items():
        curves = []
        for seed in range(seeds):
            model = rm.train(rm.configure("digits", method, seed=seed), runs="runs").model().eval()
            with torch.no_grad():
                logits = [model(lam * first + (1 - lam) * second) for lam in lams]
            curves.append(torch.stack([rm.scores.entropy(part).mean() for part in logits]))
        curve = torch.stack(curves)
        axes.plot(lams, curve.mean(0), color=colour, label=TITLES[method])
        axes.fill_between(lams, curve.amin(0), curve.amax(0), color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="lambda: share of the first digit", ylabel="entropy of the prediction, nats")
    axes.legend(frameon=False)
    return figure


def vicinity_figure(steps: int = 1500) -> Figure:
    """Return what three objectives make of two moons: train points and the model's confidence."""
    from sklearn.datasets import make_moons  # a package of the tests alone

    points, labels = make_moons(120, noise=0.12, random_state=0)
    x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
    across, up = torch.meshgrid(torch.linspace(-3, 4, 140), torch.linspace(-3, 3.5, 130), indexing="xy")
    figure = Figure(figsize=(9, 2.9))
    for axes, (method, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        objective = rm.configure("digits", method).objective
        torch.manual_seed(0)
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        model = torch.nn.Sequential(linear(2, 64), relu(), linear(64, 64), relu(), linear(64, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            objective(model, x, y).loss.backward()
            optimizer.step()
        with torch.no_grad():
            confidence = model(torch.stack([across, up], dim=-1)).softmax(-1).amax(-1)
        axes.pcolormesh(across, up, confidence, cmap="cividis", vmin=0.5, vmax=1, shading="auto", rasterized=True)
        for label, mark in ((0, "o"), (1, "^")):
            axes.scatter(*x[y == label].T, s=9, marker=mark, color="white", edgecolor="black", linewidth=0.4)
        axes.set(title=title, xticks=[], yticks=[])
    return figure


def corruption_figure() -> Figure:
    """Return every corruption at every severity on one photograph of 224 pixels."""
    from sklearn.datasets import load_sample_image

    photograph = Image.fromarray(load_sample_image("china.jpg")).crop((106, 0, 533, 427)).resize((224, 224))
    clean = torch.from_numpy(np.array(photograph)).permute(2, 0, 1).unsqueeze(0)
    names = (*BENCHMARK, *EXTRA)
    figure = Figure(figsize=(6, 1.1 * len(names)))
    for row, name in zip(figure.subplots(len(names), 5), names, strict=True):
        for severity, axes in enumerate(row, start=1):
            corrupted = rm.data.corrupt(clean, name, severity=severity, generator=torch.Generator().manual_seed(0))
            axes.imshow(corrupted[0].permute(1, 2, 0))
            axes.set(xticks=[], yticks=[])
            if severity == 1:
                axes.set_ylabel(name.replace("_", " "), rotation=0, ha="right", va="center")
    figure.subplots_adjust(wspace=0.02, hspace=0.02)
    return figure


if __name__ == "__main__":
    with mpl.rc_context({"svg.hashsalt": "regmixup", "font.size": 9}):
        save(alpha_figure(), IMAGES / "concept-alpha.svg")
        save(barrier_figure(), IMAGES / "concept-barrier.svg")
        save(vicinity_figure(), IMAGES / "concept-vicinity.svg")
        corruption_figure().savefig(IMAGES / "corruptions.png", dpi=70, bbox_inches="tight")
