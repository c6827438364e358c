"""docs/add-a-method.md is followed to the letter, on a copy of the repository."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GOLDEN = Path("tests/golden/objectives.json")
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / "add-a-method.md").read_text(), flags=re.DOTALL)
# What a line of the shell means inside one process, which imports torch only once.
STATEMENTS = {
    "python": "import runpy; runpy.run_module({words[1]!r}, run_name='__main__')",
    "pytest": "import pytest; assert pytest.main({words}) == 0",
    "regmixup": "from regmixup.cli import main; assert main({words}) == 0",
}


def follow(copy):
    """Write the document's files into a copy of the repository and run its commands; what they print."""
    shutil.copy(ROOT / "pyproject.toml", copy)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, copy / folder)  # compiled files too, which stay valid and save seconds
    script = []
    for language, block in BLOCKS:
        heading = block.splitlines()[0]
        if language == "sh":
            for program, *words in map(shlex.split, block.splitlines()):
                script.append(STATEMENTS[program].format(words=words))
        elif heading.endswith(", one more row of _METHODS"):
            add_row(copy / "src" / "regmixup" / "methods.py", block)
        elif heading.startswith("# "):
            path = copy / heading.removeprefix("# ")
            assert not path.exists(), "the example must not be in the package"
            path.write_text(block)
        else:
            script.append(block)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (copy / "src", copy)))}
    command = [sys.executable, "-c", "\n".join(script)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def add_row(path, row):
    text = path.read_text()
    assert text.count("\n)\nMETHODS = ") == 1
    path.write_text(text.replace("\n)\nMETHODS = ", f"\n{row.rstrip()},\n)\nMETHODS = "))


@pytest.mark.pages
def test_following_the_page_adds_an_objective_with_its_tests_its_trace_and_its_name(tmp_path):
    printed = follow(tmp_path)

    # Six tests of its own, two of the method row, one golden trace; the rest is the suite of all objectives.
    passed = re.search(r"(\d+) passed, \d+ deselected", printed)
    assert passed
    assert int(passed[1]) > 25

    before, after = (json.loads((folder / GOLDEN).read_text()) for folder in (ROOT, tmp_path))
    assert after.keys() - before.keys() == {"focal_loss"}
    for name, trace in before.items():
        assert after[name] == pytest.approx(trace, rel=1e-9, abs=0)

    # Trained from Python and from the command line.
    assert len(re.findall(r"runs/focal_loss-digits-train-small-s0-[0-9a-f]{12}\b", printed)) == 2
    configs = [json.loads(path.read_text()) for path in tmp_path.glob("runs/focal_loss-*/config.json")]
    assert sorted(config["epochs"] for config in configs) == [2, 3]
    assert [config["objective"] for config in configs] == [{"kind": "FocalLoss", "gamma": 2.0}] * 2
