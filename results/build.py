"""Write what the archives beside this file say: results.csv, and the tables and figures of the pages.

    python results/build.py                # after archives were added; tests compare what it writes

Pages are written by hand. A table stands below a comment that names it. A number that a page quotes has its key in
results.csv behind it, in a comment, and a test compares the two.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import claims
import figures
from archives import ALL_SCORES, C10, C100, COIN, FAMILIES, RESULTS, Setting, load, num_seeds, trained
from comparisons import CHOICES, METHODS, Estimate, Pair, against, archived, difference, mean_of, welch, with_holm

from regmixup.names import signed
from regmixup.report.openood import NETWORKS
from regmixup.report.writers import markdown_table

ROOT = RESULTS.parent
MARKED = re.compile(r"(<!-- table: (\S+) -->\n)")
TITLES = {"dnn": "plain", "regmixup": "RegMixup", COIN: "the coin"}
DIGITS = {"NLL": 3, "Brier": 3, "T": 3}
"""Digits that tables show of a quantity; two of all others."""
HEADLINE = ("accuracy", "shift accuracy", "near-OOD AUROC by MSP", "SVHN AUROC by MSP", "ECE", "NLL", "AUGRC")
LONGER = [trained("dnn", 149), trained("dnn", 200), trained("regmixup", 200)]
"""Plain training at the cost of RegMixup, and RegMixup for longer."""
LENGTHS = [trained(method, epochs) for method in ("dnn", "regmixup", "mixup") for epochs in (25, 50, 100, 200)]
BY_SCORE = tuple(f"{name} AUROC by {score}" for name in ("near-OOD", "SVHN") for score in ("MSP", "entropy", "DS"))
NEAR = ("near-OOD AUROC by MSP", "near-OOD AUROC by DS")
BY_SET = (*claims.OOD["MSP"], *claims.OOD["DS"])
DETECTION = (*NEAR, *(name for name in BY_SET if name != "SVHN AUROC by DS"))
QUALITY = ("accuracy", "shift accuracy", "ECE", "NLL", "AUGRC", "failure AUROC")
PRIMARY = ("NLL", "shift accuracy", "near-OOD list AUROC by MSP")
"""The quantities that `reliable-confirm` tests; it describes all else."""
CONFIRMED = (
    "accuracy", "shift accuracy", "NLL", "ECE", "AUGRC", "near-OOD list AUROC by MSP", "other CIFAR list AUROC by MSP",
    "Tiny-ImageNet list AUROC by MSP", "SVHN AUROC by MSP",
)  # fmt: skip
CONFIRM = "reliable-confirm"
"""The study whose tables take no other archives: older seeds of the coin had a part in what it confirms."""


def at_cost(equal: str, ours: Setting, reference: str = "dnn") -> Setting:
    """Return the training by another method for as many epochs, as many images or as many GPU minutes."""
    theirs = replace(ours, method=reference)
    factors = {"images": ours.images / theirs.images, "GPU minutes": ours.minutes / theirs.minutes}
    return replace(theirs, epochs=round(factors.get(equal, 1) * ours.epochs))


COSTS = ("epochs", "images", "GPU minutes")
Compared = tuple[str, Setting, str]
"""The cost at which a training is compared, the training, and the other one's method; each is a complete schedule."""
EQUAL_COST: list[Compared] = [
    *((equal, trained("regmixup", epochs), "dnn") for epochs in (25, 50, 100, 200) for equal in COSTS),
    ("epochs, images", trained("half-regmixup", 100), "dnn"),
    ("epochs", trained("regmixup", 200, C100), "dnn"),
    *((equal, trained("regmixup", 100, C100), "dnn") for equal in COSTS[1:]),
    ("epochs, images", trained("half-regmixup", 200, C100), "dnn"),
]
RELATIVES: list[Compared] = [
    *((equal, trained(method, 100), "dnn") for method in ("regcutmix", COIN) for equal in COSTS),
    *(("images", trained("regmixup", epochs), "mixup") for epochs in (25, 50, 100)),
]
"""Methods that forward two images for one, and RegMixup against Mixup; Holm corrects them apart from EQUAL_COST."""
PAPERS = trained("regmixup", 350, network="resnet50"), trained("dnn", 350, network="resnet50")
"""RegMixup and plain training at the paper's own setting."""


