"""Write what the archives beside this file say: results.csv, and the tables and figures of the pages.

    python results/build.py                # after archives were added; tests compare what it writes

Pages are written by hand. A table stands below a comment that names it. A number that a page quotes has its key in
results.csv behind it, in a comment, and a test compares the two.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import claims
import figures
from archives import MILLISECONDS, RESULTS, Setting, load
from comparisons import Difference, mean_of, paired, welch, with_holm

from regmixup.names import signed
from regmixup.paper import PaperValue
from regmixup.report.writers import markdown_table

ROOT = RESULTS.parent
MARKED = re.compile(r"(<!-- table: (\S+) -->\n)(?:\|.*\n)*")
C10, C100 = "cifar10/train", "cifar100/train"
TITLES = {"dnn": "plain", "regmixup": "RegMixup"}
HEADLINE = ("accuracy", "shift accuracy", "near-OOD AUROC by MSP", "SVHN AUROC by MSP", "ECE", "NLL", "AUGRC")
DETECTION = tuple(
    f"{name} AUROC by {score}" for name in ("other CIFAR", "Tiny-ImageNet", "SVHN") for score in ("MSP", "DS")
)
COMPARED = (
    "accuracy", "shift accuracy", "ECE", "NLL", "failure AUROC", "other CIFAR AUROC by MSP", "other CIFAR AUROC by DS",
    "Tiny-ImageNet AUROC by MSP", "Tiny-ImageNet AUROC by DS", "near-OOD AUROC by MSP", "near-OOD AUROC by DS",
    "SVHN AUROC by MSP",
)  # fmt: skip


def setting(method: str, epochs: int, train_set: str = C10, *, network: str = "resnet18") -> Setting:
    """Return a setting of ours with the statistics of training."""
    return Setting(train_set, network, epochs, method)


def plain_epochs(epochs: int) -> int:
    """Return the epochs of plain training that take as long as these of RegMixup, on ResNet-18."""
    steps = MILLISECONDS["resnet18"]
    return round(epochs * steps[2.0] / steps[1.0])


EQUAL_COST = [
    ("epochs", setting("regmixup", 50), setting("dnn", 50)),
    ("images", setting("regmixup", 50), setting("dnn", 100)),
    ("GPU minutes", setting("regmixup", 50), setting("dnn", plain_epochs(50))),
    ("epochs", setting("regmixup", 100), setting("dnn", 100)),
    ("images", setting("regmixup", 100), setting("dnn", 200)),
    ("GPU minutes", setting("regmixup", 100), setting("dnn", plain_epochs(100))),
    ("epochs", setting("regmixup", 200), setting("dnn", 200)),
    ("images", setting("regmixup", 200), setting("dnn", 400)),
    ("GPU minutes", setting("regmixup", 200), setting("dnn", plain_epochs(200))),
    ("epochs, images", setting("half-regmixup", 100), setting("dnn", 100)),
    ("epochs", setting("regmixup", 200, C100), setting("dnn", 200, C100)),
    ("images", setting("regmixup", 100, C100), setting("dnn", 200, C100)),
    ("GPU minutes", setting("regmixup", 100, C100), setting("dnn", plain_epochs(100), C100)),
    ("epochs, images", setting("half-regmixup", 200, C100), setting("dnn", 200, C100)),
    ("epochs", setting("regmixup", 350, network="resnet50"), setting("dnn", 350, network="resnet50")),
]
"""Which cost is equal, and the two trainings; each is a complete schedule."""
SHOWN_FIRST = [
    ("epochs", setting("regmixup", 100), setting("dnn", 100)),
    ("images", setting("regmixup", 100), setting("dnn", 200)),
    ("epochs, images", setting("half-regmixup", 100), setting("dnn", 100)),
    ("epochs", setting("regmixup", 200, C100), setting("dnn", 200, C100)),
]
"""Those of the short table."""
assert set(SHOWN_FIRST) <= set(EQUAL_COST)
METHODS = [
    "dnn", "regmixup", "half-regmixup", "bimodal", "mixup", "cutmix", "regcutmix", "mixup+cutmix", "regmixup+cutmix",
    "regmixup+regcutmix", "augmix", "label-smoothing", "kfac-llla", "deep-ensemble",
]  # fmt: skip
CHOICES = [
    "regmixup(alpha=1)", "regmixup(alpha=10)", "regmixup(eta=0.5)", "regmixup(eta=2)", "regmixup(scale=sum)",
    "regmixup(lam=sample)", "regmixup(passes=separate)", "regmixup(passes=separate-clean)",
]  # fmt: skip


def pairs() -> list[tuple[Setting, Setting]]:
    """Return every pair of trainings whose differences stand in results.csv."""
    chosen = [(ours, theirs) for _, ours, theirs in EQUAL_COST]
    chosen += [(setting(method, 25), setting("dnn", 25)) for method in ("regmixup", "mixup")]
    for epochs, train_set in ((100, C10), (200, C10), (200, C100)):
        for reference in ("dnn", "regmixup", "mixup"):
            chosen += [
                (setting(method, epochs, train_set), setting(reference, epochs, train_set))
                for method in METHODS
                if method not in (reference, "kfac-llla")  # whose prior variance all seeds share
            ]
    chosen += [(setting(choice, 50), setting(base, 50)) for choice in CHOICES for base in ("regmixup", "dnn")]
    separate = "regmixup(passes=separate-clean)"
    chosen += [(setting(separate, 100), setting(base, 100)) for base in ("regmixup", "dnn")]
    chosen += [(setting("regmixup", 30), Setting(C10, "resnet18", 30, "regmixup", precision="float32"))]
    return list(dict.fromkeys(pair for pair in chosen if pair[0] in load() and pair[1] in load()))


def name_of(chosen: Setting) -> str:
    """Return a setting as the keys of results.csv have it: cifar10 regmixup-100."""
    parts = [chosen.family, *([chosen.network] if chosen.network != "resnet18" else [])]
    method = f"{chosen.method}-{chosen.epochs}"
    method += f"-{chosen.statistics}" if chosen.statistics != "trained" else ""
    return " ".join([*parts, method + (f"-{chosen.precision}" if chosen.precision != "bfloat16" else "")])


def write_csv(path: Path) -> None:
    """Write every mean and every difference, each with a key of its own."""
    lines: list[list[object]] = []
    for chosen, values in load().items():
        if chosen.train_set not in (C10, C100):  # companions, which only choose T
            continue
        runs = " ".join(dict.fromkeys(str(run) for run in values["run"].values()))
        for quantity in (name for name in values if name != "run"):
            mean = mean_of(chosen, quantity)
            assert mean is not None
            key = f"{name_of(chosen)}: {quantity}"
            lines.append([key, mean.value, mean.std, mean.low, mean.high, "", mean.n, runs])
    for ours, theirs in pairs():
        for quantity in (name for name in load()[ours] if name not in ("run", "T")):
            if (difference := welch(ours, theirs, quantity)) is not None:
                key = f"{name_of(ours)} minus {name_of(theirs).partition(' ')[2]}: {quantity}"
                counts = "+".join(map(str, difference.n))
                row = [difference.value, "", difference.low, difference.high, difference.p, counts, ""]
                lines.append([key, *row])
    for chosen in [one for one in load() if one.statistics == "refreshed"]:
        trained = Setting(chosen.train_set, chosen.network, chosen.epochs, chosen.method)
        for quantity in (name for name in load()[chosen] if name not in ("run", "T")):
            if (difference := paired(chosen, quantity, trained, quantity)) is not None:
                key = f"{name_of(chosen)} minus {name_of(trained).partition(' ')[2]}: {quantity}"
                row = [difference.value, "", difference.low, difference.high, difference.p, difference.n[0], ""]
                lines.append([key, *row])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "value", "std", "low", "high", "p", "n", "runs"])
        writer.writerows([_short(cell) for cell in line] for line in lines)


def _short(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else "" if cell is None else cell


def cell(chosen: Setting, quantity: str) -> str:
    """Return a mean ± standard deviation; NLL with three digits."""
    mean = mean_of(chosen, quantity)
    if mean is None:
        return "–"
    digits = 3 if quantity in ("NLL", "T") else 2
    spread = f" ± {mean.std:.{digits}f}" if mean.std is not None else ""
    return f"{mean.value:.{digits}f}{spread}"


def title(chosen: Setting) -> str:
    """Return a setting as tables name it."""
    return f"{TITLES.get(chosen.method, chosen.method)}, {chosen.epochs} epochs"


def cost(chosen: Setting) -> list[str]:
    """Return the images forwarded, in millions, and the GPU minutes; ~ where its own step was not measured."""
    estimated = "~" if chosen.step is None else ""
    minutes = "not measured" if chosen.minutes is None else f"{estimated}{chosen.minutes:.1f}"
    return [f"{chosen.images:g} M", minutes]


def means(settings: Iterable[Setting], columns: Sequence[str]) -> str:
    """Return a table of means: cost, seeds and a column per quantity; "not measured" where no archive has it."""
    lines = []
    for chosen in settings:
        if chosen in load():
            count = str(len(load()[chosen]["run"]))
            cells = [cell(chosen, column) for column in columns]
        else:
            count, cells = "–", ["not measured", *[""] * (len(columns) - 1)]
        lines.append([title(chosen), *cost(chosen), count, *cells])
    return markdown_table(["training", "images", "GPU min", "n", *columns], lines)


Pairs = Sequence[tuple[str, Setting, Setting]]
"""The name of a line, and its two trainings."""


def differences(pairs_of: Pairs, columns: Sequence[str], *, head: str, lines_of: Pairs | None = None) -> str:
    """Return a table of differences; bold ones stand after Holm's correction over the lines of their column.

    lines_of: the lines to show, default all; the correction runs over all in either case.
    """
    measured = [(name, ours, theirs) for name, ours, theirs in pairs_of if ours in load() and theirs in load()]
    cells: dict[tuple[str, str], str] = {}
    for column in columns:
        tested = with_holm({name: welch(ours, theirs, column) for name, ours, theirs in measured})
        cells |= {(name, column): _marked(*pair, digits=3 if column == "NLL" else 2) for name, pair in tested.items()}
    lines = []
    for name, ours, theirs in lines_of or pairs_of:
        known = ours in load() and theirs in load()
        values = [cells.get((name, column), "–") for column in columns]
        lines.append([name, *(values if known else ["not measured", *[""] * (len(columns) - 1)])])
    return markdown_table([*head.split(" | "), *columns], lines)


def _marked(difference: Difference, p: float, *, digits: int) -> str:
    text = difference.text(digits)
    return f"**{text}**" if p < 0.05 else text


def equal_cost(columns: Sequence[str] = COMPARED, *, shown: Pairs = EQUAL_COST) -> str:
    """Return the differences of RegMixup, and of half-RegMixup, at equal epochs, images and minutes."""
    lines, lines_of = (
        [(f"{_data(ours)} | {equal} | {title(ours)} | {title(theirs)}", ours, theirs) for equal, ours, theirs in listed]
        for listed in (EQUAL_COST, shown)
    )
    return differences(lines, columns, head="data | equal | this | minus this", lines_of=lines_of)


def _data(chosen: Setting) -> str:
    network = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}[chosen.network]
    return f"{chosen.family.upper().replace('CIFAR', 'CIFAR-')}, {network}"


def headline() -> str:
    """Return the few lines of the README: plain training, RegMixup, and plain training at RegMixup's cost."""
    chosen = [
        ("CIFAR-10", setting("dnn", 100)), ("CIFAR-10", setting("regmixup", 100)), ("CIFAR-10", setting("dnn", 200)),
        ("CIFAR-100", setting("dnn", 200, C100)), ("CIFAR-100", setting("regmixup", 200, C100)),
    ]  # fmt: skip
    columns = ("accuracy", "shift accuracy", "near-OOD AUROC by MSP", "ECE", "NLL")
    lines = [
        [data, title(one), *cost(one), str(len(load()[one]["run"])), *(cell(one, column) for column in columns)]
        for data, one in chosen
    ]
    return markdown_table(["data", "training", "images", "GPU min", "n", *columns], lines)


