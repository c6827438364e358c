"""Write what the archived runs under results/ say.

    python docs/make_results.py

That is results/README.md, docs/results.md with its figures, docs/claims.md, and the tables of README.md. This file has
their sections in order; what a section says is written by the module that it names.

To be run after runs were added; a test compares. Every folder of results/ is named after a study.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "results"))  # claims.py and slips.py

import make_causes
import make_claims
import make_headline
import make_last_batches
import make_length
import make_length_figure
import make_others
import make_replaced
import make_runs
import make_scores
import make_summary
from claims import Training
from make_archives import RESULTS, Archived, command, cost, everything, folders, rows_of, settings, tasks
from make_tables import FIELD, RECIPE, columns, fingerprints, headings, spreads, standard_columns

from regmixup.report.aggregation import Aggregation
from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = """# Results

What was measured with this package, in percent: the mean over seeds, ± the standard deviation where there are several.
n counts seeds, and `dnn` is plain training. AUROC is by each method's own score, as in the paper: Dempster-Shafer;
entropy for Mixup, CutMix, Mixup+CutMix and KFAC-LLLA. AUGRC (x 1000, lower is better) is by the maximum probability, as
others report it. CIFAR-10-C and CIFAR-100-C were rebuilt with `regmixup data corrupt`. Every folder beside this file is
a study, and every folder in it an archived run ([what it holds](../docs/studies.md#archives-and-time-limits)), named by
its configuration's fingerprint; `replaced.csv` has the main rows of trainings that others took the place of. Networks
and minutes are those of the study that trained them, while `--dry-run` counts all that a study uses; runs that shared a
GPU took longer than they would have alone. What the numbers mean is in [results](../docs/results.md), and what they say
about the paper in [claims](../docs/claims.md). All three are written by `python docs/make_results.py`.
"""
PAGE = """# Results

What was measured with this package so far, beside the paper's numbers and others'. Written by
`python docs/make_results.py` from the archived runs in [results](../results/README.md); what the rows say about the
paper's claims is in [claims](claims.md).
"""
CONVENTIONS = """## How to read the numbers

- Numbers are in percent, AUGRC and AURC times 1000, means over n seeds; ECE, AUGRC and AURC are better when lower, all
  others when higher. `dnn` is plain training, and `bn=refreshed` the same weights with batch-norm statistics estimated
  again. CIFAR-10-C and CIFAR-100-C were rebuilt here.
- `[low, high]` is a 95 % interval of the mean over seeds (Student's, cut off at 0 and 100; with two or three seeds it
  is wide, or narrow by luck). `(low, high)` stands where there is one seed: it is a bootstrap over test images, covers
  nothing of the choice of seeds, and decides nothing.
- AUROC is that of detecting OOD images, by each method's own score as in the paper where no other is named:
  Dempster-Shafer; entropy for Mixup, CutMix, Mixup+CutMix and KFAC-LLLA. AUGRC and ECE are of the test set, AUGRC by
  MSP, the maximum probability, as others report it.
- The last epoch is the model, and nothing in the tables was selected on test, shifted or OOD sets. Some runs were
  trained a second time, as further lines needed their weights, and replaced with all of their lines: the [log](log.md)
  names them, and [claims](claims.md#with-the-trainings-that-were-replaced) says which verdicts are others with the
  earlier trainings. The last column of a table names the runs by fingerprint; they are listed at the end.
- A section ends with the commands that train what is missing; `regmixup report NAME --runs results/NAME` makes a table
  of what is archived of one study, without a GPU. Tables here also take seeds of the same training from other studies.
"""


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """Return every generated file with its text."""
    archived = everything(results)
    found, every = settings(archived), settings(archived, make_replaced.read(results / make_replaced.PLACE.name))
    images = DOCS / "images"
    return {
        ROOT / "README.md": front_page(found),
        results / "README.md": readme(archived, results),
        DOCS / "results.md": page(found, every, archived, results),
        DOCS / "claims.md": make_claims.ledger(found, every),
        images / "length.svg": make_length_figure.drawn(found),
        images / "causes.svg": make_causes.drawn(found),
        images / "standard.svg": make_headline.drawn(found),
        images / "last-batches.svg": make_last_batches.drawn(archived),
    }


def page(
    found: Mapping[Training, Aggregation],
    every: Mapping[Training, Aggregation],
    archived: Sequence[Archived],
    results: Path = RESULTS,
) -> str:
    """Return docs/results.md. found: the rows of everything that is archived; every: with replaced trainings, too."""
    parts = [
        PAGE,
        make_summary.summary(found) + make_last_batches.summary(archived),
        CONVENTIONS,
        "## The headline\n",
        make_headline.TEXT,
        "![Differences from plain training, method by method](images/standard.svg)\n",
        make_headline.answer(found),
        *(make_headline.tables(found, recipe) for recipe in FIELD),
        "\n".join(map(command, ("standard", "constrained", "cifar100"))) + "\n",
        "## Beside others' numbers\n",
        make_others.section(found),
        "## Does RegMixup's deficit in OOD detection close with longer training?\n",
        f"{make_length.answer(found, make_length.planned_lengths(), every)}\n",
        "Where the deficit of short trainings may come from: [whose batch-norm "
        "statistics](#whose-batch-norm-statistics).\n",
        "![Metrics against training length](images/length.svg)\n",
        make_length.table(found),
        f"{command('length')}\n{command('length-mixup')}\n",
        "## Which score?\n",
        make_scores.section(found),
        "## Which of RegMixup's choices matter?\n",
        "![Differences from plain training, choice by choice](images/causes.svg)\n",
        make_causes.section(found, every),
        f"{command('causes')}\n",
        "## Whose batch-norm statistics?\n",
        make_causes.statistics_section(found, every),
        f"{command('batch-norm')}\n{command('clean-statistics')}\n",
        "## Why does the calibration of Mixup differ from seed to seed?\n",
        "![ECE against how weakly the last batches were mixed](images/last-batches.svg)\n",
        make_last_batches.section(archived),
        f"{command('last-batches')}\n",
        "## bfloat16 against float32\n",
        make_runs.precision(archived, results),
        f"{command('precision')}\n    python benchmarks/equivalence.py results/precision\n",
        "## What it cost, and what is missing\n",
        make_runs.costs(archived, results),
        "## The runs\n",
        make_runs.table(archived),
    ]
    return "\n".join(parts)


def readme(archived: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return results/README.md: what is there, study by study."""
    parts = [
        study_section(study, [one for one in archived if one.study == study], results) for study in folders(results)
    ]
    return "\n".join([README, *parts])


def study_section(study: str, found: Sequence[Archived], results: Path = RESULTS) -> str:
    """Return a study's table, what it cost, and how it is continued."""
    title, count, own_cost = load_study(study).title, len(tasks(study, results)), cost(study, results)
    missing = f"{count - len(found)} of {count} lines are missing. What they are, and what they cost"
    state = missing if len(found) < count else f"all {count} lines are there. What they are"
    end = f"{own_cost[0].upper() + own_cost[1:]}; {state}:\n\n{command(study)} --dry-run\n"
    if not found:
        return f"## {title}\n\n{end}"
    aggregation = Aggregation(row for one in found for row in rows_of(one.folder, one.planned.stem))
    sets = found[0].planned.evaluate
    own = columns(sets.test, sets.shift, sets.ood)
    lines = []
    for label in dict.fromkeys(one.planned.label for one in found):
        rows = [column.rows(aggregation, label) for column in own]
        lines.append([label, *spreads(own, rows), fingerprints(rows)])
    numbers = markdown_table(["", "n", *headings(own), "runs"], lines)
    return f"## {title}\n\n{numbers}\n{end}"


def front_page(found: Mapping[Training, Aggregation]) -> str:
    """Return the README of the project with its tables: plain training and RegMixup at every length, and CIFAR-100."""
    names = {"dnn": "plain", "regmixup": "RegMixup", "mixup": "Mixup", "half-regmixup": "half-RegMixup"}
    lengths = make_length.at_lengths(found, make_length.planned_lengths())
    first = [
        (f"{names[label]}, {training.epochs} epochs", label, aggregation)
        for training, aggregation in lengths.items()
        for label in ("dnn", "regmixup")
    ]
    other = FIELD[1]
    there = found.get(make_headline.own_length(other), Aggregation([]))
    second = [(name, label, there) for label, name in names.items()]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for place, recipe, lines in (("length", RECIPE, first), ("CIFAR-100", other, second)):
        own = standard_columns(recipe)[:-1]
        cells = [[name, *spreads(own, [c.rows(aggregation, label) for c in own])] for name, label, aggregation in lines]
        before, _, rest = text.partition(f"<!-- table: {place} -->\n")
        after = rest.partition("<!-- end of table -->\n")[2]
        table = markdown_table(["", "n", *headings(own)], cells)
        text = f"{before}<!-- table: {place} -->\n{table}<!-- end of table -->\n{after}"
    return text


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
