"""The text of docs/claims.md: the paper's claims, asked of our rows. make_results.py calls it."""

from collections.abc import Mapping, Sequence

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import CLAIMS, Claim, Finding, Training, nearest, points, prose

LEDGER = """# Claims

What the paper says and our rows can speak to. Written by `python docs/make_results.py` from the archived runs in
[results](../results/README.md); the claims are objects in `regmixup.report.claims`.

A claim is asked wherever both methods were trained alike, on each set of its kind. The effect is the difference of the
means, in points of percent. It **holds** or **fails** where the whole 95 % interval over seeds says so (paired by seed
where both methods have the same seeds, else Welch's) and is *undecided* otherwise, in particular with fewer than two
seeds of a method. Each interval is at 95 % by itself: of twenty claims that nothing stands behind, one is expected to
look decided. Failing at another setting than the paper's does not contradict the paper. Detection is by each method's
own score, calibration without temperature scaling, and CIFAR-10-C is rebuilt.
"""


def ledger(found: Mapping[Training, Aggregation], claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page. found: the rows by how the networks were trained."""
    findings = {claim: claim.ask_all(found) for claim in claims}
    lines = []
    for claim, own in findings.items():
        near = nearest(own)
        where = f"{near[0].training}" if near else "nowhere yet"
        same = "–" if not near else "the paper's" if near[0].training.is_papers else "another"
        told = ", ".join(f"{prose(one.dataset)} {_marked(one)}" for one in near) or "*undecided*"
        lines.append([claim.title, claim.place, where, same, told])
    asked = sum(1 for own in findings.values() if own)
    summary = f"{asked} of {len(claims)} claims can be asked of today's rows. The setting nearest to the paper's:\n"
    shown = _table(["claim", "place in the paper", "asked at", "setting", "verdict"], lines)
    return "\n".join([LEDGER, summary, shown, *(_details(claim, own) for claim, own in findings.items())])


def _marked(finding: Finding) -> str:
    return "*undecided*" if finding.verdict == "undecided" else f"**{finding.verdict}**"


def _details(claim: Claim, findings: Sequence[Finding]) -> str:
    head = f"## {claim.title}\n\n{claim.text} ({claim.place})\n"
    sign = f"within ±{100 * claim.margin:g}" if claim.margin is not None else "above 0" if claim.above else "below 0"
    rule = f"Holds if {claim.method} − {claim.reference}, {claim.metric}, {claim.on} sets, is {sign}."
    if not findings:
        return f"{head}\n{rule} No rows yet: verdict *undecided*.\n"
    lines = []
    for one in findings:
        bounds = f"{points(one.interval[0])} to {points(one.interval[1])}" if one.interval else "none"
        papers = (
            ", ".join(f"{points(v)} {name}" for name, v in claim.papers(one.training.train_set, one.dataset)) or "–"
        )
        same = "the paper's" if one.training.is_papers else "another"
        runs = " ".join(f"`{run}`" for run in one.runs)
        seeds = f"{one.n[0]}, {one.n[1]}"
        cells = [f"{one.training}", same, prose(one.dataset), points(one.effect), bounds, seeds, _marked(one)]
        lines.append([*cells, papers, runs])
    heads = ["asked at", "setting", "set", "effect", "95 % interval", "n", "verdict", "the paper's effect", "runs"]
    return f"{head}\n{rule}\n\n{_table(heads, lines)}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *lines]) + "\n"
