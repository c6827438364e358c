"""Training length in docs/results.md: the paragraphs, and the table of all numbers. make_results.py calls both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev

from claims import CLAIMS, SCORES, Claim, Finding, Training, points, prose
from make_tables import RECIPE, headings, measured, standard_columns

from regmixup.report.aggregation import Aggregation, Quantity
from regmixup.report.significance import LEVEL, holm, mean_interval
from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study

LABELS = ("dnn", "dnn(bn=refreshed)", "mixup", "mixup(bn=refreshed)", "regmixup", "regmixup(bn=refreshed)")
DETECTION = next(claim for claim in CLAIMS if (claim.method, claim.reference, claim.on) == ("regmixup", "dnn", "OOD"))
BY_OTHERS = [replace(DETECTION, scores=(score, score)) for score in ("entropy", "max_probability")]
"""Detection by other scores than the method's own, from the same rows."""
REPLACED = "#with-the-trainings-that-were-replaced"
ACCURACY = [
    claim for claim in CLAIMS if (claim.method, claim.reference, claim.metric) == ("regmixup", "dnn", "accuracy")
]


def planned_lengths() -> list[int]:
    """Return the lengths that the study `length` asks for."""
    return sorted({planned.config.epochs for planned in load_study("length").runs()})


def at_lengths(found: Mapping[Training, Aggregation], planned: Sequence[int]) -> dict[Training, Aggregation]:
    """Return the settings of the recipe at the planned lengths, from short to long."""
    return {t: own for t, own in found.items() if t.recipe == RECIPE and t.is_usual and t.epochs in planned}


def table(found: Mapping[Training, Aggregation]) -> str:
    """Return all numbers of the figure."""
    own, lines = standard_columns(RECIPE), []
    for training, rows in at_lengths(found, planned_lengths()).items():
        lines += measured(own, training, rows, [name for name in LABELS if name in rows.labels])
    return markdown_table(["", "epochs", "n", *headings(own), "runs"], lines)


def answer(
    found: Mapping[Training, Aggregation], planned: Sequence[int], every: Mapping[Training, Aggregation] | None = None
) -> str:
    """Return what the rows say about the open question. planned: the lengths that the study asks for.

    every: the rows with those of replaced trainings among them.
    """
    kept = at_lengths(found, planned)
    by_set = _by_set(DETECTION.ask_all(kept))
    if not by_set:
        return "Not asked yet: no length has both methods."
    asked = sorted({one.training.epochs for own in by_set.values() for one in own})
    by_others = {claim: _by_set(claim.ask_all(kept)) for claim in BY_OTHERS}
    told = {claim: _told(own, kept) for claim, own in {DETECTION: by_set, **by_others}.items() if own}
    decided = any(told.values())
    seeds = ", ".join(
        f"{one.training.epochs} epochs ({one.n[0]} and {one.n[1]})" for one in next(iter(by_set.values()))
    )
    nothing = f"no set is decided at {asked[-1]} epochs"
    parts = [f"**By {_score(claim)}: {said or nothing}.**" for claim, said in told.items()]
    if not decided:
        parts = ["**Not decided.**"]
    lasts = [own[-1] for own in by_set.values()]
    if decided and all(one.training.epochs == asked[-1] and one.verdict == "undecided" for one in lasts):
        parts.append(f"At {asked[-1]} epochs no set shows a deficit or a gain by the paper's score.")
    parts += _beyond(lasts) if decided else []
    parts.append(f"Both methods were measured at {seeds}; in brackets the seeds of RegMixup and of plain training.")
    if waiting := [str(epochs) for epochs in planned if epochs not in asked]:
        parts.append(f"At {' and '.join(waiting)} epochs one of the two is missing.")
    if not decided:
        parts.append("No interval over seeds decides it, so what moves is a hint and not a result.")
    gains = [own for claim in ACCURACY if (own := claim.ask_all(kept))]
    lines = [*by_set.values(), *(own for others in by_others.values() for own in others.values()), *gains]
    again = {
        one.asked: one
        for claim in (DETECTION, *BY_OTHERS, *ACCURACY)
        for one in claim.ask_all(at_lengths(every if every is not None else found, planned))
    }
    parts += _replaced([one for own in lines for one in own if one.training.epochs == asked[-1]], again)
    paragraphs = [" ".join(parts), *_of_the_score(by_set, by_others), _differences(lines, asked, again)]
    return "\n\n".join([*paragraphs, *_seeds_differ(found), *_refreshed(kept)])


