"""The text of docs/claims.md: the paper's claims, asked of our rows. make_results.py calls it."""

from collections.abc import Mapping, Sequence

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import CLAIMS, Claim, Finding, Training, nearest, points, prose
from regmixup.report.writers import markdown_table

TESTS = {"paired": "paired", "welch": "Welch"}
LEDGER = """# Claims

What the paper says and our rows can speak to. Written by `python docs/make_results.py` from the archived runs in
[results](../results/README.md); the claims are objects in `regmixup.report.claims`.

A claim is asked wherever both methods were trained alike, on each set of its kind. The effect is the difference of the
means, in points of percent. It **holds** or **fails** where the whole 95 % interval over seeds says so (paired by seed
where both methods have the same seeds, else Welch's) and is *undecided* otherwise, in particular with fewer than two
seeds of a method. Each interval is at 95 % by itself: of twenty claims that nothing stands behind, one is expected to
look decided. Failing at another setting than the paper's does not contradict the paper. `dnn` is plain training, and
`regmixup(alpha=1)` RegMixup with that value in place of its own. Detection is by each method's own score where none is
named (Dempster-Shafer; entropy for Mixup, CutMix, their mixture and KFAC-LLLA), calibration without temperature
scaling, and CIFAR-10-C is rebuilt. n counts the seeds of the two. Some runs were trained a second time and replaced;
[results](results.md) and the [log](log.md) say what that changed. The paper's effects are differences of its tables; in
doubt are those with a number that the tables contradict ([slips](paper-tables.md#slips)).

```python
from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import CLAIMS, Training
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


def ledger(found: Mapping[Training, Aggregation], claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page. found: the rows by how the networks were trained."""
    findings = {claim: claim.ask_all(found) for claim in claims}
    lines = []
    for claim, own in findings.items():
        near: dict[Training, list[Finding]] = {}
        for one in nearest(own):
            near.setdefault(one.training, []).append(one)
        for training, here in near.items():
            told = "; ".join(f"{prose(one.dataset)} {_marked(one)}" for one in here)
            lines.append([claim.title, claim.place, f"{training}", _same(training), told])
        if not near:
            lines.append([claim.title, claim.place, "nowhere yet", "–", "*undecided*"])
    asked = sum(1 for own in findings.values() if own)
    summary = (
        f"{asked} of {len(claims)} claims can be asked of today's rows. Here is, for each train set, the setting "
        "nearest to the paper's, those with an interval first; the others are below:\n"
    )
    shown = markdown_table(["claim", "place in the paper", "asked at", "setting", "verdict"], lines)
    return "\n".join([LEDGER, summary, shown, *(_details(claim, own) for claim, own in findings.items())])


def _same(training: Training) -> str:
    return "the paper's" if training.is_papers else "another"


def _marked(finding: Finding) -> str:
    if finding.interval is None:
        return "*undecided*, one seed"
    return "*undecided*" if finding.verdict == "undecided" else f"**{finding.verdict}**"


def _details(claim: Claim, findings: Sequence[Finding]) -> str:
    head = f"## {claim.title}\n\n{claim.text} ({claim.place})\n"
    if not findings:
        return f"{head}\n{claim.rule} No rows yet: verdict *undecided*.\n"
    lines = []
    for one in findings:
        bounds = (
            f"{points(one.interval[0])} to {points(one.interval[1])}, {TESTS[one.test]}" if one.interval else "none"
        )
        papers = "; ".join(map(str, claim.papers(one.training.train_set, one.dataset))) or "–"
        runs = " ".join(f"`{run}`" for run in one.runs)
        seeds = f"{one.n[0]}, {one.n[1]}"
        cells = [
            f"{one.training}",
            _same(one.training),
            prose(one.dataset),
            points(one.effect),
            bounds,
            seeds,
            _marked(one),
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
