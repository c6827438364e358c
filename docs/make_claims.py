"""The text of docs/claims.md: the paper's claims, asked of our rows. make_results.py calls it."""

from collections.abc import Mapping, Sequence
from itertools import chain

from claims import CLAIMS, Claim, Finding, Training, nearest, points, prose

from regmixup.report.aggregation import Aggregation
from regmixup.report.writers import markdown_table

TESTS = {"paired": "paired", "welch": "Welch"}
LEDGER = """# Claims

What the paper says and our rows can speak to. Written by `python docs/make_results.py` from the archived runs in
[results](../results/README.md); the claims are objects in `results/claims.py`.

A claim is asked wherever both methods were trained alike, on each set of its kind. The effect is the difference of the
means, in points of percent. It **holds** or **fails** where the whole 95 % interval over seeds says so (paired by seed
where both methods have the same seeds, else Welch's) and is *undecided* otherwise, in particular with fewer than two
seeds of a method. Each interval is at 95 % by itself: of twenty claims that nothing stands behind, one is expected to
look decided. Failing at another setting than the paper's does not contradict the paper. `dnn` is plain training, and
`regmixup(alpha=1)` RegMixup with that value in place of its own. Detection is by each method's own score where none is
named (Dempster-Shafer; entropy for Mixup, CutMix, their mixture and KFAC-LLLA), calibration without temperature
scaling, and corrupted sets are rebuilt. n counts the seeds of the two. Some runs were trained a second time and
replaced; a verdict that is another with all trainings is marked. The paper's effects are differences of its tables; in
doubt are those with a number that the tables contradict ([slips](paper-tables.md#slips)).
"""
ASKING = """To ask a claim of rows of your own, with `results` on Python's path:

```python
from claims import CLAIMS, Training

from regmixup.report.aggregation import Aggregation
from regmixup.types import Row

values = {"dnn": [0.948, 0.950, 0.947], "regmixup": [0.959, 0.962, 0.958]}  # a seed each
rows = [
    Row(method=method, seed=seed, dataset="cifar10/test", metric="accuracy", value=value)
    for method, own in values.items()
    for seed, value in enumerate(own)
]
finding = CLAIMS[0].ask(Training("cifar10-resnet18", (), 100, "bfloat16"), Aggregation(rows))[0]
print(finding.effect, finding.interval, finding.n)
assert finding.verdict == "holds" and not finding.training.is_papers
```
"""

REPLACED = """## With the trainings that were replaced

An archive holds no weights, so runs were trained a second time where further lines needed them, and the later training
took the place of the earlier one, whatever it showed. The same seed trained again is another network, as a GPU does not
add up in a fixed order. The main rows of the earlier trainings are in [replaced.csv](../results/replaced.csv). Here
they count as further seeds, although they share initial weights and mixing with the later ones, and what was paired by
seed becomes Welch's test. That alone can change a verdict: the last column has Welch's test of the trainings in the
tables, without the earlier ones.
"""
PLACE = "#with-the-trainings-that-were-replaced"
Findings = Mapping[tuple[Claim, Training, str], Finding]


def ledger(
    found: Mapping[Training, Aggregation], every: Mapping[Training, Aggregation], claims: Sequence[Claim] = CLAIMS
) -> str:
    """Return the page. found: the rows by how the networks were trained; every: with replaced trainings among them."""
    findings = {claim: claim.ask_all(found) for claim in claims}
    again = {one.asked: one for claim in claims for one in claim.ask_all(every)}
    lines = []
    for claim, own in findings.items():
        near: dict[Training, list[Finding]] = {}
        for one in nearest(own):
            near.setdefault(one.training, []).append(one)
        for training, here in near.items():
            told = "; ".join(f"{prose(one.dataset)} {_marked(one, again[one.asked])}" for one in here)
            lines.append([claim.title, claim.place, f"{training}", _same(training), told])
        if not near:
            lines.append([claim.title, claim.place, "nowhere yet", "–", "*undecided*"])
    asked = sum(1 for own in findings.values() if own)
    summary = (
        f"{asked} of {len(claims)} claims can be asked of today's rows. Here is, for each train set, the setting "
        "nearest to the paper's, those with an interval first; the others are below:\n"
    )
    shown = markdown_table(["claim", "place in the paper", "asked at", "setting", "verdict"], lines)
    details = [_details(claim, own, again) for claim, own in findings.items()]
    unpaired = (
        one for claim in claims for training, rows in found.items() for one in claim.ask(training, rows, paired=False)
    )
    by_welch = {one.asked: one for one in unpaired}
    replaced = _replaced([*chain(*findings.values())], again, by_welch)
    return "\n".join([LEDGER, summary, shown, ASKING, *details, replaced])


