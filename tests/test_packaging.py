"""What is in the wheel and in the sdist; `make wheel` tries the wheel outside this tree."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import regmixup

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "regmixup"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DATA = {".css", ".html", ".js", ".md", ".npz", ".tex", ".toml", ".typed"}


def build(tree, into, target):
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into), "-t", target]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


def files_of(wheel):
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(wheel):
    sources = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    package = {f"regmixup/{path.relative_to(SOURCE).as_posix()}" for path in sources}
    about = f"regmixup-{regmixup.__version__}.dist-info/"
    notes = {about + name for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert files_of(wheel) == package | notes
    assert {Path(name).suffix for name in package} == {".py"} | DATA
    assert wheel.stat().st_size < 1_000_000
    licence = zipfile.ZipFile(wheel).read(about + "licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_are_those_of_the_project(wheel):
    archive, about = zipfile.ZipFile(wheel), f"regmixup-{regmixup.__version__}.dist-info/"
    metadata = message_from_bytes(archive.read(about + "METADATA"))
    assert metadata["Version"] == regmixup.__version__
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == regmixup.__version__
    assert re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == regmixup.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_payload().startswith("# regmixup")
    assert "](" not in metadata.get_payload(), "a link to a file of the repository is dead on a package index"
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(required) == sorted(PROJECT["project"]["dependencies"])
    assert b"regmixup = regmixup.cli:main" in archive.read(about + "entry_points.txt")
    assert archive.read(about + "WHEEL").endswith(b"Tag: py3-none-any\n")


def test_the_sdist_holds_what_is_listed_and_builds_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    tree = tmp_path / f"regmixup-{regmixup.__version__}"
    listed = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(name.startswith("/") for name in listed), "without it, results/README.md is matched by README.md"
    assert {path.name for path in tree.iterdir()} == {
        *(name[1:] for name in listed),
        ".gitignore",
        "PKG-INFO",
        "pyproject.toml",
    }
    kept = {path for path in tree.rglob("*") if path.suffix in (".safetensors", ".pt", ".pth", ".npz", ".pyc")}
    kept -= {tree / "src" / "regmixup" / "data" / "readers" / "embedded.npz"}
    assert {path.relative_to(tree).parts[:2] for path in kept} <= {("tests", "fixtures")}  # run folders of old versions
    assert sdist.stat().st_size < 5_000_000
    again = build(tree, tmp_path / "again", "wheel")
    assert files_of(again) == files_of(wheel)
