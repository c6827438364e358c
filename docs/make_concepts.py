"""Draw the figures of docs/concepts.md: `python docs/make_concepts.py` trains what they show, in a minute or two."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.stats import beta
from sklearn.datasets import make_moons

import regmixup as rm

IMAGES = Path(__file__).parent / "images"
COLOURS = {"plain": "#2b6cb0", "Mixup, alpha 0.3": "#6b8e23", "RegMixup, alpha 20": "#c53030"}
OBJECTIVES = {"plain": rm.ERM(), "Mixup, alpha 0.3": rm.Mixup(0.3), "RegMixup, alpha 20": rm.RegMixup(20)}
METHODS = {"plain": "dnn", "Mixup, alpha 0.3": "mixup", "RegMixup, alpha 20": "regmixup"}


def save(name: str) -> None:
    """Write a figure as SVG without a date."""
    plt.savefig(IMAGES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close()


def alpha() -> None:
    """Draw the densities of lambda, and what they make of two digits."""
    images = rm.data.load("digits/train")
    first, second = (next(images.images[i, 0] for i in range(len(images)) if images.labels[i] == d) for d in (3, 0))
    rows = (0.3, 1.0, 20.0)
    figure = plt.figure(figsize=(9, 3))
    left, right = figure.add_gridspec(1, 2, width_ratios=(1, 1.3), wspace=0.12)
    axes = figure.add_subplot(left)
    grid = np.linspace(0.005, 0.995, 400)
    for value, colour in zip(rows, ("#6b8e23", "#888888", "#c53030"), strict=True):
        axes.plot(grid, beta.pdf(grid, value, value), color=colour, label=f"alpha {value:g}")
    axes.set(xlabel="lambda", ylabel="density", ylim=(0, 5.5), title="share of the first image")
    axes.legend(frameon=False)
    cells = right.subgridspec(len(rows), 9, wspace=0.08, hspace=0.3)
    for row, value in enumerate(rows):
        for column, quantile in enumerate(np.linspace(0.06, 0.94, 9)):
            lam = float(beta.ppf(quantile, value, value))
            cell = figure.add_subplot(cells[row, column])
            cell.imshow(lam * first.float() + (1 - lam) * second.float(), cmap="gray_r", vmin=0)
            cell.set(xticks=[], yticks=[])
            if column == 0:
                cell.set_ylabel(f"{value:g}", rotation=0, ha="right", va="center")
            if row == 0 and column == 4:
                cell.set_title("a 3 and a 0, at nine quantiles of lambda")
    save("concept-alpha")


def barrier(seeds: int = 3) -> None:
    """Draw the entropy between pairs of test digits of different classes, for networks trained on digits."""
    test = rm.data.load("digits/test")
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(len(test), (400, 2), generator=generator)
    pairs = pairs[test.labels[pairs[:, 0]] != test.labels[pairs[:, 1]]]
    lams = torch.linspace(0, 1, 21)
    x = test.images.float() / 255
    for name, method in METHODS.items():
        curves = []
        for seed in range(seeds):
            run = rm.train(rm.configure("digits", method, seed=seed), runs="runs")
            model = run.model().eval()
            with torch.no_grad():
                logits = [model(lam * x[pairs[:, 0]] + (1 - lam) * x[pairs[:, 1]]) for lam in lams]
            curves.append(torch.stack([rm.scores.entropy(one).mean() for one in logits]))
        stacked = torch.stack(curves)
        plt.plot(lams, stacked.mean(0), color=COLOURS[name], label=name)
        plt.fill_between(lams, stacked.amin(0), stacked.amax(0), color=COLOURS[name], alpha=0.2, linewidth=0)
    plt.gcf().set_size_inches(6, 3.4)
    plt.xlabel("lambda: share of the first digit")
    plt.ylabel("entropy of the prediction, nats")
    plt.legend(frameon=False)
    save("concept-barrier")


def vicinity(steps: int = 1500) -> None:
    """Draw what three objectives make of two moons: train points and the model's confidence."""
    points, labels = make_moons(120, noise=0.12, random_state=0)
    x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
    across, up = torch.meshgrid(torch.linspace(-3, 4, 140), torch.linspace(-3, 3.5, 130), indexing="xy")
    plane = torch.stack([across.flatten(), up.flatten()], dim=1)
    _, panels = plt.subplots(1, 3, figsize=(9, 2.9), sharey=True)
    for axes, (name, objective) in zip(panels, OBJECTIVES.items(), strict=True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            objective(model, x, y).loss.backward()
            optimizer.step()
        with torch.no_grad():
            confidence = model(plane).softmax(1).amax(1).reshape(across.shape)
        shown = axes.pcolormesh(
            across, up, confidence, cmap="cividis", vmin=0.5, vmax=1, shading="auto", rasterized=True
        )
        for label, mark in ((0, "o"), (1, "^")):
            axes.scatter(*x[y == label].T, s=9, marker=mark, color="white", edgecolor="black", linewidth=0.4)
        axes.set(title=name, xticks=[], yticks=[])
    plt.colorbar(shown, ax=panels, label="confidence", fraction=0.02)
    save("concept-vicinity")


if __name__ == "__main__":
    mpl.use("Agg")
    mpl.rcParams.update(
        {"font.size": 9, "svg.hashsalt": "regmixup", "axes.spines.top": False, "axes.spines.right": False}
    )
    alpha()
    barrier()
    vicinity()
