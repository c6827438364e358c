"""Which part may import which, no import circles, file sizes, and what starts without torch."""

import ast
import statistics
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import regmixup

SOURCE = Path(regmixup.__file__).parent
REPOSITORY = Path(__file__).parent.parent
FILES = sorted(SOURCE.rglob("*.py"))

# Each part (a module or package directly in regmixup) with the parts it may import. State a reason to add to a line.
ALLOWED = {
    "names": set(),
    "types": set(),
    "threads": set(),
    "numpy_files": set(),
    "progress": set(),
    "precision": {"names"},
    "plugins": {"names"},
    "config": {"names"},
    "storage": {"types"},
    "mixing": {"config", "names"},
    "losses": {"config", "mixing"},
    "metrics": {"config", "names", "plugins", "threads", "types"},
    "networks": {"config", "mixing", "names", "plugins"},
    "objectives": {"config", "losses", "mixing", "names", "plugins", "types"},
    "posthoc": {"config", "metrics", "names", "threads", "types"},
    "data": {"", "config", "mixing", "names", "numpy_files", "plugins", "storage", "types"},
    "methods": {"names", "plugins"},
    "recipes": {"config", "names"},
    "run_folder": {"storage"},
    "prediction_files": {"names", "numpy_files", "storage"},
    "predictions": {"metrics", "mixing", "names", "precision", "prediction_files", "storage", "types"},
    "training": {
        "", "config", "data", "methods", "metrics", "mixing", "names", "networks", "objectives", "plugins", "posthoc",
        "precision", "predictions", "recipes", "run_folder", "storage", "threads", "types",
    },
    "predict": {
        "data", "networks", "posthoc", "precision", "predictions", "threads", "training", "types",
    },
    "rows": {"metrics", "names", "posthoc", "predictions", "threads", "types"},
    "deployment": {
        "", "config", "data", "methods", "metrics", "mixing", "names", "networks", "objectives", "posthoc",
        "predictions", "recipes", "rows", "run_folder", "storage", "training", "types",
    },
    "study": {
        "config", "data", "methods", "metrics", "names", "posthoc", "precision", "predict", "predictions", "progress",
        "recipes", "rows", "run_folder", "storage", "training", "types",
    },
    "report": {"methods", "metrics", "names", "posthoc", "recipes", "rows", "run_folder", "storage", "types"},
    "finetuning": {
        "config", "data", "deployment", "losses", "metrics", "names", "networks", "posthoc", "precision", "predictions",
        "recipes", "report", "rows", "run_folder", "storage", "training", "types",
    },
    "advice": {
        "config", "data", "finetuning", "metrics", "names", "networks", "objectives", "plugins", "predictions",
        "progress", "report", "storage", "training", "types",
    },
}  # fmt: skip

# Methods that call functions of a higher part, which they import when called.
SHORTCUTS = {"training/run.py": {"predict"}}


def part(path: Path) -> str:
    """Return the part a file belongs to; "" for the package itself."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py") if relative.name != "__init__.py" or len(relative.parts) > 1 else ""


def imported_names(nodes) -> set[str]:
    """Return the dotted names of ours that import statements name, `from a import b` as a.b."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "regmixup"}


def imported_parts(path: Path) -> set[str]:
    """Return the parts a file imports anywhere in it, imports for type checking included."""
    names = imported_names(ast.walk(ast.parse(path.read_text())))
    return {"" if name == "regmixup.__version__" else [*name.split("."), ""][1] for name in names}


def test_a_file_imports_only_what_its_part_may():
    forbidden = {}
    for path in FILES:
        own, name = part(path), path.relative_to(SOURCE).as_posix()
        if own not in ("", "__main__", "cli"):
            forbidden[name] = imported_parts(path) - {own} - SHORTCUTS.get(name, set()) - ALLOWED[own]
    assert {name: parts for name, parts in forbidden.items() if parts} == {}


def test_the_allowed_imports_have_no_circle():
    TopologicalSorter({name: allowed - {""} for name, allowed in ALLOWED.items()}).prepare()


@pytest.mark.parametrize("low", ["metrics", "posthoc", "rows", "report"])
def test_what_works_on_stored_predictions_never_reaches_models_or_data(low):
    """Neither directly nor through another part."""
    reached, waiting = set(), [low]
    while waiting:
        waiting += (new := ALLOWED[waiting.pop()] - reached)
        reached |= new
    assert not reached & {"networks", "objectives", "data", "training"}
    assert low != "metrics" or not reached & {"posthoc", "predictions"}


def module_imports() -> dict[str, set[str]]:
    """Return for each module those it imports when it is itself imported: not in functions, not for type checking."""
    modules = {
        ".".join(("regmixup", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in FILES
    }
    graph = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        names = imported_names(tree.body)
        graph[module] = {name if name in modules else name.rpartition(".")[0] for name in names} - {module, "regmixup"}
    return graph


def test_modules_do_not_import_each_other_in_a_circle():
    try:
        TopologicalSorter(module_imports()).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' -> '.join(error.args[1])}")


def test_only_the_command_line_knows_its_library():
    assert {part(path) for path in FILES if "tyro" in path.read_text()} == {"cli"}


@pytest.mark.parametrize(
    "call", [["--help"], ["list"], ["list", "methods"], ["--version"], ["finetune", "--help"]], ids=" ".join
)
def test_help_and_list_start_without_torch(call):
    code = f"""
import sys
from regmixup.cli import main
try:
    main({call})
except SystemExit as end:  # as --help of a verb ends
    assert not end.code
assert 'torch' not in sys.modules, 'torch was imported'
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_importing_the_package_imports_no_torch_and_lists_public_names_only():
    code = (
        "import sys, regmixup; assert sorted(dir(regmixup)) == sorted(['__version__', *regmixup.__all__])\n"
        "regmixup.recipes, regmixup.methods, regmixup.study, regmixup.report\n"
        "assert sorted(dir(regmixup)) == sorted(['__version__', *regmixup.__all__])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_a_run_folder_needs_no_torch():
    code = "import sys, regmixup.run_folder; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_verbs_that_train_and_predict_start_without_torchvision_and_reports():
    """torchvision takes as long to import as torch, and images in memory do without; a report comes last."""
    code = (
        "import sys, regmixup.cli.train, regmixup.cli.study, regmixup.cli.predict, regmixup.cli.publish\n"
        "assert 'torchvision' not in sys.modules, 'torchvision was imported'\n"
        "assert 'regmixup.report' not in sys.modules, 'regmixup.report was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", regmixup.__all__)
def test_every_public_name_exists(name):
    assert getattr(regmixup, name) is not None


def test_the_promised_modules_are_public():
    modules = {"data", "losses", "methods", "metrics", "networks", "posthoc", "predictions", "recipes", "report"}
    assert modules | {"scores", "study"} <= set(regmixup.__all__)


@pytest.mark.parametrize("name", regmixup.networks.__all__)
def test_every_public_name_of_networks_exists(name):
    assert getattr(regmixup.networks, name) is not None


@pytest.mark.parametrize(("module", "name"), [(regmixup, "RegMixpu"), (regmixup.networks, "GPHaed")])
def test_a_wrong_name_gets_a_hint(module, name):
    with pytest.raises(AttributeError, match=r"did you mean '(RegMixup|GPHead)'"):
        getattr(module, name)


def test_file_sizes():
    """Fewer than 180 files, none over 400 lines, and a median of 100 to 200."""
    lines = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: count for name, count in lines.items() if count > 400}
    assert len(lines) < 180
    assert 100 <= statistics.median(lines.values()) <= 200


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