def scores() -> str:
    """Return detection by score: every method at 100 epochs, near-OOD and SVHN."""
    columns = [f"{name} AUROC by {score}" for name in ("near-OOD", "SVHN") for score in ("MSP", "entropy", "DS")]
    return means([setting(method, 100) for method in METHODS], columns)


def _paired_table(head: Sequence[str], lines: Sequence[tuple[str, Sequence[Difference | None]]]) -> str:
    """Return a table of paired differences; bold ones stand after Holm's correction over the lines of their column."""
    rows = [[name] for name, _ in lines]
    for place in range(len(head) - 1):
        tested = with_holm({name: found[place] for name, found in lines})
        for row in rows:
            row.append(_marked(*tested[row[0]], digits=2) if row[0] in tested else "–")
    return markdown_table(head, rows)


def score_effects() -> str:
    """Return what another score changes, paired within the same networks."""
    compared = [(name, score) for name in ("near-OOD", "SVHN") for score in ("DS", "entropy")]
    lines = []
    for method, epochs, train_set in (
        ("dnn", 100, C10),
        ("regmixup", 100, C10),
        ("dnn", 200, C100),
        ("regmixup", 200, C100),
    ):
        chosen = setting(method, epochs, train_set)
        found = [paired(chosen, f"{name} AUROC by {score}", chosen, f"{name} AUROC by MSP") for name, score in compared]
        lines.append((f"{title(chosen)}, {_data(chosen)}", found))
    return _paired_table(["training", *(f"{name}: {score} − MSP" for name, score in compared)], lines)


