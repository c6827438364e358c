"""Causes in docs/results.md: what changes if one choice of RegMixup does, or whose statistics batch norm has.

make_results.py calls both.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from claims import Training, method_label, prose
from make_effects import BASE, PLAIN, Effect, compared, effect, figure, short
from make_tables import RECIPE, Column, headings, standard_columns

from regmixup.report.aggregation import Aggregation
from regmixup.report.significance import LEVEL
from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study

NAMES = {BASE: "RegMixup in one pass", PLAIN: "plain training"}
WORDS = {
    BASE: "the base",
    "regmixup(passes=separate)": "separate forward passes",
    "regmixup(scale=sum)": "the sum of both terms",
    "regmixup(lam=sample)": "a lambda for each image",
    "regmixup(alpha=1)": "alpha 1",
    "regmixup(alpha=10)": "alpha 10",
    "regmixup(eta=0.5)": "eta 0.5",
    "regmixup(eta=2)": "eta 2",
    PLAIN: "plain training",
}
TEXT = """The base is RegMixup as in the other sections on CIFAR-10, mixtures apart: alpha 20, eta 1, the mean of the
two terms, one forward pass, one lambda for a batch. Each line changes one of these and nothing else; the last is plain
training. The numbers are differences from the base in points (AUGRC x 1000) with 95 % intervals over seeds: paired
where line and base have the same seeds, else Welch's. Bold: different from 0 after Holm's correction over the lines of
the column, at 5 %; columns are not corrected for each other, and the table of lengths, which marks each
interval by itself, may mark what this one does not. †: another verdict, above 0, below 0 or neither, with the trainings
that were replaced and Welch's test where they have a part. `(difference)` has too few seeds for an interval, and
decides nothing.
"""
BY_MSP = """The same by MSP, the maximum probability, instead of Dempster-Shafer. A choice that changes the size of all
logits, as the statistics of batch norm do, can move detection by Dempster-Shafer and leave that by MSP as it was.
"""

STATISTICS = """Batch norm normalises a train batch by its own mean and variance, and predictions by running ones, which
every train batch moves a little. In RegMixup's one forward pass both are of clean and mixed images together. With
separate passes a batch of either kind is normalised by its own, but the running statistics move with both in turn, so
that predictions are normalised as no batch was. Statistics estimated again from clean images, with the same weights,
mend that: `bn=refreshed` takes train images as they are, `bn=refreshed-augmented` crops and flips them as in training.
With one pass clean statistics are those that no batch was normalised by: `regmixup(bn=...)` below is what they do, and
`dnn(bn=...)` what they do to plain training, whose batches are of clean, augmented images.
"""
CLEAN = "regmixup(passes=separate, bn=refreshed-augmented)"
FRESH = "regmixup(passes=separate-clean)"
DRAWN = {
    BASE: "RegMixup: one pass, alpha 20, eta 1",
    "regmixup(passes=separate)": "separate passes",
    CLEAN: "separate passes, statistics of clean images",
    FRESH: "separate passes, clean running statistics",
    **{label: name for label, name in WORDS.items() if label not in (BASE, "regmixup(passes=separate)")},
}
"""The lines of the figure, each a difference from plain training."""
MSP = ("max_probability", " by MSP")
AGAIN = """This comparison was singled out among many, after its rows were seen. So the study `clean-statistics` asked
it again on other seeds, with `RegMixup(passes="separate-clean")`, which keeps the statistics of clean images while it
trains. What decides was written down before its first run, as bounds for three intervals of AUROC by Dempster-Shafer.
At 50 epochs the result repeats if both intervals are above their lower bounds; at 200 there is a gain if the interval
is above its lower bound. An interval below its upper bound shows an effect of less than half of the deficit, or less
than the smaller of the paper's gains.
"""
OPEN = """What this does not say:

- What decides are the three intervals above. All other sets, scores and lengths describe, and may speak against it:
  the next table has the ECE and SVHN, too.
- Only the runs with clean statistics are fresh. Those of RegMixup in one pass and of plain training had been looked at,
  and after 50 epochs they are what suggested the question.
