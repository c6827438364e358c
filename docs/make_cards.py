"""Write a page per method for the documentation site: how to use it, values, cost, results, pitfalls, attribution.

    python docs/make_cards.py     writes docs/cards/, which conf.py does at every build

Words come from cards.toml, everything else from the registry, the measured step times and the archived runs.
"""

import dataclasses
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "results"))  # claims.py and slips.py

from claims import Training
from make_archives import everything, settings
from make_tables import FIELD, measured, standard_columns

from regmixup.methods import METHODS, Method, Spec
from regmixup.objectives import OBJECTIVES
from regmixup.recipes import RECIPES
from regmixup.report.aggregation import Aggregation
from regmixup.report.writers import markdown_table
from regmixup.study.cost import step_times

DOCS = Path(__file__).parent
WORDS = tomllib.loads((DOCS / "cards.toml").read_text(encoding="utf-8"))


def call(spec: Spec) -> str:
    """Return an objective as Python, with its alpha and what differs from its defaults."""
    made = OBJECTIVES[spec.name]
    shown = {f.name: f.default for f in dataclasses.fields(made) if f.name == "alpha"} | dict(spec.fields)
    fields = (f"{k}={call(v)}" if isinstance(v, Spec) else f"{k}={v!r}" for k, v in shown.items())
    return f"rm.{made.__name__}({', '.join(fields)})"


def loop(method: Method) -> str:
    """Return the lines of a training loop."""
    network = ", ".join(
        ['"resnet18"', "num_classes=10"]
        + ([f'constraint="{method.constraint.name}"'] if method.constraint else [])
        + ([f'head="{method.head.name}"'] if method.head.name != "linear" else [])
    )
    after = ["model.after_step(x, y)  # after the optimizer's step"] if method.head.name == "rbf" else []
    ends = ["model.finalize([x])  # after training: batches of train images"] if method.head.name == "gp" else []
    lines = [
        "import regmixup as rm",
        "import torch",
        "",
        f"model = rm.networks.build({network})",
        "x, y = torch.rand(8, 3, 32, 32), torch.randint(10, (8,))",
        f"objective = {call(method.objective)}",
        "objective(model, x, y).loss.backward()",
        *after,
        *ends,
    ]
    return "\n".join(lines)


def shown(part: str, value: Any) -> str:
    """Return a part of a method for a table."""
    if part == "objective":
        return f"`{call(value)}`"
    if isinstance(value, Spec):
        fields = ", ".join(f"{k}={v!r}" for k, v in value.fields.items())
        return f"{part} `{value.name}({fields})`"
    return ", ".join(f"{key} {v}" for key, v in value.items()) or "training as the recipe says"


def values(method: Method) -> str:
    """Return what the method sets, and where that differs what it sets for a recipe."""
    parts = ("objective", "constraint", "head", "posthoc", "train")
    plain = {"head": Spec("linear"), "constraint": None, "posthoc": None, "train": {}}
    own = [shown(k, getattr(method, k)) for k in parts if getattr(method, k) != plain.get(k)]
    lines = [["every recipe", "; ".join(own)]]
    for recipe in RECIPES:
        here = method.at(recipe)
        differs = [shown(k, getattr(here, k)) for k in parts if getattr(here, k) != getattr(method, k)]
        if differs:
            lines.append([f"`{recipe}`", "; ".join(differs)])
    text = markdown_table(["recipe", "sets"], lines).rstrip()
    return f"{text}\n\nA line for one recipe replaces only what it names." if len(lines) > 1 else text


def cost(name: str) -> str:
    """Return the measured times of a step."""
    times = step_times()
    lines = []
    for network in ("wrn28-10", "resnet50"):
        own, plain = (times["eager"][network].get(key) for key in (name, "dnn"))
        if own:
            lines.append([network, f"{own:.1f}", f"{own / plain:.2f}"])
    if not lines:
        again = {"kfac-llla": "Trains like `dnn`; the Laplace map is fitted afterwards.",
                 "deep-ensemble": "Five times `dnn`, in training and in prediction."}  # fmt: skip
        return again.get(name, "Not measured.")
    table = markdown_table(["network", "ms per step", "relative to dnn"], lines).rstrip()
    how = re.sub(r"\((.+)\)", r"(`python \1`)", times["eager"]["how"])
    return f"O{how[1:]}; 128 images.\n\n{table}"


def results(name: str, archived: Mapping[Training, Aggregation]) -> str:
    """Return the method's archived runs on the field's recipes, by length and precision."""
    found = [(t, a) for t, a in archived.items() if name in a.labels]
    tables = []
    for recipe in FIELD:
        own = standard_columns(recipe)
        here = sorted((t.epochs, t.precision, t, a) for t, a in found if t.recipe == recipe)
        rows = [line for _, _, t, a in here for line in measured(own, t, a, [name])]
        for line, (_, precision, *_) in zip(rows, here, strict=True):
            line[:] = [precision, *line[1:-1]]  # the page of results names the runs
        if rows:
            heads = ["precision", "epochs", "n", *(column.title for column in own)]
            tables.append(
                f"`{recipe}`, in percent, AUGRC times 1000; n seeds. `[low, high]` is a 95 % interval of the mean over "
                "seeds, which says little with two, and `(low, high)` one over the test images of a single run. "
                f"[Results](../results.md) explains them and names the runs.\n\n{markdown_table(heads, rows)}"
            )
    return "\n".join(tables) or "No run of ours is archived yet: [results](../results.md) says what is missing."


def card(method: Method, archived: Mapping[Training, Aggregation]) -> str:
    """Return a method's page."""
    words = WORDS[method.name]
    pitfalls = "\n".join(f"- {line}" for line in words["pitfalls"])
    source = (
        "" if method.published else "\n\nThe paper reports this method and publishes neither its values nor its score."
    )
    return f"""# {method.name}

{method.description[0].upper() + method.description[1:]}.

{words["does"]}

## Use

```sh
regmixup train --method {method.name} --recipe digits
```

In a loop of your own:

```python
{loop(method)}
```

## Values

{values(method)}

OOD score: `{method.score}`.{source}

## Cost

{cost(method.name)}

## Results

{results(method.name, archived)}

## Pitfalls

{pitfalls}

## Attribution

{method.citation[0].upper() + method.citation[1:]}.
"""


def cards() -> dict[str, str]:
    """Return all pages by name, the index included."""
    archived = settings(everything())
    files = {method.name.replace("+", "-and-"): method for method in METHODS.values()}
    lines = [[f"[{m.name}]({file}.md)", m.description, m.citation] for file, m in files.items()]
    tree = "\n".join(files)
    index = f"""# Method cards

{markdown_table(["method", "what it is", "from"], lines)}
```{{toctree}}
:hidden:

{tree}
```
"""
    return {"index": index} | {file: card(method, archived) for file, method in files.items()}


def write(folder: Path) -> None:
    """Write the pages that changed."""
    folder.mkdir(exist_ok=True)
    for name, text in cards().items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(DOCS / "cards")