def statistics() -> str:
    """Return what other batch-norm statistics do to the same networks, paired."""
    columns = ("accuracy", "ECE", "near-OOD AUROC by MSP", "near-OOD AUROC by DS", "SVHN AUROC by MSP")
    lines = []
    for method, epochs in (("dnn", 100), ("regmixup", 100), ("dnn", 200), ("regmixup", 200)):
        trained, refreshed = setting(method, epochs), Setting(C10, "resnet18", epochs, method, "refreshed")
        lines.append((title(trained), [paired(refreshed, column, trained, column) for column in columns]))
    return _paired_table(["clean statistics − those of training", *columns], lines)


def others() -> str:
    """Return others' numbers beside ours, from others.toml."""
    known = tomllib.loads((RESULTS / "others.toml").read_text(encoding="utf-8"))
    columns = {
        "accuracy": "accuracy",
        "near": "near-OOD AUROC by MSP",
        "aurc": "AURC",
        "failure_auroc": "failure AUROC",
    }
    lines = []
    for entry in known["entry"]:
        chosen = setting(entry["method"], entry["epochs"], C100 if "cifar100" in entry["recipe"] else C10)
        beside = [f"{entry[key]} / {cell(chosen, name)}" if key in entry else "" for key, name in columns.items()]
        count = f"{entry['runs']} / {len(load()[chosen]['run'])}"
        lines.append([entry["who"], f"{title(chosen)}, {_data(chosen)}", count, *beside])
    return markdown_table(["theirs / ours", "training", "n", *columns.values()], lines)


