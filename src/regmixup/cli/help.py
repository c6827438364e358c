"""`regmixup VERB --help`: what a verb does, and its flags with their defaults. Imports no torch.

Texts and defaults are read from the source of the classes that the flags belong to, so nothing else must be imported.
Of `train` it shows what people use first; its --help-all, by the CLI library, has every flag.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import regmixup
from regmixup import methods, recipes
from regmixup.cli import split_flag
from regmixup.config import values_of
from regmixup.data.catalogue import get
from regmixup.deployment.request import Request

PACKAGE = Path(regmixup.__file__).parent
GROUPS = {
    "train": {
        "what to train": ("method", "recipe", "train_set", "network", "init", "seed"),
        "how to train": ("epochs", "batch_size", "lr", "schedule", "weight_decay", "select", "class_weights"),
        "what combines with every method": ("loss", "cutout", "rotation", "sharpness", "average", "ema"),
        "where and how fast": ("runs", "root", "device", "precision", "compile", "dry_run"),
    },
    "finetune": {
        "the model": ("backbone", "init", "image_size", "freeze"),
        "the training of all weights": (
            "minutes", "epochs", "method", "lr", "batch_size", "augmentation", "precision", "class_weights", "seed",
        ),
        "the decisions": ("acceptance", "risk", "score", "ood"),
        "what is written": ("runs", "export", "tensorboard"),
        "a comparison of two methods on your images": ("against",),
        "the machine": ("device", "workers"),
    },
}  # fmt: skip
"""Flags by what they are about. Those of the method's objective are a group of their own."""
CLASSES = {
    "Resources": "cli/parsing.py",
    "Action": "cli/data.py",
    "Request": "deployment/request.py",
    "Recipe": "recipes.py",
    "Engine": "training/engine.py",
}
"""The classes that verbs take fields from, by the file that has them."""
PLUGIN = "With every verb: --plugin MODULE, repeatable: a module or .py file that registers what you bring."


def print_help(verb: str, args: Sequence[str]) -> None:
    """Print the help of a verb, such as train, or of an action of one, such as data fetch."""
    console = Console(highlight=False)
    with console.capture() as page:  # rich would end the process itself where the reader has gone away
        _write_help(console, verb, args)
    print(page.get(), end="")


def _write_help(console: Console, verb: str, args: Sequence[str]) -> None:
    first, _, action = verb.partition(" ")
    file, name = f"cli/{first}.py", f"{action.capitalize()}Action" if action else f"{verb.capitalize()}Verb"
    fields = read_fields(file, name)
    places = [name for name in fields if fields[name].is_positional]
    words = " ".join(["regmixup", verb, *(fields[name].flag(name) for name in places)])
    console.print(f"usage: {words} [options]", markup=False)
    for paragraph in (ast.get_docstring(_find_class(file, name)) or "").split("\n\n"):
        # A line of an example is copied, so nothing breaks it but the terminal.
        console.print(f"\n{' '.join(paragraph.split())}", markup=False, soft_wrap=paragraph.startswith("Example"))
    defaults = values_of(Request()) if verb == "finetune" else {}
    if verb == "train":
        defaults = _train_defaults(args)
    groups = GROUPS.get(verb, {"options": [name for name in fields if name not in places]})
    for title, names in {"arguments": places, **groups}.items():
        if names:
            print_group(console, title, {name: fields[name] for name in names}, defaults)
    if verb == "train":
        _print_objective(console, str(defaults["method"]), defaults["recipe"])
        console.print("\n--help-all lists every flag, those of augmentation, schedule, head and constraint too.")
    console.print(f"\n{PLUGIN}", markup=False)


def _train_defaults(args: Sequence[str]) -> dict[str, object]:
    """Return the defaults of the recipe and the method that the words choose."""
    recipe, method = recipe_and_method(args)
    named = methods.get(method).at(recipe)
    loss = named.objective.fields["loss"].name if "loss" in named.objective.fields else "none"
    return vars(recipes.get(recipe)) | dict(named.train) | {"recipe": recipe, "method": method, "loss": loss}


