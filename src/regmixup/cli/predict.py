"""`regmixup predict`: datasets into files of predictions, image files into answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from regmixup.cli.parsing import check_file, parse
from regmixup.data.catalogue import find, get
from regmixup.data.decode import EXTENSIONS
from regmixup.data.folders import describe_unread, image_files
from regmixup.names import counted, percent, printable, written_out
from regmixup.run_folder import FITTED, read_finetuned
from regmixup.storage import csv_lines, write_text
from regmixup.training.run import Run

if TYPE_CHECKING:
    from regmixup.deployment.predictor import Predictor

_COLUMNS = ("file", "class", "probability", "accepted", "score", "error")
_FITTING = ("validation", "acceptance", "risk")


@dataclass(frozen=True)
class PredictVerb:
    """Store the predictions of a trained run for datasets, or classify image files.

    Example: regmixup predict runs/regmixup-... digits/test photographs/test

    Example: regmixup predict runs/regmixup-... photo.jpg ~/photos --out answers.csv
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run folder; for image files also a folder written by Predictor.save or publish, or an exported .onnx file."""
    datasets: Positional[Annotated[tuple[str, ...], arg(metavar="DATASETS")]]
    """Dataset names (see `regmixup data list`), or image files and folders of them."""
    root: Path | None = None
    """Folder with the official files of the datasets; embedded datasets need none."""
    device: str | None = None
    """Device, for example cpu or cuda:0. Default: the accelerator if there is one."""
    out: Path | None = None
    """For image files: .csv file to write, with one line per image."""
    validation: str | None = None
    """For image files: dataset on which temperature and threshold are fitted. Default: that of the run's train set."""
    acceptance: float | None = None
    """For image files: share of validation images to accept; with --risk, the largest share. Default: 0.95, but a run
    of finetune keeps its threshold."""
    risk: float | None = None
    """For image files: choose the threshold so that at most this share of the accepted images is wrong, with 95 %
    confidence."""

    def refuse(self, names: Sequence[str], purpose: str) -> None:
        """Raise for the first of these flags that is given."""
        for name in names:
            if (value := getattr(self, name)) != getattr(PredictVerb, name):
                raise ValueError(f"--{name.replace('_', '-')} is for {purpose}, got {value}")


def main(args: Sequence[str]) -> None:
    """Predict, and print where the files are; or classify files, and print the answers."""
    verb = parse(PredictVerb, "predict", args)
    if not verb.datasets:
        raise ValueError(
            "datasets must name at least one dataset (see `regmixup data list`) or one image file, got none"
        )
    words = [word for word in verb.datasets if not _is_file(word)]
    if words and len(words) < len(verb.datasets):
        raise ValueError(f"datasets must be dataset names alone or image files alone, got both: {words[0]} is no file")
    if words:
        _predict_datasets(verb)
    else:
        _classify_files(verb)


def _is_file(word: str) -> bool:
    """Return whether a word is meant as an image file or a folder of them; a dataset's name never is."""
    path = Path(word).expanduser()
    if path.is_file() or path.suffix.lower() in EXTENSIONS:
        return True
    return path.is_dir() and get(word) is None


def _predict_datasets(verb: PredictVerb) -> None:
    """Store the predictions for datasets."""
    for word in verb.datasets:
        try:
            find(word)
        except ValueError as error:
            raise ValueError(f"there is no file, folder or dataset {word}: {error}") from error
    verb.refuse(("out", *_FITTING), "image files, and the words given are dataset names")
    run = Run.open(verb.run)
    stored = run.predict_all(list(verb.datasets), root=verb.root, device=verb.device)
    for name, predictions in zip(verb.datasets, stored, strict=True):
        print(printable(f"{run.predictions_path(name)}  {len(predictions)} x {predictions.logits.shape[1]}"))


