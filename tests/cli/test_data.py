"""`regmixup data`."""

import pytest

from regmixup import data
from regmixup.cli.data import ACTIONS
from tests.cli.running import run
from tests.data.official import write_cifar


@pytest.mark.usefixtures("forget")
def test_data_lists_what_is_embedded_and_what_is_registered(capsys, monkeypatch, tmp_path):
    assert run("data", "list", "--root", tmp_path) == 0
    listed = capsys.readouterr().out
    assert "digits/train                       450 images" in listed
    assert "registered" not in listed
    (tmp_path / "mine.py").write_text("import regmixup as rm\n\nrm.data.register('mine/train', lambda: None)\n")
    monkeypatch.setenv("REGMIXUP_PLUGINS", str(tmp_path / "mine.py"))
    assert run("data", "list", "--root", tmp_path) == 0
    assert capsys.readouterr().out == f"{listed}registered\n  mine/train\n  mine/train-90\n  mine/val-10\n"


def test_data_actions_have_help_with_an_example(capsys):
    for action in ACTIONS:
        assert run("data", action, "--help") == 0
        assert f"regmixup data {action}" in capsys.readouterr().out


def test_data_corrupt_writes_a_folder_marked_rebuilt(capsys, tmp_path):
    write_cifar(tmp_path, "cifar10")
    assert run("data", "corrupt", "cifar10/test", "--root", tmp_path) == 0
    written = capsys.readouterr()
    assert "jpeg_compression" in written.err
    assert "rebuilt, not official" in written.out
    assert run("data", "corrupt", "cifar10/test", "--root", tmp_path) == 0
    assert run("data", "list", "--root", tmp_path) == 0
    assert "cifar10-c/fog" in capsys.readouterr().out
    assert data.load("cifar10-c/fog/3", root=tmp_path).info["rebuilt"] == "true"
