"""`regmixup evaluate`: from files of predictions, of any model, to a table, rows and a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from regmixup import predictions
from regmixup.cli import split_flag
from regmixup.cli.parsing import check_file, parse
from regmixup.config import check_count
from regmixup.evaluation.compare import Measured, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.names import printable
from regmixup.predictions.formats import LABEL_COLUMNS
from regmixup.run_folder import PROVENANCE, read_provenance
from regmixup.storage import write_rows, write_text
from regmixup.types import Predictions

_SOURCE = "source"
"""The key in the info of predictions for the name of their dataset as it was stored."""


@dataclass(frozen=True)
class EvaluateVerb:
    """Evaluate the logits of any model: accuracy, calibration, shift and OOD detection; or compare two models.

    Files: .safetensors, .npz or .pt with the keys logits (or probs) and labels; .npy with logits; .csv or .tsv with a
    header such as label, logit_cat, logit_dog and a line per image. OOD files need no labels. If a file was ambiguous,
    the command prints how it read it.

    The command prints a summary; --out writes every row. `--predictions mine.npz` is the same as `mine.npz`.

    Example: regmixup evaluate mine.npz --ood svhn.npz --val val.npz

    Example: regmixup evaluate mine.npz --against theirs.npz --html page.html
    """

    predictions: Positional[Annotated[Path, arg(metavar="PREDICTIONS")]]
    """In-distribution test predictions with labels."""
    labels: Path | None = None
    """.npy file with the labels of the test set, if the predictions have no column or key with labels."""
    columns: tuple[str, ...] = ()
    """Class columns of tables, by name or by pattern such as 'logit_*', if their names do not show which they are."""
    ood: tuple[Path, ...] = ()
    """Predictions for out-of-distribution sets; labels are not needed."""
    group: tuple[str, ...] = ()
    """Groups of OOD sets, such as near=a.npz,b.npz with files of --ood; adds the mean over each group."""
    shift: tuple[Path, ...] = ()
    """Predictions for shifted versions of the test set, with labels. Files named family__corruption__severity.npz are
    averaged."""
    val: Path | None = None
    """Validation predictions, on which the temperature is fitted by ECE."""
    against: Path | None = None
    """Test predictions of a second model for the same images. Every difference gets a paired interval."""
    against_ood: tuple[Path, ...] = ()
    """The second model's predictions for the sets of --ood."""
    against_shift: tuple[Path, ...] = ()
    """The second model's predictions for the sets of --shift."""
    against_val: Path | None = None
    """The second model's validation predictions."""
    against_train: Path | None = None
    """The second model's train predictions."""
    names: tuple[str, ...] = ()
    """Names of the model, of the model of --against, and of each set of --ood, in this order; you may give fewer. By
    default, models are named by their files or run folders, and folders of images are shown without the path to
    them."""
    train: Path | None = None
    """Train predictions with features, for scores of features (Mahalanobis, kNN, ...)."""
    resamples: int = 1000
    """Number of bootstrap resamples for the 95 % intervals; 0 for no intervals."""
    html: Path | None = None
    """Also write a .html page with tables and figures, and with examples of errors if the datasets are known by
    name."""
    root: Path | None = None
    """Folder with the official files of the datasets, for the examples on the page."""
    out: Path | None = None
    """Also write all rows to this .csv file."""


def main(args: Sequence[str]) -> None:
    """Evaluate, print a summary and, if asked, write a page and every row."""
    files, words = split_flag("--predictions", args)  # the file may also be given without a flag
    verb = parse(EvaluateVerb, "evaluate", (*files, *words))
    _check(verb)
    bootstrap = Bootstrap(resamples=verb.resamples) if verb.resamples else None
    models = _load_models(verb)
    measured = measure_models(*models, groups=_read_groups(verb, models[0].ood), bootstrap=bootstrap)
    _show_summary(Console(), measured)
    if verb.out is None:
        print(f"{len(measured.rows[0]):,} rows: --out rows.csv writes them all")
    else:
        write_rows(verb.out, [row for rows in measured.rows for row in rows])
        print(f"rows  {verb.out}")
    if verb.html is not None:
        _write_page(verb, measured)


