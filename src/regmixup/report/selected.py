"""What a study selected, and on what: hyper-parameters by validation accuracy, T and sigma_0 by validation ECE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regmixup.report.grid import Block, Grid, GridCell, Heading, Line

CAPTION = "Selected on validation sets, mean over seeds; scores in percent"
_HEADS = ("recipe", "method", "selected", "by", "score", "T (by ECE)", "on", "seeds")
_NOTHING = "–"


@dataclass(frozen=True)
class Selected:
    """choices: the contents of a study's selected.json."""

    choices: Sequence[Mapping[str, Any]]

    def heads(self) -> list[str]:
        """Of the columns that have something in them: a study without grids has chosen T alone."""
        return [_HEADS[index] for index in self._filled()]

    def lines(self) -> list[tuple[str, ...]]:
        """One line per choice, in words, under `heads`."""
        filled = self._filled()
        return [tuple(line[index] for index in filled) for line in map(_line, self.choices)]

    def grid(self) -> Grid:
        """As the writers of Markdown and LaTeX take it."""
        lines = tuple(Line(line[:2], tuple(map(GridCell, line[2:]))) for line in self.lines())
        return Grid((tuple(map(Heading, self.heads())),), (Block(lines),), CAPTION, "tab:selected")

    def _filled(self) -> list[int]:
        lines = [_line(choice) for choice in self.choices]
        return [index for index in range(len(_HEADS)) if any(line[index] != _NOTHING for line in lines)]


def _line(choice: Mapping[str, Any]) -> tuple[str, ...]:
    """
    >>> _line({"recipe": "digits", "method": "mixup", "values": {"alpha": 0.3}, "by": "accuracy", "candidates": 9,
    ...        "score": 0.9512, "temperature": 1.2, "on": "digits/val", "calibration": "holdout", "seeds": [0, 1]})
    ('digits', 'mixup', 'alpha = 0.3', 'accuracy, of 9', '95.12', '1.200', 'digits/val', '2')
    """
    values = ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                       for name, value in choice["values"].items())  # fmt: skip
    by = f"{choice['by']}, of {choice['candidates']}" if choice["candidates"] > 1 else choice["by"]
    score = f"{100 * choice['score']:.2f}" if choice["score"] is not None else ""
    temperature = f"{choice['temperature']:.3f}" if choice["temperature"] is not None else ""
    calibration = choice["calibration"].replace("-", " ")
    on = choice["on"] + (f", {calibration}" if calibration != "holdout" else "")
    shown = (choice["recipe"], choice["method"], values, by, score, temperature, on, str(len(choice["seeds"])))
    return tuple(text or _NOTHING for text in shown)
