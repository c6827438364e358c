"""Reads the tables that the writers write, so that they can be compared with what went in."""

import re
from typing import NamedTuple


class Read(NamedTuple):
    """One cell: its text without markup, and its marks."""

    text: str
    bold: bool = False
    underline: bool = False
    notes: str = ""


def check_latex(text):
    """Environments and braces close in the order in which they open, and only known commands are used."""
    known = (
        *("begin", "end", "centering", "caption", "label", "toprule", "midrule", "cmidrule", "bottomrule"),
        *("multicolumn", "textbf", "underline", "textit", "textsuperscript", "smallskip", "raggedright"),
        *("footnotesize", "scriptsize", "uparrow", "downarrow", "times", "pm", "alpha", "eta", "lambda", "sigma"),
        *("textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater"),
        *("resizebox", "textwidth"),
    )
    assert set(re.findall(r"\\([a-zA-Z]+)", text)) <= set(known)
    assert text.isascii()
    stack = []
    for token in re.findall(r"\\begin\{\w+\}|\\end\{\w+\}|\\.|[{}]", text):
        if token.startswith(r"\begin"):
            stack.append(token.removeprefix(r"\begin"))
        elif token.startswith(r"\end{"):
            assert stack.pop() == token.removeprefix(r"\end")
        elif token == "{":
            stack.append(token)
        elif token == "}":
            assert stack.pop() == "{"
    assert stack == []
    assert text.replace(r"\$", "").count("$") % 2 == 0


def read_markdown(text):
    """The rows of the one pipe table in a text, each a list of cells; the second is the line of dashes."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    assert len({len(row) for row in cells}) == 1
    return [[_markdown_cell(cell) for cell in row] for row in cells]


def _markdown_cell(cell):
    cell = cell.strip()
    notes = re.search(r"<sup>([a-z,]+)</sup>", cell)
    plain = re.sub(r"<sup>[a-z,]+</sup>|(?<!\\)\*\*|</?ins>", "", cell)
    plain = re.sub(r"\\(.)", r"\1", plain)
    return Read(plain, "**" in cell, "<ins>" in cell, notes[1] if notes else "")