def _check(verb: EvaluateVerb) -> None:
    """Raise for flags that do not go together, and for files that cannot be written."""
    check_count("resamples", verb.resamples, least=0)
    check_file("--out", verb.out, ".csv")
    check_file("--html", verb.html, ".html")
    against = (verb.against_val, verb.against_train, *verb.against_ood, *verb.against_shift)
    read = (verb.predictions, verb.labels, verb.val, verb.train, *verb.ood, *verb.shift, verb.against, *against)
    if verb.out is not None and verb.out.resolve() in [path.resolve() for path in read if path is not None]:
        raise ValueError(f"--out must name another file than those that are read, got {verb.out}")
    if verb.against is None and any(against):
        raise ValueError("--against-ood, --against-shift, --against-val and --against-train need --against, got none")
    for name in ("ood", "shift"):
        counts = len(getattr(verb, name)), len(getattr(verb, f"against_{name}"))
        if verb.against is not None and counts[0] != counts[1]:
            got = f"{counts[0]} and {counts[1]}"
            raise ValueError(f"with --against, --{name} and --against-{name} must have the same sets, got {got} files")
    models = 1 if verb.against is None else 2
    most = models + len(verb.ood)
    if len(verb.names) > most or len(set(verb.names)) < len(verb.names):
        contract = f"must differ, one for each model and each set of --ood, {most} at most"
        raise ValueError(f"--names {contract}, got {len(verb.names)}: {', '.join(verb.names)}")


def _load_models(verb: EvaluateVerb) -> list[ModelPredictions]:
    """Return the model, and the one that it is compared with if any, under the names to show."""
    models = [_load_model(verb, verb.predictions)]
    if verb.against is not None:
        models.append(_load_model(verb, verb.against, "against_"))
    renamed = []
    for place, model in enumerate(models):
        name = verb.names[place] if place < len(verb.names) else model.name
        renamed.append(_rename(model, name, verb.names[len(models) :]))
    return renamed


def _read_groups(verb: EvaluateVerb, ood: Sequence[Predictions]) -> dict[str, list[str]]:
    """Return the names of the OOD sets in each group."""
    names = {path: predicted.dataset for path, predicted in zip(verb.ood, ood, strict=True)}
    groups: dict[str, list[str]] = {}
    for text in verb.group:
        group, _, files = text.partition("=")
        listed = [Path(file).expanduser() for file in files.split(",")]
        if group in ("", *groups) or not names.keys() >= {*listed}:
            known = ", ".join(map(str, names)) or "none"
            contract = f"must be NAME=FILE,FILE of files that --ood names ({known}), each name once"
            raise ValueError(f"--group {contract}, got {text!r}")
        groups[group] = [names[file] for file in listed]
    return groups


def _load_model(verb: EvaluateVerb, test: Path, prefix: str = "") -> ModelPredictions:
    """Return a model, named by its run's folder or its file. prefix: of the flags with its other predictions."""
    val, train, shift, ood = (getattr(verb, f"{prefix}{part}") for part in ("val", "train", "shift", "ood"))
    run = _find_run(test)
    return ModelPredictions(
        name=test.stem if run is None else run.name,
        test=_read_file(verb, test, verb.labels),
        validation=_read_file(verb, val) if val is not None else None,
        train=_read_file(verb, train) if train is not None else None,
        shift=[_read_file(verb, path) for path in shift],
        ood=[_read_file(verb, path, labelled=False) for path in ood],
    )


def _find_run(predictions: Path) -> Path | None:
    """Return the folder of the run that made a file of predictions; None for those of another program."""
    folder = predictions.absolute().parent.parent
    return folder if (folder / PROVENANCE).is_file() else None


