"""The lowest versions that pyproject.toml declares, as constraints for pip: `python tests/lowest.py > lowest.txt`.

`make test-lowest` installs these together and runs the suite with them. Only what regmixup names itself is held down;
what those packages need in turn is the newest that goes with them.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(text: str) -> list[str]:
    """Return "name==version" for every dependency of a pyproject.toml and its extras, each once."""
    project = tomllib.loads(text)["project"]
    named = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    found = {}
    for line in named:
        match = re.fullmatch(r"([\w.-]+)>=([\w.]+)", line)
        if match is None or found.setdefault(match[1], match[2]) != match[2]:
            raise ValueError(f"dependencies must be written name>=version, with one version per name, got {line!r}")
    return [f"{name}=={version}" for name, version in found.items()]


if __name__ == "__main__":
    print("\n".join(lowest(PROJECT.read_text(encoding="utf-8"))))