- A difference that does not stand after the correction may be there all the same.
- In training, separate passes change how clean and how mixed images are normalised. Which of the two matters is open.
- On handwritten digits, five seeds, `separate-clean` raised the ECE by 5.5 points over one pass. Mirrored digits were
  detected better by MSP (+2.0), and photographs worse, by no more than chance may explain ([log](log.md)).
- The released code has one pass. If the paper's runs used it, this does not explain their gain.
"""
LENGTHS = """Separate passes with clean running statistics (`separate-clean`) after every length that was run, minus
RegMixup in one pass and minus plain training of that length. Intervals are each by itself, without a correction; n
counts the seeds of the two.
"""
QUESTIONS = (
    (50, "CIFAR-100 AUROC", BASE, 0.0, 1.7),
    (50, "CIFAR-100 AUROC", PLAIN, -1.7, None),
    (200, "Tiny-ImageNet AUROC", PLAIN, 0.0, 2.2),
)
"""Of `clean-statistics`, as its file states them: epochs, column, reference, lower and upper bound in points."""


def setting(found: Mapping[Training, Aggregation], epochs: int | None = None) -> tuple[Training | None, Aggregation]:
    """Return where the study's runs were trained, and all rows from there, whichever study they belong to.

    epochs: of another length than the study's.
    """
    planned = next(iter(load_study("causes").runs()))
    place = (planned.recipe, epochs or planned.config.epochs)
    training = next((one for one in found if one.is_usual and (one.recipe, one.epochs) == place), None)
    return training, found[training] if training is not None else Aggregation([])


@cache
def variants(study: str) -> tuple[str, ...]:
    """Return the labels of a study that are compared with the base: of causes every choice, then plain training."""
    asked = (study, "clean-statistics") if study == "batch-norm" else (study,)
    labels = dict.fromkeys(method_label(planned.label) for name in asked for planned in load_study(name).runs())
    return tuple(label for label in labels if label != BASE)


def effects(
    rows: Aggregation, column: Column, reference: str = BASE, *, study: str = "causes"
) -> dict[str, tuple[Effect, bool]]:
    """Return every effect of a study in a column by label, and whether it is different from 0 after the correction."""
    return compared(rows, column, reference, [label for label in (BASE, *variants(study)) if label != reference])


def detecting(score: str = "", name: str = "") -> list[Column]:
    """Return the columns of detection, by each method's own score or another. name: what another adds to the titles."""
    own = (column for column in standard_columns(RECIPE) if column.quantity.metric == "auroc")
    return [column._replace(title=column.title + name, score=score) for column in own]


def section(found: Mapping[Training, Aggregation], every: Mapping[Training, Aggregation]) -> str:
    """Return the paragraph and the tables: detection by each method's own score, and by MSP.

    every: the rows with those of replaced trainings among them.
    """
    (training, rows), (_, again) = setting(found), setting(every)
    told = [_answer(rows, column, other) for column, other in zip(detecting(), detecting(*MSP), strict=True)]
    if not any(told):
        told = ["**Not decided**: no variant has two seeds beside two of the base."]
    where = [f"Asked with {training}."] if training is not None else []
    own, other = _table(rows, again, standard_columns(RECIPE)), _table(rows, again, detecting(*MSP))
    asked = " ".join([*where, "What changes detection, against RegMixup as it is elsewhere on this page:"])
    answer = "\n".join(f"- {one}" for one in told if one)
    return "\n".join([f"{asked}\n\n{answer}\n", TEXT, own, BY_MSP, other])


def statistics_section(found: Mapping[Training, Aggregation], every: Mapping[Training, Aggregation]) -> str:
    """Return what the statistics of batch norm decide: the tables against RegMixup as it is elsewhere, and plain."""
    (training, rows), (_, again) = setting(found), setting(every)
    told = [_detection(rows, CLEAN, reference) for reference in (BASE, PLAIN)]
    text = "**Not asked yet**: separate passes with clean statistics are missing.\n"
    if all(told):
        lines = "\n".join(f"- {one}" for one in told)
        text = (
            "**Separate passes, with batch-norm statistics estimated again from clean images, augmented as in "
            f"training:** differences in AUROC, in points, with {training}. Bold, as the section before defines it: "
            f"{lines.count('**') // 2} of {lines.count('[')}.\n\n{lines}\n"
        )
    own = [*standard_columns(RECIPE), *detecting(*MSP)]
    tables = [
        f"Differences from {NAMES[reference]}:\n\n" + _table(rows, again, own, reference, study="batch-norm")
        for reference in (BASE, PLAIN)
    ]
    return "\n".join([text, STATISTICS, AGAIN, questions(found), OPEN, length_table(found), *tables])


