"""Processes that train together, started cheaply: forked from a server that has imported everything."""

import json
import os
import signal
import socket
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path

import torch
from torch import nn

import regmixup as rm
from regmixup.cli import main
from regmixup.networks.contract import Classifier
from regmixup.networks.gp_head import GPHead
from regmixup.training import checkpoint, loop
from regmixup.training.guard import DivergedError
from regmixup.training.run import Run
from regmixup.training.stopping import Interrupted
from tests.forking import fork_server
from tests.training.short import FINE_TUNING

PREDICTED = ["digits/test", "digits-c/contrast/1"]
PREDICTING = ("regmixup", "gaussian process", "with batch norm")
"""The cases that also predict."""

BATCH = 449
"""The digits' 450 train images leave a last batch of one, and all ranks but one without an image."""


def run_ranks(world, function, *args):
    """Call `function(*args)` in processes as torchrun would start them; returns their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return run_processes([(_one_rank, rank, world, port, function, args) for rank in range(world)])


def run_processes(calls):
    """Make each call, a function and its arguments, in a process of its own; returns their exit codes."""
    context = fork_server()
    processes = [context.Process(target=function, args=args) for function, *args in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)  # a busy machine takes long
    hung = [process for process in processes if process.is_alive()]
    for process in hung:
        process.kill()
    assert not hung, f"{len(hung)} of {len(processes)} processes hang"
    return [process.exitcode for process in processes]


def _one_rank(rank, world, port, function, args):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    function(*args)


def digits(**changes):
    values = {"epochs": 2, "batch_size": BATCH, "precision": "float32", "dropout": 0.0, **changes}
    return rm.configure("digits", "regmixup", **values)


CASES = {
    "erm": digits(objective=rm.ERM()),
    "regmixup": digits(),
    "regmixup of samples": digits(objective=rm.RegMixup(lam="sample", samples=2)),
    "regcutmix": digits(objective=rm.RegCutMix(samples=2), batch_size=64),
    "alternate": digits(objective=rm.Alternate(rm.RegMixup(), rm.CutMix()), batch_size=90),
    "duq": digits(objective=rm.DUQ(), head="rbf"),
    "gaussian process": digits(head=GPHead(num_features=32)),
    "with batch norm": digits(dropout=0.3, constraint="spectral_norm"),
    "fine-tuning": digits(batch_size=90, freeze=1, **FINE_TUNING),
    "sharpness": digits(batch_size=90, sharpness="friendly", average="swa", average_from=0.4),
    "selected": digits(batch_size=90, cutout=3, select="val-nll", ema=0.9),
}


def build_plain(run, *, num_classes, input_shape):
    """A network without batch norm and convolutions, whose steps are short."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Tanh(), nn.Dropout(run.config.dropout or 0.0))
    head = run.config.head.build(24, num_classes)
    return Classifier(backbone, head, feature_dim=24, normalize=(run.config.mean, run.config.std))


@contextmanager
def in_float64(case):
    """Runs of a case get a network in double precision, so that the order of sums hardly matters."""
    before = Run.build
    chosen = before if case == "with batch norm" else build_plain
    Run.build = lambda run, **shape: chosen(run, **shape).double()
    try:
        yield
    finally:
        Run.build = before


def train_cases(runs, shards=None):
    """Every case to its end, some with predictions."""
    for case, config in CASES.items():
        with in_float64(case):
            run = rm.train(rm.configure("digits", **{**vars(config), "shards": shards}), runs / case, device="cpu")
            if shards is None and case in PREDICTING:
                run.predict_all(PREDICTED, device="cpu")


def at_step(step, *, epoch, rank, do):
    """Do something with the training before a step of an epoch, on one rank; returns what undoes this."""
    original = loop.Training.draw_shards

    def draw_shards(self, number, *args):
        if (self.position.epoch, number, self.ranks.rank) == (epoch, step, rank):
            do(self)
        return original(self, number, *args)

    loop.Training.draw_shards = draw_shards
    return partial(setattr, loop.Training, "draw_shards", original)


def send(number, *, to=os.getpid):
    """Return what sends a signal to this process, or to its parent."""
    return lambda training: os.kill(to(), number)


def stop(runs, case, config):
    """A run that a signal to one process interrupts."""
    undo = at_step(2, epoch=1, rank=1, do=send(signal.SIGTERM))
    try:
        with in_float64(case) if case else nullcontext():
            rm.train(config, runs, device="cpu")
        raise AssertionError("nobody was interrupted")
    except Interrupted as interrupted:
        if interrupted.signal != signal.SIGTERM:
            raise
    undo()


def stop_and_go_on(folder, config):
    """An interrupted run, its continuation, the same undisturbed, and an ensemble; of plain networks."""
    Run.build = build_plain
    note_positions(folder / "positions.jsonl")
    stop(folder / "interrupted", None, config)
    rm.train(config, folder / "interrupted", device="cpu")
    run = rm.train(config, folder / "whole", device="cpu")
    with (folder / f"{os.environ['RANK']}.txt").open("w") as file, redirect_stdout(file):
        main(["predict", str(run.folder), "digits/val", "--device", "cpu"])
    rm.train(digits(members=2, epochs=1), folder / "ensemble", device="cpu").predict("digits/val", device="cpu")


def fail(folder, rank, where):
    """A run in which one rank fails; every process that ends by an exception has exit code 1."""

    def lose(*args, **kwargs):
        raise OSError("no space left on device")

    if where == "save" and os.environ["RANK"] == str(rank):
        checkpoint.save_checkpoint = lose
    if where == "step":
        at_step(0, epoch=1, rank=rank, do=lose)
    rm.train(digits(epochs=2), folder, device="cpu")


def diverge(folder):
    """A run whose loss becomes NaN on one rank."""
    at_step(1, epoch=1, rank=1, do=lambda training: training.model.head.weight.data.fill_(float("nan")))
    try:
        rm.train(digits(batch_size=64), folder, device="cpu")
    except DivergedError:
        sys.exit(7)


def note_positions(path):
    """Append where a training begins to a file, on the first rank."""
    original = loop.Training.run_epochs

    def run_epochs(self, *args):
        if self.ranks.is_first:
            with Path(path).open("a") as file:
                file.write(json.dumps([self.position.epoch, self.position.step]) + "\n")
        original(self, *args)

    loop.Training.run_epochs = run_epochs
