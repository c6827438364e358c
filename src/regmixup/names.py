"""Look up names with helpful errors, make text from users safe to print, and print numbers for people."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # but for the tab


def unknown(kind: str, name: object, options: Iterable[str], *, summary: str = "") -> ValueError:
    """Return the error for an unknown name. summary: shown instead of a list that is too long to read.

    >>> print(unknown("method", "regmixpu", ["dnn", "mixup", "regmixup"]))
    unknown method 'regmixpu': did you mean 'regmixup'? Available: dnn, mixup, regmixup
    """
    listed = sorted(options)
    near = get_close_matches(str(name), listed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"unknown {kind} {name!r}: {hint}Available: {summary or ', '.join(listed) or 'none'}")


def check_name(kind: str, name: str, options: Iterable[str]) -> str:
    """Return `name` if it is one of `options`, else raise the error of `unknown`."""
    listed = list(options)
    if name not in listed:
        raise unknown(kind, name, listed)
    return name


def shortened(names: Sequence[str], most: int) -> str:
    """Return names with commas; of more than `most`, the first ones and how many there are beyond them.

    >>> shortened(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def counted(count: int, noun: str) -> str:
    """Return how many there are of something.

    >>> counted(1, "epoch"), counted(0, "epoch"), counted(1000, "class")
    ('1 epoch', '0 epochs', '1,000 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{plural if count != 1 else ''}"


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.9512)
    '95.1 %'
    """
    return f"{100 * share:.1f} %"


def signed(value: float, digits: int = 2) -> str:
    """Return a difference with its sign, the minus as printed text has it.

    >>> signed(-6.314), signed(0.25, 3)
    ('−6.31', '+0.250')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def shown(value: object) -> str:
    """Return a value as labels show it.

    >>> shown(10.0), shown(0.1), shown("mean_field")
    ('10', '0.1', 'mean_field')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text on one line without terminal escapes: characters that do not print are written out.

    Spaces of any kind become a plain one. keep: characters, such as line breaks, that stay. Names of files are as in
    `as_utf8`.

    >>> print(printable("a\n\x1b[31mb"))
    a \x1b[31mb
    """
    if text.isprintable():
        return text
    safe = ""
    for character in as_utf8(text):
        if character in keep or character.isprintable():
            safe += character
        elif character.isspace():
            safe += " "
        else:
            safe += ascii(character)[1:-1]
    return safe


def as_utf8(name: str) -> str:
    r"""Return the name of a file as UTF-8 has it, whatever the locale: bytes that are not UTF-8 are written out.

    Python stands in a surrogate for every byte of a name that the locale, such as LANG=C, cannot decode.

    >>> print(as_utf8("caf\udcc3\udca9 \udce9.jpg"))
    café \xe9.jpg
    """

    def decoded(surrogates: re.Match[str]) -> str:
        return surrogates[0].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

    return re.sub("[\udc80-\udcff]+", decoded, name)


def written_out(name: str) -> str:
    r"""Return the name of a file as `as_utf8` does, with control characters, but for the tab, written out.

    >>> print(written_out("two\nlines \udce9.jpg"))
    two\nlines \xe9.jpg
    """
    return _CONTROL.sub(lambda character: ascii(character[0])[1:-1], as_utf8(name))


def warn_user(text: str) -> None:
    """Warn at the user's line: the first frame outside of this package."""
    package = warn_user.__code__.co_filename.removesuffix("names.py")  # as frames write it, with the separator
    frames = enumerate(inspect.stack(context=0), 1)
    level = next((level for level, frame in frames if not frame.filename.startswith(package)), 2)
    warnings.warn(text, stacklevel=level)