def _rename(model: ModelPredictions, name: str, ood_names: Sequence[str]) -> ModelPredictions:
    """Return a model and OOD sets with these names. Other folders of images lose their path where that is clear."""
    from regmixup.deployment.export import public_name

    sets = [model.test, *model.ood]
    titles = [public_name(predicted.dataset).removeprefix("folder:") for predicted in sets]
    renamed = []
    for place, predicted in enumerate(sets):
        title = titles[place] if titles.count(titles[place]) == 1 else predicted.dataset
        if 1 <= place <= len(ood_names):
            title = ood_names[place - 1]
        renamed.append(replace(predicted, dataset=title, info={**predicted.info, _SOURCE: predicted.dataset}))
    return replace(model, name=name, test=renamed[0], ood=renamed[1:])


def _show_summary(console: Console, measured: Measured) -> None:
    """Print what to read first: a line per quantity, with the interval of the value or of the difference."""
    from regmixup.report.evaluation_page import describe_units, model_names, summarize

    lines, names = summarize(measured), model_names(measured)
    two, test = len(names) > 1, measured.models[0].test
    about = f"{len(test):,} test images, {test.logits.shape[1]} classes; {describe_units(lines)}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for name in (*names, "difference") if two else ("value",):
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("95 % interval" if measured.bootstrap is not None else "", justify="right", no_wrap=True)
    marks = {True: " ▲", False: " ▼", None: ""}
    for line in lines:
        cells = [f"{cell.text}{marks[cell.better]}" if cell is not None else "–" for cell in line.cells]
        cells.append(line.cells[-1].bounds if line.cells[-1] is not None else "")
        table.add_row(Text(printable(line.title)), *map(Text, cells))
    console.print(Text(about if two else f"{names[0]}: {about}", overflow="fold"))
    console.print(table)
    if two:
        console.print("▲ ▼: better or worse, where the paired interval of the difference does not hold 0")


def _write_page(verb: EvaluateVerb, measured: Measured) -> None:
    from regmixup.report.answers import SIDE
    from regmixup.report.evaluation_page import models_page
    from regmixup.study.figures import find_images

    assert verb.html is not None
    model = measured.models[0]
    # A file of ours names the data that it is of; what merely has the name of a dataset is not taken for it.
    known = [predicted for predicted in (model.test, *model.ood) if "data" in predicted.info]
    places = {predicted.info[_SOURCE]: predicted.dataset for predicted in known}
    images_of, classes = find_images(list(places), verb.root, side=SIDE)
    images_of = {places[name]: get_images for name, get_images in images_of.items()}
    # Labels are numbered by the model's classes, of which a folder of test images may lack some.
    if (run := _find_run(verb.predictions)) is not None:
        classes = tuple(read_provenance(run).get("classes", ()))
    fitting = bool(known) and known[0] is model.test and len(classes) == model.test.logits.shape[1]
    write_text(verb.html, models_page(measured, images=images_of, classes=classes if fitting else ()))
    print(f"page  {verb.html}")


def _read_file(verb: EvaluateVerb, path: Path, labels: Path | None = None, *, labelled: bool = True) -> Predictions:
    """Read predictions. Where a file can be read in several ways, print which was taken."""
    predicted = predictions.load(path, labels=labels, columns=verb.columns, labelled=labelled)
    if "read_as" in predicted.info:
        print(printable(f"{path}: {predicted.info['read_as']}"), file=sys.stderr)
    if labelled and int(predicted.labels.min()) < 0:
        place = "under the key labels of an .npz, .pt or .safetensors file"
        if path.suffix in (".csv", ".tsv"):
            place = f"a table in a column called one of {', '.join(LABEL_COLUMNS)}"
        raise ValueError(f"{path} must hold a label for every sample, {place}; only OOD files may leave them out")
    return predicted
