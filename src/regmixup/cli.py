"""The command line: `regmixup VERB`. Every flag is a dataclass field; only this file knows the CLI library.

The first word picks the verb by hand, so that `regmixup --help` and `regmixup list` answer without importing torch.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg

from regmixup.names import check_name

if TYPE_CHECKING:
    from rich.console import Console

    from regmixup.types import Predictions

Switch = FlagCreatePairsOff[bool]


def _console() -> Console:
    from rich.console import Console

    return Console()


@dataclass(frozen=True)
class StudyVerb:
    """Train and evaluate every method and seed of a study, then print its table and write its report.

    Work that is done already is not done again, so the same command resumes an interrupted study.
    Example: regmixup study digits
    """

    study: Positional[str]
    """A study's name (regmixup list studies) or a TOML file."""
    runs: Path = Path("runs")
    """Folder for run folders, and for the study's rows and report."""
    root: Path | None = None
    """Folder with the datasets' official files; embedded datasets need none."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    dry_run: Switch = False
    """Print the runs and whether they are done, and do nothing."""

    def __call__(self) -> None:
        from regmixup.progress import LiveProgress
        from regmixup.report.build import report
        from regmixup.study.plan import load_study
        from regmixup.study.runner import run_study
        from regmixup.training.config import choose_device, resolve
        from regmixup.training.run import Run

        study, console = load_study(self.study), _console()
        plan = list(study.runs())
        if self.dry_run:
            device = choose_device(self.device)
            for method, config in plan:
                run = Run(self.runs / resolve(config, device).name, config)
                print(f"{'done' if run.finished else 'to do':6} {method:12} {run.folder}")
            return
        with LiveProgress(console, total=len(plan)) as progress:
            folder = run_study(study, self.runs, root=self.root, device=self.device, progress=progress)
        table, page = report(folder)
        console.print(table)
        print(f"rows    {folder / 'rows.csv'}\nreport  {page}")


def _train(args: Sequence[str]) -> None:
    """`--recipe` and `--method` pick the instances first, then their fields become flags."""
    from regmixup.objectives import Objective
    from regmixup.recipes import Recipe
    from regmixup.training.config import TrainConfig, configure

    chosen = {"recipe": "digits", "method": "regmixup"}
    for index, word in enumerate(args):
        for name in chosen:
            if word == f"--{name}" and index + 1 < len(args):
                chosen[name] = args[index + 1]
            elif word.startswith(f"--{name}="):
                chosen[name] = word.partition("=")[2]
    config = configure(**chosen)

    @dataclass(frozen=True)
    class TrainVerb:
        """Train one model. --recipe and --method choose the defaults below; any field can then be changed.

        A finished run is never repeated, an interrupted one goes on from its last epoch.
        Example: regmixup train --method regmixup --alpha 10 --epochs 20 --seed 1
        """

        training: Annotated[Recipe, arg(name="")]
        objective: Annotated[Objective, arg(name="")]
        recipe: str = "digits"
        """Named training configuration, see `regmixup list recipes`."""
        method: str = "regmixup"
        """Named objective, see `regmixup list methods`."""
        seed: int = 0
        """Decides initialisation, data order, augmentation, mixing and dropout."""
        runs: Path = Path("runs")
        """Folder for run folders."""
        root: Path | None = None
        """Folder with the datasets' official files; embedded datasets need none."""
        device: str | None = None
        """For example cpu or cuda:0; default: the accelerator if there is one."""
        dry_run: Switch = False
        """Print the resolved configuration as JSON, and do nothing."""

    plain = Recipe(**{f.name: getattr(config, f.name) for f in dataclasses.fields(Recipe)})
    verb = _parse(
        TrainVerb, "train", args, default=TrainVerb(plain, config.objective, chosen["recipe"], chosen["method"])
    )
    changed = {f.name: getattr(verb.training, f.name) for f in dataclasses.fields(Recipe)}
    _run_training(TrainConfig(**changed, objective=verb.objective, seed=verb.seed), verb)


