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
from types import CodeType
from typing import Any, Literal

from regmixup.names import printable

VARIABLE = "REGMIXUP_PLUGINS"
"""Names of modules or paths of .py files, separated by commas."""
GROUP = "regmixup.plugins"
"""The group of entry points by which an installed package names its plugin modules."""
Kind = Literal["dataset", "network", "objective", "method", "score", "transform"]
_OBJECT = "object:"
_LIBRARIES = ("builtins", "torch", "torchvision", "timm", "numpy", "PIL", "regmixup")
_OF_PLACE = ("__module__", "__qualname__", "__firstlineno__")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]*")


@dataclass(frozen=True)
class Origin:
    """Where something registered, or given as an object, comes from; it is part of the configurations that use it.

    what: a `Kind`. module: the one that registered it. version: as it stated, else the `__version__` of the module or
    of its package.
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
_by_this_import: set[tuple[str, str]] = set()


def load(modules: Iterable[str] = ()) -> None:
    """Import the given plugins, those that REGMIXUP_PLUGINS names and those of installed packages, each once.

    modules: names, or paths of .py files. They are added to REGMIXUP_PLUGINS, so that child processes have them. One
    that does not import is a ValueError that says what to do.
    """
    if _at_work:  # a plugin that is being imported asks for a name
        return
    given = [_absolute(name) for name in modules]
    named = _named()
    every = list(dict.fromkeys([*named, *given]))
    for name in every:
        _import_once(name, f"of {VARIABLE}" if name in named else "of --plugin", partial(_find, name))
    if given:
        os.environ[VARIABLE] = ",".join(every)
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
    caller, a_kind = _caller(), f"{'an' if kind == 'objective' else 'a'} {kind}"
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"name of {a_kind} must be letters, digits and . _ + - /, got {name!r}")
    if not isinstance(version, str):
        raise ValueError(f"version of {kind} {name} must be a string, got {version!r}")
    origin = _origin(kind, name, value, caller, version)
    before = REGISTERED.get((kind, name))
    if before is not None and before.module != origin.module and before.sha256 != origin.sha256:
        raise ValueError(f"name of {a_kind} must be new, got {name!r}, which {before.module} has registered")
    if before is None and name in (listed := list(known)):
        raise ValueError(f"name of {a_kind} must not be a built-in one, got {name!r}; built in: {', '.join(listed)}")
    if _at_work and (kind, name) in _by_this_import:
        raise ValueError(f"name of {a_kind} must be new, got {name!r}, which {origin.module} registers twice")
    _by_this_import.add((kind, name))
    REGISTERED[kind, name] = origin


def record_class(cls: type) -> None:
    """Note where a class comes from that is used without a name, such as an objective of the user's own module."""
    if cls.__module__.partition(".")[0] != "regmixup":
        where = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {"__name__": cls.__module__}
        REGISTERED["class", class_name(cls)] = _origin("class", class_name(cls), cls, where, "")


def class_name(cls: type) -> str:
    """Return the name by which `record_class` notes a class."""
    return f"{cls.__module__}.{cls.__qualname__}".replace("__mp_main__", "__main__")


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
    where = f"{_OBJECT}{getattr(cls, '__module__', '')}.{getattr(cls, '__qualname__', label)}"
    REGISTERED[kind, name] = Origin(kind, name, where, version, sha256)
    return name


