"""Kill -9 and SIGTERM at any moment: whoever goes on ends with the same bits."""

import random
import signal
import sys
import time

import pytest
import torch

import regmixup as rm
from regmixup import data
from regmixup.networks.gp_head import GPHead
from regmixup.run_folder import CHECKPOINT
from regmixup.training.stopping import Interrupted
from tests.crashes import Disk, no_warnings
from tests.training.short import EVERY_STEP, assert_same_ending, config, ending, load_few

pytestmark = pytest.mark.usefixtures("few_digits")

CASES = [
    config("regmixup", epochs=2),
    config("regmixup+cutmix", epochs=2),
    config("dnn-sn", epochs=2, head=GPHead(num_features=32)),
    config("duq", epochs=2),
]


def train_to_the_end(case, runs):
    """In a process of its own. A checkpoint after every step, so that much of the time is spent writing them."""
    torch.set_num_threads(1)
    data.load = load_few
    try:
        rm.train(CASES[case], runs, device="cpu", engine=EVERY_STEP)
    except Interrupted as interruption:
        sys.exit(128 + interruption.signal)


@pytest.mark.soak
def test_fifty_kills_at_random_moments_change_nothing(tmp_path, processes):
    codes = killed(50, CASES, tmp_path, processes)
    assert codes.count(-signal.SIGKILL) > 12
    assert codes.count(128 + signal.SIGTERM) > 6


def test_three_kills_at_random_moments_change_nothing(tmp_path, processes):
    killed(3, CASES[:1], tmp_path, processes)


def killed(kills, cases, tmp_path, processes):
    """Kill runs, each up to five times, half of them by SIGTERM; return how the processes ended."""
    chance = random.Random(0)

    def start(case, runs):
        child = processes.Process(target=train_to_the_end, args=(case, runs))
        child.start()
        return child

    expected, durations = [], []
    for number, case in enumerate(cases):
        expected.append(ending(rm.train(case, tmp_path / "undisturbed", device="cpu")))
        started = time.monotonic()
        start(number, tmp_path / "timed").join()
        durations.append(time.monotonic() - started)
    codes, chain = [], 0
    while len(codes) < kills:
        chain += 1
        assert chain <= 2 * kills, "runs end before they can be killed"
        case, runs = chain % len(cases), tmp_path / f"killed-{chain}"
        for _ in range(5):
            child = start(case, runs)
            child.join(chance.uniform(0.1, 0.7) * durations[case])
            chance.choice((child.kill, child.terminate))()
            child.join()
            if child.exitcode == 0:  # it was faster, as the machine is less busy than it was
                durations[case] *= 0.8
                break
            codes.append(child.exitcode)
        run = rm.train(cases[case], runs, device="cpu")
        assert_same_ending(ending(run), expected[case])
        names = {"config.json", "history.jsonl", "provenance.json", CHECKPOINT, ".lock"}
        assert {path.name for path in run.folder.iterdir()} == names
    # SIGTERM ends a process at once that is not training yet.
    assert set(codes) <= {-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM}
    return codes


@pytest.mark.parametrize("epochs", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_crash_at_any_file_operation_changes_nothing(tmp_path, epochs):
    """A kill, and a power cut: files that were not flushed are torn, names that were not flushed lost or reordered."""
    short = config(epochs=epochs, batch_size=25)
    disk = Disk(tmp_path / "runs")
    with disk.recording():
        run = rm.train(short, disk.root, device="cpu", engine=EVERY_STEP)
    expected, left = ending(run), {path.name: path.read_bytes() for path in run.folder.iterdir()}
    kept = {path.name: content for path, content in disk.durable.items()}
    assert kept.keys() >= {"config.json", "history.jsonl", "provenance.json", CHECKPOINT}
    assert all(left.get(name, content) == content for name, content in kept.items()), (
        "an end that a power cut takes back"
    )
    assert len(disk.states) > 10 + 10 * epochs
    for number, state in enumerate(disk.states):
        with no_warnings():
            found = rm.train(short, disk.make(state, tmp_path / f"{number}"), device="cpu")
        assert_same_ending(ending(found), expected)
        assert {path.name for path in found.folder.iterdir()} <= {*left, ".owner"}  # of a process killed after the end