def _run_training(config: Any, verb: Any) -> None:
    from regmixup.config import encode
    from regmixup.progress import LiveProgress, describe
    from regmixup.training.config import choose_device, resolve
    from regmixup.training.loop import train

    config = resolve(config, choose_device(verb.device))
    if verb.dry_run:
        print(json.dumps({"folder": str(verb.runs / config.name), **encode(config)}, indent=2))
        return
    console = _console()
    with LiveProgress(console, total=1) as progress:
        progress.begin(f"{verb.method} seed {config.seed}", config.epochs)
        run = train(config, verb.runs, root=verb.root, device=verb.device, on_epoch=progress.epoch)
    print(f"epoch {config.epochs}: {describe(run.history()[-1])}\nrun  {run.folder}")


@dataclass(frozen=True)
class PredictVerb:
    """Store what a trained run says about datasets.

    Example: regmixup predict runs/regmixup-... digits/test photographs/test
    """

    run: Positional[Path]
    """A run folder."""
    datasets: Positional[tuple[str, ...]]
    """Dataset names, see `regmixup list datasets`."""
    root: Path | None = None
    """Folder with the datasets' official files; embedded datasets need none."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""

    def __call__(self) -> None:
        from regmixup.training.run import Run

        if not self.datasets:
            raise ValueError("datasets must name at least one dataset, got none (see `regmixup list datasets`)")
        run = Run.open(self.run)
        for name in self.datasets:
            found = run.predict(name, root=self.root, device=self.device)
            print(f"{run.predictions_path(name)}  {len(found)} x {found.logits.shape[1]}")


@dataclass(frozen=True)
class EvaluateVerb:
    """Score logits from any model, ours or not: accuracy, calibration, shift and OOD detection.

    Files: .safetensors, .npz (keys logits, labels), .npy (logits), .csv (header label,name,...; then label and logits).
    Example: regmixup evaluate --predictions mine.npz --ood svhn.npz --val val.npz
    """

    predictions: Path
    """In-distribution test predictions with labels."""
    ood: tuple[Path, ...] = ()
    """Predictions for out-of-distribution sets; labels are not needed."""
    shift: tuple[Path, ...] = ()
    """Predictions for shifted versions of the test set, with labels."""
    val: Path | None = None
    """Validation predictions; the temperature is fitted on these, by ECE."""
    out: Path | None = None
    """Also write all rows to this CSV file."""

    def __call__(self) -> None:
        from regmixup import predictions
        from regmixup.evaluation.evaluate import evaluate
        from regmixup.storage import write_rows

        def read(path: Path, *, labelled: bool) -> Predictions:
            found = predictions.load(path)
            if labelled and int(found.labels.min()) < 0:
                raise ValueError(f"{path} must hold a label for every sample; only OOD files may leave them out")
            return found

        rows = evaluate(
            read(self.predictions, labelled=True),
            validation=read(self.val, labelled=True) if self.val is not None else None,
            shift=[read(path, labelled=True) for path in self.shift],
            ood=[read(path, labelled=False) for path in self.ood],
        )
        _console().print(_row_table(rows))
        if self.out is not None:
            write_rows(self.out, rows)
            print(f"rows  {self.out}")


def _row_table(rows: list[Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("dataset", "posthoc", "score", "metric"):
        table.add_column(title)
    table.add_column("value", justify="right")
    for row in rows:
        name = " ".join(str(v) for v in (row.dataset, row.corruption, row.severity) if v not in ("", None, row.dataset))
        percent = row.metric not in ("nll", "brier", "temperature")
        value = f"{100 * row.value:.2f} %" if percent else f"{row.value:.4f}"
        dataset = f"{row.dataset} {name}".strip()
        table.add_row(dataset, row.posthoc if not row.score else "", row.score, row.metric, value)
    return table


@dataclass(frozen=True)
class ReportVerb:
    """Print a finished study's table again and rewrite its report.html from the stored results.

    Example: regmixup report runs/study-digits
    """

    folder: Positional[Path]
    """A study's folder, with rows.csv and study.json."""

    def __call__(self) -> None:
        from regmixup.report.build import report

        table, page = report(self.folder)
        console = _console()
        console.print(table)
        print(f"report  {page}")


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

    def __call__(self) -> None:
        from regmixup import data

        if self.action == "show":
            from regmixup.data.contact_sheet import contact_sheet

            contact_sheet(data.load(self.name, root=self.root), self.out)
            print(f"picture  {self.out}")
            return
        for name in data.names():
            found = data.load(name, root=self.root)
            shape = "x".join(str(side) for side in found.images.shape[1:])
            print(f"{name:32} {len(found):6} images {shape:8} sha256 {found.fingerprint[:16]}…")


