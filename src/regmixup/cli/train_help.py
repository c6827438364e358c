"""`regmixup train --help`: the flags that people use first, in groups. Imports no torch.

Texts and defaults are those of the classes that the flags belong to, read from their source. `--help-all` has all.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

import regmixup
from regmixup import methods, recipes
from regmixup.cli import split_flag
from regmixup.data.catalogue import get

PACKAGE = Path(regmixup.__file__).parent
GROUPS = {
    "what to train": ("method", "recipe", "train_set", "network", "init", "seed"),
    "how to train": (
        "epochs",
        "batch_size",
        "lr",
        "schedule",
        "weight_decay",
        "ema",
        "average",
        "sharpness",
        "select",
        "class_weights",
    ),
    "where and how fast": ("runs", "root", "device", "precision", "compile", "dry_run"),
}
"""Fields by group; those of the method's objective are a group of their own."""
SOURCES = ("cli/train.py", "cli/parsing.py", "recipes.py", "training/engine.py")


def main(args: Sequence[str]) -> None:
    """Print the help of `regmixup train`, with the defaults of the recipe and the method that the words choose."""
    chosen_recipe, chosen_method = choose_recipe(args), value_of("--method", args) or "regmixup"
    recipe, method = recipes.get(chosen_recipe), methods.get(chosen_method).at(chosen_recipe)
    fields = {name: field for file in SOURCES for name, field in read_fields(PACKAGE / file).items()}
    defaults = vars(recipe) | dict(method.train) | {"recipe": chosen_recipe, "method": chosen_method, "runs": "runs"}
    console = Console(highlight=False)
    console.print("usage: regmixup train [--method NAME] [--recipe NAME] [options]\n", markup=False)
    documents = {node.name: ast.get_docstring(node) or "" for node in _classes(PACKAGE / SOURCES[0])}
    console.print(documents["TrainVerb"], markup=False)
    for title, names in GROUPS.items():
        print_group(console, title, {name: fields[name] for name in names}, defaults)
    objective = method.objective
    file = PACKAGE / "objectives" / f"{objective.name}.py"
    fields = read_fields(file) if file.is_file() else {}  # a plugin's are known to --help-all alone
    fields.pop("loss", None)
    if fields:
        print_group(console, f"of the method {chosen_method}", fields, objective.fields)
    console.print("\n--help-all lists every flag, those of augmentation, schedule, head, constraint and loss too.")


def choose_recipe(args: Sequence[str]) -> str:
    """Return the recipe that --recipe names. Without it: digits, or the one for files where a folder is trained on."""
    train_set = get(value_of("--train-set", args) or "")
    from_files = train_set is not None and train_set.is_folder
    return value_of("--recipe", args) or ("imagenet-resnet50" if from_files else "digits")


def value_of(flag: str, args: Sequence[str]) -> str | None:
    """Return the word that follows a flag: the last one, as for all flags, if it is given twice. None without it."""
    return next(reversed(split_flag(flag, args)[0]), None)


def print_group(console: Console, title: str, fields: Mapping[str, Field], defaults: Mapping[str, object]) -> None:
    """Print a group of flags: the name, its text and its default. defaults: those that are not the class's."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, field in fields.items():
        default = defaults.get(name, field.default)
        default = getattr(default, "name", default)  # of a part, its name
        shown = "" if default in (None, "", False) else f" [{default}]"
        table.add_row(f"  --{name.replace('_', '-')}", Text(" ".join(field.text.split()) + shown))
    console.print(f"\n{title}:", markup=False)
    console.print(table)


class Field(NamedTuple):
    """The docstring below a field, and its default if that is a plain value."""

    text: str
    default: object


def read_fields(path: Path) -> dict[str, Field]:
    """Return the fields of the classes in a source file by name."""
    fields = {}
    for field, text in (pair for node in _classes(path) for pair in pairwise(node.body)):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            value = field.value
            if isinstance(value, ast.Call):  # field(default=20.0, ...)
                value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
            default = value.value if isinstance(value, ast.Constant) else None
            fields[ast.unparse(field.target)] = Field(str(text.value.value), default)
    return fields


def _classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
