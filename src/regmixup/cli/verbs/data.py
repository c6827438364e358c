"""`regmixup data`: one action per job, each a dataclass of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from tyro.conf import Positional

from regmixup import data
from regmixup.cli.parsing import parse
from regmixup.data.root import data_root
from regmixup.names import check_name


@dataclass(frozen=True)
class ListAction:
    """List the datasets that are present under the root, with size and content fingerprint, and the embedded ones.

    Example: regmixup data list --root ~/data
    """

    root: Path | None = None
    """Folder with official files; default: the variable REGMIXUP_DATA, else a cache folder."""

    def __call__(self) -> None:
        from regmixup.data.listing import present

        print(f"root {data_root(self.root)}")
        for item in present(self.root):
            size = f"{item.bytes / 1e6:9.1f} MB"
            print(f"  {item.name:28} {item.problem or _describe(item.images, size, item.fingerprint)}")
        print("embedded")
        for name in (name for name in data.names() if not data.check_dataset(name).files):
            found = data.load(name)
            print(f"  {name:28} {_describe(len(found), '', found.fingerprint)}")


def _describe(images: int | None, size: str, fingerprint: str) -> str:
    return f"{images:9,} images {size:12}  sha256 {fingerprint[:16]}…"


@dataclass(frozen=True)
class FetchAction:
    """Download a dataset's official files, resumably, with checksums; what is there is not fetched again.

    Example: regmixup data fetch cifar10 --root ~/data
    """

    name: Positional[str]
    """A family (cifar10) or a dataset (cifar10/test)."""
    root: Path | None = None
    """Where to put it; default: the variable REGMIXUP_DATA, else a cache folder."""

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
class VerifyAction:
    """Compare datasets with what is known of their content; exit status 2 if one differs.

    Example: regmixup data verify cifar10/train cifar10/test
    """

    names: Positional[tuple[str, ...]] = ()
    """Datasets; default: all that are present under the root."""
    root: Path | None = None
    """Folder with official files; default: the variable REGMIXUP_DATA, else a cache folder."""

    def __call__(self) -> None:
        from regmixup.data.listing import present

        there = [item.name for item in present(self.root, compute=False)]
        # A line of the listing is a dataset, or for CIFAR-C a corruption at all its severities.
        names = self.names or [n for line in there for n in data.names() if n == line or n.startswith(f"{line}/")]
        reports = [data.verify(name, root=self.root) for name in names]
        for report in reports:
            detail = f"  {report.detail}" if report.detail else ""
            print(f"  {report.name:28} {report.status:9} {report.found[:16]}{detail}")
        wrong = [report for report in reports if report.status == "mismatch"]
        if wrong:
            told = "; ".join(f"{r.name}: expected {r.expected}, found {r.found} {r.detail}" for r in wrong)
            raise ValueError(f"{len(wrong)} of {len(reports)} datasets differ from what is known: {told}")


@dataclass(frozen=True)
class ShowAction:
    """Draw a contact sheet: a PNG of images spread over the set, with their labels.

    Example: regmixup data show digits/test --out digits.png
    """

    name: Positional[str]
    """A dataset, or folder:PATH."""
    out: Path = Path("contact-sheet.png")
    """Where to write the picture."""
    root: Path | None = None
    """Folder with official files; default: the variable REGMIXUP_DATA, else a cache folder."""

    def __call__(self) -> None:
        from regmixup.data.contact_sheet import contact_sheet

        contact_sheet(data.load(self.name, root=self.root), self.out)
        print(f"picture  {self.out}")


ACTIONS = {
    "list": (ListAction, "what is present, with sizes and fingerprints"),
    "fetch": (FetchAction, "download official files"),
    "verify": (VerifyAction, "compare content with what is known"),
    "show": (ShowAction, "a contact sheet with labels"),
}

HELP = f"""usage: regmixup data ACTION [options]      regmixup data ACTION --help explains an action

Look after datasets. Nothing is ever downloaded unasked.

{"".join(f"  {name:10} {summary}{chr(10)}" for name, (_, summary) in ACTIONS.items())}
Example: regmixup data list --root ~/data"""


def main(args: Sequence[str]) -> None:
    """Parse and do one action."""
    if not args or args[0] in ("-h", "--help"):
        print(HELP)
        raise SystemExit(0)
    action = ACTIONS[check_name("action of regmixup data", args[0], ACTIONS)][0]
    parse(action, f"data {args[0]}", args[1:])()
