"""Files of a finished run that are damaged later: made again, or refused with the one thing to do."""

import shutil

import pytest
import torch

import regmixup as rm
from regmixup import data
from regmixup.networks.gp_head import GPHead
from regmixup.run_folder import CHECKPOINT
from regmixup.training.run import Run
from tests.failing import unreadable
from tests.training.short import EVERY_STEP, after_step, assert_same_ending, config, ending, load_few

pytestmark = pytest.mark.usefixtures("few_digits")

DAMAGE = {
    "emptied": lambda content: b"",
    "zeroed": lambda content: bytes(len(content)),
    "cut off": lambda content: content[: len(content) // 2],
    "one bit": lambda content: (
        content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 4]) + content[len(content) // 2 + 1 :]
    ),
}
SETTINGS = config("dnn-sn", epochs=2, head=GPHead(num_features=32))
"""The head is finished by a pass after the last epoch, which must not change it a second time."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, with predictions."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data, "load", load_few)
        run = rm.train(SETTINGS, tmp_path_factory.mktemp("whole"), device="cpu")
        run.predict("digits/test")
    return run


@pytest.fixture
def copy(whole, tmp_path):
    return Run(shutil.copytree(whole.folder, tmp_path / whole.folder.name), whole.config)


def repeat(run):
    return rm.train(SETTINGS, run.folder.parent, device="cpu")


def damage(path, how):
    path.write_bytes(DAMAGE[how](path.read_bytes()))


@pytest.mark.parametrize(("name", "how"), [("config.json", "one bit"), ("provenance.json", "zeroed")])
def test_what_the_run_says_of_itself_is_written_again(copy, whole, name, how):
    damage(copy.folder / name, how)
    assert not copy.finished
    again = repeat(copy)
    assert again.finished
    assert_same_ending(ending(again), ending(whole))
    assert rm.Run.open(copy.folder).predict("digits/val").logits.isfinite().all()
    assert (copy.folder / "config.json").read_bytes() == (whole.folder / "config.json").read_bytes()


@pytest.mark.parametrize("name", ["config.json", "provenance.json", CHECKPOINT])
def test_what_cannot_be_read_now_is_neither_written_again_nor_called_damaged(copy, name):
    before = {path.name: path.stat().st_mtime_ns for path in copy.folder.iterdir()}
    with unreadable(copy.folder / name) as error:
        assert not copy.finished
        for use in (lambda: repeat(copy), copy.provenance):
            with pytest.raises(OSError, match=error):
                use()
    assert copy.finished
    assert {path.name: path.stat().st_mtime_ns for path in copy.folder.iterdir()} == before


@pytest.mark.parametrize("how", ["cut off", "one bit"])
def test_damaged_weights_are_refused_with_the_one_thing_to_do(copy, whole, how):
    damage(copy.checkpoint, how)
    for use in (lambda: repeat(copy), lambda: copy.predict("digits/val")):
        with pytest.raises(ValueError, match=rf"{CHECKPOINT}.* Delete (it|these files) to train this run again"):
            use()
    copy.checkpoint.unlink()
    assert_same_ending(ending(repeat(copy)), ending(whole))


def test_a_run_is_not_finished_with_an_earlier_checkpoint(copy, whole, tmp_path):
    """As a power cut could leave it, had the record of the end come to the disk before the last checkpoint."""
    with after_step(3, lambda: copies.append(shutil.copy(run_folder / CHECKPOINT, tmp_path / "earlier"))):
        copies, run_folder = [], tmp_path / "other" / whole.folder.name
        rm.train(SETTINGS, tmp_path / "other", device="cpu", engine=EVERY_STEP)
    shutil.copy(copies[0], copy.checkpoint)
    assert not copy.finished
    assert_same_ending(ending(repeat(copy)), ending(whole))


@pytest.mark.parametrize("how", ["emptied", "one bit"])
def test_damaged_predictions_are_made_again_with_a_warning(copy, whole, how):
    path = copy.predictions_path("digits/test")
    damage(path, how)
    with pytest.warns(UserWarning, match=rf"cannot read predictions from {path}: .*; predicted again"):
        found = copy.predict("digits/test", device="cpu")
    assert torch.equal(found.logits, whole.predict("digits/test").logits)
    assert path.read_bytes() == whole.predictions_path("digits/test").read_bytes()


def test_a_run_that_is_trained_again_forgets_what_it_predicted(copy):
    """On a GPU its weights are others."""
    copy.checkpoint.unlink()
    repeat(copy)
    assert not copy.predictions_path("digits/test").exists()
