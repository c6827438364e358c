"""`regmixup data`: list, fetch and corrupt datasets; one dataclass per action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from tyro.conf import Positional, arg

from regmixup import data, plugins
from regmixup.cli.help import print_help
from regmixup.cli.parsing import Switch, parse
from regmixup.data.catalogue import DATASETS
from regmixup.data.files import data_root, present
from regmixup.names import check_name


@dataclass(frozen=True, kw_only=True)
class Action:
    """Hold the flag of every action."""

    root: Path | None = None
    """Folder with the official files. Default: the variable REGMIXUP_DATA, else a cache folder."""


@dataclass(frozen=True)
class ListAction(Action):
    """List the datasets under the root, the embedded ones, and those of plugins.

    Example: regmixup data list --root ~/data
    """

    def __call__(self) -> None:
        plugins.load()
        print(f"root {data_root(self.root)}")
        for name, rebuilt in present(self.root).items():
            print(f"  {name:28}{' rebuilt' if rebuilt else ''}")
        without_files = [dataset for dataset in DATASETS.values() if not dataset.files]
        print("embedded")
        for dataset in without_files:
            if dataset.images is not None:
                print(f"  {dataset.name:28} {dataset.images:9,} images")
        if registered := [dataset.name for dataset in without_files if dataset.images is None]:
            print("\n".join(["registered", *(f"  {name}" for name in registered)]))


@dataclass(frozen=True)
class FetchAction(Action):
    """Download the official files of a dataset and verify their checksums. Existing files are skipped; interrupted
    downloads resume.

    Example: regmixup data fetch cifar10 --root ~/data
    """

    name: Positional[Annotated[str, arg(metavar="NAME")]]
    """A family (cifar10) or a dataset (cifar10/test)."""

    def __call__(self) -> None:
        from regmixup.data.fetch import fetch

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bars:
            tasks = {}

            def show(file: str, done: int, total: int | None) -> None:
                if file not in tasks:
                    tasks[file] = bars.add_task(file, total=total)
                bars.update(tasks[file], completed=done, total=total)

            root = fetch(self.name, self.root, show)
        print(f"{self.name} is in {root}")


@dataclass(frozen=True)
class CorruptAction(Action):
    """Build CIFAR-C-style corrupted copies of a test set, marked "rebuilt", in a folder that `cifar10-c/...` reads.

    Example: regmixup data corrupt cifar10/test --root ~/data
    """

    name: Positional[Annotated[str, arg(metavar="NAME")]]
    """Dataset to corrupt."""
    out: Path | None = None
    """Folder to write. Default: CIFAR-10-C or CIFAR-100-C under the root for the CIFAR test sets."""
    extra: Switch = False
    """Also build the four extra corruptions, which the benchmark leaves out."""
    seed: int = 0
    """Seed of all random numbers."""
    device: str = "cpu"
    """Device to compute on, for example cuda."""

    def __call__(self) -> None:
        from regmixup.data.catalogue import BENCHMARK, EXTRA
        from regmixup.data.corruptions.build import build_corrupted

        official = {"cifar10/test": "CIFAR-10-C", "cifar100/test": "CIFAR-100-C"}
        if self.out is None and self.name not in official:
            raise ValueError(
                f"out must name a folder for {self.name}: only {', '.join(official)} have one of their own"
            )
        folder = self.out or data_root(self.root) / official[self.name]
        source = data.load(self.name, root=self.root)
        if source.shape is None:
            raise ValueError(f"{self.name} is a set of files; only datasets in memory can be corrupted")
        names = BENCHMARK + EXTRA if self.extra else BENCHMARK
        with Progress(console=Console(stderr=True)) as bars:
            task = bars.add_task("", total=5 * len(names))
            build_corrupted(
                source,
                folder,
                names=names,
                seed=self.seed,
                device=self.device,
                on_progress=lambda name, _: bars.update(task, advance=1, description=name),
            )
        print(f"{len(names)} corruptions of {len(source):,} images, 5 severities, in {folder} (rebuilt, not official)")


ACTIONS = {
    "list": (ListAction, "list datasets that are present"),
    "fetch": (FetchAction, "download official files"),
    "corrupt": (CorruptAction, "build CIFAR-C-style corrupted copies"),
}

HELP = f"""usage: regmixup data ACTION [options]      regmixup data ACTION --help explains an action

Manage datasets. Only fetch downloads anything.

{"".join(f"  {name:10} {summary}{chr(10)}" for name, (_, summary) in ACTIONS.items())}
Example: regmixup data list --root ~/data"""


def main(args: Sequence[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(HELP)
        return
    action = ACTIONS[check_name("action of regmixup data", args[0], ACTIONS)][0]
    verb = f"data {args[0]}"
    if {"-h", "--help"} & {*args}:
        print_help(verb, args)
    else:
        parse(action, verb, args[1:])()
