"""Write what the code knows: a card per method, the tables of studies and of step times, and the costs of studies.

    python docs/make_pages.py      # after a change of the registry, of a study file or of step times; tests compare

conf.py writes the cards at every build. Words come from cards.toml, everything else from the registry, the measured
step times and the archived runs.
"""

import dataclasses
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "results"))

import torch  # noqa: E402
from archives import settings_of, steps  # noqa: E402
from build import HEADLINE, means, with_table  # noqa: E402

from regmixup.augmentations import AUGMENTATIONS  # noqa: E402
from regmixup.losses import LOSSES  # noqa: E402
from regmixup.methods import METHODS, Method, Spec  # noqa: E402
from regmixup.objectives import OBJECTIVES  # noqa: E402
from regmixup.recipes import RECIPES  # noqa: E402
from regmixup.report.writers import markdown_table  # noqa: E402
from regmixup.study.plan import load_study, studies  # noqa: E402
from regmixup.study.status import estimate  # noqa: E402
from regmixup.study.tasks import find_tasks  # noqa: E402

WORDS = tomllib.loads((DOCS / "cards.toml").read_text(encoding="utf-8"))
PARTS = ("objective", "constraint", "head", "posthoc", "train")
COSTS = {
    "kfac-llla": "Trains like `dnn`; the Laplace map is fitted afterwards.",
    "deep-ensemble": "Five times `dnn`.",
    "reliable": "Trains like `regmixup+regcutmix`; the average takes one more epoch of forward passes.",
}
"""Methods whose step is that of another one."""
LAST_LINES = {
    "rbf": "model.after_step(x, y)  # after the optimizer's step\n",
    "gp": "model.finalize([x])  # after training: batches of train images\n",
}
"""Calls that heads need beside the steps of an optimizer."""
PAPER_TIMES = {"dnn": "1", "mixup": "1.2", "regmixup": "1.5", "augmix": "4"}
"""Training times over that of plain training, from the paper's Section 4."""


def call(spec: Spec, field: str = "objective") -> str:
    """Return an objective as Python, with its alpha and what differs from its defaults; or its loss or transform."""
    known = {"loss": LOSSES, "transform": AUGMENTATIONS}.get(field, OBJECTIVES)
    cls = known[spec.name]
    values = {f.name: f.default for f in dataclasses.fields(cls) if f.name == "alpha"}
    values |= dict(spec.fields)
    arguments = (f"{name}={call(v, name)}" if isinstance(v, Spec) else f"{name}={v!r}" for name, v in values.items())
    return f"rm.{'losses.' if field == 'loss' else ''}{cls.__name__}({', '.join(arguments)})"


def loop(method: Method) -> str:
    """Return the lines of a training loop."""
    arguments = ['"resnet18"', "num_classes=10"]
    arguments += [f'constraint="{method.constraint.name}"'] if method.constraint else []
    arguments += [f'head="{method.head.name}"'] if method.head.name != "linear" else []
    return f"""import regmixup as rm
import torch

model = rm.networks.build({", ".join(arguments)})
x, y = torch.rand(8, 3, 32, 32), torch.randint(10, (8,))
objective = {call(method.objective)}
objective(model, x, y).loss.backward()
{LAST_LINES.get(method.head.name, "")}"""


def described(part: str, value: Any) -> str:
    """Return a part of a method for a table."""
    if part == "objective":
        return f"`{call(value)}`"
    if isinstance(value, Spec):
        fields = ", ".join(f"{name}={setting!r}" for name, setting in value.fields.items())
        return f"{part} `{value.name}({fields})`"
    return ", ".join(f"{name} {setting}" for name, setting in value.items()) or "training as the recipe says"


def changed(method: Method, reference: Method) -> list[str]:
    """Return the parts of a method in which it differs from another."""
    parts = {name: getattr(method, name) for name in PARTS}
    return [described(name, part) for name, part in parts.items() if part != getattr(reference, name)]


def values(method: Method) -> str:
    """Return what the method sets, and for which recipe it sets something else."""
    plain = dataclasses.replace(METHODS["dnn"], objective=Spec(""))  # every method's objective is shown
    lines = [["every recipe", "; ".join(changed(method, plain))]]
    by_recipe = {recipe: changed(method.at(recipe), method) for recipe in RECIPES}
    lines += [[f"`{recipe}`", "; ".join(parts)] for recipe, parts in by_recipe.items() if parts]
    return markdown_table(["recipe", "sets"], lines)


def cost(name: str) -> str:
    """Return the measured times of a step of 128 images."""
    if name in COSTS:
        return COSTS[name]
    lines = [
        [network, how, f"{times[name]:.2f}", f"{times[name] / times['dnn']:.2f}"]
        for how in ("compiled", "eager")
        for network, times in steps(how).items()
        if name in times
    ]
    return markdown_table(["network, one H200", "step", "ms", "relative to dnn"], lines) if lines else "Not measured.\n"


