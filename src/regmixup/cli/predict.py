"""`regmixup predict`: datasets into files of predictions, image files into answers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from tyro.conf import Positional

from regmixup.cli.parsing import Switch, check_file, parse
from regmixup.data.catalogue import find, get
from regmixup.data.decode import EXTENSIONS
from regmixup.data.folders import describe_unread, image_files, unread_files
from regmixup.names import counted, printable
from regmixup.posthoc import Conformal
from regmixup.run_folder import FITTED, read_finetuned
from regmixup.storage import csv_lines, read_table, write_text
from regmixup.training.run import Run

if TYPE_CHECKING:
    from regmixup.deployment.predictor import Decision, Predictor

_BATCH = 64
_COLUMNS = ("file", "class", "probability", "accepted", "score", "set", "error")
_FOR_FILES = ("out", "validation", "acceptance", "risk", "confidence", "sets", "level")
_FOR_DATASETS = ("features", "refresh_batch_norm")


@dataclass(frozen=True)
class PredictVerb:
    """Store the predictions of a trained run for datasets, or classify image files.

    Examples: regmixup predict runs/regmixup-... digits/test photographs/test
              regmixup predict runs/regmixup-... photo.jpg ~/photos --out answers.csv
    """

    run: Positional[Path]
    """A run folder; for image files also a folder that Predictor.save has written, or an exported .pt2 file."""
    datasets: Positional[tuple[str, ...]]
    """Dataset names, see `regmixup data list`; or image files, and folders of them."""
    root: Path | None = None
    """Folder with the datasets' official files; embedded datasets need none."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    features: Switch = False
    """Also store the features of shifted sets, which `evaluate --method kfac-llla --shift` reads."""
    refresh_batch_norm: Switch = False
    """First re-estimate batch-norm statistics on the clean train images; stored in predictions-refreshed."""
    out: Path | None = None
    """For image files: a .csv file to write, one line for each."""
    validation: str | None = None
    """For image files: the dataset that fits temperature and threshold; default, that of the run's train set."""
    acceptance: float = 0.95
    """For image files: the share of validation images to accept; with --risk, the most to accept."""
    risk: float | None = None
    """For image files: accept so that at most this share of the accepted is wrong, with --confidence."""
    confidence: float = 0.95
    """For image files: the probability that --risk holds."""
    sets: Literal["lac", "aps", "raps"] | None = None
    """For image files: also give conformal label sets, by this method; none is empty."""
    level: float = 0.9
    """For image files: the probability that a label set holds the true class."""


def main(args: Sequence[str]) -> None:
    """Predict, and print where the files are; or classify files, and print the answers."""
    verb = parse(PredictVerb, "predict", args)
    if not verb.datasets:
        raise ValueError(
            "datasets must name at least one dataset (see `regmixup data list`) or one image file, got none"
        )
    kinds = [_is_file(word) for word in verb.datasets]
    if any(kinds) and not all(kinds):
        name = verb.datasets[kinds.index(False)]
        raise ValueError(f"datasets must be dataset names alone or image files alone, got both: {name} is no file")
    if any(kinds):
        _refuse(verb, _FOR_DATASETS, "datasets, and the words given are image files")
        _classify(verb)
        return
    for word in verb.datasets:
        try:
            find(word)
        except ValueError as error:
            raise ValueError(f"{error}. There is no file or folder {word}, either") from error
    _refuse(verb, _FOR_FILES, "image files, and the words given are dataset names")
    run = Run.open(verb.run).refreshed() if verb.refresh_batch_norm else Run.open(verb.run)
    features = True if verb.features else None
    found = run.predict_all(list(verb.datasets), root=verb.root, device=verb.device, features=features)
    for name, predictions in zip(verb.datasets, found, strict=True):
        print(f"{run.predictions_path(name)}  {len(predictions)} x {predictions.logits.shape[1]}")


def _is_file(word: str) -> bool:
    """Return whether a word is meant as an image file or a folder of them; a dataset's name never is."""
    path = Path(word).expanduser()
    if path.is_file() or path.suffix.lower() in EXTENSIONS:
        return True
    return path.is_dir() and get(word) is None


def _refuse(verb: PredictVerb, names: Sequence[str], purpose: str) -> None:
    """Raise for the first of these flags that is given."""
    if given := _given(verb, names):
        raise ValueError(f"--{given[0].replace('_', '-')} is for {purpose}, got {getattr(verb, given[0])}")


def _given(verb: PredictVerb, names: Sequence[str]) -> list[str]:
    """Return those of these flags that are not at their defaults."""
    return [name for name in names if getattr(verb, name) != getattr(PredictVerb, name)]