def openood() -> str:
    """Return near-OOD detection on OpenOOD's lists, from openood.csv: one seed each, whose outcomes are archived."""
    with (RESULTS / "openood.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["score"] == "MSP" and row["network"] == "resnet18"]
    lines = [
        [f"{TITLES.get(row['method'], row['method'])}, {row['epochs']} epochs", row["seed"]]
        + [f"{float(row[column]):.2f}" for column in ("cifar100", "tiny-imagenet", "near")]
        for row in sorted(rows, key=lambda row: (int(row["epochs"]), METHODS.index(row["method"])))
    ]
    return markdown_table(["training", "seed", "CIFAR-100 by MSP", "Tiny-ImageNet by MSP", "near-OOD by MSP"], lines)


PAPERS = ("accuracy", "shift accuracy", "other CIFAR AUROC by DS", "SVHN AUROC by DS", "Tiny-ImageNet AUROC by DS")
"""The quantities that the paper prints for its ResNet-50 on CIFAR-10."""


def _printed(method: str, quantity: str) -> PaperValue:
    printed = claims.printed(method, "resnet50", "cifar10", quantity.removesuffix(" by DS"))
    assert printed is not None
    return printed


def paper_setting() -> str:
    """Return the paper's ResNet-50 on CIFAR-10 beside ours."""
    lines = []
    for method in ("dnn", "regmixup"):
        chosen = setting(method, 350, network="resnet50")
        images, minutes = cost(chosen)
        printed = [_printed(method, quantity).text for quantity in PAPERS]
        lines.append([f"{title(chosen)}, the paper", images, "–", "5", *printed])
        count = str(len(load().get(chosen, {}).get("run", {})))
        lines.append([f"{title(chosen)}, ours", images, minutes, count, *(cell(chosen, name) for name in PAPERS)])
    return markdown_table(["training", "images", "GPU min", "n", *PAPERS], lines)


def paper_differences() -> str:
    """Return RegMixup minus plain training at the paper's setting, with Holm's correction over the six AUROCs."""
    ours, theirs = (setting(method, 350, network="resnet50") for method in ("regmixup", "dnn"))
    tested = with_holm({quantity: welch(ours, theirs, quantity) for quantity in DETECTION})
    lines = []
    for name in ("other CIFAR", "SVHN", "Tiny-ImageNet"):
        by_ds, by_msp = (f"{name} AUROC by {score}" for score in ("DS", "MSP"))
        papers = 100 * (_printed("regmixup", by_ds).value - _printed("dnn", by_ds).value)
        lines.append([name, signed(papers, 2), *(_marked(*tested[quantity], digits=2) for quantity in (by_ds, by_msp))])
    return markdown_table(["RegMixup − plain, AUROC", "the paper, by DS", "ours, by DS", "ours, by MSP"], lines)


def against(reference: str, head: str) -> str:
    """Return the differences of every method from one of them, after 100 epochs on CIFAR-10."""
    chosen = [method for method in METHODS if method not in (reference, "kfac-llla")]
    lines = [(TITLES.get(method, method), setting(method, 100), setting(reference, 100)) for method in chosen]
    return differences(lines, (*HEADLINE, "failure AUROC"), head=head)


def cifar100() -> str:
    """Return the differences on CIFAR-100."""
    chosen = [("regmixup", "dnn"), ("half-regmixup", "dnn"), ("mixup", "dnn")]
    chosen += [("regmixup", "mixup"), ("regmixup", "half-regmixup")]
    lines = [
        (
            f"{TITLES.get(ours, ours)} − {TITLES.get(theirs, theirs)}",
            setting(ours, 200, C100),
            setting(theirs, 200, C100),
        )
        for ours, theirs in chosen
    ]
    columns = [name for name in COMPARED if not name.startswith("near-OOD") and name != "Tiny-ImageNet AUROC by DS"]
    return differences(lines, columns, head="CIFAR-100, 200 epochs")


TABLES: dict[str, Callable[[], str]] = {
    "headline": headline,
    "at-equal-cost": lambda: equal_cost(
        ("accuracy", "shift accuracy", "ECE", "NLL", "near-OOD AUROC by MSP", "near-OOD AUROC by DS"),
        shown=SHOWN_FIRST,
    ),
    "equal-cost": equal_cost,
    "leaderboard-cifar10": lambda: means(
        [*(setting(method, 100) for method in METHODS), setting("dnn", 200), setting("regmixup", 200)], HEADLINE
    ),
    "leaderboard-cifar100": lambda: means(
        [setting(method, 200, C100) for method in METHODS if setting(method, 200, C100) in load()], HEADLINE
    ),
    "paper-resnet50": paper_setting,
    "paper-resnet50-differences": paper_differences,
    "length": lambda: means(
        [setting(method, epochs) for epochs in (25, 50, 100, 200) for method in ("dnn", "regmixup", "mixup")],
        ("accuracy", "shift accuracy", "ECE", *DETECTION),
    ),
    "methods-against-plain": lambda: against("dnn", "minus plain training, 100 epochs"),
    "methods-against-regmixup": lambda: against("regmixup", "minus RegMixup, 100 epochs"),
    "cifar100": cifar100,
    "temperature": lambda: means(
        [setting(method, 100) for method in METHODS], ("ECE", "AdaECE", "T", "ECE with T", "AdaECE with T")
    ),
    "choices": lambda: differences(
        [(choice, setting(choice, 50), setting("regmixup", 50)) for choice in CHOICES],
        ("accuracy", "shift accuracy", "ECE", "near-OOD AUROC by MSP", "near-OOD AUROC by DS", "SVHN AUROC by MSP"),
        head="minus RegMixup, 50 epochs",
    ),
    "scores": scores,
    "score-effects": score_effects,
    "statistics": statistics,
    "others": others,
    "openood": openood,
    "claims-paper": claims.papers_table,
    **{f"claims-{kind}": partial(claims.table, kind) for kind in claims.CLAIMS},
    "claims-cost": claims.cost,
}  # fmt: skip
"""The tables by the names that pages call them."""


def with_tables(text: str) -> str:
    """Return a page with its tables made again."""
    return MARKED.sub(lambda marked: marked[1] + TABLES[marked[2]](), text)


def main() -> None:
    write_csv(RESULTS / "results.csv")
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    figures.write(ROOT / "docs" / "images")


if __name__ == "__main__":
    main()