def _classify_files(verb: PredictVerb) -> None:
    """Print a line for each file, and write the CSV file."""
    check_file("--out", verb.out, ".csv")
    files = _list_files(verb.datasets)
    predictor = _load_predictor(verb)
    if (p := predictor.promise) is not None:
        print(f"promise: {p} ({p.errors} errors among {p.accepted} accepted of {p.images} validation images)")
    answers = []
    try:
        with ThreadPoolExecutor() as pool:
            for answer in pool.map(partial(_classify_file, predictor), files):
                answers.append(answer)
                print(_describe_answer(answer))
    finally:  # after Ctrl-C, too: it may have taken hours
        if verb.out is not None and answers:
            write_text(verb.out, csv_lines([_COLUMNS, *(answer.values() for answer in answers)]))
            part = "" if len(answers) == len(files) else f"{len(answers):,} of "
            print(printable(f"{verb.out}  {part}{counted(len(files), 'image')}"))
    errors = [answer["error"] for answer in answers if answer["error"]]
    accepted = sum(answer["accepted"] is True for answer in answers)
    unreadable = f", {len(errors)} unreadable" if errors else ""
    print(f"{accepted} accepted, {len(files) - accepted - len(errors) or 'none'} unsure{unreadable}")
    if errors:
        error = ValueError(
            f"{len(errors)} of {counted(len(files), 'image file')} could not be read; the last one: {errors[-1]}"
        )
        error.exit_status = 1 if len(errors) < len(files) else 2  # type: ignore[attr-defined]
        raise error


def _list_files(words: Sequence[str]) -> list[Path]:
    """Return the files, those of folders in order of their names."""
    files: list[Path] = []
    for word in words:
        path = Path(word).expanduser()
        inside = [Path(name) for name in image_files(path)] if path.is_dir() else [path]
        if path.is_dir() and (unread := describe_unread(path)):
            print(printable(f"warning: {word}: {unread}"), file=sys.stderr)
        if not inside:
            raise ValueError(f"{word} must hold image files ({', '.join(EXTENSIONS)}), it has none")
        files += inside
    return files


def _load_predictor(verb: PredictVerb) -> Predictor:
    """Return the predictor of a run, or one that was saved, whose threshold is settled."""
    from regmixup.deployment.export import PREDICTOR
    from regmixup.deployment.predictor import Predictor

    if verb.run.suffix.lower() == ".onnx" or (verb.run / PREDICTOR).is_file():
        verb.refuse(_FITTING, f"run folders, and {verb.run} is a saved predictor, which is fitted already")
        return Predictor.load(verb.run, device=verb.device)
    saved = verb.run / FITTED  # as `regmixup finetune` leaves it
    tuned = read_finetuned(verb.run) if (saved / PREDICTOR).is_file() else {}
    settings = {name: value for name in _FITTING if (value := getattr(verb, name)) is not None}
    if tuned:
        if not settings:
            print(printable(f"{saved}: temperature and threshold as fitted there"))
            return Predictor.load(saved, device=verb.device)
        settings["score"] = tuned["score"]
        if verb.acceptance is None and verb.risk is None:
            settings |= {name: tuned[name] for name in ("acceptance", "risk")}
        if verb.risk is not None and verb.validation is None and tuned["risk"] is None:
            print(
                "warning: the validation images have also chosen this model, so the promise is only approximate: "
                "`regmixup finetune --risk` keeps images aside, or name others by --validation",
                file=sys.stderr,
            )
    return Predictor.from_run(verb.run, **settings, root=verb.root, device=verb.device)


def _classify_file(predictor: Predictor, file: Path) -> dict[str, Any]:
    """Return the columns for a file; one that cannot be read has an error and nothing else."""
    answer = {**dict.fromkeys(_COLUMNS, ""), "file": str(file)}
    try:
        decision = predictor.predict_file(file)
    except ValueError as error:
        return {**answer, "error": str(error)}
    label = int(decision.label)
    return {
        **answer,
        "class": decision.class_names[label],
        "probability": float(decision.probs[label]),
        "accepted": bool(decision.accepted),
        "score": float(decision.score),
    }


def _describe_answer(answer: dict[str, Any]) -> str:
    file = written_out(answer["file"])  # as in the table
    if answer["error"]:
        reason = answer["error"].removeprefix(f"cannot read {answer['file']} as an image: ")
        return printable(f"{file}  unreadable: {reason}")
    verdict = "accepted" if answer["accepted"] else "unsure"
    return printable(f"{file}  {answer['class']}  {percent(answer['probability'])}  {verdict}")
