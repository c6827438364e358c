"""`regmixup list`: print the names that other verbs take. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from regmixup import plugins
from regmixup.cli.parsing import parse
from regmixup.data.catalogue import FAMILIES, members
from regmixup.methods import METHODS
from regmixup.networks import CONSTRAINTS, HEADS, NETWORKS
from regmixup.recipes import RECIPES
from regmixup.study.plan import load_study, studies


@dataclass(frozen=True)
class ListVerb:
    """List what is available, by name.

    Example: regmixup list methods
    """

    what: Positional[
        Literal["all", "methods", "recipes", "networks", "constraints", "heads", "datasets", "studies"]
    ] = "all"
    """The list to print: all, or methods, recipes, networks, constraints, heads, datasets or studies."""


def main(args: Sequence[str]) -> None:
    verb = parse(ListVerb, "list", args)
    plugins.load()
    study_files = {name: load_study(name) for name in studies()}  # which builds no run
    lists = {
        "methods": {name: f"{m.description} ({m.citation})" for name, m in METHODS.items()},
        "recipes": {name: f"{r.network} on {r.train_set}, {r.epochs} epochs" for name, r in RECIPES.items()},
        "networks": {name: network.description for name, network in NETWORKS.items()}
        | {"timm/NAME": "any of timm's image models, untrained, for example timm/resnet50; see timm.list_models()"},
        "constraints": {name: constraint.description for name, constraint in CONSTRAINTS.items()},
        "heads": {name: head.description for name, head in HEADS.items()},
        "datasets": {name: f"{line} [{len(members(name))}]" for name, line in FAMILIES.items()},
        "studies": {name: ": ".join(filter(None, (study.title, study.cost))) for name, study in study_files.items()},
    }
    for title in lists if verb.what == "all" else [verb.what]:
        print(f"{title}:")
        for name, description in lists[title].items():
            print(f"  {name:20} {description}")
