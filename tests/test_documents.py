"""Every Python block of the documents and every example is run, and every shell line is parsed."""

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Annotated, get_origin

import pytest

from regmixup import config
from regmixup.cli import VERBS, main
from tests.cli.running import run
from tests.lowest import PROJECT, lowest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# These pages speak of files which are not there. test_add_a_method.py follows the first on a copy of the repository,
# and a test below follows the second.
COMPLETE = [path for path in DOCUMENTS if path.name not in ("add-a-method.md", "bring-your-own.md")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{index}")
    for path in COMPLETE
    for index, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL))
]
COMMANDS = [
    (path.name, f"regmixup {words.split('#')[0].strip()}")
    for path in COMPLETE
    for block in re.findall(r"```sh\n(.*?)```", path.read_text(), flags=re.DOTALL)
    for words in re.findall(r"^(?:torchrun .* -m )?regmixup (.*)", block.replace("\\\n", ""), flags=re.MULTILINE)
]


@pytest.mark.pages
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.filterwarnings("ignore:the best temperature")
def test_a_python_block_runs(block, tmp_path, monkeypatch, forget):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "document", "exec"), {"__name__": "__main__"})


@pytest.mark.pages
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers")  # of Lightning
def test_an_example_runs_and_is_short(path, tmp_path, monkeypatch, capsys):
    assert len(path.read_text().splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_documents_have_blocks_and_commands():
    assert len(BLOCKS) >= 3
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_a_command_names_a_verb_and_its_flags_exist(document, command, capsys):
    words = shlex.split(command)
    assert words[1] in VERBS, f"{document}: {command}"
    asked = "--help-all" if words[1] == "train" else "--help"
    assert run(*(word for word in words[1:] if word != "--dry-run"), asked) == 0
    text = capsys.readouterr().out
    for flag in (word for word in words[2:] if word.startswith("--")):
        assert flag in text, f"{document}: {command} uses {flag}, which {words[1]} does not have"


def test_the_page_on_plugins_works_from_top_to_bottom(tmp_path, monkeypatch, capsys, forget):
    """The first block is the plugin; blocks and commands then run in order, where they need no further processes."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "bring-your-own.md").read_text()
    (language, plugin), *blocks = re.findall(r"```(python|sh|toml)\n(.*?)```", page, flags=re.DOTALL)
    assert language == "python"
    assert plugin.startswith("# my_plugin.py\n")
    (tmp_path / "my_plugin.py").write_text(plugin)
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "document", "exec"), {"__name__": "__main__"})
        elif language == "toml" and block.startswith("title"):
            (tmp_path / "stripes.toml").write_text(block)
        for line in block.splitlines() if language == "sh" else ():
            if line.startswith("regmixup ") and "--devices" not in line:
                assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert re.search(r"confidence-penalty +cross-entropy that rewards", shown)  # list
    assert re.search(r"^\[(0\.\d+|1\.0)\]$", shown, flags=re.MULTILINE)  # the AUROC of the score
    assert re.search(r"to do +stripes-train-90-tiny.*|to do .*confidence_penalty-stripes", shown)  # the study
    recorded = json.loads(next((tmp_path / "runs").glob("confidence_penalty-*/config.json")).read_text())["plugins"]
    assert [(entry["what"], entry["name"], entry["version"]) for entry in recorded] == [
        ("dataset", "stripes/train", "1.0"),
        ("network", "tiny", "1.0"),
        ("objective", "confidence_penalty", "1.0"),
    ]


def test_links_between_documents_exist():
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_reference_explains_every_type_of_number():
    explained = re.findall(r"(?m)^\| (`[A-Z].*?) \|", (ROOT / "docs/api.md").read_text())
    types = [name for name, kind in vars(config).items() if get_origin(kind) is Annotated]
    assert sorted(re.findall(r"`(\w+)`", " ".join(explained))) == sorted(types)


def test_the_quickstart_has_the_program_of_the_example():
    program = (ROOT / "examples" / "own_loop.py").read_text().partition('"""\n\n')[2]
    assert f"```python\n{program}```" in (ROOT / "docs" / "quickstart.md").read_text()


def test_every_dependency_has_a_lowest_version_to_be_tested():
    found = dict(line.split("==") for line in lowest(PROJECT.read_text()))
    assert {"torch", "filelock", "ray", "pytest"} <= found.keys()
    assert tuple(map(int, found["filelock"].split("."))) >= (3, 20, 1), "older ones follow a link in the lock's place"
    with pytest.raises(ValueError, match=r"must be written name>=version, .* got 'torch>=3'"):
        lowest('[project]\ndependencies = ["torch>=2"]\n[project.optional-dependencies]\nx = ["torch>=3"]')