def _replaced(lasts: Sequence[Finding], again: Mapping[tuple[Claim, Training, str], Finding]) -> list[str]:
    """Say what is decided otherwise at the longest training where replaced trainings count, too."""
    moved = [other for one in lasts if (other := again[one.asked]).verdict != one.verdict]
    told = [f"{prose(one.dataset)} {_cell(one).strip('*')} by {_score(one.claim).partition(',')[0]}" for one in moved]
    text = f"With the [trainings that were replaced](claims.md{REPLACED}) as further seeds, and Welch's test, it is "
    text += f"otherwise at {lasts[0].training.epochs} epochs: {'; '.join(told)}. So it is not settled there."
    return [text] if told else []


def _score(claim: Claim) -> str:
    return SCORES[claim.scores[0]] if claim.scores[0] else "Dempster-Shafer, the paper's score"


def _told(by_set: Mapping[str, Sequence[Finding]], found: Mapping[Training, Aggregation]) -> str:
    """Return the state of every set; "" if nothing is decided on any."""
    states: dict[str, list[str]] = {}
    for dataset, own in by_set.items():
        states.setdefault(state(own, found), []).append(prose(dataset))
    if set(states) == {"undecided"}:
        return ""
    return "; ".join(f"{' and '.join(sets)}: {said}" for said, sets in states.items())


def _beyond(lasts: Sequence[Finding]) -> list[str]:
    """Say where the paper's gain lies above our interval."""
    sets = []
    for one in lasts:
        papers = one.claim.papers(one.training.train_set, one.dataset)
        if one.interval is not None and papers and min(effect.value for effect in papers) > one.interval[1]:
            sets.append(prose(one.dataset) + " (in doubt)" * any(effect.doubtful for effect in papers))
    gains = f"The paper's gains on {' and '.join(sets)}, of larger networks and 350 epochs,"
    return [f"{gains} lie above our intervals there."] if sets else []


def _of_the_score(
    by_set: Mapping[str, Sequence[Finding]], by_others: Mapping[Claim, Mapping[str, Sequence[Finding]]]
) -> list[str]:
    """Say what the score makes of the difference at the shortest length."""
    told = []
    for dataset, own in by_set.items():
        others = [found[dataset][0] for found in by_others.values() if dataset in found]
        numbers = [f"{points(one.effect)} by {_score(one.claim)}" for one in others]
        if numbers:
            told.append(f"{prose(dataset)} {points(own[0].effect)} by Dempster-Shafer, {' and '.join(numbers)}")
    if not told:
        return []
    return [
        "How large the difference is depends on the score. Dempster-Shafer ranks images by the size of their logits, "
        "entropy and MSP (the maximum probability) by how they compare with each other. At "
        f"{next(iter(by_set.values()))[0].training.epochs} epochs: {'; '.join(told)}."
    ]


def _by_set(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.dataset, []).append(finding)
    return found


def _differences(
    lines: Sequence[Sequence[Finding]],
    lengths: Sequence[int],
    again: Mapping[tuple[Claim, Training, str], Finding],
) -> str:
    """Return the differences at every length as a table, the paper's beside them."""
    heads = ["RegMixup − plain training", *(f"{epochs} epochs" for epochs in lengths), "the paper, 350 epochs"]
    rows = []
    for own in lines:
        at = {one.training.epochs: one for one in own}
        cells = [_cell(at[epochs], again) if epochs in at else "–" for epochs in lengths]
        papers = "; ".join(map(str, own[0].claim.papers("cifar10", own[0].dataset)))
        claim = own[0].claim
        metric = "AUROC" if claim.metric == "auroc" else claim.metric
        by = f" by {_score(claim)}" if claim.scores[0] else ""
        rows.append([f"{prose(own[0].dataset)} {metric}{by}", *cells, papers])
    text = (
        "In points, with 95 % intervals over seeds, each by itself; bold: all of the interval on one side of 0, "
        "without a correction for the number of cells. †: another verdict, above 0, below 0 or neither, with the "
        "trainings that were replaced and Welch's test. AUROC is by Dempster-Shafer where no score is named."
    )
    return "\n\n".join([text, markdown_table(heads, rows).rstrip(), *_corrected(lines)])


def _corrected(lines: Sequence[Sequence[Finding]]) -> list[str]:
    """Say which cells stay after Holm's correction, over all cells by one score and over all of accuracy."""
    kinds: dict[str, dict[str, float]] = {}
    for one in (one for own in lines for one in own if one.p is not None):
        kind = f"by {_score(one.claim).partition(',')[0]}" if one.claim.metric == "auroc" else "of accuracy"
        kinds.setdefault(kind, {})[f"{prose(one.dataset)} at {one.training.epochs}"] = one.p
    told = []
    for kind, chances in kinds.items():
        corrected, bold = holm(chances), sum(p < LEVEL for p in chances.values())
        stay = [cell for cell in chances if corrected[cell] < LEVEL]
        told.append(f"{kind} {len(stay)} of {bold}" + f" ({', '.join(stay)} epochs)" * bool(stay))
    text = "Bold cells that stay after Holm's correction over all cells of their kind"
    return [f"{text}: {'; '.join(told)}. With three seeds, two degrees of freedom, few can."] if told else []


