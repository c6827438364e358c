"""Plugins: modules of others that register datasets, networks, objectives, methods and scores by name.

    regmixup train --plugin my_plugin --network mine        or        REGMIXUP_PLUGINS=my_plugin

A plugin is a module whose import calls `rm.networks.register(...)` and the like. `load` imports them. Every registry
calls it when it is asked for a name that it does not know, so that worker processes, which inherit the environment
variable, find what the first process found. Importing this imports nothing else of ours but `names`.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Container, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from regmixup.names import printable, warn_user

VARIABLE = "REGMIXUP_PLUGINS"
"""Names of modules or paths of .py files, separated by commas."""
Kind = Literal["dataset", "network", "objective", "method", "score"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]*")


@dataclass(frozen=True)
class Origin:
    """Where something registered, or a class of a user's own, comes from; part of the configurations that use it.

    what: a `Kind`, or the field that holds an instance of the class. module: the one that registered or defines it.
    version: as it stated, else the module's `__version__`. sha256: of that module's file; of nothing where there is
    none, as in a notebook.
    """

    what: str
    name: str
    module: str
    version: str
    sha256: str


REGISTERED: dict[tuple[str, str], Origin] = {}
_imported: set[str] = set()


def load(modules: Iterable[str] = ()) -> None:
    """Import the given plugins and those that REGMIXUP_PLUGINS names, each once.

    modules: names, or paths of .py files. They are added to REGMIXUP_PLUGINS, so that child processes have them. One
    that does not import is a ValueError that says what to do.
    """
    of_variable = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    of_flags = [str(Path(name).expanduser().absolute()) if name.endswith(".py") else name for name in modules]
    names = list(dict.fromkeys([*of_variable, *of_flags]))
    for name in names:
        if name not in _imported:
            _imported.add(name)  # before, as a plugin may ask for a name while it is imported
            _import(name)
    if of_flags:
        os.environ[VARIABLE] = ",".join(names)


def load_if_unknown(name: object, known: Container[Any]) -> None:
    """Load the plugins if a registry does not know a name: one of them may register it."""
    if name not in known:
        load()


def _import(name: str) -> None:
    """Import a module by its name, also from the working directory, or by the path of its file."""
    path = Path(name)
    is_file = path.suffix == ".py"
    folder = str(path.parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # after everything that is installed
    inherited = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if folder not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([*inherited, folder])
    try:
        module = import_module(path.stem if is_file else name)
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        _imported.discard(name)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ValueError(
            f"plugin {name!r} of --plugin or {VARIABLE} does not import: {type(error).__name__}: {error} "
            f"({frame.filename}, line {frame.lineno}). Name a module that is installed, in the working directory or in "
            "PYTHONPATH, or the path of a .py file, without a comma"
        ) from error
    if is_file and not path.samefile(module.__file__ or sys.executable):
        _imported.discard(name)
        raise ValueError(f"plugin {name}: the module {path.stem} is already that of {module.__file__}: rename the file")


def record(kind: Kind, name: str, known: Iterable[str], *, version: str = "") -> None:
    """Note that a plugin registers something, after checking its name. Called by the `register` functions only.

    known: the names in use. One that is not built in may be registered again by the same module, as in a notebook, or
    the same file, as when a script is imported a second time by a child process.
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"name of {kind} must be letters, digits and . _ + - /, got {name!r}")
    origin, before = _origin(kind, name, _caller(), version), REGISTERED.get((kind, name))
    if before is not None and before.module != origin.module and before.sha256 != origin.sha256:
        raise ValueError(f"name of {kind} must be new, got {name!r}, which {before.module} has registered")
    if before is None and name in (listed := list(known)):
        raise ValueError(f"name of {kind} must not be a built-in one, got {name!r}; built in: {', '.join(listed)}")
    REGISTERED[kind, name] = origin


def _caller() -> dict[str, Any]:
    """Return the globals of the module that has called into this package."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "regmixup":
        frame = frame.f_back
    return frame.f_globals


def _globals_of(module: str) -> dict[str, Any]:
    return vars(sys.modules[module]) if module in sys.modules else {"__name__": module}


def _origin(kind: str, name: str, namespace: dict[str, Any], version: str = "") -> Origin:
    """Return the origin of something that a module, whose globals these are, registers or defines."""
    module = str(namespace["__name__"])
    package = _globals_of(module.partition(".")[0])
    stated = version or namespace.get("__version__") or package.get("__version__", "")
    file = Path(namespace.get("__file__") or "")
    sha256 = hashlib.sha256(file.read_bytes() if file.is_file() else b"").hexdigest()
    module = module.replace("__mp_main__", "__main__")  # that of a script in its child processes
    return Origin(kind, name, module, str(stated), sha256)


def origins(used: Iterable[tuple[str, str]], parts: Iterable[tuple[str, object]] = ()) -> tuple[Origin, ...]:
    """Return where what others have written comes from, sorted.

    used: (kind, name) pairs, of which plugins may have registered some. parts: fields with the instances they hold, of
    classes that need no registration.
    """
    recorded = {REGISTERED[pair] for pair in used if pair in REGISTERED}
    for field, part in parts:
        module = type(part).__module__
        if module.partition(".")[0] != "regmixup":
            recorded.add(_origin(field, type(part).__name__, _globals_of(module)))
    return tuple(sorted(recorded, key=lambda origin: (origin.what, origin.name)))


def missing(stored: Any, folder: Path) -> str:
    """Return what a stored configuration uses of plugins that are not loaded, with the remedy; "" if nothing.

    stored: its field `plugins`, as JSON. folder: its run's, which a warning names. Nothing that a file names is
    imported: the user says which code may run.
    """
    changed = []
    for entry in stored if isinstance(stored, list) else ():
        kind, name, module = (printable(str(dict(entry).get(key, ""))) for key in ("what", "name", "module"))
        load_if_unknown((kind, name), REGISTERED)
        now = REGISTERED.get((kind, name))
        if now is None and kind not in get_args(Kind) and module in sys.modules:
            now = _origin(kind, name, _globals_of(module))
        if now is None:
            return (
                f"the {kind} {name!r} of the plugin {module}, which is not loaded: give --plugin {module}, set "
                f"{VARIABLE}={module}, or import it before"
            )
        if now.sha256 != entry.get("sha256"):
            changed.append(f"the {kind} {name!r} of {module}")
    if changed:
        warn_user(f"since {folder} was trained, the source has changed of {', '.join(changed)}")
    return ""
