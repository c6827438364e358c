"""Count how many random mutants of the package the tests of their room kill.

    python tests/mutants.py --number 100 --seed 0

A mutant is one changed expression: a comparison, an arithmetic or logical operator, a negated condition, a number, or a
keyword argument left out. The source is copied, one mutant is written into the copy, and the doctests of its file and
the tests of its room run against it until the first failure. A failure or a timeout kills the mutant. The same seed
draws the same mutants.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One changed expression: where it stands, its text before and after."""

    file: str
    line: int
    before: str
    after: str
    start: int
    end: int


def changed(node: ast.AST) -> ast.AST | None:
    """Return a node that computes something else, or None where there is no rule for it."""
    match node:
        case ast.Compare(left=left, ops=[operator, *more], comparators=right) if type(operator) in COMPARISONS:
            return ast.Compare(left, [COMPARISONS[type(operator)](), *more], right)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            return ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.BoolOp(op=operator, values=values):
            return ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value + 1)
        case ast.Call(func=function, args=arguments, keywords=[_, *kept]):
            return ast.Call(function, arguments, kept)
    return None


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, but for those of annotations, decorators and f-strings."""
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    passed_over = set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        hidden = [getattr(node, name, None) for name in ("annotation", "returns")]
        hidden += getattr(node, "decorator_list", []) + ([node] if isinstance(node, ast.JoinedStr) else [])
        if isinstance(node, ast.Raise):  # the words of an error are for people
            hidden.append(node.exc)
        passed_over |= {id(inner) for top in hidden if top is not None for inner in ast.walk(top)}
    for node in ast.walk(tree):
        if id(node) in passed_over or (new := changed(node)) is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = text.encode()[start:end].decode(), ast.unparse(ast.fix_missing_locations(new))
        if ast.unparse(node) != after:
            yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, before, f"({after})", start, end)


def tests_of(file: str) -> list[str]:
    """Return the tests of a file's room."""
    parts = Path(file).relative_to("src/regmixup").parts
    room = parts[0].removesuffix(".py")
    names = [f"tests/{room}", f"tests/test_{room}.py"]
    return [name for name in names if (ROOT / name).exists()]


def is_killed(mutant: Mutant, *, seconds: float) -> bool:
    """Return whether a test of its room fails, or hangs, with a mutant in place."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder) / mutant.file
        text = target.read_bytes()
        target.write_bytes(text[: mutant.start] + mutant.after.encode() + text[mutant.end :])
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--doctest-modules"]
        command += [str(target), *tests_of(mutant.file)]  # the file's doctests first, which are quick
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode not in (0, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900, help="time after which a mutant counts as killed")
    parser.add_argument("--out", type=Path, help="a JSON line per mutant; those that are there are not run again")
    options = parser.parse_args()
    files = sorted((ROOT / "src" / "regmixup").rglob("*.py"))
    everything = [
        mutant for path in files if tests_of(path.relative_to(ROOT).as_posix()) for mutant in mutants_of(path)
    ]
    drawn = random.Random(options.seed).sample(everything, options.number)
    lines = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    outcomes = [json.loads(line) for line in lines]
    for mutant in drawn[len(outcomes) :]:
        outcomes.append({**asdict(mutant), "killed": is_killed(mutant, seconds=options.seconds)})
        if options.out:
            options.out.write_text("".join(json.dumps(outcome) + "\n" for outcome in outcomes))
        print("killed  " if outcomes[-1]["killed"] else "SURVIVED", f"{mutant.file}:{mutant.line}", mutant.after[:80])
    counts = Counter(outcome["killed"] for outcome in outcomes)
    print(f"{counts[True]} of {len(outcomes)} killed, of {len(everything)} possible mutants")


if __name__ == "__main__":
    main()
