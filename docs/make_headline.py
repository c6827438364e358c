"""The headline of docs/results.md: what every method does against plain training, and the tables beside the paper's."""

from collections.abc import Mapping, Sequence
from itertools import product

from claims import SCORES, Training, prose
from make_effects import BASE, PLAIN, Effect, compared, effect, figure
from make_scores import SCORES as COMPARED
from make_tables import RECIPE, Column, headings, measured, standard_columns

from regmixup.methods import METHODS
from regmixup.names import signed
from regmixup.paper import paper_value
from regmixup.recipes import RECIPES
from regmixup.report.aggregation import Aggregation, Quantity, usual_score
from regmixup.report.results import ONE_PRIOR_VARIANCE
from regmixup.report.significance import LEVEL
from regmixup.report.writers import markdown_table
from regmixup.types import higher_is_better

TEXT = (
    "The field's ResNet-18 at its own length: OpenOOD's 100 epochs on CIFAR-10, SURE's 200 on CIFAR-100. RegMixup has "
    "alpha 20, on CIFAR-100 and in mixtures 10. Below ours are the paper's means over 5 seeds with larger networks and "
    "350 epochs. Calibration is in a table of its own. T is chosen by ECE on train images that a companion was trained "
    "without, once for all seeds of a method; intervals do not cover that choice.\n"
)
AGAINST_PLAIN = """What is decided against plain training, for methods with several seeds, each by its own score:
differences in points (AUGRC x 1000) that are not 0 after Holm's correction over the methods of a column, at 5 %;
columns are not corrected for each other. What is not named was not told apart. Where the two have different scores, a
difference in AUROC is of method and score together; so it is also told by the method's score for both, without a
correction.
"""
UNCOMPARED = """{} is not compared: its prior variance comes from one companion for all seeds, which are then not
independent. Its intervals in table and figure do not cover that choice.
"""
AGAINST_BASE = """And against RegMixup, in the same way. Half-RegMixup and bimodal cost as much as plain training, and
should come close to it; RegMixup and RegCutMix by a coin at every step cost as much as RegMixup alone.
"""
ALSO_PLAIN = "Against plain training, as above:\n"
ALSO_BASE = "Against RegMixup:\n"
BY_SCORES = """AUROC of RegMixup minus that of every other method with several seeds, both by one score, of the runs
below, with 95 % intervals over seeds, each by itself:
"""


def own_length(recipe: str) -> Training:
    """Return the training of a recipe as it stands."""
    return Training(recipe, (), RECIPES[recipe].recipe.epochs, "bfloat16")


def answer(found: Mapping[Training, Aggregation], recipe: str = RECIPE) -> str:
    """Return a line for each method against plain training, and against RegMixup."""
    rows, columns = found.get(own_length(recipe), Aggregation([])), standard_columns(recipe)
    several = [label for label in METHODS if label != PLAIN and len(columns[0].rows(rows, label)) > 1]
    dependent = [label for label in several if rows.design.untested.get(label) == ONE_PRIOR_VARIANCE]
    several = [label for label in several if label not in dependent]
    against_plain = AGAINST_PLAIN + (UNCOMPARED.format(", ".join(dependent)) if dependent else "")
    parts = []
    for text, reference, labels in (
        (against_plain if recipe == RECIPE else ALSO_PLAIN, PLAIN, several),
        (AGAINST_BASE if recipe == RECIPE else ALSO_BASE, BASE, [label for label in several if label != BASE]),
    ):
        effects = [compared(rows, column, reference, labels) for column in columns]
        lines = [
            f"{_told(label, columns, effects)}{_by_one_score(rows, columns, label, reference)}."
            for label in labels
            if label in effects[0]
        ]
        if lines and effects[0][labels[0]][0].interval is not None:
            parts += [text, "\n".join(lines) + "\n"]
    return "\n".join(parts)


def _told(label: str, columns: Sequence[Column], found: Sequence[Mapping[str, tuple[Effect, bool]]]) -> str:
    """Return in what a method is better and worse than the reference, and what only the interval by itself shows."""
    kinds: dict[str, list[str]] = {"better in": [], "worse in": [], "before the correction only": []}
    seeds = 0
    for column, head, effects in zip(columns, headings(columns), found, strict=True):
        if label not in effects or effects[label][0].p is None:
            continue
        one, decided = effects[label]
        seeds = max(seeds, len(one.runs))
        better = (one.value > 0) == higher_is_better(column.quantity.metric)
        kind = ("better in" if better else "worse in") if decided else "before the correction only"
        if decided or one.p < LEVEL:
            kinds[kind].append(f"{head} {signed(one.value)}")
    told = "; ".join(f"{kind} {', '.join(some)}" for kind, some in kinds.items() if some)
    return f"- **{label}** ({seeds} seeds): {told or 'nothing is told apart'}"