def source_checksum(value: object) -> str:
    """Return the SHA-256 of the source of an object's class or function, and of its plain values and callables.

    Of what comes with Python and of the libraries in `_LIBRARIES` it is the name that counts. Where there is no source,
    as for what was typed in, the compiled code does.
    """
    digest = hashlib.sha256()
    for line in _described(value, []):
        digest.update(f"{line}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _described(value: Any, seen: list[Any]) -> Iterator[str]:
    """Yield what an object is made of, as lines that are the same in every process."""
    if isinstance(value, (str, bytes, bool, int, float, complex, type(None))):
        yield repr(value)
        return
    if any(value is one for one in seen):
        return
    seen.append(value)  # not its id alone, which another object may get
    if isinstance(value, (set, frozenset)):
        yield from sorted(line for item in value for line in _described(item, seen))
    elif isinstance(value, Mapping):
        yield from _each([part for pair in value.items() for part in pair], seen)
    elif isinstance(value, (list, tuple)):
        yield from _each(value, seen)
    elif isinstance(value, partial):
        yield from _each([value.func, value.args, value.keywords], seen)
    elif isinstance(value, type):
        yield from (line for base in value.__mro__ for line in _source(base))
    elif inspect.isroutine(value):
        yield from _source(value)
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        yield from _each([getattr(value, "__self__", None), getattr(value, "__defaults__", None), cells], seen)
    elif hasattr(value, "tolist"):  # a tensor or an array
        yield hashlib.sha256(repr(value.tolist()).encode()).hexdigest()
    else:
        yield from _described(type(value), seen)
        yield from _each(list(getattr(value, "__dict__", {}).items()), seen)


def _each(values: Iterable[Any], seen: list[Any]) -> Iterator[str]:
    for value in values:
        yield from _described(value, seen)


def _source(value: Any) -> Iterator[str]:
    """Yield the name of a class or function, and its source where it is not one of the libraries'."""
    module = str(getattr(value, "__module__", "") or "")
    yield f"{module.replace('__mp_main__', '__main__')}.{getattr(value, '__qualname__', value)}"
    root = module.partition(".")[0]
    if root in _LIBRARIES or (root in sys.stdlib_module_names and root != "__main__"):
        return
    try:
        yield inspect.getsource(value)
    except (OSError, TypeError):
        for name, part in [("", value), *(vars(value).items() if isinstance(value, type) else ())]:
            part = getattr(part, "fget", getattr(part, "__func__", part))  # of a property, or a class or static method
            if isinstance(code := getattr(part, "__code__", None), CodeType):
                yield from _compiled(code)
            elif isinstance(part, (bool, int, float, complex, str)) and name not in _OF_PLACE:
                yield f"{name} = {part!r}"


def _compiled(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names}"  # the instructions have the names as numbers
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(constant)


def origins(used: Iterable[tuple[str, str]]) -> tuple[Origin, ...]:
    """Return where those of the (kind, name) pairs that plugins registered come from, sorted."""
    found = {REGISTERED[pair] for pair in used if pair in REGISTERED}
    return tuple(sorted(found, key=lambda origin: (origin.what, origin.name)))


def missing(stored: Any, folder: Path) -> str:
    """Return what a stored configuration uses of plugins that are not loaded, with the remedy; "" if nothing.

    stored: its field `plugins`, as JSON. folder: its run's, which a warning names. Nothing that a file names is
    imported: the user says which code may run.
    """
    changed = []
    entries = stored if isinstance(stored, list) else []
    for entry in (entry for entry in entries if isinstance(entry, dict)):
        kind, name, module = (printable(str(entry.get(key, ""))) for key in ("what", "name", "module"))
        seek((kind, name), REGISTERED)
        now = REGISTERED.get((kind, name))
        if now is None and module.startswith(_OBJECT):
            argument = {"dataset": "dataset (or validation)"}.get(kind, kind)
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


def _find(name: str) -> None:
    """Import a module by its name, also from the working directory, or by its path."""
    if name.endswith(".py") or os.sep in name:
        path = Path(name)
        if not path.is_file():
            raise ImportError(f"there is no file {path}")
        _add_folder(path.parent)
        import_module(path.stem)
        found = getattr(sys.modules[path.stem], "__file__", None)
        if found is None or not path.samefile(found):
            raise ImportError(f"the module {path.stem} is already that of {found}: rename the file")
        return
    top = name.partition(".")[0]
    here = Path.cwd()
    if (here / f"{top}.py").is_file() or (here / top).is_dir():  # `regmixup` itself does not look there
        _add_folder(here)
    import_module(name)


def _add_folder(folder: Path) -> None:
    """Let this process and its children import from a folder, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])


def _import_once(name: str, source: str, run: Callable[[], object]) -> None:
    if name in _done:
        return
    _at_work.append(name)
    _by_this_import.clear()
    try:
        run()
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        own = Path(place.filename) != Path(__file__) and not place.filename.startswith("<")
        line = f" ({place.filename}, line {place.lineno})" if own else ""
        raise ValueError(
            f"plugin {name!r} {source} does not import: {type(error).__name__}: {error}{line}. Name a module that is "
            "installed, in the working directory or in PYTHONPATH, or the path of a .py file"
        ) from error
    finally:
        _at_work.pop()
    _done.add(name)


def _caller() -> dict[str, Any]:
    """Return the globals of the module that has called into this package."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "regmixup":
        frame = frame.f_back
    return frame.f_globals


def _origin(kind: str, name: str, value: object, caller: dict[str, Any], version: str) -> Origin:
    module = str(caller.get("__name__", "")).replace("__mp_main__", "__main__")
    while isinstance(value, partial):
        value = value.func
    defined = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    files = [caller.get("__file__")]
    with suppress(TypeError):  # defined in an interpreter, or by C code
        files.append(inspect.getsourcefile(defined))
    ours = str(Path(__file__).parent)
    found = {str(Path(file).resolve()) for file in files if file and Path(file).is_file()}
    sources = sorted(Path(file).read_bytes() for file in found if not file.startswith(ours))
    if not sources:  # it was typed in, as in a notebook
        sources.append(source_checksum(value).encode())
    stated = [version, caller.get("__version__")]
    stated += [getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)]
    chosen = next((str(value) for value in stated if value), "")
    return Origin(kind, name, module, chosen, hashlib.sha256(b"".join(sources)).hexdigest())
