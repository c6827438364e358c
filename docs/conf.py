"""Sphinx configuration of the documentation site: `make docs` writes it to docs/_build."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, get_origin

import regmixup
from regmixup import config

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from make_pages import write_cards  # noqa: E402

write_cards(DOCS / "cards")  # a page per method, from the registry

project = "regmixup"
author = "The regmixup authors"
release = version = regmixup.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "pypi.md", "**.ipynb_checkpoints"]
nb_execution_mode = "off"  # the outputs are stored; `make notebooks` executes
nitpicky = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings: list[str] = []  # `make docs` fails on any warning

default_role = "code"  # `name` in a docstring is code, as in Markdown
autodoc_typehints = "signature"
# Fields show `Positive`, as the code has it; api.md says what these types hold.
autodoc_type_aliases = {name: name for name, kind in vars(config).items() if get_origin(kind) is Annotated}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autosummary_imported_members = False

html_theme = "pydata_sphinx_theme"
html_title = "regmixup"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# Pages of the top level have no neighbours to list, and wide tables need the column.
wide = [
    "quickstart", "fine-tuning", "concepts", "reliable", "results", "all-results", "claims", "log", "search",
    "genindex", "py-modindex",
]  # fmt: skip
html_sidebars = {name: [] for name in wide}
project_copyright = "The regmixup authors, MIT licence"

linkcheck_ignore = [r"https?://.*"]  # local links are checked by the build itself; the network is not needed


def restructure(_app, what, _name, _obj, _options, lines):  # type: ignore[no-untyped-def]
    """Turn a docstring in plain text into reStructuredText: `name: text` lines are a list, indented lines are code."""
    out, listed, code, doctest = [], False, False, False
    for line in lines:
        doctest = bool(line.strip()) and (doctest or line.startswith(">>> "))
        if not line.strip():
            listed = code = False
            out.append("")
        elif doctest:
            out.append(line)
        elif line.startswith("    ") or (code and line.startswith(" ")):
            if listed:  # the text of an item goes on
                out.append(f"  {line.strip()}")
                continue
            out += [line] if code else ["::", "", line] if not out or not out[-1] else ["", "::", "", line]
            code = True
        else:
            text = re.sub(r"([|*])", r"\\\1", line) if "``" not in line else line
            named = re.match(r"([a-z_][a-z_0-9]*(?:, [a-z_0-9]+)*): (.*)", text)
            if named and what != "attribute":
                out += [*([""] if out and out[-1] and not listed else []), f"* **{named[1]}**: {named[2]}"]
                listed = True
            elif listed:
                out.append(f"  {text.strip()}")
            else:
                out += [*([""] if code else []), text]
                code = False
    lines[:] = [*out, ""]


UNBROKEN = re.compile(r"(?<=±) |(?<=\(n) |(?<=\d,) (?=[−+\d])")
"""Spaces in the cells of a table at which no line breaks: inside a mean with its spread, and inside an interval."""


def prepare(_app, name, text):  # type: ignore[no-untyped-def]
    """Send links to the archived rows and to the cards to their pages; put a download into every notebook.

    A cell of a table breaks before its ± or its interval, not inside them.
    """
    text[0] = text[0].replace("../results/README.md", "archive.md").replace("](cards.toml)", "](cards/index.md)")
    text[0] = re.sub(r"(?m)^\|.*", lambda line: UNBROKEN.sub("\N{NO-BREAK SPACE}", line[0]), text[0])
    if name.startswith("notebooks/"):
        notebook, file = json.loads(text[0]), f"{name.removeprefix('notebooks/')}.ipynb"
        notebook["cells"][0]["source"] += [
            f"\n\n{{download}}`Download this notebook <{file}>`, and run it: `jupyter lab {file}`."
        ]
        text[0] = json.dumps(notebook)


def setup(app):  # type: ignore[no-untyped-def]
    """Connect what changes docstrings and pages."""
    app.connect("autodoc-process-docstring", restructure)
    app.connect("source-read", prepare)