@dataclass(frozen=True)
class ListVerb:
    """List what there is, by name.

    Example: regmixup list methods
    """

    what: Positional[Literal["all", "methods", "recipes", "networks", "datasets", "studies", "objectives"]] = "all"
    """Which list to print."""

    def __call__(self) -> None:
        lists = _lists()
        for title in lists if self.what == "all" else [self.what]:
            print(f"{title}:")
            for name, description in lists[title].items():
                print(f"  {name:20} {description}")


def _lists() -> dict[str, dict[str, str]]:
    """Everything by name with a line about it; reads no torch code."""
    import ast

    from regmixup.data import FAMILIES
    from regmixup.methods import METHODS
    from regmixup.networks import NETWORKS
    from regmixup.recipes import RECIPES
    from regmixup.study.plan import studies

    def first_line(path: Path) -> str:
        return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]

    objectives = sorted((Path(__file__).parent / "objectives").glob("[!_]*.py"))
    return {
        "methods": {name: f"{m.description} ({m.citation})" for name, m in METHODS.items()},
        "recipes": {name: named.description for name, named in RECIPES.items()},
        "networks": {name: network.description for name, network in NETWORKS.items()},
        "datasets": {
            name: f"{family.description} [{len(family.names)} set{'s' if len(family.names) > 1 else ''}]"
            for name, family in FAMILIES.items()
        },
        "studies": {name: _study_title(path) for name, path in studies().items()},
        "objectives": {path.stem: first_line(path) for path in objectives},
    }


def _study_title(path: Path) -> str:
    import tomllib

    return str(tomllib.loads(path.read_text(encoding="utf-8"))["title"])


def _parse(cls: type[Any], verb: str, args: Sequence[str], default: Any = tyro.MISSING_NONPROP) -> Any:
    return tyro.cli(cls, args=args, prog=f"regmixup {verb}", default=default)


def _verb(cls: type[Any], name: str) -> Callable[[Sequence[str]], None]:
    return lambda args: _parse(cls, name, args)()


VERBS: dict[str, tuple[str, Callable[[Sequence[str]], None]]] = {
    "study": ("run a study: methods x seeds, trained, evaluated, reported", _verb(StudyVerb, "study")),
    "train": ("train one model", _train),
    "predict": ("store what a trained model says about datasets", _verb(PredictVerb, "predict")),
    "evaluate": ("score logits from any model", _verb(EvaluateVerb, "evaluate")),
    "report": ("rewrite a study's report from stored results", _verb(ReportVerb, "report")),
    "data": ("list and look at datasets", _verb(DataVerb, "data")),
    "list": ("list methods, recipes, networks, datasets, studies", _verb(ListVerb, "list")),
}


def _help() -> str:
    lines = "\n".join(f"  {name:10} {summary}" for name, (summary, _) in VERBS.items())
    return f"""usage: regmixup VERB [options]      regmixup VERB --help explains a verb

Train image classifiers with RegMixup and its relatives, and measure how reliable they are.

{lines}

examples:
  regmixup study digits                                   the embedded study, about 2 minutes on a CPU
  regmixup train --method regmixup --alpha 10 --seed 1    one model
  regmixup evaluate --predictions mine.npz --ood svhn.npz any model's logits"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb. Exit status 0; 2 for a wrong command or input; 130 when interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(_help())
        return 0
    if args[0] == "--version":
        import regmixup

        print(f"regmixup {regmixup.__version__}")
        return 0
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    try:
        check_name("verb", args[0], VERBS)
        VERBS[args[0]][1](args[1:])
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0