def results(name: str) -> str:
    """Return the method's archived runs on the field's recipes."""
    settings = settings_of(name)
    if not settings:
        return "No run of ours is archived yet: [results](../results.md) says what is missing.\n"
    reading = "[how to read the table](../results.md#how-to-read-the-tables)"
    return f"Mean ± standard deviation over n seeds ({reading}):\n\n{means(settings, HEADLINE)}"


def card(method: Method) -> str:
    """Return a method's page."""
    words = WORDS[method.name]
    pitfalls = "\n".join(f"- {line}" for line in words["pitfalls"])
    unpublished = "" if method.published else " The paper publishes neither the values nor the score of this method."
    return f"""# {method.name}

{method.description[0].upper() + method.description[1:]}.

{words["does"]}

## Use

```sh
regmixup train --method {method.name} --recipe digits
```

In a loop of your own:

```python
{loop(method)}```

## Values

{values(method)}
OOD score: `{method.score}`.{unpublished}

## Cost

{cost(method.name)}
## Results

{results(method.name)}
## Pitfalls

{pitfalls}

## Attribution

{method.citation[0].upper() + method.citation[1:]}.
"""


def cards() -> dict[str, str]:
    """Return all cards by file name, the index included."""
    files = {method.name.replace("+", "-and-"): method for method in METHODS.values()}
    lines = [
        [f"[{method.name}]({file}.md)", method.description, f"`{method.score}`", method.citation]
        for file, method in files.items()
    ]
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(files) + "\n```\n"
    table = markdown_table(["method", "what it is", "OOD score", "from"], lines)
    combining = "The methods that have names. [Combining methods](../methods.md) has components and other combinations."
    index = f"# Method cards\n\n{combining}\n\n{table}\n{tree}"
    return {"index": index} | {file: card(method) for file, method in files.items()}


def write_cards(folder: Path) -> None:
    """Write the cards that changed."""
    folder.mkdir(exist_ok=True)
    for name, text in cards().items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def study_with_cost(name: str) -> str:
    """Return the text of a study file with its estimated cost."""
    text = studies()[name].read_text(encoding="utf-8")
    tasks = find_tasks([*load_study(name).runs()], DOCS, torch.device("cuda"), [])  # no run lies there
    return re.sub(r"(?m)^cost = .*$", f'cost = "{estimate(tasks)}"', text, count=1)


def with_same_head(text: str, heads: list[str], lines: list[list[str]]) -> str:
    """Return a page with the lines replaced of the table that has these heads."""
    return with_table(text, markdown_table(heads, []), markdown_table(heads, lines))


def short(cost: str) -> str:
    """Return a cost for a table whose heading names the GPU: its networks and its longest unit of time.

    >>> short("205 networks to train, about 7,100 GPU minutes (4.9 days) on one H200")
    '205 networks, 4.9 days'
    >>> short("9 networks to train, about 19 GPU minutes on one H200")
    '9 networks, 19 minutes'
    """
    cost = cost.replace(" to train, about ", ", ").replace(" on one H200", "").replace("GPU ", "")
    return re.sub(r"[\d,]+ minutes \((.*)\)", r"\1", cost)


def studies_page() -> str:
    """Return docs/studies.md with its tables replaced."""
    tables = {
        "paper": [["study of the paper", "what", "cost", "remakes"]],
        "ours": [["our own study", "what", "cost"]],
        "cv": [["cross-validation", "of what", "cost", "remakes"]],
    }
    for name in studies():
        study = load_study(name)
        cells = [f"`{name}`", study.title.removeprefix("Cross-validation of "), short(study.cost)]
        kind = "cv" if name.startswith("cv-") else "paper" if study.paper else "ours"
        tables[kind].append([*cells, ", ".join(study.paper)] if study.paper else cells)
    text = (DOCS / "studies.md").read_text(encoding="utf-8")
    for heads, *lines in tables.values():
        text = with_same_head(text, heads, lines)
    return text


def performance_page() -> str:
    """Return docs/performance.md with its tables of step times replaced."""
    measured = {(how, network): times for how in ("eager", "compiled") for network, times in steps(how).items()}
    digits = {"eager": 1, "compiled": 2}
    lines = []
    for name in METHODS:
        cells = [
            f"{times[name]:.{digits[how]}f} ({times[name] / times['dnn']:.2f})" if name in times else ""
            for (how, _), times in measured.items()
        ]
        if any(cells):
            lines.append([f"`{name}`", *cells, PAPER_TIMES.get(name, "")])
    others = [
        [f"`{network}`, {words}", f"{times['dnn']:g}"]
        for how, words in (("cpu", "2 CPU cores, float32, eager"), ("estimated", "estimated from multiply-adds"))
        for network, times in steps(how).items()
    ]
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    text = with_same_head(text, ["method", *map(", ".join, measured), "the paper says"], lines)
    return with_same_head(text, ["other step", "of dnn, ms"], others)


def main() -> None:
    for name, path in studies().items():
        path.write_text(study_with_cost(name), encoding="utf-8")
    (DOCS / "studies.md").write_text(studies_page(), encoding="utf-8")
    (DOCS / "performance.md").write_text(performance_page(), encoding="utf-8")
    write_cards(DOCS / "cards")


if __name__ == "__main__":
    main()
