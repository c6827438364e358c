"""The house: who may import whom, and what starts without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import regmixup

SOURCE = Path(regmixup.__file__).parent

# Each room with the rooms it may import from. Whoever adds an arrow here must have a reason.
ALLOWED = {
    "names": set(),
    "types": set(),
    "threads": set(),
    "precision": {"names"},
    "numpy_files": set(),
    "config": {"names"},
    "storage": {"types"},
    "mixing": {"config", "names"},
    "losses": {"config", "mixing"},
    "prediction_files": {"names", "numpy_files", "storage"},
    "metrics": {"config", "names", "threads", "types"},
    "predictions": {"metrics", "mixing", "names", "precision", "prediction_files", "storage", "types"},
    "networks": {"config", "mixing", "names"},
    "objectives": {"config", "losses", "mixing", "names", "types"},
    "data": {"", "config", "mixing", "names", "numpy_files", "storage", "types"},
    "posthoc": {"config", "metrics", "names", "threads", "types"},
    "rows": {"metrics", "names", "posthoc", "predictions", "threads", "types"},
    "methods": {"names"},
    "recipes": {"config", "names"},
    "progress": set(),
    "run_folder": {"storage"},
    "training": {
        "", "config", "data", "methods", "mixing", "names", "networks", "objectives", "posthoc", "precision",
        "predictions", "recipes", "run_folder", "storage", "threads", "types",
    },
    "predict": {
        "data", "networks", "posthoc", "precision", "predictions", "threads", "training", "types",
    },
    "study": {
        "config", "data", "methods", "metrics", "names", "posthoc", "precision", "predictions", "progress",
        "recipes", "rows", "run_folder", "storage", "training", "types",
    },
    "deployment": {
        "config", "data", "methods", "metrics", "names", "networks", "objectives", "posthoc", "predictions",
        "storage", "training", "types",
    },
    "report": {"methods", "names", "recipes", "rows", "run_folder", "storage", "types"},
}  # fmt: skip

# Methods of Run that call functions further up, which they import when they are called.
SHORTCUTS = {"training/run.py": {"predict"}}


def room(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py") if relative.name != "__init__.py" or len(relative.parts) > 1 else ""


def imported_rooms(path: Path) -> set[str]:
    """The rooms a file imports, anywhere in it, type-checking imports included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "regmixup":
                names = [f"regmixup.{alias.name}".removesuffix(".__version__") for alias in node.names]
        found |= {[*name.split("."), ""][1] for name in names if name.split(".")[0] == "regmixup"}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(SOURCE)) for p in FILES])
def test_a_file_imports_only_rooms_to_its_left(path):
    own = room(path)
    if own in ("", "__main__", "cli"):
        return
    shortcuts = SHORTCUTS.get(path.relative_to(SOURCE).as_posix(), set())
    assert imported_rooms(path) - {own} - shortcuts <= ALLOWED[own]


def test_the_rooms_have_no_cycle():
    order = list(ALLOWED)
    while order:
        free = [name for name in order if not (ALLOWED[name] & set(order))]
        assert free, f"a cycle among {order}"
        order = [name for name in order if name not in free]


def test_only_the_command_line_knows_its_library():
    assert {room(path) for path in FILES if "tyro" in path.read_text()} == {"cli"}


@pytest.mark.parametrize(
    "call", ["main(['--help'])", "main(['list'])", "main(['list', 'methods'])", "main(['--version'])"]
)
def test_help_and_list_start_without_torch(call):
    code = f"import sys; from regmixup.cli import main; {call}; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_importing_the_package_imports_no_torch_and_lists_its_names():
    code = "import sys, regmixup; names = dir(regmixup); assert 'torch' not in sys.modules; assert 'RegMixup' in names"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_a_run_folder_needs_no_torch():
    code = "import sys, regmixup.run_folder; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists_and_a_wrong_one_gets_a_hint():
    for name in regmixup.__all__:
        assert getattr(regmixup, name) is not None
    with pytest.raises(AttributeError, match="did you mean 'RegMixup'"):
        _ = regmixup.RegMixpu


def test_no_source_file_grows_beyond_400_lines():
    long = {path.name: n for path in FILES if (n := len(path.read_text().splitlines())) > 400}
    assert not long
