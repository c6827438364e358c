"""Plugins: modules of others that register datasets, networks, objectives, methods and scores by name.

    regmixup train --plugin my_plugin --network mine        or        REGMIXUP_PLUGINS=my_plugin, or an entry point

A plugin is a module whose import calls `rm.networks.register(...)` and the like. `load` imports them. Every registry
calls it when it is asked for a name that it does not know, so that worker processes, which inherit the environment
variable, find what the first process found. Importing this imports nothing else of ours but `names`.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from regmixup.names import printable

VARIABLE = "REGMIXUP_PLUGINS"
"""Names of modules or paths of .py files, separated by commas."""
GROUP = "regmixup.plugins"
"""The group of entry points by which an installed package names its plugin modules."""
Kind = Literal["dataset", "network", "objective", "method", "score", "transform"]
_OBJECT = "object:"
_LIBRARIES = {"builtins", "torch", "torchvision", "timm", "numpy", "PIL", "regmixup", *sys.stdlib_module_names}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]*")


@dataclass(frozen=True)
class Origin:
    """Where something registered, or given as an object, comes from; it is part of the configurations that use it.

    what: a `Kind`. module: the one that registered it. version: as it stated, else the module's `__version__`.
    sha256: of the file of that module, and of the file that defines the function or class where that is another one.
    """

    what: str
    name: str
    module: str
    version: str
    sha256: str


REGISTERED: dict[tuple[str, str], Origin] = {}
_done: set[str] = set()
_at_work: list[str] = []


def load(modules: Iterable[str] = ()) -> None:
    """Import the given plugins, those that REGMIXUP_PLUGINS names and those of installed packages, each once.

    modules: names, or paths of .py files. They are added to REGMIXUP_PLUGINS, so that child processes have them. One
    that does not import is a ValueError that says what to do.
    """
    if _at_work:  # a plugin that is being imported asks for a name
        return
    of_variable, of_flags = _named(), [_absolute(name) for name in modules]
    names = list(dict.fromkeys([*of_variable, *of_flags]))
    for name in names:
        _import_once(name, f"of {VARIABLE}" if name in of_variable else "of --plugin", partial(_import, name))
    if of_flags:
        os.environ[VARIABLE] = ",".join(names)
    if GROUP not in _done:
        for point in metadata.entry_points(group=GROUP):
            _import_once(point.value, f"of the entry point {point.name}", point.load)
        _done.add(GROUP)


def flags() -> list[str]:
    """Return the words that give another command the plugins of this one, those of REGMIXUP_PLUGINS included."""
    return [word for name in _named() for word in ("--plugin", name)]


def seek(name: object, known: Container[Any]) -> None:
    """Load the plugins if a registry does not know a name: one of them may register it."""
    if name not in known:
        load()


def record(kind: Kind, name: str, value: object, known: Iterable[str], *, version: str = "") -> None:
    """Note that a plugin registers `value`, after checking its name. Called by the `register` functions only.

    known: the names in use. One that is not built in may be registered again by the same module, as in a notebook, or
    the same file, as when a script is imported a second time by a child process.
    """
    contract = f"name of {'an' if kind == 'objective' else 'a'} {kind} must"
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"{contract} be letters, digits and . _ + - /, got {name!r}")
    origin = _origin(kind, name, value, _caller(), version)
    before = REGISTERED.get((kind, name))
    if before is not None and before.module != origin.module and before.sha256 != origin.sha256:
        raise ValueError(f"{contract} be new, got {name!r}, which {before.module} has registered")
    if before is None and name in (listed := list(known)):
        raise ValueError(f"{contract} not be a built-in one, got {name!r}; built in: {', '.join(listed)}")
    REGISTERED[kind, name] = origin


def record_class(cls: type) -> None:
    """Note where a class comes from that is used without a name, such as an objective of the user's own module."""
    if cls.__module__.partition(".")[0] != "regmixup":
        where = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {"__name__": cls.__module__}
        REGISTERED["class", class_name(cls)] = _origin("class", class_name(cls), cls, where, "")


def class_name(cls: type) -> str:
    """Return the name by which `record_class` notes a class."""
    return f"{cls.__module__}.{cls.__qualname__}".replace("__mp_main__", "__main__")


