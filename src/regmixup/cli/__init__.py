"""The command line: `regmixup VERB`. One file of `verbs` each, named after it and imported only when called.

So `regmixup --help` and `regmixup list` answer without importing torch. Every flag is a dataclass field; only this
folder knows the CLI library.
"""

from __future__ import annotations

import os
import sys

from regmixup import __version__

TYPE_CHECKING = False  # what is imported here, before `main` can catch a Ctrl-C, is as little as possible
if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "study": "run a study: methods x seeds, trained, evaluated, reported",
    "train": "train one model",
    "predict": "store what a trained model says about datasets",
    "evaluate": "score logits from any model",
    "report": "rewrite a study's report from stored results",
    "data": "list and look at datasets",
    "list": "list methods, recipes, networks, datasets, studies",
}

HELP = f"""usage: regmixup VERB [options]      regmixup VERB --help explains a verb

Train image classifiers with RegMixup and its relatives, and measure how reliable they are.

{"".join(f"  {name:10} {summary}{chr(10)}" for name, summary in VERBS.items())}
  --version  print the version

examples:
  regmixup study digits                                   the embedded study, about 3 minutes on a CPU
  regmixup train --method regmixup --alpha 10 --seed 1    one model
  regmixup evaluate --predictions mine.npz --ood svhn.npz any model's logits"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb. Exit status 0; 1 when runs of a study failed; 2 for a wrong command or input; 141 when nobody reads
    on; 128 + its number for a signal that asked to stop: 130 for Ctrl-C, 143 for SIGTERM during training.

    Of the processes that torchrun starts, the first alone speaks; all report errors.
    """
    rank = os.environ.get("RANK", "0")
    try:
        _open_streams()
        try:
            _run(list(sys.argv[1:] if argv is None else argv), silent=rank != "0")
        finally:
            sys.stdout.flush()  # now, and not when Python ends, where a missing reader could not be caught
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, RuntimeError) as error:
        _complain(f"error{'' if rank == '0' else f' in process {rank}'}", error)
        return getattr(error, "exit_status", 2)
    except KeyboardInterrupt as interruption:
        if rank == "0":
            print("interrupted; the same command goes on from here", file=sys.stderr)
        return 128 + getattr(interruption, "signal", 2)
    return 0


def _open_streams() -> None:
    """Let output go nowhere where it was closed, and escape what its encoding does not have."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        # A file that is opened later must not get the number of a closed stream, which libraries write to.
        while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(spare)
        sys.stdout = sys.stdout or os.fdopen(1, "w")
        sys.stderr = sys.stderr or os.fdopen(2, "w")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _complain(kind: str, message: object) -> None:
    """Print a warning or an error. It may quote files of others, whose escapes must not reach the terminal."""
    from regmixup.names import printable

    print(f"{kind}: {printable(str(message), keep=chr(10))}", file=sys.stderr)


def _run(args: list[str], *, silent: bool) -> None:
    import warnings
    from contextlib import ExitStack, redirect_stdout
    from importlib import import_module
    from pathlib import Path

    from regmixup.names import check_name

    warnings.showwarning = lambda message, *_, **__: _complain("warning", message)
    with ExitStack() as stack:
        if silent:
            stack.enter_context(redirect_stdout(stack.enter_context(Path(os.devnull).open("w"))))
        if not args or args[0] in ("-h", "--help"):
            print(HELP)
        elif args[0] == "--version":
            print(f"regmixup {__version__}")
        else:
            check_name("verb", args[0], VERBS)
            import_module(f"{__name__}.{args[0]}").main(args[1:])