def _print_objective(console: Console, method: str, recipe: object) -> None:
    """Print the flags of a method's objective; a plugin's are known to --help-all alone."""
    objective = methods.get(method).at(str(recipe)).objective
    file = f"objectives/{objective.name}.py"
    if (PACKAGE / file).is_file():
        *_, cls = (node.name for node in _classes(file) if not node.name.startswith("_"))
        fields = {name: field for name, field in read_fields(file, cls).items() if name != "loss"}  # --loss is above
        if fields:
            print_group(console, f"of the method {method}", fields, objective.fields)


def recipe_and_method(args: Sequence[str]) -> tuple[str, str]:
    """Return the recipe and method that the words name. The default recipe is another one for a folder of images."""
    train_set = get(value_of("--train-set", args) or "")
    usual = "imagenet-resnet50" if train_set is not None and train_set.is_folder else "digits"
    return value_of("--recipe", args) or usual, value_of("--method", args) or "regmixup"


def value_of(flag: str, args: Sequence[str]) -> str | None:
    """Return the word that follows a flag: the last one, as for all flags, if it is given twice. None without it."""
    return next(reversed(split_flag(flag, args)[0]), None)


@dataclass(frozen=True)
class Field:
    """The docstring below a field, its default if that is a plain value or the path of one, and its annotation."""

    text: str
    default: object
    annotation: str

    @property
    def is_positional(self) -> bool:
        return self.annotation.startswith("Positional[")

    def flag(self, name: str) -> str:
        """Return what is typed for a field: --lr, --ood ..., RUN, [WHAT]."""
        flag = f"--{name.replace('_', '-')}"
        if self.is_positional:
            flag = name.upper() if self.default is None else f"[{name.upper()}]"
        return f"{flag} ..." if "tuple[" in self.annotation else flag


def print_group(console: Console, title: str, fields: Mapping[str, Field], defaults: Mapping[str, object]) -> None:
    """Print a group of flags: the name, its text and its default. defaults: those that are not the class's."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, field in fields.items():
        default = defaults.get(name, field.default)
        default = getattr(default, "name", default)  # of a part, its name
        shown = "" if default is None or default is False or default == "" else f" [{default}]"
        table.add_row(Text(f"  {field.flag(name)}"), Text(" ".join(field.text.split()) + shown))
    console.print(f"\n{title}:", markup=False)
    console.print(table)


def read_fields(file: str, name: str) -> dict[str, Field]:
    """Return the fields of a class by name, with those of the classes that it contains and, at the end, extends."""
    node = _find_class(file, name)
    fields: dict[str, Field] = {}
    for statement, text in pairwise([*node.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign):
            continue
        annotation, field = ast.unparse(statement.annotation), ast.unparse(statement.target)
        if "arg(name='')" in annotation:  # its fields stand among those of the verb
            for part in (part for part in CLASSES if f"[{part}" in annotation):
                fields |= read_fields(CLASSES[part], part)
        elif isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            fields[field] = Field(str(text.value.value), _plain_value(statement.value), annotation)
    for base in map(ast.unparse, node.bases):
        base_file = CLASSES.get(base, f"objectives/{base.lower()}.py")
        inherited = read_fields(base_file, base) if (PACKAGE / base_file).is_file() else {}
        fields |= {name: field for name, field in inherited.items() if name not in fields}
    return fields


def _plain_value(value: ast.expr | None) -> object:
    """Return the value of a default: of field(default=1), introduced(1) and Path("x") as well; None if it is none."""
    if isinstance(value, ast.Call):
        keywords = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
        value = next(iter([*keywords, *value.args]), None)
    return value.value if isinstance(value, ast.Constant) else None


def _find_class(file: str, name: str) -> ast.ClassDef:
    return next(node for node in _classes(file) if node.name == name)


@cache
def _classes(file: str) -> list[ast.ClassDef]:
    text = (PACKAGE / file).read_text(encoding="utf-8")
    return [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