def pairs() -> list[Pair]:
    """Return every pair of trainings whose differences stand in results.csv."""
    compared = [(ours, at_cost(equal, ours, reference)) for equal, ours, reference in (*EQUAL_COST, *RELATIVES)]
    compared += [PAPERS, (trained("mixup", 25), trained("dnn", 25))]
    for epochs, train_set in ((100, C10), (200, C10), (200, C100)):
        for reference in ("dnn", "regmixup", "mixup"):
            compared += against(reference, epochs, train_set)
    changed = [*(trained(choice, 50) for choice in CHOICES), trained("regmixup(passes=separate-clean)", 100)]
    compared += [(setting, replace(setting, method=base)) for setting in changed for base in ("regmixup", "dnn")]
    compared += [(trained("regmixup", 30), replace(trained("regmixup", 30), precision="float32"))]
    return list(dict.fromkeys(pair for pair in compared if pair[0] in load("*") and pair[1] in load("*")))


def score_pairs() -> list[Pair]:
    """Return every training of `scores` and its plain training, which leads."""
    settings = sorted(load("scores"), key=lambda setting: [*METHODS, setting.method].index(setting.method))
    return [(setting, settings[0]) for setting in settings]


def confirmed_pairs() -> list[Pair]:
    """Return the pairs that `reliable-confirm` compares, as far as it has archived both trainings."""
    pairs_of = []
    for train_set in (C10, C100):
        reliable, coin, regmixup = (trained(method, 100, train_set) for method in ("reliable", COIN, "regmixup"))
        plain = at_cost("GPU minutes", regmixup)
        pairs_of += [(reliable, plain), (coin, plain), (regmixup, plain), (reliable, regmixup), (reliable, coin)]
    return [pair for pair in pairs_of if load(CONFIRM).keys() >= set(pair)]


def name_of(setting: Setting) -> str:
    """Return a setting as the keys of results.csv have it: cifar10 regmixup-100."""
    network = f"{setting.network} " if setting.network != "resnet18" else ""
    statistics = f"-{setting.statistics}" if setting.statistics != "trained" else ""
    precision = f"-{setting.precision}" if setting.precision != "bfloat16" else ""
    return f"{setting.family} {network}{setting.method}-{setting.epochs}{statistics}{precision}"