def _classify(verb: PredictVerb) -> None:
    """Print a line for each file and write the CSV file."""
    for flag, needed in (("level", "sets"), ("confidence", "risk")):
        if getattr(verb, needed) is None:
            _refuse(verb, [flag], f"--{needed}, which is not given")
    check_file("--out", verb.out, ".csv")
    files = _listed(verb.datasets)
    predictor = _predictor(verb)
    if (p := predictor.promise) is not None:
        print(f"promise: {p} ({p.errors} errors among {p.accepted} accepted of {p.images} validation images)")
    lines: list[Iterable[object]] = [_COLUMNS]
    tally: Counter[str] = Counter()
    failure = ""
    with _bar() as bars:
        task = bars.add_task("images", total=len(files), visible=verb.out is not None or not sys.stdout.isatty())
        for answer in _answers(predictor, files):
            lines.append([answer[name] for name in _COLUMNS])
            tally["unreadable" if answer["error"] else "accepted" if answer["accepted"] else "unsure"] += 1
            failure = answer["error"] or failure
            if verb.out is None:
                print(_line(answer))
            bars.advance(task)
    if verb.out is not None:
        write_text(verb.out, csv_lines(lines))
        print(f"{verb.out}  {counted(len(files), 'image')}")
    print(f"{tally['accepted']} accepted, {tally['unsure'] or 'none'} unsure")
    if unreadable := tally["unreadable"]:
        error = ValueError(f"{unreadable} of {counted(len(files), 'image file')} could not be read, such as {failure}")
        error.exit_status = 1 if unreadable < len(files) else 2  # type: ignore[attr-defined]
        raise error


def _bar() -> Progress:
    """Return a progress bar on standard error, so that `> answers.txt` holds answers alone."""
    console = Console(stderr=True)
    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal)


def _listed(words: Sequence[str]) -> list[Path]:
    """Return the files, those of folders in order of their names."""
    found: list[Path] = []
    for word in words:
        path = Path(word).expanduser()
        inside = [Path(name) for name in image_files(path)] if path.is_dir() else [path]
        unread = unread_files(path) if path.is_dir() else ()
        if not inside:
            hint = f": {describe_unread(unread)}" if unread else ""
            raise ValueError(f"{word} must hold image files ({', '.join(EXTENSIONS)}), it has none{hint}")
        if unread:
            print(f"warning: {word}: {describe_unread(unread)}", file=sys.stderr)
        found += inside
    return found


def _predictor(verb: PredictVerb) -> Predictor:
    """Return the predictor of a run, or one that was saved, whose threshold is settled."""
    from regmixup.deployment.export import PREDICTOR
    from regmixup.deployment.predictor import Predictor

    if (verb.run / PREDICTOR).is_file() or verb.run.suffix in (".pt2", ".onnx"):
        instead = f" (give {verb.run.parent} instead)" if (verb.run.parent / "config.json").is_file() else ""
        refused = f"run folders{instead}, and {verb.run} is a saved predictor, which is fitted already"
        _refuse(verb, _FOR_FILES[1:], refused)
        return Predictor.load(verb.run, device=verb.device)
    fitted = verb.run / FITTED  # as `regmixup finetune` leaves it
    saved = (fitted / PREDICTOR).is_file()
    tuned = read_finetuned(verb.run) if saved else None
    if saved and not _given(verb, _FOR_FILES[1:]):
        print(f"{fitted}: temperature and threshold as fitted there")
        return Predictor.load(fitted, device=verb.device)
    promising = verb.risk is not None or verb.sets is not None
    if tuned is not None and promising and verb.validation is None and not tuned.get("held_out"):
        print(
            "warning: the validation images have also chosen this model, so the promise is only approximate: "
            "`regmixup finetune --risk` keeps images aside, or name others by --validation",
            file=sys.stderr,
        )
    return Predictor.from_run(
        verb.run,
        validation=verb.validation,
        acceptance=verb.acceptance,
        risk=verb.risk,
        confidence=verb.confidence,
        sets=None if verb.sets is None else Conformal(method=verb.sets, level=verb.level, empty="never"),
        score=None if tuned is None else str(read_table(fitted / PREDICTOR)["score"]),
        root=verb.root,
        device=verb.device,
    )


def _answers(predictor: Predictor, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the columns for each file, in order; one that cannot be read has an error and nothing else."""

    def read(file: Path) -> Tensor | str:
        try:
            return predictor.read(file)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            images = list(pool.map(read, batch))
            good = [image for image in images if isinstance(image, Tensor)]
            decided = iter(_columns(predictor(torch.stack(good))) if good else ())
            for file, image in zip(batch, images, strict=True):
                found = {"error": image} if isinstance(image, str) else next(decided)
                yield {**dict.fromkeys(_COLUMNS, ""), "file": str(file), **found}


def _columns(decision: Decision) -> Iterator[dict[str, Any]]:
    names = decision.class_names
    for row, label in enumerate(decision.label.tolist()):
        kept = [] if decision.sets is None else decision.sets[row].nonzero().flatten().tolist()
        yield {
            "class": names[label],
            "probability": float(decision.probs[row, label]),
            "accepted": bool(decision.accepted[row]),
            "score": float(decision.score[row]),
            "set": " | ".join(names[k] for k in kept),
        }


def _line(answer: dict[str, Any]) -> str:
    if answer["error"]:
        return printable(f"{answer['file']}  unreadable: {answer['error']}")
    verdict = "accepted" if answer["accepted"] else "unsure"
    line = f"{answer['file']}  {answer['class']}  {100 * answer['probability']:.1f} %  {verdict}"
    return printable(line + (f"  {{{answer['set']}}}" if answer["set"] else ""))