def _cell(finding: Finding, again: Mapping[tuple[Claim, Training, str], Finding] | None = None) -> str:
    """Return a difference. again: the findings with all trainings, for a mark where their verdict is another."""
    if finding.interval is None:
        return f"({points(finding.effect)})"
    text = f"{points(finding.effect)} [{', '.join(map(points, finding.interval))}]"
    text = text if finding.interval[0] <= 0 <= finding.interval[1] else f"**{text}**"
    return text if again is None or again[finding.asked].verdict == finding.verdict else f"{text} †"


def state(own: Sequence[Finding], found: Mapping[Training, Aggregation]) -> str:
    """Return what the lengths say about one set; undecided unless an interval over seeds says something.

    A deficit shrinks only if there is one: the interval at the first length has to lie below 0, too.
    """
    first, last, trend = own[0], own[-1], trend_interval(own, found)
    if last.interval is None:
        return "undecided"
    epochs = last.training.epochs
    if last.interval[0] > 0:
        return f"RegMixup is ahead at {epochs} epochs"
    shrinks = trend is not None and trend[0] > 0 and first.interval is not None and first.interval[1] < 0
    if shrinks and last.interval[1] < 0:
        return f"the deficit of {first.training.epochs} epochs shrinks, and is still there at {epochs}"
    if shrinks:
        return (
            f"the deficit of {first.training.epochs} epochs shrinks, and is not distinguishable from none at {epochs}"
        )
    if last.interval[1] < 0:
        return f"RegMixup is behind at {epochs} epochs"
    return "undecided"


def trend_interval(own: Sequence[Finding], found: Mapping[Training, Aggregation]) -> tuple[float, float] | None:
    """Return the interval of the last gap minus the first, over the seeds that have all four runs."""
    quantity, gaps = Quantity(own[0].dataset, "auroc", score=own[0].claim.scores[0]), []
    for finding in (own[0], own[-1]):
        pair = [found[finding.training].values(quantity, name) for name in ("regmixup", "dnn")]
        gaps.append({seed: pair[0][seed] - pair[1][seed] for seed in pair[0] if seed in pair[1]})
    shared = [seed for seed in gaps[0] if seed in gaps[1]]
    return mean_interval([gaps[1][seed] - gaps[0][seed] for seed in shared]) if len(own) > 1 else None


def _seeds_differ(found: Mapping[Training, Aggregation]) -> list[str]:
    """Say how much seeds differ, at the length with the most seeds of RegMixup, the longest of these."""
    counted = []
    for training, rows in found.items():
        sets = [one.dataset for one in rows.quantities if (one.metric, one.score) == ("auroc", "dempster_shafer")]
        values = {dataset: rows.values(Quantity(dataset, "auroc"), "regmixup") for dataset in dict.fromkeys(sets)}
        if training.recipe == RECIPE and training.is_usual and values:
            counted.append((min(map(len, values.values())), training, values))
    if not counted or max(n for n, _, _ in counted) < 3:
        return []
    n, training, values = max(counted, key=lambda one: (one[0], one[1].epochs))
    told = ", ".join(f"{100 * stdev(own.values()):.2f} on {prose(dataset)}" for dataset, own in values.items())
    return [
        f"How much seeds differ: RegMixup's AUROC has a standard deviation of {told}, over the {n} seeds of "
        f"{training.epochs} epochs."
    ]


def _refreshed(found: Mapping[Training, Aggregation]) -> list[str]:
    told = []
    for method, name in (("dnn", "plain training"), ("regmixup", "RegMixup")):
        claim = replace(DETECTION, method=f"{method}(bn=refreshed)", reference=method)
        by_set = _by_set(claim.ask_all(found))
        ranges = [f"{prose(dataset)} {_range([_change(one, found) for one in own])}" for dataset, own in by_set.items()]
        told += [f"{name} {', '.join(ranges)}"] if ranges else []
    text = (
        "Batch-norm statistics estimated again, on train images that are neither mixed nor augmented, change AUROC "
        "(the smallest and the largest of the means at the lengths, over the networks measured both ways)"
    )
    return [f"{text}: {'; '.join(told)}."] if told else []


def _change(finding: Finding, found: Mapping[Training, Aggregation]) -> float:
    """Return the mean change over the seeds that both lines have: the same weights, measured twice."""
    rows, quantity = found[finding.training], Quantity(finding.dataset, "auroc")
    own, other = (rows.values(quantity, label) for label in (finding.claim.method, finding.claim.reference))
    return mean(value - other[seed] for seed, value in own.items() if seed in other)


def _range(effects: Sequence[float]) -> str:
    low, high = points(min(effects)), points(max(effects))
    return low if low == high else f"between {low} and {high}"
