"""`regmixup train --help`: the flags that people use first, in groups. Imports no torch.

Texts and defaults are those of the classes that the flags belong to, read from their source. `--help-all` has all.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import regmixup
from regmixup import methods, recipes
from regmixup.cli import split_flag

PACKAGE = Path(regmixup.__file__).parent
GROUPS = {
    "what to train": ("method", "recipe", "train_set", "network", "init", "seed"),
    "how to train": ("epochs", "batch_size", "lr", "schedule", "weight_decay", "ema", "select", "class_weights"),
    "where and how fast": ("runs", "root", "device", "precision", "compile", "dry_run"),
}
"""Fields by group; those of the method's objective are a group of their own."""
SOURCES = {
    "TrainVerb": "cli/train.py",
    "Resources": "cli/parsing.py",
    "Recipe": "recipes.py",
    "Engine": "training/engine.py",
}


def main(args: Sequence[str]) -> None:
    """Print the help of `regmixup train`, with the defaults of the recipe and the method that the words choose."""
    chosen_recipe = (split_flag("--recipe", args)[0] or ["digits"])[-1]
    chosen_method = (split_flag("--method", args)[0] or ["regmixup"])[-1]
    recipe, method = recipes.get(chosen_recipe), methods.get(chosen_method).at(chosen_recipe)
    texts = {name: text for cls, file in SOURCES.items() for name, text in field_texts(PACKAGE / file, cls).items()}
    defaults = vars(recipe) | dict(method.train) | {"recipe": chosen_recipe, "method": chosen_method}
    defaults |= {"seed": 0, "runs": "runs", "compile": "auto", "class_weights": "none"}
    console = Console(highlight=False)
    console.print("usage: regmixup train [--method NAME] [--recipe NAME] [options]\n", markup=False)
    console.print(class_text(PACKAGE / SOURCES["TrainVerb"], "TrainVerb"), markup=False)
    for title, names in GROUPS.items():
        print_group(console, title, {name: texts[name] for name in names}, defaults)
    objective = method.objective
    file = PACKAGE / "objectives" / f"{objective.name}.py"
    texts = field_texts(file) if file.is_file() else {}  # a plugin's are known to --help-all alone
    if fields := {name: text for name, text in texts.items() if name != "loss"}:
        print_group(console, f"of the method {chosen_method}", fields, field_defaults(file) | dict(objective.fields))
    console.print("\n--help-all lists every flag, those of augmentation, schedule, head, constraint and loss too.")


def print_group(console: Console, title: str, texts: dict[str, str], defaults: dict[str, object]) -> None:
    """Print a group of flags: the name, its text and its default."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in texts.items():
        default = getattr(defaults.get(name), "name", defaults.get(name))  # of a part, its name
        shown = "" if default in (None, "", False) else f" [{default}]"
        table.add_row(f"  --{name.replace('_', '-')}", Text(" ".join(text.split()) + shown))
    console.print(f"\n{title}:", markup=False)
    console.print(table)


def field_texts(path: Path, cls: str | None = None) -> dict[str, str]:
    """Return the docstrings below the fields of a class in a source file; without a name, of all its classes."""
    texts = {}
    for body in (node.body for node in _classes(path) if cls in (None, node.name)):
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(field.target, ast.Name)
                texts[field.target.id] = str(text.value.value)
    return texts


def field_defaults(path: Path) -> dict[str, object]:
    """Return the defaults of fields in a source file that are plain values."""
    defaults: dict[str, object] = {}
    for field in (field for node in _classes(path) for field in node.body if isinstance(field, ast.AnnAssign)):
        value = field.value
        if isinstance(value, ast.Call):  # field(default=20.0, ...)
            value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
        if isinstance(field.target, ast.Name) and isinstance(value, ast.Constant):
            defaults[field.target.id] = value.value
    return defaults


def class_text(path: Path, cls: str) -> str:
    """Return the docstring of a class in a source file."""
    return next(ast.get_docstring(node) or "" for node in _classes(path) if node.name == cls)


def _classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