def write_csv(path: Path) -> None:
    """Write every mean and every difference, each with a key of its own."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "value", "std", "low", "high", "p", "n", "runs"])
        compared = {"*": pairs(), "scores": score_pairs()[1:], CONFIRM: confirmed_pairs()}
        for study, of_trainings in compared.items():
            for key, estimate, runs in estimates(study, of_trainings):
                numbers = (getattr(estimate, name) for name in ("value", "std", "low", "high", "p"))
                texts = ("" if number is None else f"{number:.6g}" for number in numbers)
                writer.writerow([key, *texts, "+".join(map(str, estimate.n)), runs])


def estimates(study: str, of_trainings: Iterable[Pair]) -> Iterator[tuple[str, Estimate, str]]:
    """Yield every mean behind its key and before its runs, then every difference, which has no runs of its own.

    study: see `load`; the keys of one begin with its name. of_trainings: the pairs of trainings that are compared.
    """
    prefix = "" if study == "*" else f"{study} "
    for setting, values in load(study).items():
        runs = " ".join(dict.fromkeys(map(str, values["run"].values())))
        for quantity in (name for name in values if name != "run"):
            yield f"{prefix}{name_of(setting)}: {quantity}", mean_of(setting, quantity, study=study), runs
    refreshed = [setting for setting in load(study) if setting.statistics == "refreshed"]
    for ours, theirs in (*of_trainings, *((setting, replace(setting, statistics="trained")) for setting in refreshed)):
        for quantity in (name for name in load(study)[ours] if name not in ("run", "T")):
            if (estimate := difference(ours, theirs, quantity, study=study)) is not None:
                yield f"{prefix}{name_of(ours)} minus {name_of(theirs).partition(' ')[2]}: {quantity}", estimate, ""


def cell(setting: Setting, quantity: str, *, study: str = "*", interval: bool = False) -> str:
    """Return a mean ± standard deviation, and its n where not all seeds of the setting have it.

    study: see `load`. interval: give the 95 % interval of the mean instead of the deviation.
    """
    if quantity not in load(study)[setting]:
        return "–"
    mean, digits = mean_of(setting, quantity, study=study), DIGITS.get(quantity, 2)
    spread = ""
    if mean.std is not None:
        spread = f" [{mean.low:.{digits}f}, {mean.high:.{digits}f}]" if interval else f" ± {mean.std:.{digits}f}"
    fewer = f" (n {mean.n[0]})" if mean.n[0] < num_seeds(setting, study) else ""
    return f"{mean.value:.{digits}f}{spread}{fewer}".replace("-", "−")


def method_name(setting: Setting) -> str:
    """Return the method of a setting as tables name it."""
    return TITLES.get(setting.method, setting.method)


def title(setting: Setting) -> str:
    """Return a setting as tables name it."""
    return f"{method_name(setting)}, {setting.epochs} epochs"


def data(setting: Setting) -> str:
    """Return the dataset of a setting as tables name it, and its network where that is not ResNet-18."""
    network = f", {NETWORKS[setting.network]}" if setting.network != "resnet18" else ""
    return f"{FAMILIES[setting.family]}{network}"


def cost(setting: Setting) -> list[str]:
    """Return the images forwarded, in millions, and the GPU minutes; ~ where its own step was not measured."""
    estimated = "~" if setting.step is None else ""
    minutes = "not measured" if setting.minutes is None else f"{estimated}{setting.minutes:.1f}"
    return [f"{setting.images:g} M", minutes]


def mean_cells(setting: Setting, columns: Iterable[str], *, study: str = "*", interval: bool = False) -> list[str]:
    """Return the cells of a setting in a table of means: cost, seeds and a mean per column. For the rest see `cell`."""
    cells = (cell(setting, column, study=study, interval=interval) for column in columns)
    return [*cost(setting), str(num_seeds(setting, study)), *cells]


def means(settings: Iterable[Setting], columns: Sequence[str], *, study: str = "*", interval: bool = False) -> str:
    """Return a table of means: cost, seeds and a column per quantity. study, interval: see `cell`."""
    lines = [[data(one), title(one), *mean_cells(one, columns, study=study, interval=interval)] for one in settings]
    return markdown_table(["data", "training", "images", "GPU min", "n", *columns], lines)


def without_data(table: str) -> str:
    """Return a table without its first column, for a page that names the one dataset itself."""
    return re.sub(r"(?m)^\| [^|]* (?=\|)", "", table)


def difference_table(head: str, lines: Mapping[str, Pair], columns: Sequence[str], *, shown: Iterable[str] = ()) -> str:
    """Return a table of differences; bold ones stand after Holm's correction over the lines of their column.

    Where near-OOD was measured on OpenOOD's lists alone, these stand there, marked, with a correction of their own.
    shown: the lines to show, default all; the correction runs over all in either case.
    """
    cells: dict[str, list[str]] = {name: [] for name in lines}
    for column in columns:
        whole, lists = (
            with_holm({name: difference(*pair, quantity) for name, pair in lines.items()})
            for quantity in (column, column.replace("near-OOD", "near-OOD list"))
        )
        for name in lines:
            mark = " (list)" if name in lists and name not in whole else ""
            cells[name].append(difference_cell(whole.get(name, lists.get(name)), column) + mark)
    return markdown_table([*head.split(" | "), *columns], [[name, *cells[name]] for name in shown or lines])


def difference_cell(tested: Estimate | None, quantity: str) -> str:
    """Return a difference with its interval, bold where it stands."""
    return _marked(tested.text(DIGITS.get(quantity, 2)), tested) if tested is not None else "–"


def _marked(text: str, tested: Estimate | None) -> str:
    return f"**{text}**" if tested is not None and tested.stands else text


def equal_cost(columns: Sequence[str], compared: Iterable[Compared] = EQUAL_COST, *, short: bool = False) -> str:
    """Return the differences of archived trainings at equal epochs, images and minutes.

    short: show those of CIFAR-10 after 100 epochs alone.
    """
    lines = {}
    for equal, ours, reference in compared:
        theirs = at_cost(equal, ours, reference)
        if {ours, theirs} <= load("*").keys():
            sides = (f"{method_name(side)} {side.epochs}" for side in (ours, theirs))
            lines[f"{data(ours)} | {equal} | {' − '.join(sides)}"] = ours, theirs
    shown = [name for name, (ours, _) in lines.items() if (ours.train_set, ours.epochs) == (C10, 100) or not short]
    return difference_table("data | equal | method and epochs", lines, columns, shown=shown)


def confirmation_differences() -> str:
    """Return the differences of `reliable-confirm`, with Holm's correction over the primary ones of a line.

    Its plan tests `reliable` and the coin against plain training, with five seeds of each; the rest is described.
    """
    lines = []
    for ours, theirs in confirmed_pairs():
        is_tested = ours.method in ("reliable", COIN) and theirs.method == "dnn"
        is_complete = all(num_seeds(side, CONFIRM) == 5 for side in (ours, theirs))
        differences = {quantity: welch(ours, theirs, quantity, study=CONFIRM) for quantity in CONFIRMED}
        tested = with_holm(differences, PRIMARY if is_tested and is_complete else ())
        cells = [difference_cell(tested.get(quantity), quantity) for quantity in CONFIRMED]
        lines.append([data(ours), f"{method_name(ours)} − {method_name(theirs)}", *cells])
    return markdown_table(["data", "difference", *CONFIRMED], lines)


def matrix() -> str:
    """Return near-OOD AUROC on OpenOOD's lists by score and training of `scores`.

    A bold one differs from plain training by the same score, after Holm's correction over the scores of a training.
    """
    quantities = [f"near-OOD list AUROC by {score}" for score in ALL_SCORES]
    columns = []
    for ours, plain in score_pairs():
        tested = with_holm({quantity: welch(ours, plain, quantity, study="scores") for quantity in quantities})
        cells = [_marked(cell(ours, quantity, study="scores"), tested.get(quantity)) for quantity in quantities]
        columns.append([f"{title(ours)}, n {num_seeds(ours, 'scores')}", *cells])
    heads, *lines = zip(["near-OOD list AUROC by", *ALL_SCORES], *columns, strict=True)
    return markdown_table(heads, lines)


def statistics() -> str:
    """Return what other batch-norm statistics do to the same networks, paired."""
    settings = [trained(method, epochs) for epochs in (100, 200) for method in ("dnn", "regmixup")]
    lines = {title(setting): (replace(setting, statistics="refreshed"), setting) for setting in settings}
    columns = ("accuracy", "ECE", *NEAR, "SVHN AUROC by MSP")
    return difference_table("clean statistics − those of training", lines, columns)


def others() -> str:
    """Return others' numbers beside ours, from others.toml."""
    published = tomllib.loads((RESULTS / "others.toml").read_text(encoding="utf-8"))
    columns = ("accuracy", "near-OOD list AUROC by MSP", "AURC", "failure AUROC")
    lines = []
    for entry in published["entry"]:
        setting = trained(entry["method"], entry["epochs"], f"{entry['recipe'].partition('-')[0]}/train")
        beside = [f"{entry[name]} / {cell(setting, name)}" if name in entry else "" for name in columns]
        named = [entry["who"], f"{title(setting)}, {data(setting)}", f"{entry['runs']} / {num_seeds(setting)}"]
        lines.append([*named, *beside])
    return markdown_table(["theirs / ours", "training", "n", *columns], lines)