def _by_one_score(rows: Aggregation, columns: Sequence[Column], label: str, reference: str) -> str:
    """Return which AUROCs differ by the method's score for both, interval by interval; "" if both have that score."""
    score = usual_score("auroc", label)
    if score == usual_score("auroc", reference):
        return ""
    own = [column._replace(score=score) for column in columns if column.quantity.metric == "auroc"]
    found = [effect(rows, column, label, reference) for column in own]
    told = [
        f"{head} {signed(one.value)}"
        for head, one in zip(headings(own), found, strict=True)
        if one is not None and one.p is not None and one.p < LEVEL
    ]
    return f"; by {SCORES[score]} for both {', '.join(told) or 'no AUROC is told apart'}" if any(found) else ""


def by_scores(rows: Aggregation, columns: Sequence[Column]) -> str:
    """Return a table of RegMixup's differences from the other methods in AUROC, a line for each of them and score."""
    own = [column for column in columns if column.quantity.metric == "auroc"]
    lines = []
    for other, score in product((label for label in METHODS if label != BASE), COMPARED):
        found = [effect(rows, column._replace(score=score), BASE, other) for column in own]
        if all(one is not None and one.interval is not None for one in found):
            lines.append([other, SCORES[score], *(one.cell(decided=False) for one in found if one is not None)])
    return f"{BY_SCORES}\n{markdown_table(['regmixup minus', 'by', *headings(own)], lines)}" if lines else ""


def calibration_columns(recipe: str) -> list[Column]:
    """Return the columns about calibration, those with T last."""
    test = f"{RECIPES[recipe].recipe.train_set.partition('/')[0]}/test"
    scaled = {"posthoc": "temperature"}
    return [
        Column("ECE", Quantity(test, "ece")),
        Column("AdaECE", Quantity(test, "adaptive_ece")),
        Column("T", Quantity(test, "temperature", **scaled), 1),
        Column("ECE with T", Quantity(test, "ece", **scaled)),
        Column("AdaECE with T", Quantity(test, "adaptive_ece", **scaled)),
    ]


def tables(found: Mapping[Training, Aggregation], recipe: str) -> str:
    """Return the tables of a recipe at its own length: ours, and the paper's; of a further one what is decided, too."""
    training = own_length(recipe)
    both = [beside_paper(found, training, own(recipe)) for own in (standard_columns, calibration_columns)]
    told = []
    if recipe != RECIPE:
        scores = by_scores(found.get(training, Aggregation([])), standard_columns(recipe))
        told = [part for part in (answer(found, recipe), scores) if part]
    return "\n".join([f"### {training}\n", *told, *both])


def beside_paper(found: Mapping[Training, Aggregation], training: Training, own: Sequence[Column]) -> str:
    """Return a table of ours, and the paper's with its networks; without columns of T where nothing has one."""
    aggregation = found.get(training, Aggregation([]))
    kept = ["dnn", "mixup", "regmixup"]
    labels = [*kept, *(name for name in METHODS if name in aggregation.labels and name not in kept)]
    own = [column for column in own if column.quantity.posthoc == "none" or column.quantity in aggregation.quantities]
    lines = measured(own, training, aggregation, labels)
    for network in ("resnet50", "wrn28-10"):
        for method in labels:
            place = {"method": method, "network": network, "train_set": RECIPES[training.recipe].recipe.train_set}
            asked = [{name: getattr(one.quantity, name) for name in ("dataset", "metric", "posthoc")} for one in own]
            values = [paper_value(**place, **what) for what in asked]
            if any(values):
                cells = [f"{c.scale * v.value:.2f}" if v else "–" for c, v in zip(own, values, strict=True)]
                lines.append([f"{method}, the paper's {prose(network)}", "350", "5", *cells, ""])
    return markdown_table(["", "epochs", "n", *headings(own), "runs"], lines)


def drawn(found: Mapping[Training, Aggregation]) -> str:
    """Return the figure of all methods."""
    rows, title = found.get(own_length(RECIPE), Aggregation([])), "Differences from plain training, method by method"
    return figure(rows, standard_columns(RECIPE), {name: name for name in METHODS}, title)