def fresh_lengths() -> list[int]:
    """Return the lengths that the study `clean-statistics` asks for."""
    return sorted({planned.config.epochs for planned in load_study("clean-statistics").runs()})


def length_table(found: Mapping[Training, Aggregation]) -> str:
    """Return the fresh runs against both references at every length that has some."""
    own, lines = [*standard_columns(RECIPE), *detecting(*MSP)], []
    for epochs in fresh_lengths():
        rows = setting(found, epochs)[1]
        for reference in (BASE, PLAIN):
            apart = [effect(rows, column, FRESH, reference) for column in own]
            runs = dict.fromkeys(run for one in apart if one for run in one.runs)
            seeds = ", ".join(str(len(own[0].rows(rows, label))) for label in (FRESH, reference))
            cells = [one.cell(decided=False) if one else "–" for one in apart]
            lines += [[f"{epochs} epochs", NAMES[reference], seeds, *cells, _runs(runs)]] if runs else []
    heads = ["after", "minus", "n", *headings(own), "runs"]
    return f"{LENGTHS}\n{markdown_table(heads, lines)}" if lines else ""


def questions(found: Mapping[Training, Aggregation]) -> str:
    """Return what the study `clean-statistics` says to its questions so far."""
    lines, answers, planned = [], [], len(load_study("clean-statistics").seeds)
    columns = dict(zip(headings(detecting()), detecting(), strict=True))
    for epochs, head, reference, low, high in QUESTIONS:
        one = effect(setting(found, epochs)[1], columns[head], FRESH, reference)
        bounds = [one.interval[0] > low, high is not None and one.interval[1] < high] if one and one.interval else []
        told = ["yes" if bound else "no" for bound in bounds] or ["–", "–"]
        above, below = f"above {short(low)}: {told[0]}", f"below {short(high)}: {told[1]}" if high is not None else ""
        cell = one.cell(decided=False) if one else "not run yet"
        cell += f", {len(one.runs)} of {planned} seeds" if one and len(one.runs) < planned else ""
        lines.append([f"{epochs} epochs", head, NAMES[reference], cell, above, below, _runs(one.runs if one else ())])
        answers.append(bounds)
    table = markdown_table(["after", "", "minus that of", "difference", "", "", "runs"], lines)
    return f"{table}\n{_repeated(*answers[:2])} {_gained(answers[2])}\n"


def _repeated(one_pass: Sequence[bool], plain: Sequence[bool]) -> str:
    """Return the answer after 50 epochs, from the bounds that its two intervals satisfy; empty: no interval yet."""
    if not one_pass or not plain:
        return "After 50 epochs it is **not answered** yet."
    if one_pass[0] and plain[0]:
        return (
            "After 50 epochs it **repeats**: on CIFAR-100, by Dempster-Shafer, AUROC is higher than in one pass, and "
            "less than half of the deficit below plain training's, if it is below."
        )
    if one_pass[1]:
        return "After 50 epochs statistics **explain less than half** of the deficit."
    return "After 50 epochs it is **not decided** whether it repeats."


def _gained(plain: Sequence[bool]) -> str:
    """Return the answer after 200 epochs."""
    if not plain:
        return "After 200 epochs it is **not answered** yet."
    told = "a gain over plain training" if plain[0] else "no gain as large as the paper's" if plain[1] else ""
    return f"After 200 epochs there is **{told}**." if told else "After 200 epochs it is **not decided**."


def _runs(runs: Iterable[str]) -> str:
    return " ".join(f"`{run}`" for run in runs) or "missing"