def _caller() -> dict[str, Any]:
    """Return the globals of the module that has called into this package."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "regmixup":
        frame = frame.f_back
    return frame.f_globals


def _origin(kind: str, name: str, value: object, module: dict[str, Any], version: str) -> Origin:
    """Return the origin of something that a module, given by its globals, registers."""
    while isinstance(value, partial):
        value = value.func
    defined = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    files = [module.get("__file__")]
    if not _is_of_library(defined):
        with suppress(TypeError):  # it was typed in, as in a notebook, or is of C code
            files.append(inspect.getsourcefile(defined))
    paths = {Path(file).resolve() for file in files if file and Path(file).is_file()}
    sources = sorted(path.read_bytes() for path in paths) or [_source(defined).encode()]
    package = sys.modules.get(str(module["__name__"]).partition(".")[0])
    stated = version or module.get("__version__") or getattr(package, "__version__", "")
    called = str(module["__name__"]).replace("__mp_main__", "__main__")
    return Origin(kind, name, called, str(stated), hashlib.sha256(b"".join(sources)).hexdigest())


def origins(used: Iterable[tuple[str, str]]) -> tuple[Origin, ...]:
    """Return where those of the (kind, name) pairs that plugins registered come from, sorted."""
    recorded = {REGISTERED[pair] for pair in used if pair in REGISTERED}
    return tuple(sorted(recorded, key=lambda origin: (origin.what, origin.name)))


def missing(stored: Any, folder: Path) -> str:
    """Return what a stored configuration uses of plugins that are not loaded, with the remedy; "" if nothing.

    stored: its field `plugins`, as JSON. folder: its run's, which a warning names. Nothing that a file names is
    imported: the user says which code may run.
    """
    changed = []
    for entry in stored if isinstance(stored, list) else ():
        kind, name, module = (printable(str(dict(entry).get(key, ""))) for key in ("what", "name", "module"))
        seek((kind, name), REGISTERED)
        now = REGISTERED.get((kind, name))
        if now is None and module.startswith(_OBJECT):
            argument = "dataset (or validation)" if kind == "dataset" else kind
            return (
                f"the {kind} {name!r}, an object of {module.removeprefix(_OBJECT)} that was given to rm.train: give it "
                f"to rm.train as {argument} once more in this process, with the same configuration"
            )
        if now is None:
            return (
                f"the {kind} {name!r} of the plugin {module}, which is not loaded: give --plugin {module}, set "
                f"{VARIABLE}={module}, or import it before"
            )
        if now.sha256 != entry.get("sha256"):
            changed.append(f"the {kind} {name!r} of {module}")
    if changed:
        warnings.warn(f"since {folder} was trained, the source has changed of {', '.join(changed)}", stacklevel=3)
    return ""


def _named() -> list[str]:
    return [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]


def _absolute(name: str) -> str:
    """Return a module's name as it is, and the path of a file as an absolute one."""
    if "," in name or not name.strip():
        raise ValueError(f"plugin must be one module or one .py file, got {name!r}; repeat the flag for several")
    return str(Path(name).expanduser().absolute()) if name.endswith(".py") or os.sep in name else name


def _import(name: str) -> None:
    """Import a module by its name, also from the working directory, or by its path."""
    if name.endswith(".py") or os.sep in name:
        path = Path(name)
        if not path.is_file():
            raise ImportError(f"there is no file {path}")
        _add_folder(path.parent)
        module_file = import_module(path.stem).__file__
        if module_file is None or not path.samefile(module_file):
            raise ImportError(f"the module {path.stem} is already that of {module_file}: rename the file")
        return
    _add_folder(Path.cwd())  # where `regmixup` itself does not look
    import_module(name)


def _add_folder(folder: Path) -> None:
    """Let this process and its children import from a folder, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])


def _import_once(name: str, source: str, importing: Callable[[], object]) -> None:
    if name in _done:
        return
    _at_work.append(name)
    try:
        importing()
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        frame = traceback.extract_tb(error.__traceback__)[-1]
        theirs = Path(frame.filename).is_file() and frame.filename != __file__
        line = f" ({frame.filename}, line {frame.lineno})" if theirs else ""
        raise ValueError(
            f"plugin {name!r} {source} does not import: {type(error).__name__}: {error}{line}. Name a module that is "
            "installed, in the working directory or in PYTHONPATH, or the path of a .py file"
        ) from error
    finally:
        _at_work.pop()
    _done.add(name)


def record_object(kind: Kind, label: str, value: object, *, content: str = "", version: str = "", end: str = "") -> str:
    """Note that an object was given to `rm.train` in place of a name; return the name that registries give it.

    The name is `label`, 12 digits of the checksum of its source and content, and `end`, so that an object that does
    something else is another name and so another run. value: whose source counts, see `source_checksum`. content: what
    it does apart from its source, as a checksum.
    """
    cls = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    sha256 = source_checksum(value)
    digits = hashlib.sha256(f"{sha256} {content}".encode()).hexdigest()[:12]
    name = f"{re.sub(r'[^A-Za-z0-9]+', '-', label).strip('-') or 'object'}-{digits}{end}"
    REGISTERED[kind, name] = Origin(kind, name, f"{_OBJECT}{cls.__module__}.{cls.__qualname__}", version, sha256)
    return name


def source_checksum(value: object) -> str:
    """Return the SHA-256 of an object that does something: of the sources of its functions and classes, and its values.

    Of libraries the names count, as their sources change with their versions.
    """
    return hashlib.sha256("\n".join(_described(value, ())).encode("utf-8", "surrogatepass")).hexdigest()


def _described(value: Any, outer: tuple[int, ...]) -> Iterator[str]:
    """Yield an object in lines that are the same in every process. outer: the objects that it is a part of."""
    if id(value) in outer:
        return
    parts: Iterable[Any] = ()
    if isinstance(value, type):
        yield from map(_source, value.__mro__)
    elif inspect.isroutine(value):
        yield _source(value)
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        parts = [getattr(value, "__self__", None), getattr(value, "__defaults__", None), *cells]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, Mapping):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, (set, frozenset)):
        parts = sorted(value, key=repr)
    elif hasattr(value, "tolist"):  # a tensor or an array
        yield repr(value.tolist())
    elif hasattr(value, "__dict__") and not isinstance(value, ModuleType):
        parts = [type(value), vars(value)]
    else:
        yield repr(value)
    for part in parts:
        yield from _described(part, (*outer, id(value)))


def _source(value: Any) -> str:
    """Return the name of a class or function and, unless it is a library's, its source where there is one."""
    name = f"{value.__module__}.{value.__qualname__}".replace("__mp_main__", "__main__")
    if not _is_of_library(value):
        with suppress(OSError, TypeError):
            return f"{name}\n{inspect.getsource(value)}"
    return name


def _is_of_library(value: Any) -> bool:
    root = str(value.__module__).partition(".")[0]
    return root in _LIBRARIES and root != "__main__"