def paper_setting() -> str:
    """Return the paper's ResNet-50 on CIFAR-10 beside ours, in the quantities that the paper prints for it."""
    columns = ("accuracy", "shift accuracy", *claims.OOD["DS"])
    lines = []
    for setting in reversed(PAPERS):
        numbers = [f"{claims.printed(setting, column):.2f}" for column in columns]
        lines.append([f"{title(setting)}, the paper", cost(setting)[0], "–", "5", *numbers])
        lines.append([f"{title(setting)}, ours", *mean_cells(setting, columns)])
    return markdown_table(["training", "images", "GPU min", "n", *columns], lines)


def paper_differences() -> str:
    """Return RegMixup minus plain training at the paper's setting, with Holm's correction over the six AUROCs."""
    tested = with_holm({quantity: welch(*PAPERS, quantity) for quantity in BY_SET})
    lines = []
    for by_ds, by_msp in zip(claims.OOD["DS"], claims.OOD["MSP"], strict=True):
        papers = signed(claims.papers_difference(*PAPERS, by_ds))
        ours = (difference_cell(tested[quantity], quantity) for quantity in (by_ds, by_msp))
        lines.append([by_ds.partition(" AUROC")[0], papers, *ours])
    return markdown_table(["RegMixup − plain, AUROC", "the paper, by DS", "ours, by DS", "ours, by MSP"], lines)