def _detection(rows: Aggregation, label: str, reference: str) -> str:
    """Return the effects on detection, by each method's own score and by MSP; "" where they were not measured."""
    told = []
    for columns, name in ((detecting(), ""), (detecting(*MSP), "by MSP ")):
        found = [effects(rows, column, reference, study="batch-norm").get(label) for column in columns]
        cells = [
            f"{head.partition(' AUROC')[0]} {own[0].cell(decided=own[1])}"
            for head, own in zip(headings(columns), found, strict=True)
            if own
        ]
        told.append(name + ", ".join(cells))
        if not cells:
            return ""
    return f"against {NAMES[reference]}: {'; '.join(told)}."


def _table(
    rows: Aggregation, again: Aggregation, columns: Sequence[Column], reference: str = BASE, *, study: str = "causes"
) -> str:
    measured = [effects(rows, column, reference, study=study) for column in columns]
    others = [effects(again, column, reference, study=study) for column in columns]
    lines = [_base(rows, columns, reference)]
    for label in (label for label in (BASE, *variants(study)) if label != reference):
        seeds = len(columns[0].rows(rows, label))
        cells = [
            own[label][0].cell(decided=own[label][1]) + " †" * (_verdict(*own[label]) != _verdict(*other[label]))
            if label in own
            else "–"
            for own, other in zip(measured, others, strict=True)
        ]
        runs = dict.fromkeys(run for own in measured if label in own for run in own[label][0].runs)
        lines.append([label, str(seeds), *cells, _runs(runs)])
    return markdown_table(["", "n", *headings(columns), "runs"], lines)


def _verdict(one: Effect, decided: bool) -> int:
    return (1 if one.value > 0 else -1) if decided else 0


def _base(rows: Aggregation, columns: Sequence[Column], reference: str) -> list[str]:
    own = [column.rows(rows, reference) for column in columns]
    means = [
        f"{column.scale * sum(row.value for row in some) / len(some):.2f}" if some else "–"
        for column, some in zip(columns, own, strict=True)
    ]
    runs = dict.fromkeys(row.run for some in own for row in some)
    return [f"{reference}, the base", str(len(own[0])), *means, _runs(runs)]


def _answer(rows: Aggregation, column: Column, by_msp: Column) -> str:
    """Return which choices move an AUROC, and which are ahead of plain training; "" if nothing can be said."""
    moved, alone, count = _moved(rows, column)
    if not count:
        return ""
    parts = [", ".join(moved) or f"none of {count} choices has an effect that the seeds can tell from none"]
    parts += [f"before the correction only: {', '.join(alone)}"] if alone else []
    ahead = [
        WORDS.get(label, label)
        for label, (one, decided) in effects(rows, column, PLAIN).items()
        if decided and one.value > 0
    ]
    parts.append(
        f"ahead of plain training: {', '.join(ahead)}" if ahead else "none is shown to be ahead of plain training"
    )
    moved, alone, count = _moved(rows, by_msp)
    if count:
        parts.append(f"by MSP: {', '.join(moved) or 'no effect is shown'}")
        parts += [f"before the correction only: {', '.join(alone)}"] if alone else []
    return f"**{prose(column.title.partition(' ')[0])} AUROC:** {'; '.join(parts)}."


def _moved(rows: Aggregation, column: Column) -> tuple[list[str], list[str], int]:
    """Return what moves a column after the correction, what does only before it, and how many choices were tested."""
    tested = {
        label: own for label, own in effects(rows, column).items() if label != PLAIN and own[0].interval is not None
    }
    told = {label: f"{WORDS.get(label, label)} {one.told}" for label, (one, _) in tested.items()}
    moved = [told[label] for label, (_, decided) in tested.items() if decided]
    alone = [
        told[label] for label, (one, decided) in tested.items() if not decided and one.p is not None and one.p < LEVEL
    ]
    return moved, alone, len(tested)


def drawn(found: Mapping[Training, Aggregation]) -> str:
    """Return the figure of all choices."""
    title = "Differences from plain training, choice by choice"
    return figure(setting(found)[1], standard_columns(RECIPE), DRAWN, title)
