"""Kill -9 for the process that trains, in the middle of a run."""

import os
import signal
import threading
import time
from pathlib import Path


class KillOne(threading.Thread):
    """Kills the first process that is in the third epoch or later of a run; then `folder` is that run's."""

    def __init__(self, runs: Path) -> None:
        super().__init__(daemon=True)
        self.runs = runs
        self.folder: Path | None = None
        self.first_epoch = ""
        self.start()

    def run(self) -> None:
        until = time.monotonic() + 300  # a busy machine takes long to start a process
        while self.folder is None and time.monotonic() < until:
            time.sleep(0.005)
            for history in self.runs.glob("*/history.jsonl"):
                records, owner = history.read_text().splitlines(), history.parent / ".owner"
                if owner.exists() and len(records) >= 2 and not (history.parent / "provenance.json").exists():
                    os.kill(int(owner.read_text().split()[1]), signal.SIGKILL)
                    self.folder, self.first_epoch = history.parent, records[0]
                    break

    def check_that_the_run_went_on(self) -> None:
        """The first epoch, with its seconds, is still that of the killed process: it was not trained again."""
        assert self.folder is not None, "nothing was killed"
        records = (self.folder / "history.jsonl").read_text().splitlines()
        assert records[0] == self.first_epoch