def methods(reference: str, head: str) -> str:
    """Return the differences of every method from one of them, after 100 epochs on CIFAR-10."""
    lines = {method_name(pair[0]): pair for pair in against(reference, 100)}
    return difference_table(head, lines, (*HEADLINE, "failure AUROC"))


def cifar100(columns: Sequence[str]) -> str:
    """Return the differences on CIFAR-100."""
    regmixup = trained("regmixup", 200, C100)
    mixed = [trained(method, 200, C100) for method in ("mixup", "half-regmixup")]
    pairs_of = [*against("dnn", 200, C100), *((regmixup, setting) for setting in mixed)]
    lines = {" − ".join(map(method_name, pair)): pair for pair in pairs_of}
    return difference_table("CIFAR-100, 200 epochs", lines, columns)


def choices() -> str:
    """Return what each choice of RegMixup changes, after 50 epochs."""
    lines = {choice: (trained(choice, 50), trained("regmixup", 50)) for choice in CHOICES}
    return difference_table("minus RegMixup, 50 epochs", lines, (*QUALITY[:3], *NEAR, "SVHN AUROC by MSP"))


TABLES: dict[str, Callable[[], str]] = {
    "headline": lambda: means(
        [
            trained("dnn", 100), trained("regmixup", 100), trained("dnn", 149), trained("dnn", 200),
            trained("dnn", 200, C100), trained("regmixup", 200, C100),
        ],
        ("accuracy", "shift accuracy", "near-OOD AUROC by MSP", "ECE", "NLL", "Brier"),
    ),
    "confirmation": lambda: means(
        sorted(load(CONFIRM), key=lambda one: (one.family, METHODS.index(one.method))), CONFIRMED, study=CONFIRM
    ),
    "confirmation-differences": confirmation_differences,
    "at-equal-cost": lambda: without_data(equal_cost((*QUALITY[:4], *NEAR), short=True)),
    "equal-cost": lambda: equal_cost(QUALITY),
    "equal-cost-detection": lambda: equal_cost(DETECTION),
    "relatives": lambda: without_data(equal_cost(QUALITY, RELATIVES)),
    "relatives-detection": lambda: without_data(equal_cost(DETECTION, RELATIVES)),
    "leaderboard": lambda: without_data(means([*archived(100), *LONGER], (*HEADLINE, "Brier"), interval=True)),
    "leaderboard-cifar100": lambda: without_data(means(archived(200, C100), (*HEADLINE, "Brier"), interval=True)),
    "paper-resnet50": paper_setting,
    "paper-resnet50-differences": paper_differences,
    "length": lambda: without_data(means(LENGTHS, (*QUALITY[:3], *BY_SET))),
    "methods-against-plain": lambda: methods("dnn", "minus plain training, 100 epochs"),
    "methods-against-regmixup": lambda: methods("regmixup", "minus RegMixup, 100 epochs"),
    "cifar100": lambda: cifar100((*QUALITY[:3], *claims.OOD["MSP"], "other CIFAR AUROC by DS")),
    "cifar100-all": lambda: cifar100(QUALITY),
    "cifar100-detection": lambda: cifar100(BY_SET),
    "temperature": lambda: without_data(means(archived(100), ("ECE", "AdaECE", "T", "ECE with T", "AdaECE with T"))),
    "choices": choices,
    "scores": lambda: means([*archived(100), *archived(200, C100)], BY_SCORE),
    "matrix": matrix,
    "statistics": statistics,
    "others": others,
    "claims-paper": lambda: claims.table(chain.from_iterable(claims.CLAIMS.values()), at_papers=True),
    **{f"claims-{kind}": partial(claims.table, of_kind) for kind, of_kind in claims.CLAIMS.items()},
}  # fmt: skip
"""The tables by the names that pages call them."""


def with_table(text: str, start: str, table: str) -> str:
    """Return a page with a new table in place of `start` and the lines of the old table behind it."""
    assert start in text, start
    return re.sub(re.escape(start) + r"(\|.*\n)*", lambda _: table, text, count=1)


def with_tables(text: str) -> str:
    """Return a page with the tables below its comments made again."""
    for comment, name in MARKED.findall(text):
        text = with_table(text, comment, comment + TABLES[name]())
    return text


def main() -> None:
    write_csv(RESULTS / "results.csv")
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    figures.write(ROOT / "docs" / "images")


if __name__ == "__main__":
    main()
