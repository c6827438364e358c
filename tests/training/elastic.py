"""A run in which a process is killed, then one in which torchrun is stopped: started by what torchrun itself calls."""

import os
import signal

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import regmixup as rm
from regmixup.training.run import Run
from tests.training.ranks import at_step, build_plain, digits, note_positions, send

KILLED, STOPPED = (digits(epochs=3, batch_size=64, dropout=0.2, seed=seed) for seed in (0, 1))


def launch(folder):
    """torchrun --nproc-per-node 2 --max-restarts 1, whose processes are forks and so need no imports."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=1,
        run_id="elastic",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method="fork",
    )
    elastic_launch(config, train)(folder)


def train(folder):
    """Do the work of a process. The first generation loses rank 1 after an epoch; the second stops torchrun later."""
    torch.set_num_threads(1)
    Run.build = build_plain
    note_positions(folder / "positions.jsonl")
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        at_step(3, epoch=1, rank=1, do=send(signal.SIGKILL))
    rm.train(KILLED, folder / "runs", device="cpu")
    at_step(2, epoch=1, rank=0, do=send(signal.SIGTERM, to=os.getppid))
    rm.train(STOPPED, folder / "runs", device="cpu")
