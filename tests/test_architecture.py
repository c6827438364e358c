"""Which room may import which, no import circles, and what starts without torch."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import regmixup
from regmixup.cli import VERBS

SOURCE = Path(regmixup.__file__).parent
REPOSITORY = Path(__file__).parent.parent
FILES = sorted(SOURCE.rglob("*.py"))

# The rooms from the bottom up: a file may import its own room and those of lower levels, never one of its own level.
# `predictions/predict.py` runs trained runs and so stands above `training`; the rest of its room stands below it.
LEVELS = [
    {"names", "types"},
    {"config", "plugins", "storage"},
    {"mixing"},
    {"augmentations", "losses", "metrics", "networks"},
    {"data", "objectives", "posthoc"},
    {"methods", "predictions", "recipes"},
    {"run_folder"},
    {"training"},
    {"predictions.predict"},
    {"evaluation", "paper"},
    {"report"},
    {"deployment", "study"},
    {"cli"},
]
HEIGHT = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# A run predicts: `Run.predict` calls the file above it.
SHORTCUTS = {("training/run.py", "predictions.predict")}
OF_STORED_PREDICTIONS = {"metrics", "posthoc", "evaluation", "report"}
OF_MODELS = {"networks", "objectives", "data", "training"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of ours that a file imports anywhere: in functions and for type checking, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return {name for name in found if name in MODULES and name not in ("regmixup", module_name(path))}


def room(module: str) -> str:
    """Return the room of a module: the part of its name after the package's."""
    name = module.removeprefix("regmixup.")
    return name if name in HEIGHT else name.partition(".")[0]


GRAPH = {name: imported_modules(path) for name, path in MODULES.items() if name != "regmixup"}


def test_a_file_imports_only_lower_rooms():
    wrong = {}
    for name, imported in GRAPH.items():
        own, file = room(name), MODULES[name].relative_to(SOURCE).as_posix()
        if own in ("__main__", "cli"):
            continue
        rooms = {room(module) for module in imported} - {own}
        wrong[file] = {other for other in rooms if HEIGHT[other] >= HEIGHT[own] and (file, other) not in SHORTCUTS}
    assert {file: rooms for file, rooms in wrong.items() if rooms} == {}


def test_contributing_has_the_same_packages():
    table = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("| what | packages |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if "`" in line]
    assert [set(line.split("`")[1::2]) for line in lines] == LEVELS
    assert {room(module) for module in GRAPH} - {"__main__"} == HEIGHT.keys()


def test_what_works_on_stored_predictions_imports_no_models_and_no_data():
    reached = {
        name: rooms
        for name, imported in GRAPH.items()
        if room(name) in OF_STORED_PREDICTIONS or name.endswith(("predictions.store", "predictions.formats"))
        if (rooms := {room(module) for module in imported} & OF_MODELS)
    }
    assert reached == {}


def test_no_circle_of_imports():
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' -> '.join(error.args[1])}")


def test_only_the_command_line_knows_its_library():
    assert {room(name) for name, path in MODULES.items() if "tyro" in path.read_text()} == {"cli"}


@pytest.mark.parametrize(
    "call",
    [["--help"], ["list"], ["list", "methods"], ["--version"], *([verb, "--help"] for verb in VERBS)],
    ids=" ".join,
)
def test_help_and_list_start_without_torch(call):
    code = f"""
import sys
from regmixup.cli import main
assert main({call}) == 0
assert 'torch' not in sys.modules, 'torch was imported'
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


PUBLIC = "assert sorted(dir(regmixup)) == sorted(['__version__', *regmixup.__all__])"
VERBS_WITH_MODELS = "regmixup.cli.train, regmixup.cli.study, regmixup.cli.predict, regmixup.cli.publish"


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        (f"import regmixup; {PUBLIC}; regmixup.recipes, regmixup.methods, regmixup.study, regmixup.report; {PUBLIC}",
         {"torch"}),
        ("import regmixup.run_folder", {"torch"}),
        # torchvision takes as long to import as torch, and images in memory do without; a report comes last.
        (f"import {VERBS_WITH_MODELS}", {"torchvision", "regmixup.report"}),
    ],
    ids=["public names", "a run folder", "verbs that train and predict"],
)  # fmt: skip
def test_imports_leave_out_what_takes_long(code, left_out):
    code += f"; import sys; found = {left_out} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module in (regmixup, regmixup.networks) for name in module.__all__],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_public_name_exists(module, name):
    assert getattr(module, name) is not None


def test_the_promised_modules_are_public():
    modules = {"data", "losses", "methods", "metrics", "networks", "posthoc", "predictions", "recipes", "report"}
    assert modules | {"scores", "study"} <= set(regmixup.__all__)


@pytest.mark.parametrize(("module", "name"), [(regmixup, "RegMixpu"), (regmixup.networks, "GPHaed")])
def test_a_wrong_name_gets_a_hint(module, name):
    with pytest.raises(AttributeError, match=r"did you mean '(RegMixup|GPHead)'"):
        getattr(module, name)


def test_the_files_that_contributing_names_exist():
    """The trail for newcomers: file names in the answers, at most two for each question."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    trail = text.partition("## Where is what")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in trail.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= 5
    for question, answer in rows:
        names = answer.split("`")[1::2]
        assert 1 <= len(names) <= 2, question
        for name in names:
            assert (SOURCE / name).exists(), f"{question.strip()}: {name}"
