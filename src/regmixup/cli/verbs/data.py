"""`regmixup data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from regmixup import data
from regmixup.cli.parsing import parse
from regmixup.data.contact_sheet import contact_sheet


@dataclass(frozen=True)
class DataVerb:
    """Look at datasets: list their names and fingerprints, or draw a contact sheet.

    Examples: regmixup data list        regmixup data show digits/test --out digits.png
    """

    action: Positional[Literal["list", "show"]]
    """list: every dataset that can be loaded, with size and content fingerprint. show: a PNG of its first images."""
    name: Positional[str] = ""
    """The dataset to show."""
    root: Path | None = None
    """Folder with the datasets' official files; embedded datasets need none."""
    out: Path = Path("contact-sheet.png")
    """Where `show` writes its picture."""


def main(args: Sequence[str]) -> None:
    """List or show."""
    verb = parse(DataVerb, "data", args)
    if verb.action == "show":
        contact_sheet(data.load(verb.name, root=verb.root), verb.out)
        print(f"picture  {verb.out}")
        return
    for name in data.names():
        found = data.load(name, root=verb.root)
        shape = "x".join(str(side) for side in found.images.shape[1:])
        print(f"{name:32} {len(found):6} images {shape:8} sha256 {found.fingerprint[:16]}…")