def _replaced(findings: Sequence[Finding], again: Findings, by_welch: Findings) -> str:
    """Return which verdicts are others where the replaced trainings count, too, and which of them the test changes."""
    asked = [(one, again[one.asked]) for one in findings if again[one.asked].n != one.n]
    moved = [(one, other) for one, other in asked if one.verdict != other.verdict]
    lines, by_test = [], 0
    for one, other in moved:
        welch = by_welch[one.asked] if one.test != other.test else None
        by_test += welch is not None and welch.verdict == other.verdict
        verdicts = _told(one), _marked(one), _told(other), _marked(other)
        alone = f"{_marked(welch)}, {_bounds(welch)}" if welch else "–"
        lines.append([one.claim.title, f"{one.training}", prose(one.dataset), *verdicts, alone])
    heads = ["claim", "asked at", "set", "in the tables", "verdict", "with all trainings", "verdict", "the test alone"]
    count = (
        f"{len(moved)} of the {len(asked)} findings that they are part of have another verdict then, {by_test} of them "
        "by the test alone"
    )
    return f"{REPLACED}\n{count}" + (f":\n\n{markdown_table(heads, lines)}" if lines else ".\n")


def _told(finding: Finding) -> str:
    return f"{points(finding.effect)}, {_bounds(finding)}, n {finding.n[0]}, {finding.n[1]}"


def _bounds(finding: Finding) -> str:
    if finding.interval is None:
        return "none"
    return f"{points(finding.interval[0])} to {points(finding.interval[1])}, {TESTS[finding.test]}"


def _same(training: Training) -> str:
    return "the paper's" if training.is_papers else "another"


def _marked(finding: Finding, again: Finding | None = None) -> str:
    """Return a verdict. again: the finding with all trainings, told where its verdict is another."""
    if finding.interval is None:
        return "*undecided*, one seed"
    own = "*undecided*" if finding.verdict == "undecided" else f"**{finding.verdict}**"
    if again is None or again.verdict == finding.verdict:
        return own
    return f"{own}, with [all trainings]({PLACE}) {_marked(again)}"


def _details(claim: Claim, findings: Sequence[Finding], again: Findings) -> str:
    head = f"## {claim.title}\n\n{claim.text} ({claim.place})\n"
    if not findings:
        return f"{head}\n{claim.rule} No rows yet: verdict *undecided*.\n"
    lines = []
    for one in findings:
        papers = "; ".join(map(str, claim.papers(one.training.train_set, one.dataset))) or "–"
        runs = " ".join(f"`{run}`" for run in one.runs)
        seeds = f"{one.n[0]}, {one.n[1]}"
        cells = [
            f"{one.training}",
            _same(one.training),
            prose(one.dataset),
            points(one.effect),
            _bounds(one),
            seeds,
            _marked(one, again[one.asked]),
        ]
        lines.append([*cells, papers, runs])
    heads = [
        "asked at",
        "setting",
        "set",
        "effect",
        "95 % interval over seeds",
        "n",
        "verdict",
        "the paper's effect",
        "runs",
    ]
    return f"{head}\n{claim.rule}\n\n{markdown_table(heads, lines)}"
