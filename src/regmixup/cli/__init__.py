"""The command line: `regmixup VERB`, one module per verb, imported only when it is called.

So every --help and `regmixup list` answer without torch. Flags are dataclass fields; only here the CLI library is used.
"""

from __future__ import annotations

import os
import sys

from regmixup import __version__

TYPE_CHECKING = False  # keep imports before `main` to a minimum: only inside it is a Ctrl-C caught
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERBS = {
    "study": "run a study: methods x seeds, trained, evaluated, reported",
    "train": "train one model",
    "finetune": "fine-tune a pretrained network on a folder of images",
    "predict": "store predictions for datasets, or classify image files",
    "evaluate": "score logits from any model",
    "publish": "write a trained model as a folder for a model hub, with a model card",
    "report": "rewrite a study's report from stored results",
    "data": "list, fetch and corrupt datasets",
    "list": "list methods, recipes, networks, datasets, studies",
}

HELP = f"""usage: regmixup VERB [options]      regmixup VERB --help explains a verb

Train image classifiers with RegMixup and its relatives, and measure how reliable they are.

{"".join(f"  {name:10} {summary}{chr(10)}" for name, summary in VERBS.items())}
  --version  print the version
  --plugin   with every verb, repeatable: a module or .py file that registers datasets, networks, methods, scores

examples:
  regmixup study digits                                   the embedded study, about 3 minutes on a CPU
  regmixup train --method regmixup --alpha 10 --seed 1    one model
  regmixup finetune ~/photos --minutes 10                 a model for your images
  regmixup evaluate mine.npz --ood svhn.npz               any model's logits"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status.

    0: success. 1: runs of a study failed. 2: wrong command or input. 141: the reader of the output went away.
    128 + n: signal n asked to stop (130 for Ctrl-C, 143 for SIGTERM during training).

    Under torchrun only the first process prints; every process reports errors.
    """
    args = tuple(sys.argv[1:] if argv is None else argv)  # in this package `list` is the module of a verb
    rank = os.environ.get("RANK", "0")
    try:
        if hasattr(sys.stdout, "reconfigure"):  # escape characters the output encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            import warnings
            from contextlib import redirect_stdout
            from functools import cache
            from pathlib import Path

            warn_once = cache(lambda text: _complain("warning", text))  # a folder is read for every part of it
            warnings.showwarning = lambda message, *_, **__: warn_once(str(message))
            args = _load_plugins(args)
            with Path(os.devnull).open("w") as nowhere, redirect_stdout(sys.stdout if rank == "0" else nowhere):
                verb = _find_verb(args)
                verb(args[1:])
        finally:
            print(end="", flush=True)  # here, where a missing reader can be caught, and not when Python exits
    except BrokenPipeError:
        # The reader, such as `head`, has gone away; discard what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, RuntimeError) as error:
        _complain(f"error{'' if rank == '0' else f' in process {rank}'}", error)
        return getattr(error, "exit_status", 2)
    except KeyboardInterrupt as interruption:
        if rank == "0":
            resumes = args[:1] in (("train",), ("study",), ("finetune",), ("data",))
            print(f"interrupted; the same command {'goes on from here' if resumes else 'begins anew'}", file=sys.stderr)
        return 128 + getattr(interruption, "signal", 2)
    return 0


def _load_plugins(args: tuple[str, ...]) -> tuple[str, ...]:
    """Import the modules that --plugin names, and return the other words. The flag may stand anywhere."""
    modules, words = split_flag("--plugin", args)
    if "" in modules or "--plugin" in words:
        raise ValueError("--plugin must be followed by a module or the path of a .py file, got nothing")
    if modules:
        from regmixup import plugins

        plugins.load(modules)
    return words


def split_flag(flag: str, args: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the words that follow a flag or its equals sign, and all other words. A flag that comes last is a word.

    >>> split_flag("--minutes", ["photos", "--minutes", "1", "--seed", "2", "--minutes=3"])
    (['1', '3'], ('photos', '--seed', '2'))
    """
    after_flag, other_words, words = [], [], iter(args)
    for word in words:
        if word.startswith(f"{flag}="):
            after_flag.append(word.partition("=")[2])
        elif word == flag and (following := next(words, None)) is not None:
            after_flag.append(following)
        else:
            other_words.append(word)
    return after_flag, tuple(other_words)


def _find_verb(args: Sequence[str]) -> Callable[[Sequence[str]], None]:
    """Return the function that runs the words after the first, or one that prints the help or the version."""
    if not args or args[0] in ("-h", "--help"):
        return lambda _: print(HELP)
    if args[0] == "--version":
        return lambda _: print(f"regmixup {__version__}")
    from functools import partial
    from importlib import import_module

    from regmixup.names import check_name
    from regmixup.training.stopping import Interrupted, stopping

    verb = check_name("verb", args[0], VERBS)
    if {"-h", "--help"} & {*args} and verb != "data":  # which has a help for each action
        return partial(import_module(f"{__name__}.help").print_help, verb)
    # An exception that a signal raises while torch is imported is lost there, or ends the process.
    with stopping() as stop:
        run_verb = import_module(f"{__name__}.{verb}").main
    if stop.signal:
        raise Interrupted(stop.signal)
    return run_verb


def _complain(kind: str, message: object) -> None:
    """Print a warning or an error without the terminal escapes that quoted files may contain."""
    from contextlib import suppress

    from regmixup.names import printable

    with suppress(OSError):  # nobody reads it, and the exit status says the same
        print(f"{kind}: {printable(str(message), keep=chr(10))}", file=sys.stderr)
